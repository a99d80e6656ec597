"""AssignReplicasToDirs (key 73): a broker tells the controller in which log directories its replicas lie (KIP-858).

Flexible from the start."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32()


class TopicData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DirectoryData(Struct):
    id: bytes = uuid()
    topics: list[TopicData] = array(TopicData)


class Request(Struct):
    broker_id: int = int32()
    broker_epoch: int = int64(default=-1)
    directories: list[DirectoryData] = array(DirectoryData)


class PartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class TopicResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DirectoryResult(Struct):
    id: bytes = uuid()
    topics: list[TopicResult] = array(TopicResult)


class Response(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    directories: list[DirectoryResult] = array(DirectoryResult)


API = Api(73, "AssignReplicasToDirs", Request, Response, versions="0", flexible="0+")
