"""Duplicates are dropped within a time, and forgotten after it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators.dedup import Dedup
from isthmus.streams.engine.operators.origin_dedup import OriginDedup
from isthmus.streams.engine.origin import Copy, Origins, current_origins
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running, split


def running(within: int = 10, **options: Any) -> Running:
    return Running(lambda: Dedup("once", within, **options))


def test_an_event_is_a_duplicate_within_the_time_in_either_direction() -> None:
    run = running(grace_ms=100)
    for at in (100, 110, 111, 99, 102):
        run.send("a", at, at)
    assert [event.value for event in run.main] == [100, 111]
    assert run.operator.counts == {"duplicates": 3, "late": 0}


def test_the_id_may_be_made_of_the_value() -> None:
    run = running(id_of=lambda value: value["id"])
    run.send("a", {"id": 1, "n": 1}, 1)
    run.send("b", {"id": 1, "n": 2}, 1)
    run.send("b", {"id": 2, "n": 3}, 1)
    assert [event.value["n"] for event in run.main] == [1, 3]


def test_ids_are_known_after_a_restart_and_forgotten_in_time() -> None:
    run = running(grace_ms=5)
    run.send("a", 1, 0)
    run = run.restarted()
    run.send("a", 2, 10)
    assert run.main == []
    run.send("b", 3, 15)
    assert run.rows() == {"a": [0], "b": [15]}
    run.send("b", 4, 16)
    assert run.rows() == {"b": [15]}


@pytest.mark.parametrize("cuts", [[1, 2, 3], []], ids=["one by one", "at once"])
def test_an_event_is_late_when_what_it_may_repeat_is_forgotten(cuts: list[int]) -> None:
    run = running(grace_ms=5)
    for some in split([("a", 1, 0), ("x", 2, 16), ("a", 3, 10), ("c", 4, 11)], cuts):  # 10 is of 0, which is forgotten
        run.batch([run.event(*each) for each in some])
    assert [event.value for event in run.late] == [3]
    assert [event.value for event in run.main] == [1, 2, 4]


def test_bad_input() -> None:
    with pytest.raises(AppError, match="dedup once: within 0 ms"):
        running(0)
    with pytest.raises(RecordError, match="operator once: KeyError: 'id', at left-0 offset 0"):
        running(id_of=lambda value: value["id"]).send("a", {}, 1)
    with pytest.raises(RecordError, match="cannot be a table's key"):
        running(id_of=lambda value: [value]).send("a", 1, 1)


EVENT = st.tuples(st.sampled_from("AB"), st.integers(0, 9), st.integers(0, 60))


@given(st.lists(EVENT, max_size=40), st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
def test_no_two_results_are_near_and_none_is_missing(events: list[Any], cuts: list[int], restarts: list[int]) -> None:
    run = running(grace_ms=8)
    main: list[Any] = []
    late: list[Any] = []
    for number, batch in enumerate(split(events, cuts)):
        run.batch([run.event(*each) for each in batch])
        if number in restarts:
            main, late, run = main + run.main, late + run.late, run.restarted()
    main, late = main + run.main, late + run.late
    for n, one in enumerate(main):
        assert not any(one.key == other.key and abs(one.timestamp_ms - other.timestamp_ms) <= 10 for other in main[:n])
    kept = {event.offset for event in main}
    dropped = set(range(len(events))) - kept - {event.offset for event in late}
    for offset in dropped:
        key, _, at = events[offset]
        assert any(key == event.key and abs(at - event.timestamp_ms) <= 10 for event in main if event.offset < offset)


def test_a_record_whose_offset_at_its_origin_is_not_known_is_told_of_and_left_out() -> None:
    failed: list[Exception] = []
    run = Running(lambda: OriginDedup("once"), failed=lambda name, event, error: failed.append(error))
    token = current_origins.set(Origins("hub", {"left": Copy("mm", "orders", keeps_offsets=False)}))
    try:
        assert run.send("k", "v", 0) == [] and run.rows() == {}
    finally:
        current_origins.reset(token)
    assert [type(each) for each in failed] == [RecordError] and "in mm is not known" in str(failed[0])
