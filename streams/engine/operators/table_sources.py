"""Tables from streams: the last value of each key. What they give is changes, each with the old and the new value.

A value None deletes a row. A versioned table also has what its rows were before (KIP-889), so that a join can look up
what was true at an event's time, and so that an update that comes out of order does not replace a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar

from ...errors import AppError
from ..event import NO_WATERMARK, Event
from ..placement import BY_FIRST, BY_KEY
from ..steps import in_steps
from ..stores.versioned import NEVER, VersionedRows
from ..tables import TableSpec
from .operator import LATE, SKIPPED, Context, Failed, Outputs, derived, raise_failed, unusable_key

V = TypeVar("V")
EXPIRED = "expired"  # name of a count


class Change(NamedTuple, Generic[V]):
    """A row's value before and after. None: there was no row, or there is none any more."""

    old: V | None
    new: V | None


def of_left_out(function: Callable[[Any], Any], old: Any) -> Any:
    """What a function of the app's gives for what a row was before; None for a value that it refuses: the change to it
    was left out, or the task would not have gone on."""
    try:
        return function(old)
    except Exception:
        return None


class TableSource:
    """Output: a `Change` for each event. Where there is no row before or after, there is no change. Events without key
    are skipped. A row is the value itself, and the last event of a key counts, whatever its timestamp.

    ttl_ms: a row is deleted when the watermark has passed the greatest timestamp of its key's events by it; None: rows
    stay. Those timestamps are a table of their own. An event that is later than that is dropped, and counted as late.
    """

    outputs = 1

    def __init__(self, name: str, ttl_ms: int | None = None) -> None:
        if ttl_ms is not None and ttl_ms < 1:
            raise AppError(f"table {name}: a time to live of {ttl_ms} ms; it must be at least 1 ms")
        self.name = name
        self.ttl_ms = ttl_ms
        spec = TableSpec(name, placement=BY_KEY)
        self._times_spec = TableSpec(f"{name}-times", placement=BY_KEY)
        self.specs: tuple[TableSpec, ...] = (spec,) if ttl_ms is None else (spec, self._times_spec)
        self.hold_ms = 0 if ttl_ms is None else 1
        self.counts = {EXPIRED: 0, LATE: 0, SKIPPED: 0}
        self._expiring: list[tuple[int, int, Any]] = []  # a heap: timestamp of an event, number, key
        self._number = 0
        self._watermark_ms = NO_WATERMARK
        self._partition = 0
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._partition, self._failed = context.partition, context.failed
        if self.ttl_ms is not None:
            self._times = context.store(self._times_spec.name)
            self._begun_ms = context.stream_time_ms

    def read(self) -> Iterator[None]:
        if self.ttl_ms is None:
            return
        for some in in_steps(self._times.rows.items()):
            for key, at in some:
                self._schedule(key, at)
            yield
        if len(self._times.rows) < len(self._store.rows):  # they are from before it had a ttl, which begins now
            for some in in_steps(self._store.rows):
                for key in some:
                    if key not in self._times.rows:
                        self._touch(key, self._begun_ms, gone=False)
                yield

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        store, rows, lives = self._store, self._store.rows, self.ttl_ms is not None
        for event in events:
            if lives and event.watermark_ms > self._watermark_ms:
                self._advance(event.watermark_ms, found)
            key, new = event.key, event.value
            if key is None:
                self.counts[SKIPPED] += 1
                continue
            if self.ttl_ms is not None and event.timestamp_ms + self.ttl_ms < self._watermark_ms:
                self.counts[LATE] += 1
                continue
            try:
                old = rows.get(key)
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            if new is not None:
                store.set(key, new)
            elif old is not None:
                store.delete(key)
            else:
                continue
            if lives:
                self._touch(key, event.timestamp_ms, new is None)
            found.append(derived(event, Change(old, new), hold_ms=self.hold_ms))
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        found: list[Event] = []
        if self.ttl_ms is not None and watermark_ms > self._watermark_ms:
            self._advance(watermark_ms, found)
        return (found,)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _touch(self, key: Any, timestamp_ms: int, gone: bool) -> None:
        before = self._times.rows.get(key)
        if gone:
            self._times.delete(key)
        elif before is None or timestamp_ms > before:
            self._times.set(key, timestamp_ms)
            if before is None:
                self._schedule(key, timestamp_ms)

    def _schedule(self, key: Any, timestamp_ms: int) -> None:
        self._number += 1
        heappush(self._expiring, (timestamp_ms, self._number, key))

    def _advance(self, watermark_ms: int, found: list[Event]) -> None:
        self._watermark_ms = watermark_ms
        ttl_ms = self.ttl_ms or 0
        while self._expiring and self._expiring[0][0] + ttl_ms < watermark_ms:
            at, _, key = heappop(self._expiring)
            last = self._times.rows.get(key)
            if last is None:
                continue  # its row was deleted
            if last != at:
                self._schedule(key, last)  # it had later events
                continue
            old = self._store.rows[key]
            self._store.delete(key)
            self._times.delete(key)
            self.counts[EXPIRED] += 1
            ended = at + ttl_ms
            found.append(Event(key, Change(old, None), ended, self.name, self._partition, -1, (), ended))


class VersionedTableSource:
    """As `TableSource`, with all versions that were valid in the last `history_ms` before the table's greatest
    timestamp (`stores/versioned.py`).

    An update older than the row's newest one becomes part of its history and is no change. One older than the history
    is dropped, and counted as late.
    """

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str, history_ms: int) -> None:
        if history_ms < 1:
            raise AppError(f"table {name}: a history of {history_ms} ms; it must be at least 1 ms")
        self.name = name
        self.history_ms = history_ms
        self.specs = (TableSpec(name, placement=BY_FIRST),)
        self.counts = {LATE: 0, SKIPPED: 0}
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._failed = context.failed
        self._versions = context.versions[self.name] = VersionedRows(context.store(self.name), self.history_ms)

    def read(self) -> Iterator[None]:
        return self._versions.read()

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        versions = self._versions
        for event in events:
            key, value, at = event.key, event.value, event.timestamp_ms
            if key is None:
                self.counts[SKIPPED] += 1
                continue
            if at < versions.stream_time_ms - self.history_ms:
                self.counts[LATE] += 1
                continue
            try:
                old = present(versions, key)
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            if value is None:
                versions.delete(key, at)
                is_change = old is not None and present(versions, key) is None
            else:
                is_change = versions.put(key, value, at) == NEVER
            if is_change:
                found.append(derived(event, Change(old, value)))
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        self._versions.expire()
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)


def present(versions: VersionedRows, key: Any, as_of_ms: int | None = None) -> Any:
    """The value of a row, by default now. None if there was none then, or it is not known any more."""
    version = versions.get(key, as_of_ms)
    return None if version is None else version.value
