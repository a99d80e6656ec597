"""What is done with a record that cannot be decoded or processed, and what a dead letter is (KIP-1034)."""

from __future__ import annotations

import traceback
from collections.abc import Callable

from ..errors import AppError
from .event import Headers

FAIL, STOP, SKIP, DEAD_LETTER = "fail", "stop", "skip", "dead_letter"
POLICIES = {
    FAIL: "the record's task ends, and is tried again after a pause that grows; other tasks go on",
    STOP: "the worker ends with the error",
    SKIP: "the record is left out, and that is logged",
    DEAD_LETTER: "the record is written to the app's topic of dead letters, and left out",
}
Handler = Callable[[str, int, int, BaseException], str]  # (topic, partition, offset, error) -> policy
OnError = str | Handler

STACKTRACE_MAX = 16_384  # characters of a traceback in a header


def check(policy: OnError, what: str) -> OnError:
    """Raises AppError for what is no policy."""
    if callable(policy) or policy in POLICIES:
        return policy
    said = "; ".join(f"{name}: {doc}" for name, doc in POLICIES.items())
    raise AppError(f"{what}: on_error is {policy!r}, but must be a function or one of {said}")


def is_written(policy: OnError) -> bool:
    """Whether dead letters may be written by it."""
    return callable(policy) or policy == DEAD_LETTER


def decided(policy: OnError, topic: str, partition: int, offset: int, error: BaseException) -> str:
    """The policy for one record; that of a handler which fails itself is `fail`."""
    if not callable(policy):
        return policy
    said = policy(topic, partition, offset, error)
    if said not in POLICIES:
        raise AppError(f"on_error={policy!r} returned {said!r}, but must return one of {', '.join(POLICIES)}")
    return said


def dead_letter_headers(
    own: Headers, topic: str, partition: int, offset: int, error: BaseException, by: str
) -> Headers:
    """Headers of a dead letter: the record's own, and where it comes from and why, with the names of KIP-1034. by: the
    agent, or what else has refused it."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    trace = "".join(traceback.format_exception(cause))[-STACKTRACE_MAX:]
    said = {
        "__streams.errors.exception": f"{type(cause).__module__}.{type(cause).__qualname__}",
        "__streams.errors.message": str(error),
        "__streams.errors.stacktrace": trace,
        "__streams.errors.topic": topic,
        "__streams.errors.partition": str(partition),
        "__streams.errors.offset": str(offset),
        "__streams.errors.processor": by,
    }
    return (*own, *((name, text.encode("utf-8", "replace")) for name, text in said.items()))
