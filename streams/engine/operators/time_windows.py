"""Aggregates of tumbling and hopping windows.

A row is (key, start of the window) -> [accumulator, greatest timestamp, results given]. Which windows are open is also
in memory, by their start; that is built anew from the rows when a task is opened. Within a batch a row is read and
written once, however many events it gets.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from math import inf
from typing import Any

from ..event import NO_WATERMARK, Event
from ..steps import in_steps
from .accumulators import of_windows
from .aggregations import Aggregation
from .operator import LATE, LEFT_OUT, SKIPPED, Context, Failed, Outputs, raise_failed, resulting, unusable_key
from .windows import FINAL, TimeWindows, WindowResult

PARTLY_LATE = "partly_late"  # count of events of which some windows had closed, but not all

Touched = dict[tuple[Any, int], list[Any]]  # (key, start) -> accumulator, greatest timestamp, results given, last event


class TimeWindowAggregate:
    """Outputs: `WindowResult` of each window, and the late events. Events without key or value are skipped.

    Results of `final` have the timestamp of the window's last millisecond, and no position, since time caused them.
    Others have the greatest timestamp in the window, and the position of the last event that they include.
    """

    outputs = 2

    def __init__(self, name: str, windows: TimeWindows, aggregation: Aggregation, emit: str) -> None:
        self.name = name
        self.spec = of_windows(name, aggregation)
        self.specs = (self.spec,)
        self.windows = windows
        self.aggregation = aggregation
        self.counts = {LATE: 0, PARTLY_LATE: 0, SKIPPED: 0}
        self.emit = emit
        self._final = emit == FINAL
        self.hold_ms = windows.grace_ms + 1 if self._final else 0
        self._close_ms = windows.size_ms + windows.grace_ms  # after its start a window closes
        self._keep_ms = windows.retention_ms or self._close_ms  # and is deleted
        self._take_ms = self._keep_ms if windows.revises else self._close_ms  # and takes no more events
        self._open: dict[int, dict[Any, None]] = {}  # start -> keys
        self._starts: list[int] = []  # a heap: starts of `_open`
        self._kept: dict[int, dict[Any, None]] = {}  # the same of closed windows whose rows are kept
        self._kept_starts: list[int] = []  # a heap
        self._lacked: dict[int, dict[Any, None]] = {}  # start -> keys whose last result may lack something
        self._due_ms: float = inf  # the watermark at which a window closes or is deleted
        self._watermark_ms = NO_WATERMARK
        self._partition = 0
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._context = context
        self._store = context.store(self.name)
        self._partition, self._failed = context.partition, context.failed

    def read(self) -> Iterator[None]:
        for some in in_steps(self._store.rows.items()):
            for (key, start), (_, _, given) in some:
                closed = self._final and given > 0
                self._index(key, start, closed)
                if closed:
                    self._given_with(self._context.missing_before(start + self.windows.size_ms), key, start)
            yield
        self._set_due()

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        late: list[Event] = []
        touched: Touched = {}
        size, step, close, take = self.windows.size_ms, self.windows.step_ms, self._close_ms, self._take_ms
        add, initial, rows = self.aggregation.add, self.aggregation.initial, self._store.rows
        watermark, due = self._watermark_ms, self._due_ms
        for event in events:
            if event.watermark_ms > watermark:
                if event.watermark_ms >= due:
                    self._flush(touched, watermark, found)
                    self._close(event.watermark_ms, found)
                    touched, due = {}, self._due_ms
                watermark = event.watermark_ms
            key, value, timestamp_ms = event.key, event.value, event.timestamp_ms
            if key is None or value is None:
                self.counts[SKIPPED] += 1
                continue
            first = (timestamp_ms - size + step) // step * step
            if first < 0 <= timestamp_ms:
                first = 0
            if first + take <= watermark:
                last = timestamp_ms // step * step
                if last + take <= watermark:
                    late.append(event)
                    continue
                self.counts[PARTLY_LATE] += 1
                first = (watermark - take) // step * step + step
            for start in range(first, timestamp_ms + 1, step):
                where = key, start
                try:
                    cell = touched.get(where)
                except TypeError:
                    self._failed(self.name, event, unusable_key(event))
                    break
                if cell is None:
                    row = rows.get(where)
                    cell = [initial(), timestamp_ms, 0, event] if row is None else [*row, event]
                    due = min(due, start + (close if start + close > watermark else take))
                try:
                    cell[0] = add(cell[0], value)
                except Exception as error:
                    self._failed(self.name, event, error)
                    break
                touched[where] = cell
                cell[3] = event
                if timestamp_ms > cell[1]:
                    cell[1] = timestamp_ms
        self._watermark_ms = watermark
        self._flush(touched, watermark, found)
        self.counts[LATE] += len(late)
        return found, late

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if watermark_ms > self._watermark_ms:
            self._watermark_ms = watermark_ms
            if watermark_ms >= self._due_ms:
                self._close(watermark_ms, found)
        if self._lacked:
            self._complete(found)
        return found, []

    def tick(self, wall_ms: int) -> Outputs:
        return [], []

    def _flush(self, touched: Touched, watermark_ms: int, found: list[Event]) -> None:
        """Write what a batch changed up to a watermark, and give its results: updates, or revisions of what was
        final."""
        result, size, store = self.aggregation.result, self.windows.size_ms, self._store
        missing_before = self._context.missing_before
        for where, (accumulator, timestamp_ms, given, event) in touched.items():
            key, start = where
            closed = start + self._close_ms <= watermark_ms
            gives = closed or not self._final
            store.set(where, [accumulator, timestamp_ms, given + gives])
            self._index(key, start, closed)
            if gives:
                missing = missing_before(start + size)
                self._given_with(missing, key, start)
                value = accumulator
                if result is not None:
                    value = resulting(self.name, result, accumulator, event, self._failed)
                    if value is LEFT_OUT:
                        continue
                found.append(
                    Event(
                        event.key,
                        WindowResult(event.key, start, start + size, value, given, missing),
                        start + size - 1 if self._final else timestamp_ms,
                        event.topic,
                        event.partition,
                        event.offset,
                        event.raw_headers,
                        event.watermark_ms - self.hold_ms,
                    )
                )
        if touched:
            self._set_due()

    def _index(self, key: Any, start: int, closed: bool) -> None:
        windows, starts = (self._kept, self._kept_starts) if closed else (self._open, self._starts)
        keys = windows.get(start)
        if keys is None:
            windows[start] = {key: None}
            heappush(starts, start)
        else:
            keys[key] = None

    def _close(self, watermark_ms: int, found: list[Event]) -> None:
        store, keeps = self._store, self._keep_ms > self._close_ms
        while self._starts and self._starts[0] + self._close_ms <= watermark_ms:
            start = heappop(self._starts)
            keys = self._open.pop(start)
            if self._final:
                self._give(start, keys, found)
            for key in keys:
                if keeps:
                    self._index(key, start, closed=True)
                else:
                    store.delete((key, start))
        while self._kept_starts and self._kept_starts[0] + self._keep_ms <= watermark_ms:
            start = heappop(self._kept_starts)
            self._lacked.pop(start, None)
            for key in self._kept.pop(start):
                store.delete((key, start))
        self._set_due()

    def _give(self, start: int, keys: dict[Any, None], found: list[Event]) -> None:
        """The results of a window that closes."""
        result, rows, keeps = self.aggregation.result, self._store.rows, self._keep_ms > self._close_ms
        end = start + self.windows.size_ms
        for key in keys:
            accumulator, timestamp_ms, given = rows[key, start]
            missing = self._context.missing_before(end)
            self._given_with(missing, key, start)
            if keeps:
                self._store.set((key, start), [accumulator, timestamp_ms, given + 1])
            event = Event(key, None, end - 1, self.name, self._partition, -1, (), end - 1)
            value = accumulator
            if result is not None:
                value = resulting(self.name, result, accumulator, event, self._failed)
                if value is LEFT_OUT:
                    continue
            event.value = WindowResult(key, start, end, value, given, missing)
            found.append(event)

    def _given_with(self, missing: tuple[str, ...], key: Any, start: int) -> None:
        """Remember whether a result that may be revised lacks something."""
        if not self.windows.revises or self._keep_ms <= self._close_ms:
            return
        if missing:
            self._lacked.setdefault(start, {})[key] = None
        elif start in self._lacked:
            self._lacked[start].pop(key, None)

    def _complete(self, found: list[Event]) -> None:
        """Give the results again that may have lacked something, and do not any more, though nothing came to them."""
        for start in sorted(self._lacked):
            if not self._context.missing_before(start + self.windows.size_ms):
                self._give(start, self._lacked.pop(start), found)

    def _set_due(self) -> None:
        closes = self._starts[0] + self._close_ms if self._starts else inf
        deletes = self._kept_starts[0] + self._keep_ms if self._kept_starts else inf
        self._due_ms = min(closes, deletes)
