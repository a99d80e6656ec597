"""Clocks and chance, handed to every room so that a whole run can be replayed from one seed.

Timers use the running loop's own time (`loop.time()`, `loop.call_later`). What is stored or compared with
record timestamps uses `wall_ms()`; `perf_ns()` is for metrics only and never decides anything. The lint forbids
`time.*`, `random.*`, `uuid4` and `os.urandom` everywhere else.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from ._clock import wall_ms


@dataclass(slots=True, frozen=True)
class Runtime:
    """What a room may know of time and chance.

    random: source of ids and jitter. wall_ms: milliseconds since the epoch. perf_ns: monotonic nanoseconds.
    """

    random: random.Random
    wall_ms: Callable[[], int]
    perf_ns: Callable[[], int]

    def uuid(self) -> bytes:
        """16 random bytes shaped as a version 4 UUID, such as topic, cluster and member ids are made of."""
        raw = bytearray(self.random.randbytes(16))
        raw[6] = raw[6] & 0x0F | 0x40
        raw[8] = raw[8] & 0x3F | 0x80
        return bytes(raw)

    def jittered(self, length: float) -> float:
        """Between half of a pause and all of it, so that many who begin theirs together do not end them together."""
        return length * (0.5 + self.random.random() / 2)


def system() -> Runtime:
    """The runtime of a real process: the system's clocks, and a generator seeded by the system."""
    return Runtime(random.Random(os.urandom(32)), wall_ms, time.perf_counter_ns)


def seeded(seed: int, wall_ms: Callable[[], int], perf_ns: Callable[[], int]) -> Runtime:
    """The runtime of a run that can be repeated: with these clocks, and a generator with this seed."""
    return Runtime(random.Random(seed), wall_ms, perf_ns)
