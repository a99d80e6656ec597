"""Tumbling and hopping windows. The tables are those of Kafka's KStreamWindowAggregateTest and
TimeWindowedKStreamIntegrationTest; where a result's timestamp differs from theirs, the test says so."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators import aggregations
from isthmus.streams.engine.operators.aggregations import Aggregation
from isthmus.streams.engine.operators.time_windows import TimeWindowAggregate
from isthmus.streams.engine.operators.windows import CURRENT, FINAL, TimeWindows
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running, split, windows

ADDED = Aggregation(lambda: "0", lambda text, value: f"{text}+{value}")  # as in Kafka's tests
EVENTS = [
    ("A", "1", 0), ("B", "2", 1), ("C", "3", 2), ("D", "4", 3), ("A", "1", 4),
    ("A", "1", 5), ("B", "2", 6), ("D", "4", 7), ("B", "2", 8), ("C", "3", 9),
    ("A", "1", 10), ("B", "2", 11), ("D", "4", 12), ("B", "2", 13), ("C", "3", 14),
    ("B", "1", 3), ("B", "2", 2), ("B", "3", 9),
]  # fmt: skip


def running(
    emit: str, size: int, step: int | None = None, aggregation: Aggregation = ADDED, bound_ms: int = 0, **options: Any
) -> Running:
    of = TimeWindows(size, step or size, **options)
    return Running(lambda: TimeWindowAggregate("counts", of, aggregation, emit), bound_ms=bound_ms)


def test_hopping_updates_are_those_of_kafka() -> None:
    run = running(CURRENT, 10, 5, grace_ms=100)
    for event in EVENTS:
        run.send(*event)
    assert [(*window, event.timestamp_ms) for window, event in zip(windows(run.main), run.main, strict=True)] == [
        ("A", 0, 10, "0+1", 0),
        ("B", 0, 10, "0+2", 1),
        ("C", 0, 10, "0+3", 2),
        ("D", 0, 10, "0+4", 3),
        ("A", 0, 10, "0+1+1", 4),
        ("A", 0, 10, "0+1+1+1", 5),
        ("A", 5, 15, "0+1", 5),
        ("B", 0, 10, "0+2+2", 6),
        ("B", 5, 15, "0+2", 6),
        ("D", 0, 10, "0+4+4", 7),
        ("D", 5, 15, "0+4", 7),
        ("B", 0, 10, "0+2+2+2", 8),
        ("B", 5, 15, "0+2+2", 8),
        ("C", 0, 10, "0+3+3", 9),
        ("C", 5, 15, "0+3", 9),
        ("A", 5, 15, "0+1+1", 10),
        ("A", 10, 20, "0+1", 10),
        ("B", 5, 15, "0+2+2+2", 11),
        ("B", 10, 20, "0+2", 11),
        ("D", 5, 15, "0+4+4", 12),
        ("D", 10, 20, "0+4", 12),
        ("B", 5, 15, "0+2+2+2+2", 13),
        ("B", 10, 20, "0+2+2", 13),
        ("C", 5, 15, "0+3+3", 14),
        ("C", 10, 20, "0+3", 14),
        ("B", 0, 10, "0+2+2+2+1", 8),
        ("B", 0, 10, "0+2+2+2+1+2", 8),
        ("B", 0, 10, "0+2+2+2+1+2+3", 9),
        ("B", 5, 15, "0+2+2+2+2+3", 13),
    ]


def test_nothing_is_final_within_the_grace() -> None:
    run = running(FINAL, 10, 5, grace_ms=100)
    for event in EVENTS:
        run.send(*event)
    assert run.main == []


def test_hopping_finals_are_those_of_kafka() -> None:
    run = running(FINAL, 10, 5, grace_ms=5)
    for event in [("A", "1", 0), ("B", "2", 1), ("C", "3", 2), ("D", "4", 3), ("A", "1", 9)]:
        assert run.send(*event) == []
    first = run.send("A", "1", 15)
    assert windows(first) == [("A", 0, 10, "0+1+1"), ("B", 0, 10, "0+2"), ("C", 0, 10, "0+3"), ("D", 0, 10, "0+4")]
    for event in [("A", "1", 10), ("B", "2", 11), ("D", "4", 12), ("B", "2", 13), ("C", "3", 14)]:
        assert run.send(*event) == []
    # On purpose not in Kafka's order, by key: results of a window come in the order of their keys' first events.
    assert sorted(windows(run.send("A", "1", 20))) == [
        ("A", 5, 15, "0+1+1"),
        ("B", 5, 15, "0+2+2"),
        ("C", 5, 15, "0+3"),
        ("D", 5, 15, "0+4"),
    ]
    # On purpose not as in Kafka, where it is the greatest timestamp in the window: all are at its last millisecond.
    assert {event.timestamp_ms for event in first} == {9}


# shouldAggregateWindowedWithNoGrace and ...WithGrace of TimeWindowedKStreamIntegrationTest: size 10, step 5.
AROUND_THE_END = [
    ("A", "1", 0),
    ("A", "2", 5),
    ("A", "3", 10),
    ("B", "4", 6),
    ("B", "5", 11),
    ("B", "6", 15),
    ("C", "7", 25),
]


@pytest.mark.parametrize(
    ("grace", "emit", "expected"),
    [
        (0, CURRENT, [
            ("A", 0, 10, "0+1"), ("A", 0, 10, "0+1+2"), ("A", 5, 15, "0+2"), ("A", 5, 15, "0+2+3"),
            ("A", 10, 20, "0+3"),
            ("B", 5, 15, "0+4"), ("B", 5, 15, "0+4+5"), ("B", 10, 20, "0+5"), ("B", 10, 20, "0+5+6"),
            ("B", 15, 25, "0+6"), ("C", 20, 30, "0+7"), ("C", 25, 35, "0+7"),
        ]),
        (0, FINAL, [
            ("A", 0, 10, "0+1+2"), ("A", 5, 15, "0+2+3"), ("B", 5, 15, "0+4+5"),
            ("A", 10, 20, "0+3"), ("B", 10, 20, "0+5+6"), ("B", 15, 25, "0+6"),
        ]),
        (5, CURRENT, [
            ("A", 0, 10, "0+1"), ("A", 0, 10, "0+1+2"), ("A", 5, 15, "0+2"), ("A", 5, 15, "0+2+3"),
            ("A", 10, 20, "0+3"),
            ("B", 0, 10, "0+4"), ("B", 5, 15, "0+4"), ("B", 5, 15, "0+4+5"), ("B", 10, 20, "0+5"),
            ("B", 10, 20, "0+5+6"), ("B", 15, 25, "0+6"), ("C", 20, 30, "0+7"), ("C", 25, 35, "0+7"),
        ]),
        (5, FINAL, [
            ("A", 0, 10, "0+1+2"), ("B", 0, 10, "0+4"), ("A", 5, 15, "0+2+3"), ("B", 5, 15, "0+4+5"),
            ("A", 10, 20, "0+3"), ("B", 10, 20, "0+5+6"),
        ]),
    ],
)  # fmt: skip
def test_grace_decides_what_a_window_takes_after_its_end(grace: int, emit: str, expected: list[Any]) -> None:
    # Kafka gives two finals less: its retention is so short that its store has dropped the windows unseen.
    run = running(emit, 10, 5, grace_ms=grace)
    for event in AROUND_THE_END:
        run.send(*event)
    assert windows(run.main) == expected
    assert run.late == [] and run.operator.counts["partly_late"] == (1 if grace == 0 else 0)


def test_a_late_event_goes_to_the_second_output() -> None:
    run = running(FINAL, 10, grace_ms=5)
    for event in [("A", "1", 0), ("A", "2", 14), ("A", "3", 9), ("A", "4", 15), ("A", "5", 9)]:
        run.send(*event)
    assert windows(run.main) == [("A", 0, 10, "0+1+3")]
    assert [(event.value, event.offset) for event in run.late] == [("5", 4)]
    assert run.operator.counts == {"late": 1, "partly_late": 0, "skipped": 0}


def test_an_event_is_added_to_those_of_its_windows_that_are_open() -> None:
    run = running(CURRENT, 10, 5, aggregations.count())
    run.send("A", "v", 11)
    run.main.clear()
    run.send("A", "v", 7)  # [0, 10) has closed, [5, 15) has not
    assert windows(run.main) == [("A", 5, 15, 2)]
    assert run.late == [] and run.operator.counts["partly_late"] == 1


@pytest.mark.parametrize("emit", [CURRENT, FINAL])
def test_closed_windows_leave_no_rows(emit: str) -> None:
    run = running(emit, 10, grace_ms=5)
    run.send("A", "1", 3)
    run.send("A", "1", 14)
    assert len(run.rows()) == 2
    run.send("A", "1", 15)
    assert run.rows() == {("A", 10): ["0+1+1", 15, 2 if emit == CURRENT else 0]}


def test_retention_keeps_closed_windows_but_they_take_no_events() -> None:
    run = running(FINAL, 10, retention_ms=30)
    run.send("A", "1", 3)
    run.send("A", "1", 29)
    assert windows(run.main) == [("A", 0, 10, "0+1")]
    run.send("A", "1", 4)
    assert run.rows()["A", 0] == ["0+1", 3, 1] and len(run.late) == 1
    run.send("A", "1", 30)
    assert sorted(run.rows()) == [("A", 20), ("A", 30)]


def test_a_restart_closes_each_pending_window_once() -> None:
    run = running(FINAL, 10, grace_ms=5, retention_ms=100)
    for at in (1, 12, 24):
        run.send("A", "1", at)
    assert windows(run.main) == [("A", 0, 10, "0+1")]
    again = run.restarted()
    assert windows(again.send("B", "1", 25)) == [("A", 10, 20, "0+1")]
    assert again.send("C", "1", 12) == [] and len(again.late) == 1
    third = again.restarted()
    assert windows(third.advance(1_000)) == [("A", 20, 30, "0+1"), ("B", 20, 30, "0+1")]
    assert third.advance(2_000) == [] and third.rows() == {}


def test_late_events_revise_what_was_final() -> None:
    run = running(FINAL, 10, aggregation=aggregations.total(), retention_ms=50, revises=True)
    run.send("A", 1, 3)
    run.send("A", 1, 20)
    run = run.restarted()
    run.batch([run.event("A", 10, 4), run.event("A", 100, 5), run.event("B", 1, 6)])
    assert [event.value[:5] for event in run.main] == [("A", 0, 10, 111, 1), ("B", 0, 10, 1, 0)]
    assert {event.timestamp_ms for event in run.main} == {9}
    again = run.restarted()
    assert [event.value[:5] for event in again.send("A", 1, 7)] == [("A", 0, 10, 112, 2)]
    assert [event.value[:5] for event in again.send("C", 1, 50)] == [("A", 20, 30, 1, 0)]
    again.send("A", 1, 9)
    assert [event.value for event in again.late] == [1]
    assert sorted(again.rows()) == [("A", 20), ("C", 50)]


def test_a_result_says_which_sources_were_not_waited_for() -> None:
    run = running(FINAL, 10)
    run.send("A", "1", 3)
    run.context.lacking = (("nyc", 0),)
    [event] = run.advance(10)
    assert event.value.missing == ("nyc",)


def test_revisions_go_on_after_a_restart() -> None:
    run = running(CURRENT, 10)
    revisions = [event.value.revision for event in run.send("A", "1", 1) + run.send("A", "1", 2)]
    revisions += [event.value.revision for event in run.restarted().send("A", "1", 3)]
    assert revisions == [0, 1, 2]


def test_a_batch_gives_one_update_a_window_with_the_position_of_its_last_event() -> None:
    run = running(CURRENT, 10, aggregation=aggregations.count())
    found = run.batch([run.event("A", "v", 1), run.event("B", "v", 2), run.event("A", "v", 3)])
    assert windows(found) == [("A", 0, 10, 2), ("B", 0, 10, 1)]
    assert [(event.topic, event.offset, event.timestamp_ms) for event in found] == [("left", 2, 3), ("left", 1, 2)]


def test_events_without_key_or_value_are_skipped_and_counted() -> None:
    run = running(CURRENT, 10)
    assert run.send(None, "1", 1) + run.send("A", None, 1) == []
    assert run.operator.counts["skipped"] == 2


@pytest.mark.parametrize(
    ("aggregation", "value"),
    [
        (aggregations.count(), 3),
        (aggregations.total(), 12),
        (aggregations.total(lambda value: value * 10), 120),
        (aggregations.least(), 1),
        (aggregations.greatest(), 7),
        (aggregations.mean(), 4.0),
        (aggregations.reduce(lambda a, b: a * 100 + b), 40107),
        (aggregations.collect(), [4, 1, 7]),
    ],
    ids=["count", "sum", "sum of", "min", "max", "mean", "reduce", "collect"],
)
def test_aggregations(aggregation: Aggregation, value: Any) -> None:
    run = running(FINAL, 10, aggregation=aggregation)
    run.send("A", 4, 1)
    run = run.restarted()  # the accumulator is a table value
    run.batch([run.event("A", 1, 2), run.event("A", 7, 3)])
    assert windows(run.advance(10)) == [("A", 0, 10, value)]


def test_a_function_that_fails_names_operator_and_record() -> None:
    run = running(CURRENT, 10, aggregation=aggregations.total())
    with pytest.raises(RecordError, match=r"operator counts: TypeError: .* at left-0 offset 0"):
        run.send("A", "text", 1)


def test_a_failed_event_is_left_out_where_the_task_says_so() -> None:
    failed: list[int] = []
    of = TimeWindows(10, 10)
    run = Running(
        lambda: TimeWindowAggregate("counts", of, aggregations.total(), CURRENT),
        failed=lambda name, event, error: failed.append(event.offset),
    )
    found = run.batch([run.event("A", 1, 1), run.event("A", "x", 2), run.event("A", 2, 3)])
    assert windows(found) == [("A", 0, 10, 3)] and failed == [1]


def test_a_key_that_no_table_can_have_names_its_record() -> None:
    with pytest.raises(RecordError, match=r"key \['a'\] cannot be a table's key.* at left-0 offset 0"):
        running(CURRENT, 10).send(["a"], 1, 1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(TimeWindows, 10, 0), "begin every 0 ms"),
        (partial(TimeWindows, 10, 11), "events between two windows would be lost"),
        (partial(TimeWindows, 10, 10, -1), "a grace of -1 ms"),
        (partial(TimeWindows, 10, 10, 5, 14), "at least the size and the grace together, 15 ms"),
        (partial(TimeWindows, 10, 10, revises=True), "give them a retention="),
    ],
)
def test_windows_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(AppError, match=message):
        make()


EVENT = st.tuples(st.sampled_from("AB"), st.integers(1, 9), st.integers(0, 60))


@given(st.lists(EVENT, max_size=40), st.lists(st.integers(0, 40)), st.integers(0, 20), st.sampled_from([3, 5, 10]))
def test_batches_change_no_final_result(events: list[Any], cuts: list[int], grace: int, step: int) -> None:
    def results(batches: list[Any]) -> Any:
        run = running(FINAL, 10, step, aggregations.collect(), grace_ms=grace)
        for batch in batches:
            run.batch([run.event(*each) for each in batch])
        return [(*window, event.watermark_ms) for window, event in zip(windows(run.main), run.main, strict=True)], [
            event.offset for event in run.late
        ]

    assert results(split(events, cuts)) == results([[event] for event in events])


@given(st.lists(EVENT, max_size=40), st.lists(st.integers(0, 40)), st.lists(st.integers(0, 40)))
def test_finals_are_all_events_that_are_not_late_whatever_restarts(
    events: list[Any], cuts: list[int], restarts: list[int]
) -> None:
    run = running(FINAL, 10, aggregation=aggregations.total(), grace_ms=7)
    found: list[Any] = []
    late: list[Any] = []
    for number, batch in enumerate(split(events, cuts)):
        run.batch([run.event(*each) for each in batch])
        if number in restarts:
            found, late, run = found + run.main, late + run.late, run.restarted()
    run.advance(1_000)
    found, late = found + run.main, late + run.late
    expected: Counter[tuple[str, int]] = Counter()
    latest = 0
    count = 0
    for key, value, at in events:
        latest = max(latest, at)
        if at // 10 * 10 + 17 > latest:
            expected[key, at // 10 * 10] += value
        else:
            count += 1
    assert len(late) == count
    assert {(key, start): value for key, start, _, value in windows(found)} == expected
    assert len(found) == len(expected)


@given(st.lists(EVENT, min_size=1, max_size=40), st.lists(st.integers(0, 40)))
def test_the_last_update_of_each_window_is_the_same_in_any_batches(events: list[Any], cuts: list[int]) -> None:
    def last(batches: list[Any]) -> Any:
        run = running(CURRENT, 10, 5, aggregations.collect(), grace_ms=4)
        for batch in batches:
            run.batch([run.event(*each) for each in batch])
        return {(key, start): value for key, start, _, value in windows(run.main)}, run.rows().keys()

    assert last(split(events, cuts)) == last([[event] for event in events])


def test_what_may_have_lacked_something_is_given_again_when_it_does_not() -> None:
    for retention, again in ((50, [("A", 0, 10, "0+1", 1, ())]), (10, [])):  # with 10 there is no row any more
        run = running(FINAL, 10, retention_ms=retention, revises=True)
        run.send("A", "1", 3)
        run.context.lacking = (("nyc", 4),)
        [event] = run.advance(10)
        assert event.value == ("A", 0, 10, "0+1", 0, ("nyc",))
        assert run.advance(12) == []
        run.context.lacking = (("nyc", 10),)  # still behind, but past the window
        assert [tuple(event.value) for event in run.advance(14)] == again
        assert run.advance(15) == []


def lacking(retention_ms: int = 50) -> Running:
    """A window of A was given, and may lack something of nyc."""
    run = running(FINAL, 10, retention_ms=retention_ms, revises=True)
    run.send("A", "1", 3)
    run.context.lacking = (("nyc", 4),)
    assert [event.value.missing for event in run.advance(10)] == [("nyc",)]
    return run


def test_what_may_have_lacked_something_is_given_again_after_a_restart_too() -> None:
    again = lacking().restarted()
    again.context.lacking = ()
    assert [tuple(event.value) for event in again.advance(14)] == [("A", 0, 10, "0+1", 1, ())]


def test_what_a_late_event_has_revised_when_nothing_was_lacking_is_not_given_again() -> None:
    run = lacking()
    run.context.lacking = ()
    late = run.event("A", "2", 5)
    late.watermark_ms = 10
    [given], _ = run.operator.process(0, [late])
    assert tuple(given.value) == ("A", 0, 10, "0+1+2", 1, ())
    assert run.advance(14) == []


def test_a_window_that_is_gone_is_not_given_again_when_nothing_is_lacking() -> None:
    run = lacking()
    assert run.advance(50) == [] and run.rows() == {}
    run.context.lacking = ()
    assert run.advance(51) == []
