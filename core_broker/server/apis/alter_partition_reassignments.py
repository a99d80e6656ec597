"""AlterPartitionReassignments (key 45): replicas of partitions move, or stay where they are. v1: whether the number of
replicas may change."""

from __future__ import annotations

from ....protocol.errors import ErrorCode
from ....protocol.messages.alter_partition_reassignments import (
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    Request,
    Response,
)
from ...cluster.controller.common import Result
from ...cluster.controller.reassignments import AlterReassignments
from ...purgatory import Pending
from .._context import Context
from ..topics import submit


def handle(request: Request, context: Context) -> Pending | Response:
    if not request.topics:
        return Response(error_message="")
    may_change = request.allow_replication_factor_change
    wanted = [(topic.name, [(each.partition_index, each.replicas) for each in topic.partitions])
              for topic in request.topics]  # fmt: skip
    command = AlterReassignments(wanted, may_change)

    def answer(result: Result) -> Response:
        is_late = result.error is not None and result.error.code == ErrorCode.REQUEST_TIMED_OUT  # which says it all
        return Response(
            allow_replication_factor_change=may_change if result.error is None else True,
            error_code=0 if result.error is None else result.error.code,
            error_message=None if result.error is None or is_late else result.error.message,
            responses=[
                ReassignableTopicResponse(
                    name=item.name,
                    partitions=[
                        ReassignablePartitionResponse(
                            partition_index=each.index,
                            error_code=each.error_code,
                            error_message=None if is_late else each.error_message,
                        )
                        for each in item.partitions
                    ],
                )
                for item in result.items
            ],
        )

    return submit(command, request.timeout_ms, answer, context)
