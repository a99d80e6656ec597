"""Aggregates of tables: each row counts once, with its present value, in the group that it belongs to.

A change takes the old value out of its group and adds the new one to its. `regroup` makes two changes of one whose
group has changed, so that each goes to the partition of its group; `TableAggregate` applies them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import AppError
from ..event import Event
from .accumulators import Accumulators, of_keys
from .aggregations import Aggregation
from .operator import (
    SKIPPED,
    Context,
    Failed,
    Outputs,
    derived,
    raise_failed,
    unusable_key,
)
from .stateless import Step
from .table_sources import Change, of_left_out


def regroup(name: str, group_of: Callable[[Any], Any]) -> Step:
    """Changes with the group in place of the key. group_of: returns it for a value; None: the row is in no group, as is
    one that is left out."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found: list[Event] = []
        for event in events:
            change: Change = event.value
            before = None if change.old is None else of_left_out(group_of, change.old)
            try:
                after = None if change.new is None else group_of(change.new)
            except Exception as error:
                failed(name, event, error)
                after = None  # what the row was before is taken out all the same
            if before == after:
                parts = [(after, change)]
            else:
                parts = [(before, Change(change.old, None)), (after, Change(None, change.new))]
            for group, part in parts:
                if group is not None:
                    moved = derived(event, part)
                    moved.key = group
                    found.append(moved)
        return (found,)

    return Step(name, run)


class TableAggregate:
    """Output: changes of the aggregate of each group, which is a table of the operator's name. A group's row stays when
    no row is in it any more. Where what is given is something else than the accumulator, accumulators are a table of
    their own."""

    outputs = 1
    hold_ms = 0

    def __init__(self, name: str, aggregation: Aggregation) -> None:
        if aggregation.subtract is None:
            raise AppError(f"groups {name}: the aggregation needs `subtract`, because rows of a table change and go")
        self.name = name
        self.aggregation = aggregation
        self._subtract = aggregation.subtract
        self.specs = of_keys(name, aggregation, takes_out=True)
        self._accumulators = Accumulators(name, aggregation, self.specs)
        self.counts = {SKIPPED: 0}
        self._failed: Failed = raise_failed

    def open(self, context: Context) -> None:
        self._accumulators.open(context)
        self._failed = context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        found: list[Event] = []
        for event in events:
            if event.key is None:
                self.counts[SKIPPED] += 1
                continue
            try:
                old = self._accumulators.rows.get(event.key)
            except TypeError:
                self._failed(self.name, event, unusable_key(event))
                continue
            change: Change = event.value
            new = self.aggregation.initial() if old is None else old
            try:
                if change.old is not None:
                    new = self._without(new, change.old)
            except Exception as error:
                self._failed(self.name, event, error)
                continue
            try:
                if change.new is not None:
                    new = self.aggregation.add(new, change.new)
            except Exception as error:
                self._failed(self.name, event, error)
                if change.old is None:
                    continue  # else what the row was before is taken out all the same
            self._accumulators.set(event, new, found)
        return (found,)

    def advance(self, watermark_ms: int) -> Outputs:
        return ([],)

    def tick(self, wall_ms: int) -> Outputs:
        return ([],)

    def _without(self, accumulator: Any, value: Any) -> Any:
        """Take a value out; not one that was left out when it was to be added. Raises what `subtract` raises."""
        try:
            return self._subtract(accumulator, value)
        except Exception:
            try:
                self.aggregation.add(self.aggregation.initial(), value)
            except Exception:
                return accumulator
            raise
