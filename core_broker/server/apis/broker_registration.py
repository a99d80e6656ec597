"""BrokerRegistration (key 62): a process of a broker joins the cluster, and is given its epoch.

v3: the epoch before a clean stop; from a broker that cannot say it, each stop counts as unclean.
"""

from __future__ import annotations

import logging

from ....protocol.errors import ErrorCode
from ....protocol.messages.broker_registration import Request, Response
from ...cluster.controller.register_broker import RegisterBroker, RegisteredBroker
from ...cluster.image import endpoints_of, features_of
from ...purgatory import Pending
from .._context import Context
from ..topics import CONTROLLER_TIMEOUT_MS, submit

FOR_GOOD = (  # errors that no wait ends
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.INVALID_REGISTRATION,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)

log = logging.getLogger(__name__)


def handle(request: Request, context: Context) -> Pending:
    command = RegisterBroker(
        request.broker_id,
        request.incarnation_id,
        endpoints_of(request.listeners),
        request.cluster_id,
        request.rack,
        features_of(request.features),
        request.log_dirs,
        request.previous_broker_epoch,
    )

    def answer(result: RegisteredBroker) -> Response:
        if result.error_code in FOR_GOOD:  # the answer has no room for the reason
            log.warning("broker %d is refused: %s", request.broker_id, result.error_message)
        return Response(error_code=result.error_code, broker_epoch=result.broker_epoch)

    return submit(command, CONTROLLER_TIMEOUT_MS, answer, context)
