"""Suppressed updates. The tables are those of Kafka's SuppressScenarioTest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators.suppress import Suppress
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.engine.operators.windows import WindowResult
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running, plain, split


def running(limit: int = 2) -> Running:
    return Running(lambda: Suppress("calm", limit))


def test_what_is_given_is_what_kafka_gives() -> None:
    # shouldSuppressIntermediateEventsWithTimeLimit: its raw output, as plain updates
    run = running()
    given = [
        run.batch([run.event(key, count, at) for key, count, at in updates])
        for updates in (
            [("v1", 1, 0), ("v1", 0, 1), ("v2", 1, 1), ("v1", 1, 2)],
            [("tick", 1, 3)],
            [("tick", 0, 4), ("tock", 1, 4)],
        )
    ]
    # In Kafka v1 is given as (1, 2), since its time is over only when the update at 2 has become part of it.
    assert [plain(each) for each in given] == [[("v1", 0, 1)], [("v2", 1, 1)], [("v1", 1, 2)]]


def test_each_window_of_a_key_is_held_by_itself() -> None:
    run = running(5)
    for value, start, at in [(1, 0, 1), (1, 10, 2), (2, 0, 3)]:
        run.send("k", WindowResult("k", start, start + 10, value, 0), at)
    run = run.restarted()
    found = run.advance(6) + run.advance(7)
    assert [(event.value, event.timestamp_ms, event.offset) for event in found] == [
        (WindowResult("k", 0, 10, 2, 0), 3, 2),
        (WindowResult("k", 10, 20, 1, 0), 2, 1),
    ]
    assert run.rows() == {}


def test_updates_of_one_time_are_in_their_order_after_a_restart_whatever_their_keys() -> None:
    run = running(5)
    run.send("a", 1, 0)
    run = run.restarted()
    run.send(1, 1, 0)  # keys that cannot be compared
    assert [event.key for event in run.advance(10)] == ["a", 1]


def test_changes_are_joined_and_those_that_change_nothing_are_dropped() -> None:
    run = running(5)
    run.send("a", Change(1, 2), 0)
    run.send("a", Change(2, None), 1)
    run.send("b", Change(1, 2), 0)
    run.send("b", Change(2, 1), 1)
    assert [(event.key, event.value) for event in run.advance(10)] == [("a", Change(1, None))]


def test_what_is_given_is_not_late_downstream() -> None:
    run = running(5)
    run.send("a", 1, 10)
    [event] = run.advance(15)
    assert event.watermark_ms <= event.timestamp_ms and run.operator.hold_ms == 5


def test_an_update_that_is_late_is_given_at_once() -> None:
    run = running(5)
    run.send("a", 1, 100)
    assert plain(run.send("b", 1, 95)) == [("b", 1, 95)]


def test_bad_input() -> None:
    with pytest.raises(AppError, match="suppress calm: a time of 0 ms"):
        running(0)
    with pytest.raises(RecordError, match="cannot be a table's key"):
        running().send([], 1, 1)
    run = running()
    run.send(None, 1, 1)
    assert run.operator.counts == {"skipped": 1}


EVENT = st.tuples(st.sampled_from("AB"), st.integers(0, 9), st.integers(0, 40))


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)))
def test_batches_change_no_result(events: list[Any], cuts: list[int]) -> None:
    def results(batches: list[Any]) -> Any:
        run = running(7)
        for batch in batches:
            run.batch([run.event(*each) for each in batch])
        run.advance(1_000)
        return [(*each, event.offset) for each, event in zip(plain(run.main), run.main, strict=True)]

    assert results(split(events, cuts)) == results([[event] for event in events])
