"""DescribeQuorum (key 55): leader, voters and observers of the metadata quorum.

Flexible from the start. v1: when replicas last fetched and were caught up (KIP-836). v2: error messages, directory ids,
the voters' addresses (KIP-853)."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionRequest(Struct):
    partition_index: int = int32()


class TopicRequest(Struct):
    topic_name: str = string()
    partitions: list[PartitionRequest] = array(PartitionRequest)


class Request(Struct):
    topics: list[TopicRequest] = array(TopicRequest)


class ReplicaState(Struct):
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionData(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[ReplicaState] = array(ReplicaState)
    observers: list[ReplicaState] = array(ReplicaState)


class TopicData(Struct):
    topic_name: str = string()
    partitions: list[PartitionData] = array(PartitionData)


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class Response(Struct):
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicData] = array(TopicData)
    nodes: list[Node] = array(Node, "2+")


API = Api(55, "DescribeQuorum", Request, Response, versions="0-2", flexible="0+")
