"""AssignReplicasToDirs (key 73): a broker says in which of its directories its replicas lie."""

from __future__ import annotations

from itertools import groupby

from ....protocol.messages.assign_replicas_to_dirs import (
    DirectoryResult,
    PartitionResult,
    Request,
    Response,
    TopicResult,
)
from ...cluster.controller.assign_directories import AssignDirectories, AssignedTopic
from ...cluster.controller.common import Result
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    command = AssignDirectories(
        request.broker_id,
        request.broker_epoch,
        [
            (directory.id, topic.topic_id, [each.partition_index for each in topic.partitions])
            for directory in request.directories
            for topic in directory.topics
        ],
    )
    return submit(command, CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: Result) -> Response:
    if result.error is not None:
        return Response(error_code=result.error.code)
    by_directory = groupby(result.items, lambda item: item.directory)
    return Response(directories=[DirectoryResult(id=id_, topics=[*map(_topic, items)]) for id_, items in by_directory])


def _topic(item: AssignedTopic) -> TopicResult:
    rows = [PartitionResult(partition_index=each.index, error_code=each.error_code) for each in item.partitions]
    return TopicResult(topic_id=item.topic_id, partitions=rows)
