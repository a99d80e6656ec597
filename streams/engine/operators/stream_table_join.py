"""Joins of a stream with a table: each event is given with the row of its key, or of a key made of it.

The table is that of another operator of the task, an app's own, or a global one, which has all partitions. With a
versioned table the row is that of the event's time. With a grace the event waits until the watermark has passed its
time by it, so that the table is as complete as that (KIP-923); a row of the waiting is (timestamp, number) -> the
event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..placement import BY_EVENT
from ..steps import in_steps
from ..tables import TableSpec
from .keeping import pack_event, unpack_event
from .operator import SKIPPED, Context, Failed, KeyKind, Outputs, derived, raise_failed, unusable_key
from .stream_join import INNER
from .table_sources import present


class StreamTableJoin:
    """Output: what `value` returns for the event's value and the row; where there is none, nothing, or with `left` for
    None. key: returns the row's key for an event's value; None: the event's own. Events without value or, unless left,
    without key are skipped.

    A result has the event's timestamp and position. history_ms: of a versioned table; for events that are later than
    that there is no row. grace_ms: an event that is later than that does not wait.
    """

    outputs = 1

    def __init__(
        self,
        name: str,
        table: str,
        value: Callable[[Any, Any], Any],
        how: str = INNER,
        *,
        key: Callable[[Any], Any] | None = None,
        history_ms: int | None = None,
        grace_ms: int | None = None,
    ) -> None:
        if grace_ms is not None and (history_ms is None or history_ms < grace_ms):
            raise AppError(
                f"join {name}: table {table} must have a history= of at least the grace, or an event that waited would "
                "get the row of a later time"
            )
        self.name = name
        self.table = table
        self.value = value
        self.key = key
        self.counts = {SKIPPED: 0}
        self._spec = TableSpec(f"{name}-waiting", placement=BY_EVENT, given_by=name)
        self.specs: tuple[TableSpec, ...] = () if grace_ms is None else (self._spec,)
        self._inner = how == INNER
        self._history_ms = history_ms
        self._grace_ms = grace_ms
        self.hold_ms = 0 if grace_ms is None else grace_ms
        self._waiting: list[tuple[int, int]] = []  # a heap: timestamp, number
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._failed: Failed = raise_failed
        self._kind = KeyKind()

    def open(self, context: Context) -> None:
        if self._history_ms is None:
            self._rows = context.store(self.table).rows
        else:
            self._versions = context.versions[self.table]
        self._failed = context.failed
        if self._grace_ms is not None:
            self._store = context.store(self._spec.name)

    def read(self) -> Iterator[None]:
        if self._grace_ms is None:
            return
        for some in in_steps(self._store.rows):
            self._waiting += some
            yield
        heapify(self._waiting)
        self._number = max((number for _, number in self._waiting), default=0)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        for event in events:
            if event.value is None or (self._inner and self.key is None and event.key is None):
                self.counts[SKIPPED] += 1
                continue
            if self._grace_ms is None:
                self._join(event, found)
                continue
            if event.watermark_ms > self._watermark_ms:
                self._release(event.watermark_ms, found)
            if event.timestamp_ms + self._grace_ms <= self._watermark_ms:
                self._join(event, found)
            else:
                self._wait(event)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if self._grace_ms is not None and watermark_ms > self._watermark_ms:
            self._release(watermark_ms, found)
        return (found,)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _join(self, event: Event, found: list[Event]) -> None:
        try:
            key = event.key if self.key is None else self.key(event.value)
            try:
                if key is None:
                    row = None
                elif self._history_ms is None:
                    row = self._rows.get(key)
                else:
                    row = present(self._versions, key, event.timestamp_ms)
            except TypeError:
                raise unusable_key(event) from None
            if self.key is not None and self._history_ms is None:
                self._kind.look(key, row, self._rows.get)
            if row is None and self._inner:
                return
            result = derived(event, self.value(event.value, row), hold_ms=self.hold_ms)
        except Exception as error:
            self._failed(self.name, event, error)
            return
        found.append(result)

    def _wait(self, event: Event) -> None:
        self._number += 1
        where = event.timestamp_ms, self._number
        self._store.set(where, pack_event(event))
        heappush(self._waiting, where)

    def _release(self, watermark_ms: int, found: list[Event]) -> None:
        """Join the events that have waited long enough."""
        self._watermark_ms = watermark_ms
        assert self._grace_ms is not None
        while self._waiting and self._waiting[0][0] + self._grace_ms <= watermark_ms:
            where = heappop(self._waiting)
            event = unpack_event(self._store.rows[where], where[0] + self.hold_ms)
            self._store.delete(where)
            self._join(event, found)
