"""Aggregates of all events of a key, without windows: the result is a table.

A row is what is given of the accumulator. Where that is something else than the accumulator itself, accumulators are a
table of their own.
"""

from __future__ import annotations

from typing import Any

from ..event import Event
from .accumulators import Accumulators, of_keys
from .aggregations import Aggregation
from .operator import (
    SKIPPED,
    Context,
    Failed,
    Outputs,
    raise_failed,
    unusable_key,
)


class KeyAggregate:
    """Output: changes of the result, at most one a key and batch, with the time and position of the last event. Events
    without key or value are skipped."""

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str, aggregation: Aggregation) -> None:
        self.name = name
        self.aggregation = aggregation
        self.specs = of_keys(name, aggregation)
        self._accumulators = Accumulators(name, aggregation, self.specs)
        self.counts = {SKIPPED: 0}
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._accumulators.open(context)
        self._failed = context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        add, initial, rows = self.aggregation.add, self.aggregation.initial, self._accumulators.rows
        touched: dict[Any, tuple[Any, Event]] = {}  # key -> accumulator, last event
        for event in events:
            key, value = event.key, event.value
            if key is None or value is None:
                self.counts[SKIPPED] += 1
                continue
            try:
                before = touched.get(key)
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            try:
                if before is not None:
                    accumulator = add(before[0], value)
                else:
                    row = rows.get(key)
                    accumulator = add(initial() if row is None else row, value)
            except Exception as error:
                self._failed(self.name, event, error)
                continue
            touched[key] = accumulator, event
        found: list[Event] = []
        for accumulator, event in touched.values():
            self._accumulators.set(event, accumulator, found)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)
