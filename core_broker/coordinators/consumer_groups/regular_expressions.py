"""Subscription by regular expression (KIP-848): which topics a pattern of a member means."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ..patterns import Pattern, PatternError

NAMES_A_TURN = 100  # a hostile pattern takes a millisecond of the loop for a long name, others a microsecond


def compile_subscription(text: str) -> Pattern:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION, with Kafka's message."""
    try:
        return Pattern(text)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def resolve(pattern: Pattern, names: Sequence[str]) -> Generator[None, None, frozenset[str]]:
    """The topics of a pattern among all names of an image.

    Stops after every NAMES_A_TURN names, so that the caller lets others go on before it takes the next step.
    """
    found: set[str] = set()
    for start in range(0, len(names), NAMES_A_TURN):
        found.update(filter(pattern.matches, names[start : start + NAMES_A_TURN]))
        yield
    return frozenset(found)
