"""Sliding windows. The table is that of Kafka's KStreamSlidingWindowAggregateTest.testAggregateLargeInput."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators import aggregations
from isthmus.streams.engine.operators.aggregations import Aggregation
from isthmus.streams.engine.operators.sliding_windows import SlidingWindowAggregate
from isthmus.streams.engine.operators.windows import CURRENT, FINAL, SlidingWindows
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running, split, windows

ADDED = Aggregation(lambda: "0", lambda text, value: f"{text}+{value}")  # as in Kafka's tests
EVENTS = [
    ("A", "1", 10), ("A", "2", 20), ("A", "3", 22), ("A", "4", 15),
    ("B", "1", 12), ("B", "2", 13), ("B", "3", 18), ("B", "4", 19), ("B", "5", 25), ("B", "6", 14),
    ("C", "1", 11), ("C", "2", 15), ("C", "3", 16), ("C", "4", 21), ("C", "5", 23),
    ("D", "4", 11), ("D", "2", 12), ("D", "3", 29), ("D", "5", 16),
]  # fmt: skip
LAST = {
    ("A", 0): ("0+1", 10), ("A", 5): ("0+1+4", 15), ("A", 10): ("0+1+2+4", 20), ("A", 11): ("0+2+4", 20),
    ("A", 12): ("0+2+3+4", 22), ("A", 16): ("0+2+3", 22), ("A", 21): ("0+3", 22),
    ("B", 2): ("0+1", 12), ("B", 3): ("0+1+2", 13), ("B", 4): ("0+1+2+6", 14), ("B", 8): ("0+1+2+3+6", 18),
    ("B", 9): ("0+1+2+3+4+6", 19), ("B", 13): ("0+2+3+4+6", 19), ("B", 14): ("0+3+4+6", 19), ("B", 15): ("0+3+4+5", 25),
    ("B", 19): ("0+4+5", 25), ("B", 20): ("0+5", 25),
    ("C", 1): ("0+1", 11), ("C", 5): ("0+1+2", 15), ("C", 6): ("0+1+2+3", 16), ("C", 11): ("0+1+2+3+4", 21),
    ("C", 12): ("0+2+3+4", 21), ("C", 13): ("0+2+3+4+5", 23), ("C", 16): ("0+3+4+5", 23), ("C", 17): ("0+4+5", 23),
    ("C", 22): ("0+5", 23),
    ("D", 1): ("0+4", 11), ("D", 2): ("0+4+2", 12), ("D", 6): ("0+4+2+5", 16), ("D", 12): ("0+2+5", 16),
    ("D", 13): ("0+5", 16), ("D", 19): ("0+3", 29),
}  # fmt: skip


def running(emit: str, size: int = 10, aggregation: Aggregation = ADDED, grace_ms: int = 0) -> Running:
    of = SlidingWindows(size, grace_ms)
    return Running(lambda: SlidingWindowAggregate("slides", of, aggregation, emit))


def test_the_last_updates_are_those_of_kafka() -> None:
    run = running(CURRENT, grace_ms=50)
    for event in EVENTS:
        run.send(*event)
    results = zip(run.main, windows(run.main), strict=True)
    last = {(key, start): (value, event.timestamp_ms) for event, (key, start, _, value) in results}
    assert last == LAST
    assert len(run.main) == 49  # each update, as in Kafka


def test_finals_are_those_of_kafka() -> None:
    run = running(FINAL, grace_ms=10)
    for event in EVENTS:
        run.send(*event)
    assert sorted((*window, event.timestamp_ms) for event, window in zip(run.main, windows(run.main), strict=True)) == [
        ("A", 0, 10, "0+1", 10),
        ("A", 5, 15, "0+1+4", 15),
        ("B", 2, 12, "0+1", 12),
        ("B", 3, 13, "0+1+2", 13),
        ("B", 8, 18, "0+1+2+3+6", 18),
        ("C", 5, 15, "0+2", 15),
        ("C", 6, 16, "0+2+3", 16),
    ]


def test_events_before_the_first_whole_window_share_one() -> None:
    # the input of testEarlyRecordsSmallInput, with size 50
    run = running(CURRENT, size=50, grace_ms=200)
    for event in [("A", "1", 0), ("A", "2", 5), ("A", "3", 6), ("A", "4", 3), ("A", "5", 13), ("A", "6", 10)]:
        run.send(*event)
    last = {start: value for _, start, _, value in windows(run.main)}
    assert last == {
        0: "0+1+2+3+4+5+6",
        1: "0+2+3+4+5+6",
        4: "0+2+3+5+6",
        6: "0+3+5+6",
        7: "0+5+6",
        11: "0+5",
    }


def test_late_events_are_those_whose_windows_have_all_closed() -> None:
    run = running(FINAL, grace_ms=5)
    run.send("A", "1", 100)
    run.send("A", "2", 85)  # its time is in windows up to [85, 95], which with the grace lasts up to 100
    assert run.late == []
    run.send("A", "4", 101)
    run.send("A", "5", 85)
    assert [event.value for event in run.late] == ["5"]
    assert run.operator.counts["late"] == 1


def test_a_window_made_of_another_does_not_change_it() -> None:
    def add(values: list[Any], value: Any) -> list[Any]:
        values.append(value)  # changes what it is given
        return values

    run = running(CURRENT, aggregation=Aggregation(list, add), grace_ms=50)
    for value, at in [(1, 20), (2, 25), (3, 22), (4, 24)]:
        run.send("A", value, at)
    assert {start: sorted(row[0]) for (_, start), row in run.rows().items()} == {
        10: [1], 12: [1, 3], 14: [1, 3, 4], 15: [1, 2, 3, 4], 21: [2, 3, 4], 23: [2, 4], 25: [2],
    }  # fmt: skip


def test_windows_close_once_though_the_task_restarts() -> None:
    run = running(FINAL, aggregation=aggregations.count())
    run.send("A", 1, 20)
    run.send("A", 1, 23)
    assert windows(run.main) == [("A", 10, 20, 1)]
    again = run.restarted()
    assert windows(again.send("B", 1, 24)) == [("A", 13, 23, 2)]
    third = again.restarted()
    assert windows(third.advance(1_000)) == [("B", 14, 24, 1), ("A", 21, 31, 1)]
    assert third.rows() == {}


def test_a_function_that_fails_names_operator_and_record() -> None:
    with pytest.raises(RecordError, match=r"operator slides: TypeError: .* at left-0 offset 0"):
        running(CURRENT, aggregation=aggregations.total()).send("A", "x", 1)


def test_windows_that_cannot_be() -> None:
    with pytest.raises(AppError, match="at least 1 ms"):
        SlidingWindows(0)


EVENT = st.tuples(st.sampled_from("AB"), st.integers(1, 9), st.integers(0, 60))


def every_window(events: list[Any], size: int) -> dict[Any, list[Any]]:
    """By definition: what is in the window that each event ends, and in the one that begins after it."""
    found = {}
    for key, _, at in events:
        for start in (max(at - size, 0), at + 1):
            inside = [value for other, value, time in events if other == key and start <= time <= start + size]
            if inside:
                found[key, start] = inside
    return found


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)))
def test_finals_are_what_is_in_each_window(events: list[Any], cuts: list[int]) -> None:
    run = running(FINAL, aggregation=Aggregation(list, lambda a, b: sorted([*a, b])), grace_ms=100)
    for batch in split(events, cuts):
        run.batch([run.event(*each) for each in batch])
    run.advance(10_000)
    given_windows = windows(run.main)
    assert {(key, start): value for key, start, _, value in given_windows} == {
        where: sorted(values) for where, values in every_window(events, 10).items()
    }
    assert len(given_windows) == len({window[:2] for window in given_windows})
    assert run.rows() == {}


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)), st.integers(0, 20))
def test_neither_batches_nor_restarts_change_a_final_result(
    events: list[Any], cuts: list[int], restarts: list[int], grace: int
) -> None:
    def results(batches: list[Any], restarts: list[int]) -> Any:
        run = running(FINAL, aggregation=aggregations.collect(), grace_ms=grace)
        found: list[Any] = []
        for number, batch in enumerate(batches):
            run.batch([run.event(*each) for each in batch])
            if number in restarts:
                found, run = found + [*run.main, *run.late], run.restarted()
        run.advance(10_000)
        found += [*run.main, *run.late]
        late = [event.offset for event in found if event.offset >= 0]
        return sorted(windows(found)), late

    assert results(split(events, cuts), restarts) == results([[event] for event in events], [])
