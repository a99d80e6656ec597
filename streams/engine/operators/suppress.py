"""Fewer updates: of the updates of a row or a window within a time, only the last one is given (KIP-328, time limit).

The first update begins the time; what is given once the watermark has passed it is the last one. A change is given with
the old value of the first update, and not at all if nothing has changed. A row is what is held back; nothing is ever
given early because of memory, so its bound is the number of keys that change within the time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..placement import BY_FIRST
from ..steps import in_steps
from ..tables import TableSpec
from .keeping import pack_event, unpack_event
from .operator import SKIPPED, Context, Failed, Outputs, raise_failed, unusable_key
from .table_sources import Change
from .windows import WindowResult

Where = tuple[Any, int | None]  # key, start of the window if there is one


class Suppress:
    """Output: the last update of each key, or of each window of a key, within `limit_ms` of event time."""

    outputs = 1

    def __init__(self, name: str, limit_ms: int) -> None:
        if limit_ms < 1:
            raise AppError(f"suppress {name}: a time of {limit_ms} ms; it must be at least 1 ms")
        self.name = name
        self.hold_ms = limit_ms
        self.specs = (TableSpec(name, placement=BY_FIRST, given_by=name),)
        self.counts = {SKIPPED: 0}
        self._waiting: list[tuple[int, int, Where]] = []  # a heap: when it is given, number, where
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store, self._failed = context.store(self.name), context.failed

    def read(self) -> Iterator[None]:
        for some in in_steps(self._store.rows.items()):
            for where, (due_ms, number, _) in some:
                self._waiting.append((due_ms, number, where))
                self._number = max(self._number, number)
            yield
        heapify(self._waiting)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        for event in events:
            if event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms, found)
            if event.key is None:
                self.counts[SKIPPED] += 1
                continue
            value = event.value
            where = event.key, value.start_ms if type(value) is WindowResult else None
            try:
                row = self._store.rows.get(where)
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            self._hold(where, row, event)
            if self._waiting[0][0] <= self._watermark_ms:
                self._advance(self._watermark_ms, found)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if watermark_ms > self._watermark_ms:
            self._advance(watermark_ms, found)
        return (found,)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _hold(self, where: Where, row: list[Any] | None, event: Event) -> None:
        packed = pack_event(event)
        if row is None:
            self._number += 1
            due_ms, number = event.timestamp_ms + self.hold_ms, self._number
            heappush(self._waiting, (due_ms, number, where))
        else:
            due_ms, number, before = row
            if type(event.value) is Change:
                packed[1][0] = before[1][0]
        self._store.set(where, [due_ms, number, packed])

    def _advance(self, watermark_ms: int, found: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        while self._waiting and self._waiting[0][0] <= watermark_ms:
            due_ms, _, where = heappop(self._waiting)
            event = unpack_event(self._store.rows[where][2], due_ms - self.hold_ms)
            self._store.delete(where)
            if type(event.value) is not Change or event.value.old != event.value.new:
                found.append(event)
