"""Versioned rows (KIP-889): what a key's value was at a time, as far back as the history is kept.

Built over a store, so that it is in memory or on disk, in the changelog and rolled back as all rows are. Of each key

    (key,)          -> [time, there, value, steps]       the latest version, and in which steps older ones are
    (key, step)     -> [[time, there, value], ...]       those of one step of time, in their order

`there` is 0 for a tombstone. A put rewrites one step's versions at most, not the key's history. Older versions that no
query can ask for any more go with the key's next put, or with `expire`.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..steps import in_steps
from .expiry import TimeIndex
from .store import Store

STEPS = 4  # that the history of a key is divided into
NEVER = sys.maxsize  # `valid_to_ms` of the latest version


class Version(NamedTuple):
    """A value that is valid from `timestamp_ms` until just before `valid_to_ms`, NEVER for the latest."""

    value: Any
    timestamp_ms: int
    valid_to_ms: int


class VersionedRows:
    """history_ms: how far before stream time one may ask and write, Kafka's history retention.

    stream_time_ms: the largest timestamp of a write; after a restart, that of the rows.
    """

    def __init__(self, store: Store, history_ms: int) -> None:
        self._store = store
        self._history_ms = history_ms
        self._step_ms = max(1, history_ms // STEPS)
        self._idle = TimeIndex(self._step_ms)  # keys with something to expire, by the time of their latest version
        self.stream_time_ms = 0

    def put(self, key: Any, value: Any, timestamp_ms: int) -> int | None:
        """Add a version, or replace the one of this time. Until when it is valid; None, with nothing done, for a time
        that is before the history.

        Raises AppError, with nothing changed, for a key or value that a restart could not restore.
        """
        return self._put(key, [timestamp_ms, 1, value])

    def delete(self, key: Any, timestamp_ms: int) -> Version | None:
        """The key has no value from this time on, until its next version. What it had; None if it had none, or if the
        time is before the history: nothing is done then."""
        if timestamp_ms < self._horizon_ms():
            return None
        before = self.get(key, timestamp_ms)
        self._put(key, [timestamp_ms, 0, None])
        return before

    def get(self, key: Any, as_of_ms: int | None = None) -> Version | None:
        """The version that was valid then, by default the latest. None if there was none, or if the time is before
        the history and the latest version is later."""
        found = self._find(key, NEVER if as_of_ms is None else as_of_ms)
        if found is None:
            return None
        (time_ms, there, value), valid_to_ms = found
        return Version(value, time_ms, valid_to_ms) if there else None

    def versions(self, key: Any, from_ms: int, to_ms: int) -> Iterator[Version]:
        """Those that were valid at some time from `from_ms` to `to_ms`, both included, the latest first (KIP-968)."""
        found = self._find(key, to_ms)
        while found is not None:
            (time_ms, there, value), valid_to_ms = found
            if valid_to_ms <= from_ms:
                return
            if there:
                yield Version(value, time_ms, valid_to_ms)
            found = self._find(key, time_ms - 1)

    def expire(self, limit: int = sys.maxsize) -> int:
        """Delete what nobody can ask for any more of keys that are not written now; of `limit` keys at most. How many
        there were."""
        keys = self._idle.expire(self._horizon_ms(), limit)
        for key in keys:
            time_ms, there, value, steps = self._store.rows[key,]
            self._delete_steps(key, steps)
            if there:
                self._store.set((key,), [time_ms, there, value, []])
            else:
                self._store.delete((key,))
        return len(keys)

    def read(self) -> Iterator[None]:
        """Look at all rows that were restored, in steps of some: before anything else. Steps of another history become
        its own."""
        others: dict[Any, None] = {}
        for some in in_steps(self._store.rows.items()):
            others |= {key[0]: None for key, row in some if len(key) == 2 and self._is_other(key[1], row)}
            yield
        for key in others:
            self._divide(key)
        for some in in_steps(self._store.rows.items()):
            for key, row in some:
                if len(key) == 1:
                    time_ms, there, _, steps = row
                    self.stream_time_ms = max(self.stream_time_ms, time_ms)
                    if steps or not there:
                        self._idle.add(key[0], time_ms)
            yield

    # --- Parts -------------------------------------------------------------------------------------------------------

    def _is_other(self, step: int, versions: list[list[Any]]) -> bool:
        """Whether a step is one of another history's."""
        return any(versions[end][0] // self._step_ms != step for end in (0, -1))

    def _divide(self, key: Any) -> None:
        """Write a key's older versions anew, by the steps of this history."""
        *latest, steps = self._store.rows[key,]
        divided: dict[int, list[list[Any]]] = {}
        for version in sorted((each for step in steps for each in self._store.rows[key, step]), key=_time_of):
            divided.setdefault(version[0] // self._step_ms, []).append(version)
        self._delete_steps(key, steps)
        for step, versions in divided.items():
            self._store.set((key, step), versions)
        self._store.set((key,), [*latest, list(divided)])

    def _horizon_ms(self) -> int:
        return self.stream_time_ms - self._history_ms

    def _find(self, key: Any, as_of_ms: int) -> tuple[list[Any], int] | None:
        """The version of that time, a tombstone as well, and until when it is valid."""
        rows = self._store.rows
        head = rows.get((key,))
        if head is None:
            return None
        if head[0] <= as_of_ms:
            return head[:3], NEVER
        if as_of_ms < self._horizon_ms():
            return None
        valid_to_ms = head[0]
        for step in reversed(head[3]):
            versions = rows[key, step]
            at = bisect_right(versions, as_of_ms, key=_time_of) - 1
            if at >= 0:
                return versions[at], versions[at + 1][0] if at + 1 < len(versions) else valid_to_ms
            valid_to_ms = versions[0][0]
        return None

    def _put(self, key: Any, version: list[Any]) -> int | None:
        time_ms = version[0]
        if time_ms < self._horizon_ms():
            return None
        key = self._store.spec.canonical_key(key)
        head = self._store.rows.get((key,))
        if head is None or head[0] == time_ms:
            self._store.set((key,), [*version, head[3] if head else []])
            valid_to_ms = NEVER
        elif head[0] < time_ms:
            self._put_latest(key, version, head)
            valid_to_ms = NEVER
        else:
            valid_to_ms = self._put_older(key, version, head)
        self.stream_time_ms = max(self.stream_time_ms, time_ms)
        if head is not None:
            self._idle.discard(key, head[0])
        self._trim(key)
        return valid_to_ms

    def _put_latest(self, key: Any, version: list[Any], head: list[Any]) -> None:
        """The row of the new value is set first here and below: it may be refused."""
        steps, step = head[3], head[0] // self._step_ms
        is_there = bool(steps) and steps[-1] == step
        self._store.set((key,), [*version, steps if is_there else [*steps, step]])
        versions = self._store.rows[key, step] if is_there else []
        self._store.set((key, step), [*versions, head[:3]])

    def _put_older(self, key: Any, version: list[Any], head: list[Any]) -> int:
        steps, step = head[3], version[0] // self._step_ms
        at = bisect_left(steps, step)
        is_there = at < len(steps) and steps[at] == step
        versions = self._store.rows[key, step] if is_there else []
        place = bisect_left(versions, version[0], key=_time_of)
        after = versions[place:]
        if after and after[0][0] == version[0]:
            after = after[1:]
        self._store.set((key, step), [*versions[:place], version, *after])
        if not is_there:
            self._store.set((key,), [*head[:3], [*steps[:at], step, *steps[at:]]])
        if after:
            return int(after[0][0])
        later = steps[at + is_there :]
        return int(self._store.rows[key, later[0]][0][0] if later else head[0])

    def _trim(self, key: Any) -> None:
        """Delete the steps that are before what is valid at the horizon."""
        time_ms, there, value, steps = self._store.rows[key,]
        horizon_ms = self._horizon_ms()
        if time_ms <= horizon_ms:
            needed = len(steps)
        else:  # the last step that is over by then has the version that is valid then, or a later step has
            needed = max(0, bisect_left(steps, (horizon_ms + 1) // self._step_ms) - 1)
        if needed:
            self._delete_steps(key, steps[:needed])
            self._store.set((key,), [time_ms, there, value, steps[needed:]])
        if steps[needed:] or not there:
            self._idle.add(key, time_ms)

    def _delete_steps(self, key: Any, steps: list[int]) -> None:
        for step in steps:
            self._store.delete((key, step))


def _time_of(version: list[Any]) -> int:
    time_ms: int = version[0]
    return time_ms
