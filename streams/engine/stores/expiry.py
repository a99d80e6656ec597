"""Rows by their time, so that those whose time is over are found without looking at the others.

Time is event time: a row expires when stream time, the largest timestamp that its task has seen or its watermark, has
passed it. Nothing here has a clock. An index is in memory, about 100 bytes a row, and is made from the rows: again
after a store was restored, opened or rolled back. What expires is deleted as the app would do it: it is in the
changelog as a tombstone.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Iterator
from typing import Any

from .store import Store

TTL_STEPS = 64  # a row may live longer than its ttl by one of so many parts of it


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

    def clear(self) -> None:
        self._keys.clear()
        self._steps.clear()


class ExpiringRows:
    """Rows of a store that end `ttl_ms` after they were set last, in stream time. The store's rows are `[time, value]`.

    stream_time_ms: the largest time of `set` and `advance`; after a restart, that of the rows.
    """

    def __init__(self, store: Store, ttl_ms: int) -> None:
        self._store = store
        self._ttl_ms = ttl_ms
        self._index = TimeIndex(max(1, ttl_ms // TTL_STEPS))
        self.stream_time_ms = 0
        self.rebuild()

    def get(self, key: Any) -> Any:
        """The value, else the table's default; KeyError if it has none."""
        row = self._store.rows.get(key)
        if row is not None and self._lives(row):
            return row[1]
        default = self._store.spec.default
        if default is None:
            raise KeyError(key)
        return default()

    def set(self, key: Any, value: Any, timestamp_ms: int) -> bool:
        """False, with nothing set, if the row would have expired by now. An earlier time does not shorten a row's life.

        Raises AppError, with nothing changed, for a key or value that a restart could not restore.
        """
        if timestamp_ms + self._ttl_ms <= self.stream_time_ms:
            return False
        self.stream_time_ms = max(self.stream_time_ms, timestamp_ms)
        key = self._store.spec.canonical_key(key)
        before = self._store.rows.get(key)
        time_ms = timestamp_ms if before is None else max(before[0], timestamp_ms)
        self._store.set(key, [time_ms, value])
        if before is not None:
            self._index.discard(key, before[0])
        self._index.add(key, time_ms)
        return True

    def delete(self, key: Any) -> None:
        """KeyError if there is no row."""
        key = self._store.spec.canonical_key(key)
        row = self._store.rows[key]
        self._store.delete(key)
        self._index.discard(key, row[0])
        if not self._lives(row):
            raise KeyError(key)

    def items(self) -> Iterator[tuple[Any, Any]]:
        return ((key, row[1]) for key, row in self._store.rows.items() if self._lives(row))

    def advance(self, stream_time_ms: int, limit: int = sys.maxsize) -> list[Any]:
        """Stream time goes on. Deletes rows that have expired, not more than `limit`, and gives their keys."""
        self.stream_time_ms = max(self.stream_time_ms, stream_time_ms)
        expired = self._index.expire(self.stream_time_ms - self._ttl_ms + 1, limit)
        for key in expired:
            self._store.delete(key)
        return expired

    def rebuild(self) -> None:
        """After the store was restored or rolled back. Reads all rows."""
        self._index.clear()
        self.stream_time_ms = 0
        for key, (time_ms, _) in self._store.rows.items():
            self._index.add(key, time_ms)
            self.stream_time_ms = max(self.stream_time_ms, time_ms)

    def _lives(self, row: list[Any]) -> bool:
        return bool(row[0] + self._ttl_ms > self.stream_time_ms)
