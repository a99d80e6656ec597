"""Topics by pattern: what is refused. That Kafka means the same: integration_tests/groups/test_topics_are_kafkas.py."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups.regular_expressions import compile_subscription
from isthmus.protocol.errors import ErrorCode, KafkaError


def test_a_pattern_that_is_none_is_refused_in_kafkas_words():
    with pytest.raises(KafkaError) as refused:
        compile_subscription("(a")
    assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert refused.value.message == "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing )."
