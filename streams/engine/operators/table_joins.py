"""Joins of two tables by their keys.

The result is a table itself. So what a change says of the old value is what was given before, also where both inputs
come from one topic, and a join can be joined again. Results have the timestamp of the change that caused them; Kafka's
have the greater one of both rows, which these tables do not keep.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..event import Event
from ..placement import BY_KEY
from ..stores.store import Store
from ..tables import TableSpec
from .operator import Context, Failed, Outputs, derived, raise_failed
from .stream_join import INNER, LEFT
from .table_sources import Change, present

Value = Callable[[Any, Any], Any]


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
        self.value = value
        self.specs = (TableSpec(name, placement=BY_KEY),)
        self.counts: dict[str, int] = {}
        self._needs = (how in (INNER, LEFT), how == INNER)  # left, right
        self._versioned = versioned
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._rows = tuple(map(partial(reader, context), self.tables, self._versioned))
        self._failed = context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        other = 1 - port
        row = self._rows[other]
        for event in events:
            theirs = row(event.key)
            left, right = (theirs, event.value.new) if port else (event.value.new, theirs)
            try:
                new = self._joined(left, right)
            except Exception as error:
                self._failed(self.name, event, error)
                continue
            change_row(self._store, event, event.key, new, found)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _joined(self, left: Any, right: Any) -> Any:
        if left is None and (right is None or self._needs[0]):
            return None
        return None if right is None and self._needs[1] else self.value(left, right)


def reader(context: Context, table: str, versioned: bool) -> Callable[[Any], Any]:
    """Returns the present value of a row of a table; None if there is none."""
    return partial(present, context.versions[table]) if versioned else context.store(table).rows.get


def change_row(store: Store, event: Event, key: Any, new: Any, found: list[Event]) -> None:
    """Write a row of a result, and give the change. Where there is no row before or after, there is none."""
    old = store.rows.get(key)
    if new is not None:
        store.set(key, new)
    elif old is not None:
        store.delete(key)
    else:
        return
    change = derived(event, Change(old, new))
    change.key = key
    found.append(change)
