"""Subscriptions by regular expression: when a group's patterns are matched, and what comes of it."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups import records
from isthmus.core_broker.coordinators.consumer_groups.matching import MAX_INTERVAL_MS, MIN_INTERVAL_MS
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError

from .table import Cluster, Table

ALL = {"t": [0, 1, 2, 3]}


def by_pattern(table: Table, member_id: str, pattern: str) -> int:
    return table.join(member_id, None, subscribed_topic_regex=pattern).member_epoch


def matched_once() -> Table:
    """One member with a pattern whose topics are known and assigned."""
    table = Table()
    by_pattern(table, "a", "t.*")
    table.match(**{"t.*": ["t"]})
    table.beat("a", 1)
    return table


def test_a_new_pattern_has_no_topics_until_it_is_matched():
    table = Table()
    assert by_pattern(table, "a", "t.*") == 1
    assert table.has("a") == {} and table.patterns == ("t.*",)
    table.match(**{"t.*": ["t"]})
    assert table.kinds()[-2:] == ["RegularExpression", "Metadata"]
    answer = table.beat("a", 1)
    assert (answer.member_epoch, table.told(answer)) == (2, ALL)


def test_a_pattern_that_is_known_is_good_at_once():
    table = matched_once()
    assert by_pattern(table, "b", "t.*") == 3
    assert table.patterns == ()


def test_matches_that_change_nothing_raise_no_epoch():
    table = matched_once()
    table.match(**{"t.*": ["t"]})
    assert table.group.epoch == 2 and table.kinds()[-1] == "RegularExpression"


def test_names_and_a_pattern_together_mean_both():
    table = Table()
    table.join("a", ["u"], subscribed_topic_regex="t")
    table.match(t=["t"])
    answer = table.beat("a", 2)
    assert table.told(answer) == {**ALL, "u": [0, 1]}


def test_topics_that_match_no_more_are_taken_away():
    table = matched_once()
    table.match(**{"t.*": []})
    assert table.told(table.beat("a", 2)) == {}


def test_the_last_member_with_a_pattern_takes_it_along():
    table = matched_once()
    by_pattern(table, "b", "t.*")
    table.beat("a", -1)
    assert "t.*" in table.group.resolved and table.group.is_subscribed("t")
    table.beat("b", -1)
    assert not table.group.resolved and not table.group.is_subscribed("t")


def test_a_member_that_gives_its_pattern_up_reads_by_name_again():
    table = matched_once()
    answer = table.beat("a", 2, has=ALL, subscribed_topic_regex="", subscribed_topic_names=["u"])
    assert table.told(answer) == {}
    assert not table.group.resolved
    assert table.told(table.beat("a", 2, has={})) == {"u": [0, 1]}


def test_matches_that_nobody_waits_for_any_more_are_dropped():
    table = Table()
    by_pattern(table, "a", "t.*")
    table.beat("a", -1)
    written = len(table.log)
    table.match(**{"t.*": ["t"]})
    assert len(table.log) == written


def test_a_pattern_that_is_none_is_refused_in_kafkas_words():
    with pytest.raises(KafkaError) as refused:
        by_pattern(Table(), "a", "(a")
    assert refused.value.code == E.INVALID_REGULAR_EXPRESSION
    assert refused.value.message == "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing )."


def test_a_pattern_that_is_none_is_refused_and_leaves_no_trace():
    table = Table()
    with pytest.raises(KafkaError) as caught:
        by_pattern(table, "a", "[")
    assert caught.value.code == E.INVALID_REGULAR_EXPRESSION
    assert not table.log


def test_patterns_are_matched_again_for_new_topics_but_not_too_often():
    cluster = Cluster(t=1)
    table = Table(cluster)
    by_pattern(table, "a", "t.*")
    table.match(**{"t.*": ["t"]})
    cluster.create("t2", 1)
    table.now_ms += MIN_INTERVAL_MS
    table.beat("a", 1)
    assert table.patterns == ()
    table.now_ms += 1
    table.beat("a", 2)
    assert table.patterns == ("t.*",)
    table.match(**{"t.*": ["t", "t2"]})
    assert table.told(table.beat("a", 2)) == {"t": [0], "t2": [0]}


def test_matches_of_a_coordinator_whose_clock_was_ahead_hold_up_no_others():
    table = Table()
    table.now_ms += 10_000_000
    by_pattern(table, "a", "t.*")
    table.match(**{"t.*": ["t"]})
    table.now_ms -= 10_000_000
    by_pattern(table, "b", "u.*")
    assert table.patterns == ("t.*", "u.*")


def test_patterns_are_matched_again_after_a_long_time():
    table = matched_once()
    table.now_ms += MAX_INTERVAL_MS
    table.beat("a", 2)
    assert table.patterns == ()
    table.now_ms += 1
    table.beat("a", 2)
    assert table.patterns == ("t.*",)


def test_a_pattern_that_comes_too_soon_after_the_last_match_is_matched_later():
    table = matched_once()
    by_pattern(table, "b", "u")
    assert table.patterns == ()
    table.now_ms += MIN_INTERVAL_MS + 1
    table.beat("b", 2)
    assert sorted(table.patterns) == ["t.*", "u"]


def test_a_pattern_of_records_that_was_never_matched_is_matched_at_the_next_heartbeat():
    table = Table()
    by_pattern(table, "a", "t.*")
    table.patterns = ()
    table.restart()
    table.beat("a", 1)
    assert table.patterns == ("t.*",)


def test_the_record_of_a_match_has_its_topics_in_order():
    (_, value) = records.regular_expression("g", "x", {"b", "a"}, 3, 4)
    assert (value.topics, value.version, value.timestamp) == (["a", "b"], 3, 4)


def test_what_a_member_with_another_pattern_had_goes_to_others_even_if_that_matches_nothing():
    table = matched_once()
    by_pattern(table, "b", "t.*")
    table.beat("a", 2, has=ALL)
    table.beat("a", 2, has={"t": [0, 1]})
    table.beat("b", 3)
    table.now_ms += MIN_INTERVAL_MS + 1
    table.beat("a", 3, has={"t": [0, 1]}, subscribed_topic_regex="z.*")
    table.match(**{"t.*": ["t"], "z.*": []})
    table.beat("a", 3, has={})
    table.beat("b", 3, has=table.has("b"))
    assert table.has("b") == ALL
    assert by_pattern(table, "c", "y.*") == table.group.epoch
    table.match(**{"y.*": []})
    assert table.group.epoch == table.member("c").epoch, "it leaves nothing"
