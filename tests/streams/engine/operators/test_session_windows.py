"""Sessions. The tables are those of Kafka's KStreamSessionWindowAggregateProcessorTest, with its gap of 5 minutes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators import aggregations
from isthmus.streams.engine.operators.aggregations import Aggregation
from isthmus.streams.engine.operators.session_windows import SessionWindowAggregate
from isthmus.streams.engine.operators.windows import CURRENT, FINAL, SessionWindows
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running, split, windows

GAP = 5 * 60 * 1000
JOINED, COUNT = aggregations.collect(), aggregations.count()


def running(
    emit: str,
    gap: int = GAP,
    aggregation: Aggregation = COUNT,
    grace_ms: int = 0,
) -> Running:
    of = SessionWindows(gap, grace_ms)
    return Running(lambda: SessionWindowAggregate("sessions", of, aggregation, emit))


MERGING = [
    ("a", 0), ("b", 0), ("c", 0), ("d", 0), ("d", GAP // 2),
    ("a", GAP + 1), ("b", GAP + 1), ("a", GAP + 1 + GAP // 2), ("c", GAP + 1 + GAP // 2),
]  # fmt: skip


@pytest.mark.parametrize(
    ("events", "rows"),
    [
        ([("john", 0), ("john", 500)], {("john", 0): (2, 500)}),
        ([("mel", 0), ("mel", GAP + 1), ("mel", GAP // 2)], {("mel", 0): (3, GAP + 1)}),
        ([("mel", 0), ("mel", 0)], {("mel", 0): (2, 0)}),
        ([("a", 0), ("a", 100)], {("a", 0): (2, 100)}),
    ],
    ids=["within the gap", "merged", "at the same time", "merged ones are removed"],
)
def test_sessions_are_those_of_kafka(events: list[Any], rows: Any) -> None:
    run = running(CURRENT, grace_ms=GAP)
    for key, at in events:
        run.send(key, "v", at)
    assert {where: tuple(row[:2]) for where, row in run.rows().items()} == rows


def test_finals_are_those_of_kafka() -> None:
    run = running(FINAL)
    for key, at in MERGING:
        run.send(key, "v", at)
    assert [(*window, event.timestamp_ms) for event, window in zip(run.main, windows(run.main), strict=True)] == [
        ("a", 0, 0, 1, 0),
        ("b", 0, 0, 1, 0),
        ("c", 0, 0, 1, 0),
        ("d", 0, GAP // 2, 2, GAP // 2),
    ]


def test_updates_of_one_batch_are_those_of_kafka() -> None:
    run = running(CURRENT, grace_ms=GAP)
    run.batch([run.event(key, "v", at) for key, at in MERGING])
    assert sorted((*window, event.timestamp_ms) for event, window in zip(run.main, windows(run.main), strict=True)) == [
        ("a", 0, 0, 1, 0),
        ("a", GAP + 1, GAP + 1 + GAP // 2, 2, GAP + 1 + GAP // 2),
        ("b", 0, 0, 1, 0),
        ("b", GAP + 1, GAP + 1, 1, GAP + 1),
        ("c", 0, 0, 1, 0),
        ("c", GAP + 1 + GAP // 2, GAP + 1 + GAP // 2, 1, GAP + 1 + GAP // 2),
        ("d", 0, GAP // 2, 2, GAP // 2),
    ]


def test_a_session_that_goes_on_is_a_revision_and_one_that_is_merged_is_no_more() -> None:
    # On purpose not as in Kafka, where a session is another with each event: its start and key say which it is.
    run = running(CURRENT, gap=10, grace_ms=100)
    run.send("a", "v", 20)
    run.send("a", "v", 25)
    run.send("a", "v", 40)
    assert [(*event.value[1:5], event.timestamp_ms) for event in run.main] == [
        (20, 20, 1, 0, 20),
        (20, 25, 2, 1, 25),
        (40, 40, 1, 0, 40),
    ]
    run.main.clear()
    run.send("a", "v", 32)
    assert [event.value[1:5] for event in run.main] == [(40, 40, None, 1), (20, 40, 4, 2)]
    run.main.clear()
    run.send("a", "v", 15)
    assert [event.value[1:5] for event in run.main] == [(20, 40, None, 3), (15, 40, 5, 0)]


@pytest.mark.parametrize(("grace", "last"), [(0, 10), (1, 11)])
def test_an_event_is_late_once_its_own_session_would_have_closed(grace: int, last: int) -> None:
    # shouldLogAndMeterWhenSkippingLateRecordWithZeroGrace and ...WithNonzeroGrace: gap 10
    run = running(CURRENT, gap=10, grace_ms=grace)
    run.send("dummy", "v", 0)
    run.send("dummy", "v", last)
    run.send("on time", "v", 0)
    assert run.late == []
    run.send("dummy", "v", last + 1)
    run.send("late", "v", 0)
    assert [event.key for event in run.late] == ["late"] and run.operator.counts["late"] == 1


def test_a_closed_session_is_not_opened_again() -> None:
    run = running(FINAL, gap=10)
    run.send("a", "v", 0)
    run.send("b", "v", 11)
    assert windows(run.main) == [("a", 0, 0, 1)]
    run.send("a", "v", 9)  # within the gap, but the session was given
    assert windows(run.advance(100))[0] == ("a", 9, 9, 1)


def test_an_event_of_a_session_that_is_open_is_not_late_however_early() -> None:
    run = running(FINAL, gap=10)
    run.send("a", "v", 8)
    run.send("a", "v", 16)
    assert run.send("a", "v", 5) == [] and run.late == []  # alone, it would have closed at 16
    assert windows(run.advance(100)) == [("a", 5, 16, 3)]


def test_sessions_close_once_though_the_task_restarts() -> None:
    run = running(FINAL, gap=10)
    for at in (0, 5, 20):
        run.send("a", "v", at)
    assert windows(run.main) == [("a", 0, 5, 2)]
    again = run.restarted()
    assert again.send("a", "v", 25) == []
    third = again.restarted()
    assert windows(third.advance(1_000)) == [("a", 20, 25, 2)]
    assert third.rows() == {}


def test_sessions_that_close_at_once_are_given_in_the_order_of_their_ends() -> None:
    run = running(FINAL, gap=10)
    for key, at in [("long", 0), ("short", 5), ("long", 9), ("other", 100)]:
        run.send(key, "v", at)
    assert [(event.key, event.timestamp_ms) for event in run.main] == [("short", 5), ("long", 9)]


def test_sessions_need_a_merge() -> None:
    with pytest.raises(AppError, match="sessions s: the aggregation needs `merge`"):
        SessionWindowAggregate("s", SessionWindows(1), Aggregation(int, lambda a, b: a), FINAL)
    with pytest.raises(AppError, match="gap of 0 ms"):
        SessionWindows(0)


def test_a_function_that_fails_names_operator_and_record() -> None:
    with pytest.raises(RecordError, match=r"operator sessions: TypeError: .* at left-0 offset 0"):
        running(CURRENT, aggregation=aggregations.total()).send("A", "x", 1)
    with pytest.raises(RecordError, match="cannot be a table's key"):
        running(CURRENT).send({}, "x", 1)


EVENT = st.tuples(st.sampled_from("AB"), st.integers(1, 9), st.integers(0, 100))


def every_session(events: list[Any], gap: int) -> dict[Any, list[Any]]:
    found: dict[Any, list[Any]] = {}
    for key in {event[0] for event in events}:
        session: list[Any] = []
        for at, value in sorted((at, value) for other, value, at in events if other == key):
            if session and at - session[-1][0] > gap:
                found[key, session[0][0], session[-1][0]] = sorted(value for _, value in session)
                session = []
            session.append((at, value))
        found[key, session[0][0], session[-1][0]] = sorted(value for _, value in session)
    return found


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)), st.sampled_from([CURRENT, FINAL]))
def test_results_are_the_sessions_by_definition(events: list[Any], cuts: list[int], emit: str) -> None:
    run = running(emit, gap=5, aggregation=JOINED, grace_ms=200)
    for batch in split(events, cuts):
        run.batch([run.event(*each) for each in batch])
    run.advance(10_000)
    last = {(key, start): (end, value) for key, start, end, value in windows(run.main)}
    assert {
        (key, start, end): sorted(value) for (key, start), (end, value) in last.items() if value is not None
    } == every_session(events, 5)
    assert run.rows() == {}


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)), st.integers(0, 20))
def test_neither_batches_nor_restarts_change_a_final_result(
    events: list[Any], cuts: list[int], restarts: list[int], grace: int
) -> None:
    def results(batches: list[Any], restarts: list[int]) -> Any:
        run = running(FINAL, gap=5, aggregation=JOINED, grace_ms=grace)
        found: list[Any] = []
        for number, batch in enumerate(batches):
            run.batch([run.event(*each) for each in batch])
            if number in restarts:
                found, run = found + [*run.main, *run.late], run.restarted()
        run.advance(10_000)
        found += [*run.main, *run.late]
        return sorted(windows(found)), [event.offset for event in found if event.offset >= 0]

    assert results(split(events, cuts), restarts) == results([[event] for event in events], [])
