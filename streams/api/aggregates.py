"""Columns of a step's result: `orders.tumbling(60).aggregate(total=Sum("amount"), n=Count(), name="totals")`.

`of` says what is taken of a value: the name of a field, of a dict or an object, a field such as `Order.amount`, or a
function; without it the value itself. Values of which it is None are left out, as SQL leaves out nulls; where a dict
lacks the field, the event fails. All of them are for windows, keys and groups of a table's rows; of rows there is no
first and no last, as they have no order. Those that must know all rows of a group to take one out again say so: their
`limit` is of that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple

from ..engine.operators import aggregations
from ..engine.operators.aggregations import Aggregation
from ..engine.plain_functions import refuse_async
from ..errors import AppError
from ..models.fields import FieldDescriptor, path

Of = str | Callable[[Any], Any] | None
VALUES_MAX = 10_000  # default of `limit`


class Aggregate(NamedTuple):
    """One column. of_rows: the same for groups of a table's rows; None: they have none."""

    kind: str
    of_values: Aggregation
    of_rows: Aggregation | None


def _column(kind: str, of: Any, of_values: Aggregation, of_rows: Aggregation | None, *more: object) -> Aggregate:
    """Kind, field and numbers are what accumulators are known by when the code changes."""
    fields = [] if of is None else [_told(of)]
    computes = f"{kind}({', '.join([*fields, *map(str, more)])})"
    of_rows = None if of_rows is None else of_rows._replace(computes=computes)
    return Aggregate(kind, of_values._replace(computes=computes), of_rows)


def _told(of: Any) -> str:
    if isinstance(of, FieldDescriptor):
        return path(of)
    return of if isinstance(of, str) else "function"


def taken(of: Of) -> Callable[[Any], Any] | None:
    """A function that returns what is taken of a value. Raises AppError for what cannot be one."""
    if of is None or callable(of):
        refuse_async("a column", of)
        return of
    if not isinstance(of, str):
        raise AppError(f"{of!r} is neither the name of a field nor a function of the value")
    attribute = attrgetter(of)

    def field(value: Any) -> Any:
        return value[of] if isinstance(value, Mapping) else attribute(value)

    return field


def Count(of: Of = None) -> Aggregate:
    """How many values."""
    made = aggregations.count(taken(of))
    return _column("Count", of, made, made)


def Sum(of: Of = None) -> Aggregate:
    """0 of none."""
    made = aggregations.total(taken(of))
    return _column("Sum", of, made, made)


def Mean(of: Of = None) -> Aggregate:
    """The arithmetic mean; None of none."""
    made = aggregations.mean(taken(of))
    return _column("Mean", of, made, made)


def Min(of: Of = None, *, limit: int = VALUES_MAX) -> Aggregate:
    """The least; None of none. limit: rows of a group, all of which are kept."""
    aggregations.check_limits(1, limit)
    of_rows = aggregations.best_of_rows(taken(of), limit, is_least=True)
    return _column("Min", of, aggregations.least(taken(of)), of_rows)


def Max(of: Of = None, *, limit: int = VALUES_MAX) -> Aggregate:
    """The greatest; None of none. limit: rows of a group, all of which are kept."""
    aggregations.check_limits(1, limit)
    of_rows = aggregations.best_of_rows(taken(of), limit, is_least=False)
    return _column("Max", of, aggregations.greatest(taken(of)), of_rows)


def First(of: Of = None) -> Aggregate:
    """Of the event that came first; None of none."""
    return _column("First", of, aggregations.first(taken(of)), None)


def Last(of: Of = None) -> Aggregate:
    """Of the event that came last; None of none."""
    return _column("Last", of, aggregations.last(taken(of)), None)


def Collect(of: Of = None) -> Aggregate:
    """All, in a list, in the order in which they came."""
    made = aggregations.collect(taken(of))
    return _column("Collect", of, made, made)


def Distinct(of: Of = None, *, limit: int = VALUES_MAX) -> Aggregate:
    """A list with each once, exactly, in the order in which they first came. An event with one more than `limit`
    fails."""
    aggregations.check_limits(1, limit)
    made = aggregations.distinct(taken(of), limit)
    return _column("Distinct", of, made, made)


def CountDistinct(of: Of = None, *, limit: int = VALUES_MAX) -> Aggregate:
    """How many different ones, exactly; all are kept. An event with one more than `limit` fails."""
    aggregations.check_limits(1, limit)
    made = aggregations.distinct(taken(of), limit, len)
    return _column("CountDistinct", of, made, made)


def TopN(
    n: int, by: Of = None, of: Of = None, *, least: bool = False, ties: bool = False, limit: int = VALUES_MAX
) -> Aggregate:
    """A list of the n values with the greatest `by`, or the least, the best first; of equal ones the first that came,
    as SQL's ROW_NUMBER. ties: with all that are equal to the last of them, as RANK. limit: of those, and rows of a
    group, all of which are kept; an event with one more fails."""
    aggregations.check_limits(n, limit)
    order = taken(by) or (lambda value: value)
    of_values = aggregations.top(n, order, taken(of), is_least=least, ties=ties, limit=limit)
    of_rows = aggregations.top_of_rows(n, order, taken(of), is_least=least, ties=ties, limit=limit)
    more = [word for word, is_so in (("least", least), ("ties", ties)) if is_so]
    kept = [] if of is None else [f"of={_told(of)}"]
    return _column("TopN", by, of_values, of_rows, n, *kept, *more)


def Reduce(
    function: Callable[[Any, Any], Any],
    *,
    initial: Callable[[], Any] | None = None,
    merge: Callable[[Any, Any], Any] | None = None,
    subtract: Callable[[Any, Any], Any] | None = None,
) -> Aggregate:
    """function(accumulator, value) over the values, in their order. initial: returns the first accumulator; without it
    that is the first value. merge: the accumulator of two, which sessions need with an `initial`. subtract: the
    accumulator without a value, which groups of rows need, with an `initial`."""
    refuse_async("Reduce", function, initial, merge, subtract)
    if initial is None:
        return _column("Reduce", function, aggregations.reduce(function), None)
    made = Aggregation(initial, function, merge, None, subtract)
    return _column("Reduce", function, made, made if subtract else None, "initial")


def aggregation(
    step: str,
    initial: Any,
    add: Any,
    columns: Mapping[str, Any],
    *,
    merge: Any = None,
    subtract: Any = None,
    result: Any = None,
    version: Any = 1,
    migrate: Any = None,
    of_rows: bool = False,
) -> Aggregation:
    """What the arguments of a step's `aggregate` say: an accumulator of the app's own, or columns. result: called with
    the accumulator, or with the columns by name. version: of accumulators; migrate: version -> function(key,
    accumulator), which returns one of the next version. Raises AppError for what cannot be."""
    arguments = {"initial": initial, "add": add, "merge": merge, "subtract": subtract, "result": result}
    for name, argument in {**arguments, "version": version, "migrate": migrate}.items():
        if isinstance(argument, Aggregate):
            raise _misnamed(step, name)
    refuse_async(f"step {step}", *arguments.values())
    check_version(step, version, migrate)
    if initial is None or add is None:
        if migrate:
            raise AppError(
                f"step {step}: columns need no migrate=: with another version those that stay keep what they have, and "
                "new ones begin with what comes"
            )
        made = _combined(step, columns, of_rows, version)
        return made if result is None else aggregations.shaped(made, lambda given: result(**given))
    if columns:
        raise AppError(f"step {step}: aggregate() takes columns, or initial and add, not both")
    made = Aggregation(initial, add, merge, None, subtract, "aggregate", version, dict(migrate or {}))
    return made if result is None else aggregations.shaped(made, result)


def check_version(step: str, version: Any, migrate: Any) -> None:
    """Raises AppError for what is no version of a step's rows, and for migrations that lead to none up to it."""
    if not isinstance(version, int) or version < 1:
        raise AppError(f"step {step}: version={version!r}, but must be a whole number from 1")
    if migrate is None:
        return
    if not isinstance(migrate, Mapping) or not all(map(callable, migrate.values())):
        raise AppError(
            f"step {step}: migrate={migrate!r}, but must be a dict of functions by the version they begin with"
        )
    refuse_async(f"migrate= of step {step}", *migrate.values())
    for begin in migrate:
        if not isinstance(begin, int) or not 1 <= begin < version:
            raise AppError(
                f"step {step}: migrate= has a function of version {begin!r} to the next, and the step is of version "
                f"{version}: raise version=, or give the function the version that rows had before"
            )


def _combined(step: str, columns: Mapping[str, Any], of_rows: bool, version: int) -> Aggregation:
    if not columns:
        raise AppError(f"step {step}: aggregate() needs columns, such as n=Count(), or both initial and add")
    parts: dict[str, Aggregation] = {}
    for name, column in columns.items():
        if not isinstance(column, Aggregate):
            raise AppError(f"step {step}: column {name} is {column!r}; it must be one such as Count() or Sum('amount')")
        part = column.of_rows if of_rows else column.of_values
        if part is None:
            way_out = "rows have no order, Min and Max are possible"
            if column.kind == "Reduce":
                way_out = "it needs an initial= and a subtract="
            raise AppError(f"step {step}: column {name}: {column.kind} of a table's rows is not possible: {way_out}")
        parts[name] = part
    return aggregations.several(parts, version)


def given_name(name: Any, step: str) -> str | None:
    """`name`, unless it is a column. Raises AppError for one that is called so."""
    if isinstance(name, Aggregate):
        raise _misnamed(step, "name")
    return name


def _misnamed(step: str, name: str) -> AppError:
    return AppError(
        f"step {step}: a column cannot be called {name}, as an argument is: give it another name, and let result= make "
        "what is wanted of the columns"
    )
