"""UnregisterBroker (key 64): a broker that will not come back is forgotten."""

from __future__ import annotations

from ....protocol.messages.unregister_broker import Request, Response
from ...cluster.controller.common import Item
from ...cluster.controller.unregister_broker import UnregisterBroker
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    return submit(UnregisterBroker(request.broker_id), CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: Item) -> Response:
    return Response(error_code=result.error_code, error_message=result.error_message)
