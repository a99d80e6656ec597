"""One run: a seed and a scenario make a history; the same seed makes the same history again."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from .hosts import Machine
from .loop import SimLoop, SimulationError
from .network import Network
from .trace import Trace

WALL_START_MS = 1_700_000_000_000
TEARDOWN_ROUNDS = 20

Scenario = Callable[["Simulation"], Awaitable[None]]


@dataclass(slots=True)
class Result:
    """What a run came to. `error` is None when every check held."""

    seed: int
    digest: str
    simulated_s: float
    turns: int
    counters: Counter[str]
    events: Counter[str]
    error: str | None = None
    tail: str = ""
    wall_s: float = 0.0
    error_type: str = ""
    notes: list[str] = field(default_factory=list)


class Simulation:
    """The world of one run: machines by name, the network, the clock and the checks' own random source."""

    def __init__(self, seed: int, sink: TextIO | None = None) -> None:
        self.seed = seed
        self.random = random.Random(f"{seed}/world")
        self.wall_start_ms = WALL_START_MS + self.random.randrange(10**9)
        self.counters: Counter[str] = Counter()
        self.notes: list[str] = []
        self.first_unhandled: BaseException | None = None
        self.loop = SimLoop(self)
        self.trace = Trace(self.loop.time, sink)
        self.network = Network(self)
        self.machines: dict[str, Machine] = {}
        self.world = contextvars.copy_context()

    def machine(self, name: str) -> Machine:
        """The machine of that name, made when first asked for."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def within(self, timeout_s: float, what: str, work: Awaitable[Any]) -> None:
        """Wait for something, on the simulated clock; AssertionError naming `what` when it is not done in time."""
        try:
            await asyncio.wait_for(work, timeout_s)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_s} simulated seconds: {what}") from None

    async def until(self, condition: Callable[[], bool], what: str, timeout_s: float = 600.0) -> None:
        """Wait, on the simulated clock, until `condition()`; AssertionError naming `what` when it does not come."""
        deadline = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() > deadline:
                raise AssertionError(f"not within {timeout_s} simulated seconds: {what}")
            await asyncio.sleep(0.1)


def run(seed: int, scenario: Scenario, *, limit_s: float = 100_000.0, sink: TextIO | None = None) -> Result:
    """Run `scenario` under `seed` to its end. A failed check is in the result, not raised."""
    started = time.perf_counter()
    collecting = gc.isenabled()
    gc.disable()  # finalizers must not run at moments that depend on the process
    sim = Simulation(seed, sink)
    sim.loop.kernel.limit_s = limit_s
    error: BaseException | None = None
    try:
        try:
            sim.loop.run_until_complete(_main(sim, scenario))
        except BaseException as failure:
            if isinstance(failure, KeyboardInterrupt):
                raise
            error = failure
        if error is None and sim.network.observer is not None and sim.network.observer.violations:
            error = AssertionError("; ".join(sim.network.observer.violations[:5]))
        if sim.loop.unhandled and (error is None or isinstance(error, SimulationError)):
            error = AssertionError("errors that nobody handled: " + "; ".join(sim.loop.unhandled[:5]))
            error.__cause__ = sim.first_unhandled
        result = Result(
            seed=seed,
            digest=sim.trace.digest(),
            simulated_s=sim.loop.time(),
            turns=sim.loop.kernel.turn,
            counters=sim.counters,
            events=sim.trace.counts,
            notes=sim.notes,
        )
        if error is not None:
            result.error = "".join(traceback.format_exception(error))
            result.error_type = type(error).__name__
            result.tail = sim.trace.tail()
        error = None
    finally:
        sim.trace.closed = True
        _tear_down(sim)
        del sim
        if collecting:
            gc.enable()
    result.wall_s = time.perf_counter() - started
    return result


def run_checked(scenario: Scenario, seed: int = 1, **options: Any) -> Result:
    """Run `scenario`; a failed check is raised."""
    result = run(seed, scenario, **options)
    assert result.error is None, result.error
    return result


async def _main(sim: Simulation, scenario: Scenario) -> None:
    await scenario(sim)


def _tear_down(sim: Simulation) -> None:
    """End every task, of dead processes too, with files and network refusing; what they raise is nobody's."""
    loop = sim.loop
    loop.tearing_down = True
    loop.kernel.lift_limits()
    for machine in sim.machines.values():
        if machine.process is not None and machine.process.alive:
            machine.process.alive = False
    hook, sys.unraisablehook = sys.unraisablehook, _ignore_unraisable
    try:
        for _ in range(TEARDOWN_ROUNDS):
            tasks = [task for task in asyncio.all_tasks(loop) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            try:
                loop.run_until_complete(_turn())
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(BaseException):
                task.get_coro().close()
        for machine in sim.machines.values():
            machine.process = None
        loop.kernel.close()
        loop.close()
        sim.machines.clear()
    finally:
        sys.unraisablehook = hook


async def _turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def _ignore_unraisable(_: Any) -> None:
    pass
