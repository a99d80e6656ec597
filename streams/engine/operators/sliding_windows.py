"""Aggregates of sliding windows, KIP-450.

An event at time t ends the window [t - size, t] and begins [t + 1, t + 1 + size], where that would have events. So
every window that differs in its events from the one before exists, and a new one takes over the accumulator of the one
before it: no event is stored. Events earlier than `size` after the epoch have [0, size] in place of the window they
end.

A row is (key, start) -> [accumulator, greatest timestamp, results given, whether it was given at its close]. Rows stay
for `size` after they close, since new windows may be made from them. The starts of each key are also in memory.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from copy import deepcopy
from heapq import heapify, heappop, heappush
from typing import Any

from ..event import NO_WATERMARK, Event
from ..steps import in_steps
from .accumulators import of_windows
from .aggregations import Aggregation
from .operator import LATE, LEFT_OUT, SKIPPED, Context, Failed, Outputs, raise_failed, resulting, unusable_key
from .windows import FINAL, SlidingWindows, WindowResult

_IMMUTABLE = frozenset((int, str, float, bool, type(None), bytes))
_ACCUMULATOR, _TIMESTAMP, _GIVEN, _CLOSED, _EVENT = range(5)


class SlidingWindowAggregate:
    """Outputs and emission are those of `TimeWindowAggregate`; results of `final` have the timestamp of the window's
    end, which belongs to it."""

    outputs = 2

    def __init__(self, name: str, windows: SlidingWindows, aggregation: Aggregation, emit: str) -> None:
        self.name = name
        self.spec = of_windows(name, aggregation)
        self.specs = (self.spec,)
        self.windows = windows
        self.aggregation = aggregation
        self.counts = {LATE: 0, SKIPPED: 0}
        self.emit = emit
        self._final = emit == FINAL
        self.hold_ms = windows.grace_ms + 1 if self._final else 0
        self._starts: dict[Any, list[int]] = {}  # of each key, in order
        self._closing: list[tuple[int, int, Any]] = []  # a heap: watermark at which it closes, number, (key, start)
        self._deleting: list[
            tuple[int, int, Any]
        ] = []  # a heap: watermark at which it is deleted, number, (key, start)
        self._number = 0  # orders equal times by when the windows were made
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
            for (key, start), (_, _, _, closed) in some:
                self._schedule(key, start, not closed)
            yield
        for starts in self._starts.values():
            starts.sort()
        heapify(self._closing)
        heapify(self._deleting)

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        late: list[Event] = []
        for event in events:
            if event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms, found)
            if event.key is None or event.value is None:
                self.counts[SKIPPED] += 1
            elif event.timestamp_ms + self.windows.size_ms + self.windows.grace_ms < self._watermark_ms:
                late.append(event)
            else:
                self._add(event)
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

    def _add(self, event: Event) -> None:
        key, at, size = event.key, event.timestamp_ms, self.windows.size_ms
        try:
            starts = self._starts.get(key, [])
        except TypeError:
            self._failed(self.name, event, unusable_key(event))
            return
        left = at - size if at >= size else min(0, at)
        low, high = bisect_left(starts, left), bisect_right(starts, at)
        containing = starts[low:high]
        before = self._cell(key, starts[low - 1]) if low and starts[low - 1] >= left - size else None
        made: list[tuple[int, list[Any]]] = []  # start, cell

        try:
            if containing and containing[0] == left:
                previous_ms = self._cell(key, left)[_TIMESTAMP]
            else:
                previous_ms = before[_TIMESTAMP] if before else None
                if before and before[_TIMESTAMP] >= left:
                    made.append((left, self._new(self._add_to(before, event), at)))
                else:
                    made.append((left, self._new(self._alone(event), at)))
            if previous_ms is not None and left <= previous_ms < at and previous_ms + 1 not in containing:
                made.append((previous_ms + 1, self._new(self._alone(event), at)))
            right_is_there = high < len(starts) and starts[high] == at + 1
            if containing and not right_is_there:
                latest = self._cell(key, containing[-1])
                if latest[_TIMESTAMP] > at:
                    made.append((at + 1, self._new(_apart(latest[_ACCUMULATOR]), latest[_TIMESTAMP])))
            changed = [
                (start, self._add_to(self._cell(key, start), event)) for start in containing if self._takes(start)
            ]
        except Exception as error:
            self._failed(self.name, event, error)
            return

        for start, accumulator in changed:
            cell = self._touch(key, start, event)
            cell[_ACCUMULATOR] = accumulator
            cell[_TIMESTAMP] = max(cell[_TIMESTAMP], at)
        for start, cell in made:
            if self._takes(start):
                self._touched[key, start] = [*cell, event]
                self._schedule(key, start, True)
                insort(self._starts[key], self._starts[key].pop())

    def _takes(self, start: int) -> bool:
        """Whether a window has not closed."""
        return start + self.windows.size_ms + self.windows.grace_ms >= self._watermark_ms

    def _add_to(self, cell: list[Any], event: Event) -> Any:
        """The accumulator of a window with one more event. The window's own is not changed: others may be made of
        it."""
        return self.aggregation.add(_apart(cell[_ACCUMULATOR]), event.value)

    def _alone(self, event: Event) -> Any:
        return self.aggregation.add(self.aggregation.initial(), event.value)

    def _new(self, accumulator: Any, timestamp_ms: int) -> list[Any]:
        return [accumulator, timestamp_ms, 0, False]

    def _cell(self, key: Any, start: int) -> list[Any]:
        found = self._touched.get((key, start))
        return self._store.rows[key, start] if found is None else found

    def _touch(self, key: Any, start: int, event: Event) -> list[Any]:
        cell = self._touched.get((key, start))
        if cell is None:
            cell = self._touched[key, start] = [*self._store.rows[key, start], event]
        cell[_EVENT] = event
        return cell

    def _schedule(self, key: Any, start: int, closes: bool) -> None:
        self._starts.setdefault(key, []).append(start)
        self._number += 1
        close_ms = start + self.windows.size_ms + self.windows.grace_ms + 1
        where = key, start
        if closes and self._final:
            heappush(self._closing, (close_ms, self._number, where))
        heappush(self._deleting, (close_ms + self.windows.size_ms + 1, self._number, where))

    def _flush(self, found: list[Event]) -> None:
        result, final = self.aggregation.result, self._final
        for (key, start), cell in self._touched.items():
            accumulator, timestamp_ms, given, closed, event = cell
            self._store.set((key, start), [accumulator, timestamp_ms, given + (not final), closed])
            if not final:
                value = accumulator
                if result is not None:
                    value = resulting(self.name, result, accumulator, event, self._failed)
                    if value is LEFT_OUT:
                        continue
                end, missing = start + self.windows.size_ms, self._context.missing
                given_value = WindowResult(event.key, start, end, value, given, missing)
                found.append(
                    Event(
                        event.key,
                        given_value,
                        timestamp_ms,
                        event.topic,
                        event.partition,
                        event.offset,
                        event.raw_headers,
                        event.watermark_ms,
                    )
                )
        self._touched = {}

    def _advance(self, watermark_ms: int, found: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        if self._closing and self._closing[0][0] <= watermark_ms:
            self._flush(found)
            while self._closing and self._closing[0][0] <= watermark_ms:
                _, _, (key, start) = heappop(self._closing)
                self._give(key, start, found)
        if self._deleting and self._deleting[0][0] <= watermark_ms:
            self._flush(found)
            while self._deleting and self._deleting[0][0] <= watermark_ms:
                _, _, (key, start) = heappop(self._deleting)
                self._delete(key, start)

    def _give(self, key: Any, start: int, found: list[Event]) -> None:
        """The result of a window that closes."""
        accumulator, timestamp_ms, given, _ = self._store.rows[key, start]
        self._store.set((key, start), [accumulator, timestamp_ms, given + 1, True])
        end, result = start + self.windows.size_ms, self.aggregation.result
        event = Event(key, None, end, self.name, self._partition, -1, (), end)
        value = accumulator
        if result is not None:
            value = resulting(self.name, result, accumulator, event, self._failed)
        if value is not LEFT_OUT:
            event.value = WindowResult(key, start, end, value, given, self._context.missing)
            found.append(event)

    def _delete(self, key: Any, start: int) -> None:
        self._store.delete((key, start))
        starts = self._starts[key]
        starts.remove(start)
        if not starts:
            del self._starts[key]


def _apart(accumulator: Any) -> Any:
    """An accumulator that can be changed without a change to the one given."""
    return accumulator if type(accumulator) in _IMMUTABLE else deepcopy(accumulator)
