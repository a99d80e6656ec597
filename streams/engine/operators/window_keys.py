"""Results of windows under keys that name the window, (key, start_ms, end_ms), as rows of a table or to be joined.

The partition stays that of the key.
"""

from __future__ import annotations

from ..event import Event
from .operator import Failed, Outputs
from .stateless import Step
from .windows import WindowResult


def by_window(name: str) -> Step:
    """Results under the key of their window."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        return ([event.derived(_window(event.value), event.value) for event in events],)

    return Step(name, run)


def as_rows(name: str) -> Step:
    """Values of results under the key of their window; None, which deletes a row, of a window that is no more."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        return ([event.derived(_window(event.value), event.value.value) for event in events],)

    return Step(name, run)


def by_key(name: str) -> Step:
    """Events under the key that their window is of."""

    def run(events: list[Event], failed: Failed, name: str) -> Outputs:
        return ([event.derived(event.key[0], event.value) for event in events],)

    return Step(name, run)


def _window(result: WindowResult) -> tuple[object, int, int]:
    return result.key, result.start_ms, result.end_ms
