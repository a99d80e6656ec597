"""Drops events that came before: those with an id that another event had, at most `within_ms` of event time away.

A row is id -> timestamps at which an event of it was given. Rows are kept for as long as a duplicate may come: `within`
and the grace after the watermark has passed them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..placement import BY_KEY, SEEN
from ..steps import in_steps
from ..tables import TableSpec
from .operator import LATE, Context, Failed, Outputs, raise_failed, unusable_key

DUPLICATES = "duplicates"


class Dedup:
    """Outputs: the first event of each id; and the late events, of which it is not known any more. id_of: returns the
    id for a value; None: it is the event's key. Events of one id must be in one partition."""

    outputs = 2
    hold_ms = 0

    def __init__(
        self, name: str, within_ms: int, id_of: Callable[[Any], Any] | None = None, grace_ms: int | None = None
    ) -> None:
        if within_ms < 1:
            raise AppError(f"dedup {name}: within {within_ms} ms; it must be at least 1 ms")
        self.name = name
        self.within_ms = within_ms
        self.grace_ms = within_ms if grace_ms is None else grace_ms
        self.id_of = id_of
        self.ids = "keys" if id_of is None else "of a function"
        self.specs = (TableSpec(name, placement=BY_KEY if id_of is None else SEEN),)
        self.counts = {DUPLICATES: 0, LATE: 0}
        self._expiring: list[tuple[int, int, Any]] = []  # a heap: timestamp, number, id
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._failed = context.failed

    def read(self) -> Iterator[None]:
        for some in in_steps(self._store.rows.items()):
            for which, times in some:
                for at in times:
                    self._number += 1
                    self._expiring.append((at, self._number, which))
            yield
        heapify(self._expiring)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        late: list[Event] = []
        rows = self._store.rows
        for event in events:
            if event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms)
            at = event.timestamp_ms
            if at + self.grace_ms < self._watermark_ms:
                late.append(event)
                continue
            try:
                which = event.key if self.id_of is None else self.id_of(event.value)
            except Exception as error:
                self._failed(self.name, event, error)
                continue
            try:
                times = rows.get(which, ())
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            if any(abs(at - other) <= self.within_ms for other in times):
                self.counts[DUPLICATES] += 1
                continue
            self._store.set(which, [*times, at])
            self._number += 1
            heappush(self._expiring, (at, self._number, which))
            found.append(event)
        self.counts[LATE] += len(late)
        return found, late

    def advance(self, watermark_ms: int) -> Outputs:
        if watermark_ms > self._watermark_ms:
            self._advance(watermark_ms)
        return [], []

    def tick(self, wall_ms: int) -> Outputs:
        return [], []

    def _advance(self, watermark_ms: int) -> None:
        self._watermark_ms = watermark_ms
        keep_ms = self.within_ms + self.grace_ms
        while self._expiring and self._expiring[0][0] + keep_ms < watermark_ms:
            at, _, which = heappop(self._expiring)
            times = [other for other in self._store.rows[which] if other != at]
            if times:
                self._store.set(which, times)
            else:
                self._store.delete(which)
