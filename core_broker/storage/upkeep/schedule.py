"""Which logs a periodic duty must look at: those that have changed, and those whose time has come.

A log that is at rest and not due costs nothing, however many there are.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")
STALE_SHARE = 4  # the heap is rebuilt when it holds so many times the entries that count


class Schedule(Generic[K]):
    """Keys by the wall time in ms from which on they are to be looked at."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []  # and entries that do not count any more
        self._now: dict[K, None] = {}

    def note(self, key: K) -> None:
        """It has changed: look at it next time."""
        self._now[key] = None

    def put(self, key: K, due_ms: int | None) -> None:
        """Not before that time; None for not until it changes."""
        if due_ms is None:
            self._due_ms.pop(key, None)
        elif self._due_ms.get(key) != due_ms:
            self._due_ms[key] = due_ms
            heapq.heappush(self._heap, (due_ms, key))
            if len(self._heap) > STALE_SHARE * (len(self._due_ms) + 1):
                self._heap = [(at, each) for each, at in self._due_ms.items()]
                heapq.heapify(self._heap)

    def forget(self, key: K) -> None:
        self._now.pop(key, None)
        self._due_ms.pop(key, None)

    def take(self, wall_ms: int) -> list[K]:
        """Those to be looked at now, each once; they come again when they change or `put` says so."""
        taken, self._now = self._now, {}
        while self._heap and self._heap[0][0] <= wall_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                taken[key] = None
        return sorted(taken)  # type: ignore[type-var]
