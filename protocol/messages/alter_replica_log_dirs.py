"""AlterReplicaLogDirs (key 34): partitions of a broker move to another of its data directories (KIP-113).

v2: flexible."""

from __future__ import annotations

from ..schema import Api, Struct, array, int16, int32, string


class AlterReplicaLogDirTopic(Struct):
    name: str = string()
    partitions: list[int] = array(int32)


class AlterReplicaLogDir(Struct):
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


class Request(Struct):
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: int = int32()
    error_code: int = int16()


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


class Response(Struct):
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)


API = Api(34, "AlterReplicaLogDirs", Request, Response, versions="1-2", flexible="2+")
