"""Stream-stream joins. The tables are those of Kafka's StreamStreamJoinIntegrationTest, KStreamKStreamLeftJoinTest and
KStreamKStreamOuterJoinTest; where ours differ on purpose, the test says so."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators.stream_join import INNER, LEFT, OUTER, JoinWindows, StreamJoin
from isthmus.streams.engine.time import Watermarks
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.kafka_joins import IN_ORDER, KEY, OF_ITSELF, dashed, plus, stream_time
from tests.streams.engine.operators.running import Running, plain, split

INNER_ROWS: list[list[tuple[str, int]]] = [
    [], [], [],
    [("A-a", 4)],
    [("B-a", 5)],
    [("A-b", 6), ("B-b", 6)],
    [], [],
    [("C-a", 9), ("C-b", 9)],
    [("A-c", 10), ("B-c", 10), ("C-c", 10)],
    [], [], [],
    [("A-d", 14), ("B-d", 14), ("C-d", 14)],
    [("D-a", 15), ("D-b", 15), ("D-c", 15), ("D-d", 15)],
]  # fmt: skip


def running(
    how: str, before: int, after: int | None = None, grace: int = 0, value: Any = plus, alone: bool = False
) -> Running:
    windows = JoinWindows(before, before if after is None else after, grace)
    return Running(lambda: StreamJoin("join", windows, value, how, alone), watermarks=stream_time())


@pytest.mark.parametrize(
    ("how", "last"),
    [(INNER, [[], []]), (LEFT, [[("E-null", 16)], []]), (OUTER, [[("E-null", 16)], [("null-e", 17)]])],
)
def test_results_are_those_of_kafka(how: str, last: list[Any]) -> None:
    run = running(how, 10_000, grace=86_400_000, value=dashed)
    given_by_each = []
    for port, value, at, *key in IN_ORDER:
        found = run.send(key[0] if key else KEY, value, at, port)
        given_by_each.append([(event.value, event.timestamp_ms) for event in found])
    assert given_by_each == INNER_ROWS + last


def test_a_stream_joined_with_itself_gives_what_kafka_gives() -> None:
    run = running(INNER, 10_000, grace=86_400_000, value=dashed, alone=True)
    given_by_each = [[event.value for event in run.send(KEY, value, at)] for _, value, at in OF_ITSELF]
    assert given_by_each == [
        [],
        ["A-A"],
        ["B-A", "A-B", "B-B"],
        [],
        ["C-A", "C-B", "A-C", "B-C", "C-C"],
        [],
        ["D-A", "D-B", "D-C", "A-D", "B-D", "C-D", "D-D"],
    ]


Step = tuple[int, int, Any, int, list[tuple[int, str, int]]]  # port, key, value, timestamp, results

OUTER_STEPS: dict[str, tuple[tuple[int, int, int], list[Step]]] = {
    "left expired, given by the left": ((100, 100, 0), [
        (0, 0, "A0", 1, []), (0, 1, "A1", 2, []), (0, 0, "A0-0", 3, []),
        (1, 1, 11, 3, [(1, "A1+11", 3)]),
        (0, 2, "dummy", 401, [(0, "A0+null", 1), (0, "A0-0+null", 3)]),
        (1, 2, 100, 401, [(2, "dummy+100", 401)]),
    ]),
    "left expired, given by the right": ((100, 100, 0), [
        (0, 0, "A0", 1, []), (0, 1, "A1", 2, []), (0, 0, "A0-0", 3, []),
        (1, 1, 11, 3, [(1, "A1+11", 3)]),
        (1, 2, 100, 401, [(0, "A0+null", 1), (0, "A0-0+null", 3)]),
        (0, 2, "dummy", 402, [(2, "dummy+100", 402)]),
    ]),
    "right expired, given by the left": ((100, 100, 0), [
        (1, 0, 10, 1, []), (1, 1, 11, 2, []), (1, 0, 12, 3, []),
        (0, 1, "A1", 3, [(1, "A1+11", 3)]),
        (0, 2, "dummy", 401, [(0, "null+10", 1), (0, "null+12", 3)]),
        (1, 2, 100, 402, [(2, "dummy+100", 402)]),
    ]),
    "right expired, given by the right": ((100, 100, 0), [
        (1, 0, 10, 1, []), (1, 1, 11, 2, []), (1, 0, 12, 3, []),
        (0, 1, "A1", 3, [(1, "A1+11", 3)]),
        (1, 2, 100, 401, [(0, "null+10", 1), (0, "null+12", 3)]),
        (0, 2, "dummy", 402, [(2, "dummy+100", 402)]),
    ]),
    "what has no partner comes before what has": ((100, 100, 0), [
        (0, 0, "A0", 0, []), (0, 1, "A1", 100, []),
        (1, 1, 11, 110, [(0, "A0+null", 0), (1, "A1+11", 110)]),
    ]),
    "grace": ((100, 100, 10), [
        (0, 0, "A0", 0, []), (1, 1, 11, 0, []), (0, 1, "A1", 101, []), (1, 0, 10, 101, []),
        (1, 0, 100, 112, [(0, "A0+null", 0), (1, "null+11", 0)]),
    ]),
    "asymmetric": ((5, 20, 0), [
        (0, 0, "A0", 29, []), (0, 1, "A1", 30, []), (1, 2, 12, 31, []), (1, 3, 13, 36, []),
        (1, 4, 14, 37, [(2, "null+12", 31)]),
        (1, 5, 15, 50, [(3, "null+13", 36), (4, "null+14", 37), (0, "A0+null", 29)]),
    ]),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTER_STEPS)
def test_outer_results_are_those_of_kafka(case: str) -> None:
    # Results that are due at once come in the order in which their time was over; in Kafka in that of their timestamps.
    (before, after, grace), steps = OUTER_STEPS[case]
    run = running(OUTER, before, after, grace)
    for port, key, value, at, expected in steps:
        assert plain(run.send(key, value, at, port)) == expected


def test_left_joins_give_no_right_event_alone() -> None:
    run = running(LEFT, 10)
    run.send("a", "right", 0, 1)
    run.send("a", "left", 20, 0)
    assert plain(run.advance(1_000)) == [("a", "left+null", 20)]
    assert run.stores["join-left"].rows == run.stores["join-right"].rows == {}


def test_bounds_are_inclusive_and_are_those_of_the_right_event() -> None:
    run = running(INNER, before=2, after=5, grace=100)
    run.send("a", "left", 100)
    for at in (97, 98, 100, 105, 106):
        run.send("a", at, at, 1)
    assert [event.value for event in run.main] == ["left+98", "left+100", "left+105"]


def test_both_bounds_may_be_after_the_left_event() -> None:
    run = running(LEFT, before=-5, after=10)
    run.send("a", "left", 100)
    for at in (104, 105, 110):
        run.send("a", at, at, 1)
    assert [event.value for event in run.main] == ["left+105", "left+110"]
    alone = running(INNER, before=-5, after=10, alone=True)  # where no event meets itself
    for at in (100, 104, 105):
        alone.send("a", at, at)
    assert [event.value for event in alone.main] == ["100+105"]


def test_an_event_is_given_with_a_partner_or_alone_but_not_both() -> None:
    # In Kafka the second right event would be joined with the left one, which was given as without a partner.
    run = running(LEFT, before=10, after=10)
    run.send("a", "left", 100)
    assert plain(run.send("b", "other", 111, 1)) == [("a", "left+null", 100)]
    run.send("a", "right", 105, 1)
    assert len(run.main) == 1
    run = running(LEFT, before=10, after=10)
    run.send("a", "left", 100)
    run.send("a", "right", 105, 1)
    run.send("b", "other", 111, 1)
    run.send("a", "right", 106, 1)
    assert [event.value for event in run.main] == ["left+right", "left+right"]


def test_late_events_go_to_the_second_output() -> None:
    run = running(INNER, before=0, after=10, grace=5)
    run.send("a", "x", 100)
    run.send("a", "left", 85)  # until 100
    run.send("a", "right", 95, 1)  # until 100, since it looks back only
    assert run.late == []
    run.send("a", "x", 101)
    run.send("a", "left", 85)
    run.send("a", "right", 95, 1)
    assert [event.value for event in run.late] == ["left", "right"]
    assert run.operator.counts == {"late": 2, "skipped": 0}


def test_equal_events_are_all_joined_also_after_a_restart() -> None:
    run = running(INNER, 10, grace=100)
    for _ in range(2):
        run.send("a", "left", 5)
    run = run.restarted()
    run.send("a", "left", 5)
    assert [event.value for event in run.send("a", "right", 5, 1)] == ["left+right"] * 3


def test_events_out_of_order_find_their_partners_after_a_restart() -> None:
    run = running(INNER, 10, grace=100)
    for at in (40, 60, 5):
        run.send("a", f"left {at}", at)
    run = run.restarted()
    assert [event.value for event in run.send("a", "right", 6, 1)] == ["left 5+right"]


def test_what_has_no_partner_is_given_once_though_the_task_restarts() -> None:
    run = running(OUTER, 10)
    run.send("a", "left", 100)
    run.send("a", "right", 101, 1)
    run.send("b", "left", 102)
    again = run.restarted()
    assert plain(again.advance(113)) == [("b", "left+null", 102)]
    assert again.restarted().advance(1_000) == []


def test_results_have_the_later_position_and_the_greater_timestamp() -> None:
    run = running(LEFT, 10)
    run.send("a", "left", 5)
    [joined] = run.send("a", "right", 3, 1)
    assert (joined.topic, joined.offset, joined.timestamp_ms) == ("right", 1, 5)
    [alone] = run.send("b", "left", 7) + run.advance(50)
    assert (alone.topic, alone.offset, alone.timestamp_ms) == ("join", -1, 7)


def test_the_watermark_of_results_is_not_past_what_may_still_come() -> None:
    run = running(OUTER, 10, 20, grace=5)
    for event in run.send("a", "left", 0) + run.send("b", "right", 1_000, 1) + run.advance(2_000):
        assert event.watermark_ms <= event.timestamp_ms
    assert run.operator.hold_ms == 26


def test_a_function_that_fails_names_operator_and_record_and_changes_nothing() -> None:
    run = running(INNER, 10, value=lambda a, b: a + b)
    run.send("a", "left", 1)
    with pytest.raises(RecordError, match=r"operator join: TypeError: .* at right-0 offset 1"):
        run.send("a", 1, 1, 1)
    assert run.stores["join-right"].rows == {}
    with pytest.raises(RecordError, match="cannot be a table's key"):
        run.send([], "left", 1)


def test_an_event_that_fails_with_itself_s_stream_is_told_of_once_and_not_kept() -> None:
    failed: list[Any] = []
    run = running(INNER, 10, value=lambda a, b: a + b, alone=True)
    run.context.on_failed = lambda name, event, error: failed.append(event.value)
    for value in ("x", 1, "y"):
        run.send("a", value, 1)
    assert failed == [1] and [event.value for event in run.main] == ["xx", "yx", "xy", "yy"]
    # One that fails as the right one alone has given nothing as the left one.
    run = running(OUTER, 10, value=lambda a, b: f"{a}-{b}" if b is None or a >= b else 1 // 0, alone=True)
    run.context.on_failed = lambda name, event, error: failed.append(event.value)
    for value in (5, 7, 4):
        run.send("a", value, 1)
    assert failed == [1, 7, 4] and [event.value for event in run.main] == ["5-5"]
    assert {row[0][0] for store in run.stores.values() for row in store.rows.values()} == {5}
    assert run.advance(1_000) == [], "it had a partner: itself"


def test_windows_that_cannot_be() -> None:
    with pytest.raises(AppError, match="has no time in which events match"):
        JoinWindows(-5, 4)
    with pytest.raises(AppError, match="grace of -1 ms"):
        JoinWindows(1, 1, -1)


EVENT = st.tuples(st.sampled_from([0, 1]), st.sampled_from("AB"), st.integers(0, 60))


@given(st.lists(EVENT, max_size=30), st.integers(0, 15), st.integers(0, 15), st.sampled_from([INNER, LEFT, OUTER]))
def test_results_are_the_pairs_by_definition(events: list[Any], before: int, after: int, how: str) -> None:
    run = running(how, before, after, grace=100, value=lambda left, right: (left, right))
    for number, (port, key, at) in enumerate(events):
        run.send(key, number, at, port)
    run.advance(10_000)
    numbered = list(enumerate(events))
    pairs = [
        (left, right)
        for left, (port, key, at) in numbered
        for right, (other_port, other, time) in numbered
        if (port, other_port) == (0, 1) and key == other and at - before <= time <= at + after
    ]
    alone: list[Any] = []
    if how != INNER:
        alone += [(n, None) for n, (port, _, _) in numbered if port == 0 and n not in {left for left, _ in pairs}]
    if how == OUTER:
        alone += [(None, n) for n, (port, _, _) in numbered if port == 1 and n not in {right for _, right in pairs}]
    assert sorted(event.value for event in run.main if None not in event.value) == sorted(pairs)
    assert sorted(map(str, (event.value for event in run.main if None in event.value))) == sorted(map(str, alone))
    assert run.stores["join-left"].rows == run.stores["join-right"].rows == {}


@given(st.lists(EVENT, max_size=30), st.lists(st.integers(0, 30)), st.integers(0, 20), st.integers(0, 10))
def test_batches_change_no_result(events: list[Any], cuts: list[int], grace: int, bound: int) -> None:
    def results(batches: list[Any]) -> Any:
        windows = JoinWindows(5, 10, grace)
        time = Watermarks(["all"], bound, lambda event: "all")
        run = Running(lambda: StreamJoin("join", windows, lambda *pair: pair, OUTER), watermarks=time)
        number = 0
        for batch in batches:
            made = []
            for port, key, at in batch:
                made.append((port, run.event(key, number, at, port)))
                number += 1
            while made:  # a run of events of one input at a time, as a task gives them
                port = made[0][0]
                length = next((n for n, each in enumerate(made) if each[0] != port), len(made))
                run.batch([event for _, event in made[:length]], port)
                made = made[length:]
        run.advance(10_000)
        return [(*event.value, event.watermark_ms) for event in run.main], [event.value for event in run.late]

    assert results(split(events, cuts)) == results([[event] for event in events])
