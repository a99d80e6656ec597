"""A JVM is measured once its compiler has come to rest: until then much of its CPU is the compiler's.

On two cores Kafka's compilers (C1, C2) had a quarter of its CPU after 8 s of load, and it took twice the CPU for a GB
that it takes a minute later.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .cases import Bench
from .sides import Side

CALM = 0.05  # of the broker's CPU, and from so much in a sample on a table tells; with less for its compilers ...
CALM_ROUNDS = 2  # ... in so many rounds of load one after the other it is warm
MOST_ROUNDS = 10  # of the seconds that are asked for, after which it is measured as it is; the sample tells
NAMES = "C1 Compiler", "C2 Compiler"  # threads' names begin so


class Compiling:
    """How much of a side's CPU since it was made is its compilers'."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._pids = side.pids
        self._before = compilers(self._pids)
        self._cpu_s = side.cpu_seconds()

    def share(self) -> float:
        """0 for a side that has none, and for one that was started anew meanwhile."""
        if self._side.pids != self._pids:
            return 0.0
        cpu_s = self._side.cpu_seconds() - self._cpu_s
        used_s = sum(max(0.0, now - self._before.get(tid, 0.0)) for tid, now in compilers(self._pids).items())
        return used_s / cpu_s if cpu_s > 0 else 0.0


def compilers(pids: Iterable[int]) -> dict[int, float]:
    """CPU-seconds of the processes' compiler threads that are there, by thread."""
    found = {}
    for task in (task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if (task / "comm").read_text().startswith(NAMES):
                found[int(task.name)] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return found


class Warmed(NamedTuple):
    rounds: int
    share: float  # of the compilers, in the last


def warm(bench: Bench, seconds: float) -> Warmed:
    """Load a side for so long, and again until its compilers are at rest, if it has any."""
    calm = rounds = 0
    end = time.perf_counter() + seconds * MOST_ROUNDS
    while True:
        compiling = Compiling(bench.side)
        bench.warm(seconds)
        rounds += 1
        share = compiling.share()
        calm = calm + 1 if share < CALM else 0
        is_calm = calm >= CALM_ROUNDS or not compilers(bench.side.pids)
        if is_calm or not bench.warms_by_load or time.perf_counter() > end:
            return Warmed(rounds, share)
