"""Tables from streams, with and without versions."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.engine.operators.table_sources import (
    Change,
    TableSource,
    VersionedTableSource,
    present,
)
from isthmus.streams.engine.steps import STEP_ROWS
from isthmus.streams.errors import AppError, RecordError
from tests.streams.engine.operators.running import Running


def changes(run: Running, *writes: tuple[Any, int]) -> list[Any]:
    return [event.value for value, at in writes for event in run.send("k", value, at)]


def test_a_table_gives_what_changed() -> None:
    run = Running(lambda: TableSource("t"))
    assert changes(run, ("a", 1), ("b", 2), (None, 3), (None, 4), ("c", 1)) == [
        Change(None, "a"), Change("a", "b"), Change("b", None), Change(None, "c"),
    ]  # fmt: skip
    assert run.restarted().rows() == {"k": "c"}


@pytest.mark.parametrize("make", [lambda: TableSource("t"), lambda: VersionedTableSource("t", 10)])
def test_keys_that_cannot_be(make: Any) -> None:
    run = Running(make)
    assert run.send(None, "a", 1) == [] and run.operator.counts["skipped"] == 1
    with pytest.raises(RecordError, match="cannot be a table's key"):
        run.send({}, "a", 1)


def test_rows_end_when_their_time_to_live_is_over() -> None:
    run = Running(lambda: TableSource("t", 10))
    run.send("a", 1, 0)
    run.send("b", 2, 0)
    run.send("a", 3, 5)
    run.send("c", 4, 5)
    run.send("c", None, 6)
    run = run.restarted()
    run.send("a", 4, 3)  # does not make it older
    assert run.send("x", 5, 10)[0].value == Change(None, 5) and len(run.main) == 2
    [ended, given] = run.send("y", 6, 11)
    assert (ended.key, ended.value, ended.timestamp_ms, ended.offset) == ("b", Change(2, None), 10, -1)
    assert ended.watermark_ms <= 10 and given.value == Change(None, 6)
    assert [(event.key, event.timestamp_ms) for event in run.advance(1_000)] == [("a", 15), ("x", 20), ("y", 21)]
    assert run.rows() == run.stores["t-times"].rows == {} and run.operator.counts["expired"] == 4


def test_an_event_whose_time_to_live_is_over_is_late() -> None:
    run = Running(lambda: TableSource("t", 10))
    run.send("x", 1, 20)
    assert run.send("a", 2, 9) == [] and run.operator.counts["late"] == 1
    assert [event.value for event in run.send("a", 3, 10)] == [Change(None, 3)]


def test_a_row_that_came_again_lives_its_own_time() -> None:
    run = Running(lambda: TableSource("t", 10))
    changes(run, ("a", 0), (None, 1), ("b", 5))
    assert run.advance(12) == [] and run.rows() == {"k": "b"}
    assert [event.timestamp_ms for event in run.advance(16)] == [15]


def values(run: Running, *times: int | None) -> list[Any]:
    """The row's value at these times."""
    return [present(run.context.versions["t"], "k", at) for at in times]


def test_versions_know_what_was_true_when() -> None:
    run = Running(lambda: VersionedTableSource("t", 1_000))
    given = changes(run, ("a", 10), ("c", 30), ("b", 20), (None, 15), (None, 40), ("d", 30))
    assert given == [Change(None, "a"), Change("a", "c"), Change("c", None)]
    assert values(run.restarted(), 9, 10, 15, 20, 30, 39, 40, None) == [None, "a", None, "b", "d", "d", None, None]


def test_a_history_ends() -> None:
    run = Running(lambda: VersionedTableSource("t", 10))
    changes(run, ("a", 0), ("b", 5), ("c", 20))
    assert values(run, 9, 10, 20) == [None, "b", "c"]
    assert changes(run, ("late", 9)) == [] and run.operator.counts["late"] == 1
    changes(run, (None, 30))
    again = run.restarted()
    again.send("other", "x", 100)
    assert {key[0] for key in again.rows()} == {"other"}


def test_a_row_that_came_again_is_not_deleted_with_its_history() -> None:
    run = Running(lambda: VersionedTableSource("t", 10))
    changes(run, (None, 0), ("a", 5))
    run.send("other", "x", 100)
    assert values(run, None) == ["a"]


def test_a_history_must_have_a_length() -> None:
    with pytest.raises(AppError, match="table t: a history of 0 ms"):
        VersionedTableSource("t", 0)
    with pytest.raises(AppError, match="table t: a time to live of 0 ms"):
        TableSource("t", 0)


WRITE = st.tuples(st.sampled_from(["x", "y", None]), st.integers(0, 30))


@given(st.lists(WRITE, max_size=20), st.integers(0, 40))
def test_as_of_is_the_last_write_up_to_a_time(writes: list[Any], at: int) -> None:
    run = Running(lambda: VersionedTableSource("t", 1_000))
    changes(run, *writes)
    by_time: dict[int, Any] = {}
    for value, time in writes:
        by_time[time] = value
    known = [time for time in by_time if time <= at]
    expected = by_time[max(known)] if known else None
    assert values(run, at) == [expected]


def test_many_rows_from_before_a_table_had_a_ttl_get_their_times_in_steps() -> None:
    run = Running(lambda: TableSource("t", 5))
    for key in range(2 * STEP_ROWS + 5):
        run.stores["t"].set(key, 1)
    assert isinstance(run.operator, TableSource)
    assert len(list(run.operator.read())) == 3 and len(run.stores["t-times"].rows) == 2 * STEP_ROWS + 5
