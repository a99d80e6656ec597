"""Aggregations against what Python says of all values at once; of rows, of those that are left."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isthmus.streams.api.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    Distinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Reduce,
    Sum,
    TopN,
)
from isthmus.streams.engine.operators.aggregations import Aggregation, several
from isthmus.streams.errors import RecordError

Row = dict[str, Any]


def present(rows: list[Row]) -> list[Any]:
    return [row["n"] for row in rows if row["n"] is not None]


def ranked(rows: list[Row], is_least: bool = False) -> list[Row]:
    some = [row for row in rows if row["n"] is not None]
    return sorted(some, key=lambda row: row["n"] if is_least else -row["n"])


def with_ties(rows: list[Row], n: int) -> list[Row]:
    found = ranked(rows)
    return [row for row in found if sum(other["n"] > row["n"] for other in found) < n]


def ids(rows: list[Row]) -> list[int]:
    return [row["id"] for row in rows]


def least_two(rows: list[Row]) -> list[int]:
    return ids(ranked(rows, is_least=True)[:2])


COLUMNS: dict[str, tuple[Aggregate, Callable[[list[Row]], Any]]] = {
    "all": (Count(), len),
    "count": (Count("n"), lambda rows: len(present(rows))),
    "sum": (Sum("n"), lambda rows: sum(present(rows))),
    "mean": (Mean("n"), lambda rows: sum(present(rows)) / len(present(rows)) if present(rows) else None),
    "min": (Min("n"), lambda rows: min(present(rows), default=None)),
    "max": (Max("n"), lambda rows: max(present(rows), default=None)),
    "collect": (Collect("n"), present),
    "distinct": (Distinct("n"), lambda rows: list(dict.fromkeys(present(rows)))),
    "how many": (CountDistinct("n"), lambda rows: len(set(present(rows)))),
    "top": (TopN(2, "n"), lambda rows: ranked(rows)[:2]),
    "last two": (TopN(2, by=lambda row: row["n"], of="id", least=True), least_two),
    "ties": (TopN(2, "n", ties=True), lambda rows: with_ties(rows, 2)),
    "first": (First("n"), lambda rows: next(iter(present(rows)), None)),
    "last": (Last("n"), lambda rows: next(iter(present(rows)[::-1]), None)),
    "reduced": (Reduce(lambda a, row: a + [row["id"]], initial=list, merge=lambda a, b: a + b), ids),
}  # fmt: skip
UNORDERED = ("collect", "distinct")  # of rows, where what is taken out and comes again is as if it had come last
values = st.lists(st.sampled_from([None, 0, 1, 2, 5, 7]), max_size=12)


def rows_of(numbers: list[Any]) -> list[Row]:
    return [{"id": id, "n": n} for id, n in enumerate(numbers)]


def result(of: Aggregation, state: Any) -> Any:
    assert of.result is not None
    return of.result(state)


@given(values, values)
def test_columns_of_values_and_of_two_sessions(before: list[Any], after: list[Any]) -> None:
    rows = rows_of([*before, *after])
    all_of = several({name: column.of_values for name, (column, _) in COLUMNS.items()})
    assert all_of.merge is not None
    parts = []
    for some in (rows[: len(before)], rows[len(before) :]):
        state = all_of.initial()
        for row in some:
            state = all_of.add(state, row)
        parts.append(state)
    assert result(all_of, all_of.merge(*parts)) == {name: expected(rows) for name, (_, expected) in COLUMNS.items()}


@given(values, st.lists(st.integers(0, 12)))
def test_columns_of_the_rows_that_are_left(numbers: list[Any], leaving: list[int]) -> None:
    rows = rows_of(numbers)
    columns = {name: each for name, each in COLUMNS.items() if each[0].of_rows is not None}
    assert COLUMNS.keys() - columns.keys() == {"first", "last", "reduced"}
    all_of = several({name: column.of_rows for name, (column, _) in columns.items() if column.of_rows is not None})
    assert all_of.subtract is not None
    state = all_of.initial()
    for row in rows:
        state = all_of.add(state, row)
    gone = [row for row in rows if row["id"] in leaving]
    for row in gone:
        before = repr(state)
        after = all_of.subtract(state, row)
        assert repr(state) == before, "an old accumulator is in changes that were given"
        state = after
    left = [row for row in rows if row not in gone]
    given_of = result(all_of, state)
    for name, (_, expected) in columns.items():
        if name in UNORDERED:
            assert sorted(given_of[name]) == sorted(expected(left))
        else:
            assert given_of[name] == expected(left), name


@pytest.mark.parametrize(
    ("column", "of_rows"),
    [
        (Distinct(limit=3), False),
        (CountDistinct(limit=3), True),
        (TopN(1, by=lambda n: 0, ties=True, limit=3), False),
        (TopN(2, limit=3), True),
        (Max(limit=3), True),
    ],
)
def test_what_is_kept_has_a_limit(column: Aggregate, of_rows: bool) -> None:
    of = column.of_rows if of_rows else column.of_values
    assert of is not None
    state = of.initial()
    for n in range(3):
        state = of.add(state, n)
    with pytest.raises(RecordError, match=r"there are more than 3 .*, which is the limit="):
        of.add(state, 3)
    if of.merge is not None:  # of two sessions that become one
        with pytest.raises(RecordError, match=r"there are more than 3 .*, which is the limit="):
            of.merge(state, of.add(of.initial(), 3))


def test_a_top_of_values_keeps_no_more_than_it_gives() -> None:
    of = TopN(2, "n").of_values
    state = of.initial()
    for row in rows_of([1, 5, 3, 9, 5, 7]):
        state = of.add(state, row)
    assert [order for order, _ in state] == [9, 7]


def test_what_failed_when_it_came_is_not_taken_out() -> None:
    for column, expected in ((Collect(), [1]), (Distinct(), [1]), (TopN(3), [1]), (Max(), 1)):
        of = column.of_rows
        assert of is not None and of.subtract is not None
        assert result(of, of.subtract(of.add(of.initial(), 1), 2)) == expected
