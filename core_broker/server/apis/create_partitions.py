"""CreatePartitions (key 37): more partitions for topics, answered when they can be written to. v2: flexible."""

from __future__ import annotations

from ....protocol.messages.create_partitions import CreatePartitionsTopicResult, Request, Response
from ...cluster.controller.common import Result
from ...cluster.controller.create_partitions import CreatePartitions
from ...purgatory import Pending
from .._context import Context
from ..topics import submit


def handle(request: Request, context: Context) -> Pending:
    command = CreatePartitions(request.topics, request.validate_only)
    return submit(command, request.timeout_ms, _answer, context)


def _answer(result: Result) -> Response:
    return Response(
        results=[
            CreatePartitionsTopicResult(name=item.name, error_code=item.error_code, error_message=item.error_message)
            for item in result.items
        ]
    )
