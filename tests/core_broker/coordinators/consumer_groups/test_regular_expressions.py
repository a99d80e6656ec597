"""Topics by pattern: what is refused, and that no pattern takes long. That Kafka means the same is for
integration_tests/groups/test_topics_are_kafkas.py."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups.regular_expressions import (
    NAMES_A_TURN,
    compile_subscription,
    resolve,
)
from isthmus.protocol.errors import ErrorCode, KafkaError


def test_a_pattern_that_is_none_is_refused_in_kafkas_words():
    with pytest.raises(KafkaError) as refused:
        compile_subscription("(a")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message == "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing )."


def test_the_topics_of_a_pattern_and_a_rest_for_others_after_some():
    names = [f"{kind}-{number}" for number in range(NAMES_A_TURN) for kind in ("order", "payment", "orders")]
    turns = resolve(compile_subscription("order-.*"), names)
    for _ in range(3):
        next(turns)
    with pytest.raises(StopIteration) as done:
        next(turns)
    assert done.value.value == {name for name in names if name.startswith("order-")}
