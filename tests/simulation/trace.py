"""The hash over everything that happened in a run, in order: two runs of a seed are the same when it is equal.

It covers every delivery, disk write, sync, completion and timer. The last events are kept for a failure's report.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, deque
from collections.abc import Callable
from typing import TextIO

KEPT_EVENTS = 400


class Trace:
    """Collects events; `digest()` is the hash so far. With `sink`, every event is also written there as a line."""

    def __init__(self, now: Callable[[], float], sink: TextIO | None = None) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._now = now
        self._sink = sink
        self.last: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=KEPT_EVENTS)
        self.counts: Counter[str] = Counter()
        self.closed = False

    def add(self, kind: str, *fields: str | int | bytes) -> None:
        if self.closed:
            return
        now = self._now()
        self._hash.update(struct.pack("<d", now))
        self._hash.update(repr((kind, *fields)).encode())
        self.counts[kind] += 1
        self.last.append((now, kind, fields))
        if self._sink is not None:
            self._sink.write(f"{now:.6f} {kind} {' '.join(map(str, fields))}\n")

    def digest(self) -> str:
        return self._hash.hexdigest()

    def tail(self, count: int = 40) -> str:
        return "\n".join(f"{when:.6f} {kind} {' '.join(map(str, f))}" for when, kind, f in list(self.last)[-count:])
