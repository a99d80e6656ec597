"""Topics by pattern: what is refused, and that no pattern takes long. That Kafka means the same is for
integration_tests/groups/test_topics_are_kafkas.py."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups.regular_expressions import (
    STEPS_A_TURN,
    compile_subscription,
    resolve,
)
from isthmus.protocol.errors import ErrorCode, KafkaError


def test_a_pattern_that_is_none_is_refused_in_kafkas_words():
    with pytest.raises(KafkaError) as refused:
        compile_subscription("(a")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message == "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing )."


def turns(pattern: str, names: list[str]) -> tuple[int, frozenset[str]]:
    """How often the others had a turn, and what was found."""
    count, steps = 0, resolve(compile_subscription(pattern), names)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return count, done.value
        count += 1


def test_the_topics_of_a_pattern_and_a_turn_of_others_at_its_end():
    names = [f"{kind}-{number}" for number in range(10) for kind in ("order", "payment", "orders")]
    assert turns("order-.*", names) == (1, {name for name in names if name.startswith("order-")})
    assert turns("order-.*", []) == (1, frozenset())


def test_others_have_their_turn_after_a_few_names_of_a_hostile_pattern():
    hostile = "|".join(f"(.*[a-z]){{200}}{end}" for end in "bcdefghij")
    names = [f"{index:0249}" for index in range(50)]
    assert compile_subscription(hostile).size * 249 > STEPS_A_TURN
    assert turns(hostile, names) == (len(names) + 1, frozenset())
    assert turns("order-.*", names)[0] == 1
