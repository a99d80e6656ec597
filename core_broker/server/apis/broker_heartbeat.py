"""BrokerHeartbeat (key 63): a broker lives; the answer says whether it may lead, and whether it may stop.

The connection counts, too: when it is closed, the controller soon looks for the broker elsewhere.
"""

from __future__ import annotations

from functools import partial

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.broker_heartbeat import Request, Response
from ...cluster.controller.broker_heartbeat import BrokerHeartbeat, HeartbeatResult
from ...purgatory import Pending
from .._context import Context


def handle(request: Request, context: Context) -> Pending:
    services = context.services
    command = BrokerHeartbeat(
        request.broker_id,
        request.broker_epoch,
        request.current_metadata_offset,
        request.want_fence,
        request.want_shut_down,
        request.offline_log_dirs,
        request.cordoned_log_dirs,
    )
    timed_out = KafkaError(ErrorCode.REQUEST_TIMED_OUT)
    pending = Pending(lambda: _answer(command.fail(timed_out)))
    services.purgatory.add(pending, services.config["broker.heartbeat.interval.ms"] / 2)
    watch = services.controller.watch
    context.on_lost = partial(watch.connection_lost, context)

    def decided(result: HeartbeatResult) -> None:
        pending.complete(_answer(result))

    watch.heartbeat(command, decided, via=context)
    return pending


def _answer(result: HeartbeatResult) -> Response:
    if result.error_code:
        return Response(error_code=result.error_code)
    return Response(
        is_caught_up=result.is_caught_up, is_fenced=result.is_fenced, should_shut_down=result.should_shut_down
    )
