"""How values become one: count, sum, min, max, mean, reduce, collect and others, several of them at once, and what an
app defines itself.

Values of which `of` returns None are left out, as SQL leaves out nulls. Those that end in `_of_rows` are for groups of
a table's rows: they can take a value out again, so their accumulators have all values. A value that is not in, because
it failed when it came, is not taken out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ...errors import AppError, RecordError

Of = Callable[[Any], Any]


class Aggregation(NamedTuple):
    """initial: returns a new accumulator. add(accumulator, value): the accumulator with the value; it may change the
    one given. merge(a, b): the accumulator of both's values, a's first; sessions need it. result: what is given of an
    accumulator. subtract(accumulator, value): without a value that was added; groups of tables need it, and then
    neither it nor `add` may change the one given. Accumulators are table values: None, bool, int, float, str, bytes,
    lists, tuples and dicts of them.

    computes: what accumulators are of, by column, or one text, to be compared with what it was when the code changes;
    functions cannot be. version: of accumulators, from 1. migrate: version -> function(key, accumulator), which makes
    one of the next version. adopt: instead of these, from what they computed in any version: one of these columns.
    """

    initial: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any] | None = None
    result: Callable[[Any], Any] | None = None
    subtract: Callable[[Any, Any], Any] | None = None
    computes: Any = None
    version: int = 1
    migrate: Mapping[int, Callable[[Any, Any], Any]] = MappingProxyType({})
    adopt: Callable[[Any, Any], Any] | None = None

    def named(self, step: str) -> Aggregation:
        """What it computes, where that is said by the step alone."""
        return self if self.computes else self._replace(computes=step)


def count(of: Of | None = None) -> Aggregation:
    """How many values, or how many for which `of` does not return None."""
    if of is None:
        return Aggregation(int, lambda n, value: n + 1, lambda a, b: a + b, None, lambda n, value: n - 1)
    return Aggregation(
        int,
        lambda n, value: n + (of(value) is not None),
        lambda a, b: a + b,
        None,
        lambda n, value: n - (of(value) is not None),
    )


def total(of: Of | None = None) -> Aggregation:
    """The sum of the values, or of what `of` returns for them."""
    if of is None:
        return Aggregation(
            int, lambda sum, value: sum + value, lambda a, b: a + b, None, lambda sum, value: sum - value
        )

    def add(sum: Any, value: Any) -> Any:
        given = of(value)
        return sum if given is None else sum + given

    def subtract(sum: Any, value: Any) -> Any:
        given = of(value)
        return sum if given is None else sum - given

    return Aggregation(int, add, lambda a, b: a + b, None, subtract)


def _best(of: Of | None, choose: Callable[[Any, Any], Any]) -> Aggregation:
    def add(best: Any, value: Any) -> Any:
        given = value if of is None else of(value)
        return given if best is None else best if given is None else choose(best, given)

    def merge(a: Any, b: Any) -> Any:
        return b if a is None else a if b is None else choose(a, b)

    return Aggregation(lambda: None, add, merge)


def least(of: Of | None = None) -> Aggregation:
    """The least of the values, or of what `of` returns for them."""
    return _best(of, min)


def greatest(of: Of | None = None) -> Aggregation:
    """The greatest of the values, or of what `of` returns for them."""
    return _best(of, max)


def first(of: Of | None = None) -> Aggregation:
    """The value that came first, or what `of` returns for it."""
    return _best(of, lambda a, b: a)


def last(of: Of | None = None) -> Aggregation:
    """The value that came last, or what `of` returns for it."""
    return _best(of, lambda a, b: b)


def mean(of: Of | None = None) -> Aggregation:
    """The arithmetic mean of the values, or of what `of` returns for them; None of none."""

    def changed(state: list[Any], value: Any, by: int) -> list[Any]:
        given = value if of is None else of(value)
        return state if given is None else [state[0] + by * given, state[1] + by]

    return Aggregation(
        lambda: [0, 0],
        lambda state, value: changed(state, value, 1),
        lambda a, b: [a[0] + b[0], a[1] + b[1]],
        lambda state: state[0] / state[1] if state[1] else None,
        lambda state, value: changed(state, value, -1),
    )


def reduce(function: Callable[[Any, Any], Any]) -> Aggregation:
    """`function(a, b)` over the values, in their order. The first one is the first accumulator."""
    return _best(None, function)


def collect(of: Of | None = None) -> Aggregation:
    """All values, or what `of` returns for them, in a list, in the order in which they came."""

    def add(values: list[Any], value: Any) -> list[Any]:
        given = value if of is None else of(value)
        return values if given is None else [*values, given]

    def subtract(values: list[Any], value: Any) -> list[Any]:
        given = value if of is None else of(value)
        if given not in values:
            return values
        at = values.index(given)
        return values[:at] + values[at + 1 :]

    return Aggregation(list, add, lambda a, b: a + b, list, subtract)


def distinct(of: Of | None, limit: int, result: Callable[[Any], Any] = list) -> Aggregation:
    """The values, or what `of` returns for them, each once, in the order in which they first came; an accumulator has
    how often each came. Raises RecordError for more than `limit`. result: `len` gives how many."""

    def changed(counts: dict[Any, int], value: Any, by: int) -> dict[Any, int]:
        given = value if of is None else of(value)
        if given is None or (by < 0 and given not in counts):
            return counts
        now = counts.get(given, 0) + by
        if now:
            _check(len(counts) + (given not in counts), limit, "different values")
            return {**counts, given: now}
        return {other: n for other, n in counts.items() if other != given}

    def merge(a: dict[Any, int], b: dict[Any, int]) -> dict[Any, int]:
        both = {**a, **{given: a.get(given, 0) + n for given, n in b.items()}}
        _check(len(both), limit, "different values")
        return both

    return Aggregation(
        dict,
        lambda counts, value: changed(counts, value, 1),
        merge,
        result,
        lambda counts, value: changed(counts, value, -1),
    )


Ranked = list[list[Any]]  # the order and what is kept, the best first; of equal ones, the first that came


def _placed(ranked: Ranked, order: Any, kept: Any, is_least: bool) -> Ranked:
    at = _after_equals(ranked, order, is_least)
    return [*ranked[:at], [order, kept], *ranked[at:]]


def _after_equals(ranked: Ranked, order: Any, is_least: bool) -> int:
    if is_least:
        return bisect_right(ranked, order, key=lambda each: each[0])
    backwards = ranked[::-1]
    return len(ranked) - bisect_left(backwards, order, key=lambda each: each[0])


def _cut(ranked: Ranked, n: int, ties: bool) -> Ranked:
    """The first n, with ties also those that are equal to the last of these."""
    end = n
    while ties and end < len(ranked) and ranked[end][0] == ranked[n - 1][0]:
        end += 1
    return ranked[:end]


def top(n: int, by: Of, of: Of | None, *, is_least: bool, ties: bool, limit: int) -> Aggregation:
    """The n values with the greatest of what `by` returns, or the least, the best first: SQL's ROW_NUMBER. ties: those
    equal to the last of them, too: SQL's RANK; RecordError for more than `limit`. of: what is kept of a value."""

    def add(ranked: Ranked, value: Any) -> Ranked:
        order = by(value)
        if order is None:
            return ranked
        if len(ranked) >= n and _after_equals(ranked, order, is_least) >= n:
            if not (ties and order == ranked[n - 1][0]):
                return ranked
        return checked(_cut(_placed(ranked, order, value if of is None else of(value), is_least), n, ties))

    def checked(ranked: Ranked) -> Ranked:
        _check(len(ranked), max(limit, n), "values of the same rank")
        return ranked

    def merge(a: Ranked, b: Ranked) -> Ranked:
        for order, kept in b:
            a = _placed(a, order, kept, is_least)
        return checked(_cut(a, n, ties))

    return Aggregation(list, add, merge, lambda ranked: [kept for _, kept in ranked])


def top_of_rows(n: int, by: Of, of: Of | None, *, is_least: bool, ties: bool, limit: int) -> Aggregation:
    """The same of rows. Raises RecordError for a group of more than `limit`."""

    def add(ranked: Ranked, value: Any) -> Ranked:
        order = by(value)
        if order is None:
            return ranked
        _check(len(ranked) + 1, limit, "rows in a group")
        return _placed(ranked, order, value if of is None else of(value), is_least)

    def subtract(ranked: Ranked, value: Any) -> Ranked:
        row = [by(value), value if of is None else of(value)]
        if row not in ranked:
            return ranked
        at = ranked.index(row)
        return ranked[:at] + ranked[at + 1 :]

    return Aggregation(list, add, None, lambda ranked: [kept for _, kept in _cut(ranked, n, ties)], subtract)


def best_of_rows(of: Of | None, limit: int, *, is_least: bool) -> Aggregation:
    """The least or the greatest of rows. Raises RecordError for a group of more than `limit`."""

    def itself(value: Any) -> Any:
        return value if of is None else of(value)

    ranked = top_of_rows(1, itself, itself, is_least=is_least, ties=False, limit=limit)
    return ranked._replace(result=lambda state: state[0][0] if state else None)


def _check(count: int, limit: int, what: str) -> None:
    if count > limit:
        raise RecordError(f"there are more than {limit} {what}, which is the limit= of the aggregate")


def several(columns: Mapping[str, Aggregation], version: int = 1) -> Aggregation:
    """A dict with what is given of each. It can merge, or subtract, if all of them can. An accumulator is a list of
    those of the columns in the order of their names, so that they may be declared in any other order later."""
    names = sorted(columns)
    parts = [columns[name] for name in names]
    given = [(name, names.index(name), columns[name].result) for name in columns]
    adds, subtracts = [part.add for part in parts], [part.subtract for part in parts]
    merges = [part.merge for part in parts]

    def merge(a: list[Any], b: list[Any]) -> list[Any]:
        return [function(x, y) for function, x, y in zip(merges, a, b, strict=True) if function]

    def result(state: list[Any]) -> dict[str, Any]:
        return {name: state[at] if function is None else function(state[at]) for name, at, function in given}

    def subtract(state: list[Any], value: Any) -> list[Any]:
        return [function(each, value) for function, each in zip(subtracts, state, strict=True) if function]

    def adopt(computed: Any, state: Any) -> list[Any]:
        """Columns that are what they were keep what they have; others begin anew."""
        before = dict(zip(sorted(computed), state, strict=True))
        return [
            before[name] if computed.get(name) == part.computes else part.initial()
            for name, part in zip(names, parts, strict=True)
        ]

    return Aggregation(
        lambda: [part.initial() for part in parts],
        lambda state, value: [function(each, value) for function, each in zip(adds, state, strict=True)],
        merge if all(merges) else None,
        result,
        subtract if all(subtracts) else None,
        {name: part.computes for name, part in zip(names, parts, strict=True)},
        version,
        adopt=adopt,
    )


def shaped(aggregation: Aggregation, shape: Callable[[Any], Any]) -> Aggregation:
    """What `shape` makes of the result. Raises RecordError for what it raises, which goes by the step's `on_error`."""
    before = aggregation.result

    def result(state: Any) -> Any:
        given = state if before is None else before(state)
        try:
            return shape(given)
        except Exception as error:
            raise RecordError(f"result= raised {type(error).__name__}: {error} for {given!r}") from error

    return aggregation._replace(result=result)


def check_limits(n: int, limit: int) -> None:
    """Raises AppError for numbers below 1."""
    if n < 1 or limit < 1:
        raise AppError(f"a limit of {limit}, and the first {n}: both must be at least 1")
