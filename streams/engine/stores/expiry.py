"""Keys by their time, so that those whose time is over are found without looking at the others.

Time is event time. An index is in memory, about 100 bytes a key, and is made from the rows again after a store was
restored, opened or rolled back.
"""

from __future__ import annotations

import heapq
import sys
from typing import Any


class TimeIndex:
    """Keys by time, in steps of `step_ms`: 1 for the starts of windows, more where each row has another time."""

    def __init__(self, step_ms: int = 1) -> None:
        self._step_ms = step_ms
        self._keys: dict[int, dict[Any, None]] = {}  # by step; one without keys stays until it expires
        self._steps: list[int] = []  # a heap of the same steps

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def add(self, key: Any, time_ms: int) -> None:
        step = time_ms // self._step_ms
        keys = self._keys.get(step)
        if keys is None:
            keys = self._keys[step] = {}
            heapq.heappush(self._steps, step)
        keys[key] = None

    def discard(self, key: Any, time_ms: int) -> None:
        """Take out a key that was added with this time, if it is there."""
        keys = self._keys.get(time_ms // self._step_ms)
        if keys is not None:
            keys.pop(key, None)

    def expire(self, before_ms: int, limit: int = sys.maxsize) -> list[Any]:
        """The keys of all steps that are over at `before_ms`, which leave the index: by time, those of one step as they
        came; not more than `limit`, so that others come with the next call."""
        expired: list[Any] = []
        while self._steps and (self._steps[0] + 1) * self._step_ms <= before_ms and len(expired) < limit:
            keys = self._keys[self._steps[0]]
            room = limit - len(expired)
            if len(keys) > room:
                taken = [key for key, _ in zip(keys, range(room), strict=False)]
                for key in taken:
                    del keys[key]
                return expired + taken
            expired += keys
            del self._keys[heapq.heappop(self._steps)]
        return expired
