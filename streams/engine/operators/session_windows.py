"""Aggregates of sessions: events of a key with gaps of at most `gap_ms`. An event may join two sessions to one.

A row is (key, start) -> [accumulator, end, results given]. Where sessions of a key begin and end is also in memory. A
session closes when the watermark has passed its end by gap and grace; then its row goes, and an event that would have
belonged to it begins another.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..steps import in_steps
from .accumulators import of_windows
from .aggregations import Aggregation
from .operator import LATE, LEFT_OUT, SKIPPED, Context, Failed, Outputs, raise_failed, resulting, unusable_key
from .windows import FINAL, SessionWindows, WindowResult

_ACCUMULATOR, _END, _GIVEN, _EVENT = range(4)


class SessionWindowAggregate:
    """Outputs: `WindowResult` of each session, and the late events. Events without key or value are skipped.

    Results have the timestamp of the session's last event. A session whose start moves back, or that becomes part of
    another, is a new window: if a result of the old one was given, one with value None follows, that it is no more.
    """

    outputs = 2

    def __init__(self, name: str, windows: SessionWindows, aggregation: Aggregation, emit: str) -> None:
        if aggregation.merge is None:
            raise AppError(
                f"sessions {name}: the aggregation needs `merge`, because an event may join two sessions to one"
            )
        self.name = name
        self.spec = of_windows(name, aggregation)
        self.specs = (self.spec,)
        self.windows = windows
        self.aggregation = aggregation
        self._merge = aggregation.merge
        self.counts = {LATE: 0, SKIPPED: 0}
        self.emit = emit
        self._final = emit == FINAL
        self._close_ms = windows.gap_ms + windows.grace_ms + 1  # after its end a session closes
        self.hold_ms = self._close_ms if self._final else 0
        self._sessions: dict[Any, list[list[int]]] = {}  # of each key, in order: start and end
        # A heap: watermark, number, key, start. An entry may be from before a session grew or went: that is seen when
        # its time has come.
        self._closing: list[tuple[int, int, Any, int]] = []
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._partition = 0
        self._failed: Failed = raise_failed
        self._touched: dict[tuple[Any, int], list[Any]] = {}

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._context = context
        self._partition, self._failed = context.partition, context.failed

    def read(self) -> Iterator[None]:
        for some in in_steps(self._store.rows.items()):
            for (key, start), (_, end, _) in some:
                self._sessions.setdefault(key, []).append([start, end])
                self._schedule(key, start, end)
            yield
        for sessions in self._sessions.values():
            sessions.sort()
        heapify(self._closing)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        late: list[Event] = []
        for event in events:
            if event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms, found)
            if event.key is None or event.value is None:
                self.counts[SKIPPED] += 1
                continue
            try:
                if not self._add(event, found):
                    late.append(event)
            except Exception as error:
                self._failed(self.name, event, error)
        self._flush(found)
        self.counts[LATE] += len(late)
        return found, late

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if watermark_ms > self._watermark_ms:
            self._advance(watermark_ms, found)
        return found, []

    def tick(self, wall_ms: int) -> Outputs:
        return [], []

    def _add(self, event: Event, found: list[Event]) -> bool:
        """Returns False for a late event. Raises what the aggregation raises; then nothing has changed."""
        key, at, gap = event.key, event.timestamp_ms, self.windows.gap_ms
        try:
            sessions = self._sessions.get(key, [])
        except TypeError:
            raise unusable_key(event) from None
        low = high = len(sessions)
        while low and sessions[low - 1][1] >= at - gap:
            low -= 1
            if sessions[low][0] > at + gap:
                high = low
        joined = sessions[low:high]
        if not joined and at + self._close_ms <= self._watermark_ms:
            return False
        start = min(at, joined[0][0]) if joined else at
        end = max(at, joined[-1][1]) if joined else at
        cells = [self._cell(key, each[0]) for each in joined]
        accumulator = cells[0][_ACCUMULATOR] if cells else self.aggregation.initial()
        for cell in cells[1:]:
            accumulator = self._merge(accumulator, cell[_ACCUMULATOR])
        accumulator = self.aggregation.add(accumulator, event.value)

        given = cells[0][_GIVEN] if cells and joined[0][0] == start else 0
        for (old, _), cell in zip(joined, cells, strict=True):
            if old != start:
                self._remove(key, old, cell, event, found)
        if not joined or joined[0][0] != start:
            self._schedule(key, start, end)
        self._sessions.setdefault(key, sessions)[low:high] = [[start, end]]
        self._touched[key, start] = [accumulator, end, given, event]
        return True

    def _cell(self, key: Any, start: int) -> list[Any]:
        found = self._touched.get((key, start))
        return self._store.rows[key, start] if found is None else found

    def _remove(self, key: Any, start: int, cell: list[Any], event: Event, found: list[Event]) -> None:
        """A session has become part of another one."""
        self._touched.pop((key, start), None)
        if (key, start) in self._store.rows:
            self._store.delete((key, start))
        if cell[_GIVEN] and not self._final:
            found.append(self._result(event, start, cell[_END], None, cell[_GIVEN]))

    def _schedule(self, key: Any, start: int, end: int) -> None:
        self._number += 1
        heappush(self._closing, (end + self._close_ms, self._number, key, start))

    def _flush(self, found: list[Event]) -> None:
        result, final = self.aggregation.result, self._final
        for (key, start), (accumulator, end, given, event) in self._touched.items():
            self._store.set((key, start), [accumulator, end, given + (not final)])
            if not final:
                value = accumulator
                if result is not None:
                    value = resulting(self.name, result, accumulator, event, self._failed)
                if value is not LEFT_OUT:
                    found.append(self._result(event, start, end, value, given))
        self._touched = {}

    def _result(self, event: Event, start: int, end: int, value: Any, given: int) -> Event:
        return Event(
            event.key,
            WindowResult(event.key, start, end, value, given, self._context.missing),
            end,
            event.topic,
            event.partition,
            event.offset,
            event.raw_headers,
            event.watermark_ms,
        )

    def _advance(self, watermark_ms: int, found: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        if not self._closing or self._closing[0][0] > watermark_ms:
            return
        self._flush(found)
        while self._closing and self._closing[0][0] <= watermark_ms:
            due_ms, _, key, start = heappop(self._closing)
            row = self._store.rows.get((key, start))
            if row is None:
                continue  # it became part of another, or closed when it had begun anew
            if row[_END] + self._close_ms > due_ms:  # it went on: others may close before it
                self._schedule(key, start, row[_END])
                continue
            if self._final:
                self._give(key, start, row, found)
            self._store.delete((key, start))
            sessions = self._sessions[key]
            sessions.remove([start, row[_END]])
            if not sessions:
                del self._sessions[key]

    def _give(self, key: Any, start: int, row: list[Any], found: list[Event]) -> None:
        accumulator, end, given = row
        event = Event(key, None, end, self.name, self._partition, -1, (), end)
        value, result = accumulator, self.aggregation.result
        if result is not None:
            value = resulting(self.name, result, accumulator, event, self._failed)
        if value is not LEFT_OUT:
            event.value = WindowResult(key, start, end, value, given, self._context.missing)
            found.append(event)
