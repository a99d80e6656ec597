"""Table-table joins by key. The tables are those of Kafka's TableTableJoinIntegrationTest; its timestamps are not, see
`table_joins.py`."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators.operator import Operator
from isthmus.streams.engine.operators.stream_join import INNER, OUTER
from isthmus.streams.engine.operators.stream_join import LEFT as LEFT_JOIN
from isthmus.streams.engine.operators.table_joins import TableJoin
from isthmus.streams.engine.operators.table_sources import Change, TableSource, VersionedTableSource
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.kafka_joins import INPUT, LEFT, RIGHT, dashed, texts, with_tables
from tests.streams.engine.operators.running import Running

MINUTES = 5 * 60_000
BOTH, LEFT_ONLY, RIGHT_ONLY, NEITHER = (True, True), (True, False), (False, True), (False, False)

# What each input gives: - nothing, * the row is gone
EXPECTED = {
    (INNER, NEITHER): "- - - A-a B-a B-b * - - C-c * - - - D-d * - - E-e * - - F-f",
    (LEFT_JOIN, NEITHER): "- - A-null A-a B-a B-b * - C-null C-c C-null * - - D-d * - - E-e * - F-null F-f",
    (
        OUTER,
        NEITHER,
    ): "- - A-null A-a B-a B-b null-b * C-null C-c C-null * - null-d D-d null-d * null-e E-e null-e * F-null F-f",
    (INNER, BOTH): "- - - A-a B-a B-b * - - C-c * - - - - - - - E-e - - - -",
    (LEFT_JOIN, BOTH): "- - A-null A-a B-a B-b * - C-null C-c C-null * - - - - - - E-e - - - -",
    (OUTER, BOTH): "- - A-null A-a B-a B-b null-b * C-null C-c C-null * - - - - - null-e E-e - - - -",
    (INNER, LEFT_ONLY): "- - - A-a B-a B-b * - - C-c * - - - - - - - E-e - * - E-f",
    (LEFT_JOIN, LEFT_ONLY): "- - A-null A-a B-a B-b * - C-null C-c C-null * - - - - - - E-e - E-null - E-f",
    (OUTER, LEFT_ONLY): "- - A-null A-a B-a B-b null-b * C-null C-c C-null * - null-d - - * null-e E-e - E-null - E-f",
    (INNER, RIGHT_ONLY): "- - - A-a B-a B-b * - - C-c * - - - - - - - E-e * - F-e -",
    (LEFT_JOIN, RIGHT_ONLY): "- - A-null A-a B-a B-b * - C-null C-c C-null * - - D-null * - - E-e * - F-e -",
    (OUTER, RIGHT_ONLY): (
        "- - A-null A-a B-a B-b null-b * C-null C-c C-null * - - D-null * - null-e E-e null-e - F-e -"
    ),
}


def feeding(how: str, versioned: tuple[bool, bool]) -> Any:
    def source(port: int) -> Operator:
        name = ("left", "right")[port]
        return VersionedTableSource(name, MINUTES) if versioned[port] else TableSource(name)

    def join() -> Operator:
        return TableJoin("join", "left", "right", dashed, how, versioned)

    return with_tables([(LEFT, lambda: source(LEFT)), (RIGHT, lambda: source(RIGHT))], join, (LEFT, RIGHT))


@pytest.mark.parametrize(("how", "versioned"), EXPECTED)
def test_results_are_those_of_kafka(how: str, versioned: tuple[bool, bool]) -> None:
    given = texts(feeding(how, versioned)(INPUT))
    shown = " ".join("-" if not each else "*" if each[0] is None else each[0] for each in given)
    assert shown == EXPECTED[how, versioned]
    assert all(len(each) < 2 for each in given)


def test_a_change_says_what_the_result_was_before() -> None:
    run = Running(
        lambda: TableJoin("join", "left", "right", dashed, LEFT_JOIN), tables=[TableSpec("left"), TableSpec("right")]
    )
    run.stores["right"].set("k", "a")
    changes = (
        run.send("k", Change(None, "A"), 1) + run.send("k", Change("A", "B"), 2) + run.send("k", Change("B", None), 3)
    )
    assert [event.value for event in changes] == [Change(None, "A-a"), Change("A-a", "B-a"), Change("B-a", None)]
    assert [(event.key, event.timestamp_ms, event.offset) for event in changes] == [
        ("k", 1, 0),
        ("k", 2, 1),
        ("k", 3, 2),
    ]
    run.send("k", Change(None, "C"), 4)
    assert [event.value for event in run.restarted().send("k", Change("C", None), 5)] == [Change("C-a", None)]


def test_a_function_that_fails_names_operator_and_record() -> None:
    run = Running(
        lambda: TableJoin("join", "left", "right", lambda a, b: a + b, LEFT_JOIN),
        tables=[TableSpec("left"), TableSpec("right")],
    )
    with pytest.raises(RecordError, match=r"operator join: TypeError: .* at left-0 offset 0"):
        run.send("k", Change(None, "A"), 1)


EVENT = st.tuples(
    st.sampled_from([LEFT, RIGHT]), st.sampled_from(["x", "y", None]), st.integers(0, 60), st.integers(0, 2)
)


@given(st.lists(EVENT, max_size=30), st.sampled_from([INNER, LEFT_JOIN, OUTER]))
def test_the_last_changes_are_the_join_of_the_last_rows(events: list[Any], how: str) -> None:
    found = feeding(how, NEITHER)(events)
    last: dict[Any, Any] = {}
    for each in found:
        for event in each:
            assert event.value.old == last.get(event.key)
            last[event.key] = event.value.new
    rows: tuple[dict[Any, Any], dict[Any, Any]] = ({}, {})
    for port, value, _, key in events:
        rows[port][key] = value
    expected = {}
    for key in {key for _, _, _, key in events}:
        left, right = rows[0].get(key), rows[1].get(key)
        present = {INNER: left and right, LEFT_JOIN: left, OUTER: left or right}[how]
        if present:
            expected[key] = dashed(left, right)
    assert {key: value for key, value in last.items() if value is not None} == expected
