"""UnregisterController (key 94): the registration of a controller that will not come back is taken back."""

from __future__ import annotations

from ....protocol.messages.unregister_controller import Request, Response
from ...cluster.controller.common import Item
from ...cluster.controller.register_controller import UnregisterController
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    return submit(UnregisterController(request.controller_id), CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: Item) -> Response:
    return Response(error_code=result.error_code, error_message=result.error_message)
