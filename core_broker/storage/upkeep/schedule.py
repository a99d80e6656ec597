"""Says which logs a periodic duty must look at: those that have changed, and those that are due.

An idle log that is not due costs nothing, however many there are.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")
STALE_SHARE = 4  # the heap is rebuilt when it has this many times more entries than valid ones


class Schedule(Generic[K]):
    """Keys with the wall time in ms at which each is due."""

    def __init__(self) -> None:
        self._due_ms: dict[K, int] = {}
        self._heap: list[tuple[int, K]] = []  # with outdated entries
        self._now: dict[K, None] = {}

    def note(self, key: K) -> None:
        """The key has changed: it is due at once."""
        self._now[key] = None

    def put(self, key: K, due_ms: int | None) -> None:
        """Set when the key is due; None for not before it changes."""
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
        """The keys that are due now, each once. They come again when they change or `put` says so."""
        taken, self._now = self._now, {}
        while self._heap and self._heap[0][0] <= wall_ms:
            due_ms, key = heapq.heappop(self._heap)
            if self._due_ms.get(key) == due_ms:
                del self._due_ms[key]
                taken[key] = None
        return sorted(taken)  # type: ignore[type-var]
