"""Many seeds of a scenario, over up to two processes, with a summary that shows that faults really happened."""

from __future__ import annotations

import gc
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from .runner import Result, run

MAX_PROCESSES = 2
COLLECT_EVERY = 8  # runs between garbage collections


@dataclass(slots=True)
class Summary:
    scenario: str
    runs: int = 0
    failed: list[Result] = field(default_factory=list)
    counters: Counter[str] = field(default_factory=Counter)
    runs_with: Counter[str] = field(default_factory=Counter)  # in how many runs a counter was not 0
    events: Counter[str] = field(default_factory=Counter)
    simulated_s: float = 0.0
    wall_s: float = 0.0

    def add(self, result: Result) -> None:
        self.runs += 1
        self.counters += result.counters
        self.runs_with.update(name for name, count in result.counters.items() if count > 0)
        self.events += result.events
        self.simulated_s += result.simulated_s
        if result.error is not None:
            self.failed.append(result)

    def __str__(self) -> str:
        counts = ", ".join(
            f"{name} {count}" for name, count in sorted(self.counters.items()) if not name.startswith("rare: ")
        )
        return (
            f"{self.scenario}: {self.runs} seeds, {len(self.failed)} failed, {self.runs / max(self.wall_s, 1e-9):.1f} "
            f"seeds/s, {self.simulated_s:.0f} simulated s; {counts}"
        )


def run_one(name: str, seed: int, plant: str | None = None) -> Result:
    """One seed of a scenario by name, optionally with a planted bug."""
    from .controls import planted
    from .scenarios import load

    with planted(plant):
        return run(seed, load(name))


def run_seeds(
    name: str,
    seeds: Iterable[int],
    *,
    plant: str | None = None,
    processes: int = 1,
    stop_at_failure: bool = False,
    progress: Callable[[Result], None] | None = None,
) -> Summary:
    started = time.perf_counter()
    summary = Summary(name)
    jobs = [(name, seed, plant) for seed in seeds]
    gc.collect()
    gc.freeze()
    try:
        for result in _results(jobs, min(processes, MAX_PROCESSES, len(jobs))):
            summary.add(result)
            if progress is not None:
                progress(result)
            if stop_at_failure and summary.failed:
                break
    finally:
        gc.unfreeze()
    summary.wall_s = time.perf_counter() - started
    return summary


def _results(jobs: list[tuple[str, int, str | None]], processes: int) -> Iterator[Result]:
    if processes <= 1:
        for count, job in enumerate(jobs):
            yield run_one(*job)
            if count % COLLECT_EVERY == 0:
                gc.collect()
        return
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
    with context.Pool(processes, maxtasksperchild=200) as pool:
        yield from pool.imap(_pooled, jobs, chunksize=2)


def _pooled(job: tuple[str, int, str | None]) -> Result:
    result = run_one(*job)
    if job[1] % COLLECT_EVERY == 0:
        gc.collect()
    return result
