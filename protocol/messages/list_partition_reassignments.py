"""ListPartitionReassignments (key 46): partitions on their way to other brokers; null asks for all (KIP-455)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class ListPartitionReassignmentsTopics(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32)


class Request(Struct):
    timeout_ms: int = int32(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = array(
        ListPartitionReassignmentsTopics, nullable="0+", default=None
    )


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32)
    adding_replicas: list[int] = array(int32)
    removing_replicas: list[int] = array(int32)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


API = Api(46, "ListPartitionReassignments", Request, Response, versions="0", flexible="0+")
