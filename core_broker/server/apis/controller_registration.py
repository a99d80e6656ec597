"""ControllerRegistration (key 70): a controller makes its addresses and features known to the active one."""

from __future__ import annotations

from ....protocol.messages.controller_registration import Request, Response
from ...cluster.controller.common import Item
from ...cluster.controller.register_controller import RegisterController
from ...cluster.image import endpoints_of, features_of
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit


def handle(request: Request, context: Context) -> Pending:
    command = RegisterController(
        request.controller_id,
        request.incarnation_id,
        endpoints_of(request.listeners),
        features_of(request.features),
    )
    return submit(command, CONTROLLER_TIMEOUT_MS, _answer, context)


def _answer(result: Item) -> Response:
    return Response(error_code=result.error_code, error_message=result.error_message)
