"""The simulated event loop: asyncio's own `BaseEventLoop` over a clock that jumps to the next event.

Ready callbacks run in asyncio's order. Time moves only while the loop would sleep. Whatever reaches outside the
simulation (threads, subprocesses, raw sockets, signals) is refused by name.
"""

# mypy: disable-error-code="override, attr-defined, misc, type-arg"

from __future__ import annotations

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from .hosts import PROCESS, Process

if TYPE_CHECKING:
    from .runner import Simulation

MAX_TURNS_AT_ONE_TIME = 50_000  # without once having nothing to do
TURN_S = 1e-6  # what a turn of the loop takes, at least


class SimulationError(AssertionError):
    """The run cannot go on: nothing left to wait for, no progress of time, or a limit passed."""


class Kernel:
    """What the hosts do not see: the clock and the queue of network and disk events. It is the loop's selector."""

    def __init__(self) -> None:
        self.now = 0.0
        self.turn = 0
        self.limit_s = float("inf")
        self.limit_turns: float = MAX_TURNS_AT_ONE_TIME
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._sequence = 0
        self._turns_at_now = 0

    def at(self, when: float, callback: Callable[..., object], *args: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (max(when, self.now), self._sequence, callback, args))

    def after(self, delay_s: float, callback: Callable[..., object], *args: Any) -> None:
        self.at(self.now + delay_s, callback, *args)

    def select(self, timeout: float | None) -> list[tuple[Callable[..., object], tuple[Any, ...]]]:
        self.turn += 1
        self.now += TURN_S
        heap = self._heap
        before = self.now
        if heap and heap[0][0] <= self.now:
            pass
        elif timeout is None:
            if not heap:
                raise SimulationError("nothing is left that could wake anyone")
            self.now = heap[0][0]
        elif timeout > 0:
            wake = self.now + timeout
            self.now = min(wake, heap[0][0]) if heap else wake
        if self.now > before:
            self._turns_at_now = 0
            if self.now > self.limit_s:
                raise SimulationError(f"the run passed its limit of {self.limit_s} simulated seconds")
        else:
            self._turns_at_now += 1
            if self._turns_at_now > self.limit_turns:
                raise SimulationError(f"{self.limit_turns} loop turns without time moving: something spins")
        due = []
        while heap and heap[0][0] <= self.now:
            _, _, callback, args = heapq.heappop(heap)
            due.append((callback, args))
        return due

    def lift_limits(self) -> None:
        self.limit_s = self.limit_turns = float("inf")

    def close(self) -> None:
        self._heap.clear()


class SimHandle(asyncio.Handle):
    """A callback that does not run once its process is dead."""

    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(PROCESS)
        if process is not None and process.is_hung:
            process.stalled.append(self)
        elif process is None or self._loop.enter(process):
            super()._run()


class SimTimerHandle(asyncio.TimerHandle):
    __slots__ = ()

    def _run(self) -> None:
        process = self._context.get(PROCESS)
        loop: Any = self._loop
        if process is not None and process.is_hung:
            process.stalled.append(self)
        elif process is None or loop.enter(process):
            name = "world" if process is None else process.name
            loop.sim.trace.add("timer", name, callback_name(self._callback))
            super()._run()


class SimFuture(asyncio.Future):
    """Hashed by creation order, so that asyncio's own sets of futures iterate alike in every process."""

    def __init__(self, *, loop: SimLoop) -> None:
        self._number = loop.next_number()
        self.process = PROCESS.get()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class SimTask(asyncio.Task):
    def __init__(self, coro: Any, *, loop: SimLoop, context: contextvars.Context | None, **options: Any) -> None:
        self._number = loop.next_number()
        self.process: Process | None = PROCESS.get() if context is None else context.get(PROCESS)
        super().__init__(coro, loop=loop, context=context, **options)

    def __hash__(self) -> int:
        return self._number


def callback_name(callback: Any) -> str:
    inner = getattr(callback, "func", callback)  # functools.partial
    return getattr(inner, "__qualname__", type(inner).__name__)


class SimLoop(asyncio.BaseEventLoop):
    def __init__(self, sim: Simulation) -> None:
        super().__init__()
        self.sim = sim
        self.kernel = Kernel()
        self.tearing_down = False
        self.unhandled: list[str] = []
        self._number = 0
        self._selector = self.kernel
        self._clock_resolution = 1e-9
        self.set_debug(False)
        self.set_task_factory(_make_task)

    # -- time and turns

    def time(self) -> float:
        return self.kernel.now

    def next_number(self) -> int:
        self._number += 1
        return self._number

    def enter(self, process: Process) -> bool:
        """Whether a callback of `process` may run now; counts the turns of those that do."""
        if not process.alive and not self.tearing_down:
            return False
        process.handles += 1
        if process.last_turn != self.kernel.turn:
            process.last_turn = self.kernel.turn
            process.turns += 1
        return True

    def _process_events(self, event_list: list[tuple[Callable[..., object], tuple[Any, ...]]]) -> None:
        if self.unhandled and not self.tearing_down:
            raise SimulationError("an error that nobody handled") from self.sim.first_unhandled
        for callback, args in event_list:
            callback(*args)

    def _write_to_self(self) -> None:
        pass

    def _call_soon(self, callback: Any, args: Any, context: contextvars.Context | None) -> asyncio.Handle:
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> Any:
        if when is None:
            raise TypeError("when cannot be None")
        self._check_closed()
        timer = SimTimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer

    def create_future(self) -> Any:
        return SimFuture(loop=self)

    # -- errors nobody caught

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        process = self._process_of(context)
        if self.tearing_down or (process is not None and not process.alive):
            return
        error = context.get("exception")
        name = process.name if process is not None else "?"
        self.unhandled.append(f"{name}: {context.get('message')}: {error!r}")
        if error is not None and self.sim.first_unhandled is None:
            self.sim.first_unhandled = error

    @staticmethod
    def _process_of(context: dict[str, Any]) -> Process | None:
        for key in ("task", "future", "transport"):
            if (process := getattr(context.get(key), "process", None)) is not None:
                return process
        handle = context.get("handle")
        if handle is not None and (process := handle._context.get(PROCESS)) is not None:
            return process
        return PROCESS.get()

    def resume(self, process: Process) -> None:
        """A process that hung goes on: what was due meanwhile is due now."""
        process.is_hung = False
        stalled, process.stalled = process.stalled, []
        self._ready.extend(stalled)

    # -- network

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if options.get("ssl") or options.get("sock") is not None:
            refuse("TLS or a ready-made socket")
        process = PROCESS.get()
        if process is None:
            raise AssertionError("only a process of a simulated machine can connect")
        return await self.sim.network.connect(process, protocol_factory, str(host), int(port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any) -> Any:
        if options.get("ssl") or options.get("sock") is not None:
            refuse("TLS or a ready-made socket")
        process = PROCESS.get()
        if process is None:
            raise AssertionError("only a process of a simulated machine can listen")
        serve = options.get("start_serving", True)
        return self.sim.network.listen(process, protocol_factory, int(port or 0), serve)

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(2, 1, 6, "", (host, port))]

    # -- what would leave the simulation

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> NoReturn:
        refuse("run_in_executor (blocking work belongs behind Files.run)")

    def add_reader(self, fd: Any, callback: Any, *args: Any) -> NoReturn:
        refuse("add_reader")

    def add_writer(self, fd: Any, callback: Any, *args: Any) -> NoReturn:
        refuse("add_writer")

    def add_signal_handler(self, sig: Any, callback: Any, *args: Any) -> NoReturn:
        refuse("add_signal_handler")

    async def subprocess_exec(self, *args: Any, **options: Any) -> NoReturn:
        refuse("a subprocess")

    async def subprocess_shell(self, *args: Any, **options: Any) -> NoReturn:
        refuse("a subprocess")

    async def sendfile(self, *args: Any, **options: Any) -> NoReturn:
        refuse("loop.sendfile")


def refuse(what: str) -> NoReturn:
    raise AssertionError(f"{what} is not possible in the simulator; product code must not need it")


def _make_task(loop: Any, coro: Any, context: contextvars.Context | None = None, **options: Any) -> Any:
    return SimTask(coro, loop=loop, context=context, **options)
