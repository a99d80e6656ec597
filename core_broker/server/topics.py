"""How handlers change the cluster: by a command to the controller. It answers once partitions are open."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.topic_names import why_invalid
from ..cluster.controller.common import Command
from ..cluster.controller.create_topics import new_topic
from ..purgatory import Pending

if TYPE_CHECKING:
    from ._context import Context

CONTROLLER_TIMEOUT_MS = 30_000  # of requests to the controller that name none


def check_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def code_for_missing(name: str) -> ErrorCode:
    """The error for a topic that does not exist."""
    return ErrorCode.INVALID_TOPIC_EXCEPTION if why_invalid(name) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def submit(command: Command, timeout_ms: int, answer: Callable[[Any], Any], context: Context) -> Pending:
    """Have the controller decide `command`; `answer(result)` makes the response, once the broker has applied it."""
    services = context.services
    pending = Pending(lambda: answer(command.fail(timed_out(timeout_ms))))

    def decided(result: Any) -> None:
        pending.complete(answer(result))

    services.purgatory.add(pending, timeout_ms)
    if not pending.done:
        services.controller.submit(command, decided)
    return pending


def timed_out(timeout_ms: int) -> KafkaError:
    """Of a request that the controller had so long for."""
    if timeout_ms <= 0:
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"not done: a timeout of {timeout_ms} ms leaves no time for it")
    return KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"not done within {timeout_ms} ms; it may still be done")


def create_missing(names: Iterable[str], context: Context, done: Callable[[dict[str, KafkaError]], None]) -> None:
    """Create topics with the broker's defaults; `done(errors by name)` once the others can be written to."""
    context.services.creation.create([new_topic(name) for name in names], done)
