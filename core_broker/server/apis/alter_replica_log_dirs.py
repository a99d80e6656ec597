"""AlterReplicaLogDirs (key 34): a broker has one data directory, where everything is; another one is not found."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirTopicResult,
    Request,
    Response,
)
from .._context import Context


def handle(request: Request, context: Context) -> Response:
    found: dict[str, dict[int, int]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                found.setdefault(topic.name, {})[index] = _error_code(directory.path, topic.name, index, context)
    return Response(
        results=[
            AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=[
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=code)
                    for index, code in rows.items()
                ],
            )
            for name, rows in found.items()
        ]
    )


def _error_code(path: str, topic: str, index: int, context: Context) -> int:
    replicas = context.services.replicas
    if path != replicas.data_dir:
        return ErrorCode.LOG_DIR_NOT_FOUND
    try:
        replicas.held(topic, index).check_online()
    except KafkaError as error:
        absent = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.REPLICA_NOT_AVAILABLE if absent else error.code
    return ErrorCode.NONE
