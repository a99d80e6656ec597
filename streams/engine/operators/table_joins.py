"""Joins of two tables by their keys.

The result is a table itself. So what a change says of the old value is what was given before, also where both inputs
come from one topic, and a join can be joined again. Results have the timestamp of the change that caused them; Kafka's
have the greater one of both rows, which these tables do not keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from ..event import Event
from ..placement import BY_KEY
from ..tables import TableSpec
from .operator import Context, Failed, Outputs, derived, raise_failed
from .stream_join import INNER, LEFT
from .table_sources import Change, present

Value = Callable[[Any, Any], Any]
Sides = tuple[Event, Any, Any]  # the left and the right row for its key; None: there is none


class TableJoin:
    """Ports: changes of the left and of the right table, which are co-partitioned. Output: changes of the result, which
    is a table of the operator's name. value(left, right): None in place of a row that is missing; `inner` results need
    both, `left` the left one, `outer` either. versioned: which of the tables have versions."""

    outputs = 1
    hold_ms = 0

    def __init__(
        self,
        name: str,
        left: str,
        right: str,
        value: Value,
        how: str = INNER,
        versioned: tuple[bool, bool] = (False, False),
    ) -> None:
        self.name = name
        self.tables = (left, right)
        self.how = how
        self.result = JoinResult(name, value, how)
        self.specs = (self.result.spec,)
        self.counts: dict[str, int] = {}
        self._versioned = versioned

    def open(self, context: Context) -> None:
        self.result.open(context)
        self._rows = tuple(map(partial(reader, context), self.tables, self._versioned))

    def process(self, port: int, events: list[Event]) -> Outputs:
        return (self.result.changes(self._sides(port, events)),)

    def _sides(self, port: int, events: list[Event]) -> Iterator[Sides]:
        row = self._rows[1 - port]
        for event in events:
            theirs = row(event.key)
            yield (event, theirs, event.value.new) if port else (event, event.value.new, theirs)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)


def reader(context: Context, table: str, versioned: bool) -> Callable[[Any], Any]:
    """Returns the present value of a row of a table; None if there is none."""
    return partial(present, context.versions[table]) if versioned else context.store(table).rows.get


class JoinResult:
    """The rows that a join gives: a table. value, how: see `TableJoin`."""

    def __init__(self, name: str, value: Value, how: str) -> None:
        self.spec = TableSpec(name, placement=BY_KEY)
        self._value = value
        self._needs_left, self._needs_right = how in (INNER, LEFT), how == INNER
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store, self._failed = context.store(self.spec.name), context.failed

    def changes(self, joined: Iterable[Sides]) -> list[Event]:
        """Write the row of each event's key, and give the changes. Where there is no row before or after, there is
        none."""
        found: list[Event] = []
        for event, left, right in joined:
            try:
                new = self._row(left, right)
            except Exception as error:
                self._failed(self.spec.name, event, error)
                continue
            old = self._store.rows.get(event.key)
            if new is not None:
                self._store.set(event.key, new)
            elif old is not None:
                self._store.delete(event.key)
            else:
                continue
            found.append(derived(event, Change(old, new)))
        return found

    def _row(self, left: Any, right: Any) -> Any:
        if left is None and (right is None or self._needs_left):
            return None
        return None if right is None and self._needs_right else self._value(left, right)
