"""The windows of a table: which there are in a task, which have closed, and up to what time the table has got.

A row of a table with windows is (key, start of the window in ms) -> value. The table's *time* is the greatest time that
was written to. With `expires_ms`, a window closes once the time has passed its end by that: it takes no more writes,
and is removed between two batches. The time is in each checkpoint's marker, so that what has closed stays closed after
a restart. Pure: no loop, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .steps import in_steps
from .stores.rows import wanted_key
from .stores.store import Store, taken_as_they_are
from .windows import TableWindows

BEFORE_ALL_MS = -(1 << 62)  # times, of no window
AFTER_ALL_MS = 1 << 62
MISSING: Any = object()


class OpenWindows:
    """The windows of one table in one task. time_ms: the table's time. Made when the store has been filled; `time_ms`
    is then what the last checkpoint had, and `read` is next. dropped: writes to windows that had closed."""

    __slots__ = (
        "_by_start",
        "_closed_after_ms",
        "_earliest_ms",
        "_plain_keys",
        "dropped",
        "expires",
        "store",
        "time_ms",
        "tumbling_ms",
        "windows",
    )

    def __init__(self, store: Store, windows: TableWindows, time_ms: int = BEFORE_ALL_MS) -> None:
        self.store = store
        self.windows = windows
        self.tumbling_ms = windows.size_ms if windows.is_tumbling else 0
        self.expires = windows.expires_ms is not None
        self.dropped = 0
        self._closed_after_ms = None if windows.expires_ms is None else windows.size_ms + windows.expires_ms
        self._plain_keys, _ = taken_as_they_are(store.spec)
        self._by_start: dict[int, dict[Any, None]] = {}  # keys of each window
        self._earliest_ms = AFTER_ALL_MS  # no window begins before
        self.time_ms = time_ms

    def read(self) -> Iterator[None]:
        """Look at all rows, in steps of some: of a million, that takes seconds where they are on disk."""
        by_start = self._by_start
        for some in in_steps(self.store.rows):
            for key, start_ms in some:
                by_start.setdefault(start_ms, {})[key] = None
            yield
        self._earliest_ms = min(by_start, default=AFTER_ALL_MS)
        self.time_ms = max(self.time_ms, max(by_start, default=BEFORE_ALL_MS))

    def get(self, key: Any, start_ms: int) -> Any:
        """The value, else a new default; KeyError if the table has no default."""
        return self.store.get((key, start_ms))

    def set(self, key: Any, start_ms: int, value: Any) -> None:
        """Write to a window; to one that has closed: nothing, but that is counted."""
        if self.is_closed(start_ms):
            self.dropped += 1
            return
        row = (key, start_ms)
        is_new = row not in self.store.rows
        self.store.set(row, value)
        if is_new:
            self.add(key, start_ms)

    def add(self, key: Any, start_ms: int) -> None:
        """There is a new row."""
        keys = self._by_start.get(start_ms)
        if keys is None:
            keys = self._by_start[start_ms] = {}
            self._earliest_ms = min(self._earliest_ms, start_ms)
        keys[self._known(key)] = None

    def delete(self, key: Any, start_ms: int) -> None:
        """KeyError if there is no row."""
        self.store.delete((key, start_ms))
        keys = self._by_start[start_ms]
        keys.pop(self._known(key), None)
        if not keys:
            del self._by_start[start_ms]

    def is_closed(self, start_ms: int) -> bool:
        return self._closed_after_ms is not None and start_ms + self._closed_after_ms <= self.time_ms

    def closed(self) -> list[tuple[int, list[Any]]]:
        """(start, keys) of the windows that have closed and are not removed yet, the earliest first."""
        if not self.is_closed(self._earliest_ms):
            return []
        found = [(start, list(self._by_start[start])) for start in sorted(self._by_start) if self.is_closed(start)]
        # Those found are among them until they are removed.
        self._earliest_ms = min(self._by_start, default=AFTER_ALL_MS)
        return found

    def keys(self, start_ms: int) -> list[Any]:
        """Of one window."""
        return list(self._by_start.get(start_ms, ()))

    def starts(self, key: Any) -> list[int]:
        """Of the windows that have this key, the earliest first."""
        try:
            known = self._known(key)
        except KeyError:
            return []
        return sorted(start_ms for start_ms, keys in self._by_start.items() if known in keys)

    def _known(self, key: Any) -> Any:
        """As it comes back from the store. KeyError for what cannot be a key."""
        return key if type(key) in self._plain_keys else wanted_key(self.store.spec, (key, 0))[0]
