"""Applies each record once, by where it came into being, however often it is brought.

A row is an origin partition, (datacenter, topic, partition) -> the offset that is next there. A record below it was
applied. This needs no more than that the records of an origin partition come in its order, repetitions apart, and a row
an origin partition. The rows are of the task's state, so a crash takes rows and effects back together.
"""

from __future__ import annotations

from ...errors import RecordError
from ..event import Event
from ..origin import origin_of
from ..placement import FARTHEST
from ..tables import TableSpec
from .operator import Context, Failed, Outputs, raise_failed

REPEATED = "repeated"


class OriginDedup:
    """Outputs: the events that were not applied before. Events without an origin, which no record has caused, are given
    on. Of a record whose offset at its origin is not known it cannot be said: `Context.failed` is told."""

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str) -> None:
        self.name = name
        self.specs = (TableSpec(name, placement=FARTHEST),)
        self.counts = {REPEATED: 0}
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._store = context.store(self.name)
        self._failed = context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        rows = self._store.rows
        vector: dict[tuple[str, str, int], int] = {}  # of the batch: rows are read and written once
        found = []
        for event in events:
            try:
                origin = origin_of(event)
                if origin is None:
                    found.append(event)
                    continue
                datacenter, topic, partition, offset = origin
                if offset is None:
                    raise RecordError(
                        f"the offset of its record in {datacenter} is not known: a mirror that renumbers records "
                        "(MirrorMaker 2) brought it. Drop its duplicates by an id of their own: dedup()"
                    )
            except RecordError as error:
                self._failed(self.name, event, error)
                continue
            where = datacenter, topic, partition
            expected = vector.get(where)
            if expected is None:
                expected = vector[where] = rows.get(where, 0)
            if offset < expected:
                self.counts[REPEATED] += 1
                continue
            vector[where] = offset + 1
            found.append(event)
        for where, expected in vector.items():
            if rows.get(where) != expected:
                self._store.set(where, expected)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)
