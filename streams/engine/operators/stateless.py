"""Steps that know one event at a time: map, flat_map, filter, rekey, peek, branch, merge.

Functions get the value of an event, and with `whole` the event itself. A function that raises does so for its event
alone: `Context.failed` says what becomes of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..event import Event
from ..tables import TableSpec
from .operator import Context, Failed, Outputs, derived, raise_failed


class Step:
    """What the operators of this module have in common: they have no state, and nothing happens in them as time passes.
    `run` has the step's work: events in, one list for each output out."""

    specs: tuple[TableSpec, ...] = ()
    hold_ms = 0

    def __init__(self, name: str, run: Callable[[list[Event], Failed, str], Outputs], outputs: int = 1) -> None:
        self.name = name
        self.outputs = outputs
        self.counts: dict[str, int] = {}
        self._run = run
        self._failed: Failed = raise_failed
        self._nothing: Outputs = tuple([] for _ in range(outputs))

    def open(self, context: Context) -> None:
        self._failed = context.failed

    def process(self, port: int, events: list[Event]) -> Outputs:
        return self._run(events, self._failed, self.name)

    def advance(self, watermark_ms: int) -> Outputs:
        return self._nothing

    def tick(self, wall_ms: int) -> Outputs:
        return self._nothing


def map_values(name: str, function: Callable[[Any], Any], whole: bool = False) -> Step:
    """Each value is replaced by what the function returns."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found = []
        for event in events:
            try:
                value = function(event if whole else event.value)
            except Exception as error:
                failed(name, event, error)
                continue
            found.append(derived(event, value))
        return (found,)

    return Step(name, run)


def flat_map(name: str, function: Callable[[Any], Iterable[Any]], whole: bool = False) -> Step:
    """Each event is replaced by one for each value that the function returns; all or none of them."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found: list[Event] = []
        for event in events:
            try:
                values = list(function(event if whole else event.value))
            except Exception as error:
                failed(name, event, error)
                continue
            found += [derived(event, value) for value in values]
        return (found,)

    return Step(name, run)


def filter_values(name: str, function: Callable[[Any], Any], whole: bool = False) -> Step:
    """Only events stay for which the function returns something true."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found = []
        for event in events:
            try:
                if function(event if whole else event.value):
                    found.append(event)
            except Exception as error:
                failed(name, event, error)
        return (found,)

    return Step(name, run)


def rekey(name: str, function: Callable[[Any], Any], whole: bool = False) -> Step:
    """Each key is replaced by what the function returns. What follows by key must be repartitioned before."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found = []
        for event in events:
            try:
                key = function(event if whole else event.value)
            except Exception as error:
                failed(name, event, error)
                continue
            changed = derived(event, event.value)
            changed.key = key
            found.append(changed)
        return (found,)

    return Step(name, run)


def peek(name: str, function: Callable[[Any], Any], whole: bool = False) -> Step:
    """The function is called with each event, which goes on unchanged."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found = []
        for event in events:
            try:
                function(event if whole else event.value)
            except Exception as error:
                failed(name, event, error)
                continue
            found.append(event)
        return (found,)

    return Step(name, run)


def branch(name: str, functions: Sequence[Callable[[Any], Any]], whole: bool = False) -> Step:
    """One output for each function, and one for what is left: an event goes to the first whose function says so."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        found: Outputs = tuple([] for _ in range(len(functions) + 1))
        for event in events:
            given = event if whole else event.value
            try:
                at = next((n for n, function in enumerate(functions) if function(given)), -1)
            except Exception as error:
                failed(name, event, error)
                continue
            found[at].append(event)
        return found

    return Step(name, run, len(functions) + 1)


def merge(name: str) -> Step:
    """The events of all inputs, in the order in which they come."""
    return Step(name, lambda events, failed, name: (events,))
