"""InitProducerId (key 22): an id and epoch for an idempotent or a transactional producer.

v3: a producer may name the id and epoch it has; without a transactional id it is given a new id all the same. With one,
all of it is the transaction coordinator's (`coordinators/transactions/requests.py`).
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.init_producer_id import Request, Response
from ...purgatory import Pending
from .._context import Context

NONE = -1


def handle(request: Request, context: Context) -> Any:
    if request.transactional_id == "":
        return _failed(ErrorCode.INVALID_REQUEST)
    if (request.producer_id == NONE) != (request.producer_epoch == NONE):
        return _failed(ErrorCode.INVALID_REQUEST)
    services = context.services
    if request.transactional_id is not None:
        return services.transactions.requests.init_producer_id(request, context.version)
    producer_id = services.producer_ids.take()
    if producer_id is not None:
        return Response(producer_id=producer_id)

    def given(outcome: int | KafkaError) -> None:
        if isinstance(outcome, KafkaError):
            pending.complete(_failed(outcome.code))
        else:
            pending.complete(Response(producer_id=outcome))

    pending = Pending(lambda: _failed(ErrorCode.REQUEST_TIMED_OUT))
    services.producer_ids.wait(given)
    return services.purgatory.add(pending, services.config["request.timeout.ms"])


def _failed(code: int) -> Response:
    return Response(error_code=code, producer_id=NONE, producer_epoch=NONE)
