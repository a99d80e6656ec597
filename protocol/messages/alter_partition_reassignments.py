"""AlterPartitionReassignments (key 45): which brokers are to hold partitions; null ends a move (KIP-455).

All flexible. v1: whether the number of replicas may change (KIP-860)."""

from __future__ import annotations

from ..schema import Api, Struct, array, boolean, int16, int32, string


class ReassignablePartition(Struct):
    partition_index: int = int32()
    replicas: list[int] | None = array(int32, nullable="0+", default=None)


class ReassignableTopic(Struct):
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


class Request(Struct):
    timeout_ms: int = int32(default=60000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


class ReassignablePartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)


class ReassignableTopicResponse(Struct):
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


class Response(Struct):
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


API = Api(45, "AlterPartitionReassignments", Request, Response, versions="0-1", flexible="0+")
