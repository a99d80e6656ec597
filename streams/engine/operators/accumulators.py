"""Tables of aggregates: rows are accumulators, or cells that begin with one; what is given of them may be a table, too.

Their versions are the aggregation's. Windows that have changed make a row mean something else whatever its version;
`engine/versions.py` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..described import COMPUTES
from ..event import Event
from ..migration import DROP, by_version
from ..placement import BY_FIRST, BY_KEY
from ..tables import Derived, TableSpec
from .aggregations import Aggregation
from .operator import LEFT_OUT, Context, derived, resulting
from .table_sources import Change

Function = Callable[[Any, Any], Any]  # of a row's key and value


def of_windows(name: str, aggregation: Aggregation) -> TableSpec:
    """Rows are lists by (key, start of the window in ms): the accumulator, and what the operator keeps of it."""
    return _versioned(TableSpec(name, placement=BY_FIRST), aggregation, _within)


def of_keys(name: str, aggregation: Aggregation, *, takes_out: bool = False) -> tuple[TableSpec, ...]:
    """A table of what is given. Where that is something else than the accumulator, those are a table of their own, the
    second."""
    if aggregation.result is None:
        spec = TableSpec(name, placement=BY_KEY, takes_out=takes_out)
        return (_versioned(spec, aggregation, lambda function: function),)
    state = TableSpec(f"{name}-state", placement=BY_KEY, takes_out=takes_out)
    derived = Derived(state.name, aggregation.result)
    given = TableSpec(name, placement=BY_KEY, version=aggregation.version, derived=derived)
    return given, _versioned(state, aggregation, lambda function: function)


class Accumulators:
    """Rows of `of_keys` in a task, from `open` on."""

    def __init__(self, name: str, aggregation: Aggregation, specs: tuple[TableSpec, ...]) -> None:
        self._name = name
        self._result = aggregation.result
        self._tables = [spec.name for spec in specs]

    def open(self, context: Context) -> None:
        self._given = context.store(self._tables[0])
        self._accumulators = context.store(self._tables[-1])
        self._failed = context.failed

    @property
    def rows(self) -> Mapping[Any, Any]:
        """Accumulators by key."""
        return self._accumulators.rows

    def set(self, event: Event, accumulator: Any, found: list[Event]) -> None:
        """Of the event's key. What is given changes with it, and `found` has that; a result that fails is left out."""
        old, result = self._given.rows.get(event.key), self._result
        self._accumulators.set(event.key, accumulator)
        if result is None:
            found.append(derived(event, Change(old, accumulator)))
            return
        new = resulting(self._name, result, accumulator, event, self._failed)
        if new is not LEFT_OUT:
            self._given.set(event.key, new)
            found.append(derived(event, Change(old, new)))


def _versioned(spec: TableSpec, aggregation: Aggregation, in_row: Callable[[Function], Function]) -> TableSpec:
    spec.version = aggregation.version
    spec.migrations = by_version({version: in_row(function) for version, function in aggregation.migrate.items()})
    adopt = aggregation.adopt
    if adopt is not None:
        spec.adopt = lambda made_by: in_row(_adopting(adopt, made_by))
    return spec


def _adopting(adopt: Function, made_by: Mapping[str, Any]) -> Function:
    return lambda key, accumulator: adopt(made_by.get(COMPUTES), accumulator)


def _within(function: Function) -> Function:
    def changed(key: Any, cell: Any) -> Any:
        made = function(key, cell[0])
        return made if made is DROP else [made, *cell[1:]]

    return changed
