"""RaiseLeaderEpoch (key 30001, ours): a mirrored partition's leader epoch follows its source's."""

from __future__ import annotations

from ....protocol.messages.raise_leader_epoch import Request, Response
from ...cluster.controller.common import Item
from ...cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    partitions = [(topic.name, each.index, each.leader_epoch) for topic in request.topics for each in topic.partitions]
    return submit(RaiseLeaderEpoch(partitions), CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: Item) -> Response:
    return Response(error_code=result.error_code, error_message=result.error_message)
