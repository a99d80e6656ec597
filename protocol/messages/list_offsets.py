"""ListOffsets (key 2): offsets by timestamp, or by these special timestamps.

-1 latest, -2 earliest, -3 of the largest timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9), -6 earliest
pending upload (v11).
v1: one offset a partition. v2: isolation level. v4: leader epochs. v6: flexible. v10: timeout."""

from __future__ import annotations

from ..schema import Api, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class Request(Struct):
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class Response(Struct):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)


API = Api(2, "ListOffsets", Request, Response, versions="1-11", flexible="6+")
