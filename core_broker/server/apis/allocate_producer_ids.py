"""AllocateProducerIds (key 67): a block of producer ids for a broker (KIP-730)."""

from __future__ import annotations

from ....protocol.messages.allocate_producer_ids import Request, Response
from ...cluster.controller.producer_ids import AllocateProducerIds, ProducerIdBlock
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    command = AllocateProducerIds(broker_id=request.broker_id, broker_epoch=request.broker_epoch)
    return submit(command, CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: ProducerIdBlock) -> Response:
    if result.error_code:
        return Response(error_code=result.error_code)
    return Response(producer_id_start=result.first_producer_id, producer_id_len=result.count)
