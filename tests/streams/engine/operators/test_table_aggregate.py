"""Aggregates of tables: each row counts once. The raw output is that of Kafka's SuppressScenarioTest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators import aggregations
from isthmus.streams.engine.operators.table_aggregate import TableAggregate, regroup
from isthmus.streams.engine.operators.table_sources import Change
from isthmus.streams.errors import RecordError
from tests.streams.engine.operators.running import Running, plain


def counting() -> Running:
    return Running(lambda: TableAggregate("counts", aggregations.count()))


def updates(run: Running, key: Any, old: Any, new: Any, at: int) -> list[Any]:
    """What a change of a row gives, grouped by its value."""
    moved = Running(lambda: regroup("group", lambda value: value)).send(key, Change(old, new), at)
    return [
        (key, value.new, time) for event in moved for key, value, time in plain(run.send(event.key, event.value, at))
    ]


def test_counts_are_those_of_kafka() -> None:
    run = counting()
    given = updates(run, "k1", None, "v1", 0) + updates(run, "k1", "v1", "v2", 1) + updates(run, "k2", None, "v1", 2)
    assert given == [("v1", 1, 0), ("v1", 0, 1), ("v2", 1, 1), ("v1", 1, 2)]
    assert updates(run, "tick", None, "tick", 3) + updates(run, "tick", "tick", "tock", 4) == [
        ("tick", 1, 3), ("tick", 0, 4), ("tock", 1, 4),
    ]  # fmt: skip


def test_a_row_that_stays_in_its_group_is_one_change() -> None:
    run = Running(lambda: regroup("group", lambda value: value["city"]))
    [event] = run.send("k", Change({"city": "x", "n": 1}, {"city": "x", "n": 2}), 1)
    assert event.key == "x" and event.value == Change({"city": "x", "n": 1}, {"city": "x", "n": 2})
    assert run.send("k", Change({"city": None}, None), 2) == []


def test_bad_input() -> None:
    run = Running(lambda: TableAggregate("sums", aggregations.total(lambda value: value["n"])))
    with pytest.raises(RecordError, match="operator sums: KeyError: 'n', at left-0 offset 0"):
        run.send("g", Change(None, {}), 1)
    with pytest.raises(RecordError, match="operator group: KeyError"):
        Running(lambda: regroup("group", lambda value: value["city"])).send("k", Change(None, {}), 1)
    run.send(None, Change(None, {"n": 1}), 1)
    assert run.operator.counts == {"skipped": 1}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", None]), st.integers(0, 9))))
def test_sums_are_those_of_the_present_rows(writes: list[Any]) -> None:
    sums = Running(lambda: TableAggregate("sums", aggregations.total(lambda value: value[1])))
    rows: dict[str, Any] = {}
    for key, group, amount in writes:
        old, new = rows.get(key), None if group is None else [group, amount]
        if old is None and new is None:
            continue
        rows[key] = new
        for event in Running(lambda: regroup("group", lambda value: value[0])).send(key, Change(old, new), 1):
            sums.send(event.key, event.value, 1)
    expected = {group: sum(row[1] for row in rows.values() if row and row[0] == group) for group in "xy"}
    assert {"x": 0, "y": 0, **sums.rows()} == expected
