"""Runs an operator as a task would: stamped events, batches, the watermark after each, a restart from its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.operator import Context, Failed, Operator, ReadsRows, raise_failed
from isthmus.streams.engine.operators.windows import WindowResult
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.stores.versioned import VersionedRows
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.time import Watermarks

PORTS = ("left", "right")  # topics of the inputs


class Running:
    """One operator in a task of one partition. tables: those of other operators that it reads."""

    def __init__(
        self,
        make: Callable[[], Operator],
        *,
        bound_ms: int = 0,
        sources: Sequence[str] = ("left",),
        tables: Iterable[TableSpec] = (),
        failed: Failed = raise_failed,
        stores: dict[str, Store] | None = None,
        watermarks: Watermarks | None = None,
        versions: dict[str, VersionedRows] | None = None,
        lacking: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.make = make
        self.tables = list(tables)
        self.failed = failed
        self.operator = make()
        specs = [*self.tables, *self.operator.specs]
        self.stores: dict[str, Store] = stores or {spec.name: MemoryStore(spec) for spec in specs}
        self.context = Context(self.stores, 0, failed)
        self.context.versions = {} if versions is None else versions
        self.watermarks = watermarks or Watermarks(sources, bound_ms)
        self.context.watermark_ms = self.watermarks.watermark_ms
        self.context.stream_time_ms = self.watermarks.stream_time_ms
        self.context.lacking = lacking
        self.operator.open(self.context)
        if isinstance(self.operator, ReadsRows):
            list(self.operator.read())
        self.main: list[Event] = []
        self.late: list[Event] = []
        self.offset = 0

    def event(self, key: Any, value: Any, timestamp_ms: int, port: int = 0) -> Event:
        self.offset += 1
        return Event(key, value, timestamp_ms, PORTS[port], 0, self.offset - 1)

    def batch(self, events: list[Event], port: int = 0) -> list[Event]:
        """Process one batch of one input. Returns what it gave, and what the watermark after it gave."""
        watermark_ms = self.watermarks.stamp(events)
        self.context.watermark_ms = watermark_ms
        self.context.stream_time_ms = self.watermarks.stream_time_ms
        given = self._take(self.operator.process(port, events))
        return given + self.advance(watermark_ms)

    def send(self, key: Any, value: Any, timestamp_ms: int, port: int = 0) -> list[Event]:
        """Process one event."""
        return self.batch([self.event(key, value, timestamp_ms, port)], port)

    def advance(self, watermark_ms: int) -> list[Event]:
        self.context.watermark_ms = max(watermark_ms, self.context.watermark_ms)
        return self._take(self.operator.advance(watermark_ms))

    def tick(self, wall_ms: int) -> list[Event]:
        self.context.wall_ms = wall_ms
        return self._take(self.operator.tick(wall_ms))

    def _take(self, outputs: tuple[list[Event], ...]) -> list[Event]:
        assert len(outputs) == self.operator.outputs
        self.main += outputs[0]
        for late in outputs[1:]:
            self.late += late
        return list(outputs[0])

    def restarted(self) -> Running:
        """The same task after a restart: what the tables' changelogs say, and the watermark, which a table has, too."""
        stores: dict[str, Store] = {}
        for name, store in self.stores.items():
            changes = store.take_changes()
            store.confirm(0, b"")
            fresh = MemoryStore(store.spec)
            kept = [(store.spec.encode_key(key), store.spec.encode_value(key, row)) for key, row in store.rows.items()]
            assert {key for key, value in changes if value is not None} <= {key for key, _ in kept}
            fresh.restore(kept, 0)
            stores[name] = fresh
        versions = {name: VersionedRows(stores[name], each._history_ms) for name, each in self.context.versions.items()}
        for rows in versions.values():
            list(rows.read())
        again = Running(
            self.make,
            tables=self.tables,
            failed=self.failed,
            stores=stores,
            watermarks=self.watermarks,
            versions=versions,
            lacking=self.context.lacking,
        )
        again.offset = self.offset
        return again

    def rows(self) -> dict[Any, Any]:
        return dict(self.stores[self.operator.specs[0].name].rows)


def windows(events: Iterable[Event]) -> list[tuple[Any, int, int, Any]]:
    """(key, start, end, value) of results."""
    return [tuple(event.value[:4]) for event in events if isinstance(event.value, WindowResult)]


def plain(events: Iterable[Event]) -> list[tuple[Any, Any, int]]:
    """(key, value, timestamp) of events."""
    return [(event.key, event.value, event.timestamp_ms) for event in events]


def split(items: Sequence[Any], cuts: Iterable[int]) -> list[Sequence[Any]]:
    """Items in batches that end at the given places."""
    places = sorted({cut % (len(items) + 1) for cut in cuts} | {len(items)})
    return [items[a:b] for a, b in zip([0, *places], places, strict=False) if a < b]
