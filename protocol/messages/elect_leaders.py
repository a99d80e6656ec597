"""ElectLeaders (key 43): the preferred replica (0), or any live one where there is no leader (1), is to lead.

v1: kinds of election, an error for the whole answer (KIP-460). v2: flexible."""

from __future__ import annotations

from ..schema import Api, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class Request(Struct):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60000)


class PartitionResult(Struct):
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string()
    partition_result: list[PartitionResult] = array(PartitionResult)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


API = Api(43, "ElectLeaders", Request, Response, versions="0-2", flexible="2+")
