"""Subscription by regular expression (KIP-848): which topics a pattern of a member means."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ..patterns import Pattern, PatternError

STEPS_A_TURN = 1_000_000  # some milliseconds of the loop where a pattern is hostile, some names of others


def compile_subscription(text: str) -> Pattern:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION, with Kafka's message."""
    try:
        return Pattern(text)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def resolve(pattern: Pattern, names: Sequence[str]) -> Generator[None, None, frozenset[str]]:
    """The topics of a pattern among all names of an image.

    Stops after about STEPS_A_TURN, so that the caller lets others go on before it takes the next step, and at its end.
    """
    found: set[str] = set()
    steps = 0
    for name in names:
        if pattern.matches(name):
            found.add(name)
        steps += pattern.size * len(name)
        if steps >= STEPS_A_TURN:
            steps = 0
            yield
    yield
    return frozenset(found)
