"""Subscription by regular expression (KIP-848): which are refused."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ..patterns import Pattern, PatternError


def compile_subscription(text: str) -> Pattern:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION, with Kafka's message."""
    try:
        return Pattern(text)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None
