"""Machines and the processes on them.

A context variable names the process that code runs for, so that network, disk and kill apply to one of them.
A killed process is inert at once: its files and sockets refuse, its timers and callbacks no longer run, its
tasks stay where they are (so that no `finally:` of theirs flushes anything) until the run is over.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from isthmus.runtime import Runtime

from .files import SimDisk, SimFiles

if TYPE_CHECKING:
    from .network import SimServer, SimTransport
    from .runner import Simulation

T = TypeVar("T")

PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("simulated_process", default=None)

EPHEMERAL_PORT = 40_000


class ProcessKilled(BaseException):
    """Raised where a killed process touches anything; no `except Exception` of the product swallows it."""


class Process:
    """One life of a program on a machine: from its start to its kill."""

    def __init__(self, machine: Machine, incarnation: int) -> None:
        sim = machine.sim
        self.machine = machine
        self.name = f"{machine.name}#{incarnation}"
        self.alive = True
        self.is_hung = False  # as by SIGSTOP: it does not run, and its connections stay
        self.stalled: list[Any] = []  # callbacks that were due meanwhile
        self.turns = 0  # loop iterations in which something of this process ran
        self.handles = 0  # callbacks run
        self.last_turn = -1
        self.transports: dict[int, SimTransport] = {}
        self.servers: list[SimServer] = []
        self.held_tasks: list[asyncio.Task[Any]] = []
        self.kill_callbacks: list[Callable[[], object]] = []
        seed = f"{sim.seed}/{self.name}"
        self.runtime = Runtime(
            random.Random(seed), machine.wall_ms, lambda: int(sim.loop.time() * 1e9) + machine.perf_offset_ns
        )
        self.files = SimFiles(machine.disk, self)
        self.context = contextvars.copy_context()
        self.context.run(PROCESS.set, self)

    def spawn(self, coro: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Start `coro` as a task of this process. It never ends when the process is killed: see `outcome`."""
        return self.machine.sim.loop.create_task(coro, context=self.context.copy())

    def outcome(self, coro: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """As `spawn`, but the future belongs to the world: ProcessKilled is its result when the process dies."""
        sim = self.machine.sim
        future: asyncio.Future[T] = sim.loop.create_future()
        if not self.alive:
            coro.close()
            future.set_exception(ProcessKilled(self.name))
            future.exception()
            return future
        task = self.spawn(coro)
        task.add_done_callback(lambda done: _copy_outcome(done, future), context=sim.world)

        def killed() -> None:
            if not future.done():
                future.set_exception(ProcessKilled(self.name))
                future.exception()  # whoever waits gets it; nobody has to

        self.kill_callbacks.append(killed)
        return future

    def check_alive(self) -> None:
        if not self.alive:
            raise ProcessKilled(self.name)


class Machine:
    """A host of the network with its own disk and clock; runs at most one process at a time."""

    def __init__(self, sim: Simulation, name: str) -> None:
        self.sim = sim
        self.name = name
        self.powered = True
        self.random = random.Random(f"{sim.seed}/machine/{name}")
        self.disk = SimDisk(sim, name, random.Random(f"{sim.seed}/disk/{name}"))
        self.clock_skew_ms = self.random.randint(-50, 50)
        self.perf_offset_ns = self.random.randint(0, 10**12)
        self.process: Process | None = None
        self.incarnations = 0
        self.next_port = EPHEMERAL_PORT
        self.listeners: dict[int, SimServer] = {}

    def wall_ms(self) -> int:
        return self.sim.wall_start_ms + self.clock_skew_ms + int(self.sim.loop.time() * 1000)

    def start(self) -> Process:
        """Boot a new process; the machine is powered on if it was off."""
        if self.process is not None and self.process.alive:
            raise AssertionError(f"{self.name} runs {self.process.name} already")
        self.powered = True
        self.incarnations += 1
        self.process = Process(self, self.incarnations)
        self.sim.trace.add("start", self.process.name)
        return self.process

    def kill(self, *, power: bool = False) -> None:
        """kill -9 the process; with `power` the machine loses what its disk had not synced and falls silent."""
        process = self.process
        if process is None or not process.alive:
            return
        process.alive = False
        self.sim.trace.add("kill", process.name, int(power))
        self.sim.counters["power_cuts" if power else "kills"] += 1
        if power:
            self.powered = False
        self.listeners.clear()
        self.sim.network.process_killed(process, power)
        self.disk.process_killed()
        if power:
            self.disk.crash()
        process.held_tasks = [t for t in asyncio.all_tasks(self.sim.loop) if getattr(t, "process", None) is process]
        callbacks, process.kill_callbacks = process.kill_callbacks, []
        for callback in callbacks:
            callback()

    def hang(self, seconds: float) -> None:
        """Stop the process, and let it go on after a while; its connections stay, and what comes waits."""
        process = self.process
        if process is None or not process.alive or process.is_hung:
            return
        process.is_hung = True
        self.sim.trace.add("hang", process.name)
        self.sim.counters["hangs"] += 1
        self.sim.loop.kernel.after(seconds, self.sim.loop.resume, process)

    def jump(self, by_ms: int) -> None:
        """Set the wall clock of the machine."""
        self.clock_skew_ms += by_ms
        self.sim.trace.add("clock", self.name, by_ms)
        self.sim.counters["clock_jumps"] += 1

    def kill_at_disk_operation(self, count: int, *, power: bool = True, after: str = "") -> None:
        """Kill just before or just after the `count`-th write, sync or rename (drawn by the seed): from now, or from
        the first on that is on a path with `after` in it."""
        self.disk.crash_countdown = count
        self.disk.crash_from = after
        self.disk.crash_hook = lambda: self.kill(power=power)


def _copy_outcome(task: asyncio.Task[T], future: asyncio.Future[T]) -> None:
    if future.done():
        if not task.cancelled():
            task.exception()
    elif task.cancelled():
        future.cancel()
    elif (error := task.exception()) is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())
