"""The local supervisor: runs processes, keeps a log of each, restarts what crashes with back-off, and stops all.

It knows command lines only, nothing of brokers or mirrors (`launch.py` does). A process says that it is ready, and
that it lives, through the file that ISTHMUS_READY names (`isthmus/readiness.py`); what it prints goes to its log. A
process that dies is started again once its leftover children are killed, after pauses that grow; one that does so
FAILED_CRASHES times in a row is shown as failed meanwhile. One that exits with `EXIT_CONFIG` is not started again,
since it would fail again. None takes another with it. Processes are killed when the supervisor dies
(PR_SET_PDEATHSIG); their own children are killed by the next supervisor of the folder. State is kept in
`supervisor.json`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from ..readiness import TEXT_MAX_BYTES, WHERE
from ..readiness import VARIABLE as READY_VARIABLE
from . import leftovers
from .errors import SupervisorError, counted
from .output import Log, Output
from .whole import write_whole

EXIT_CONFIG = 2  # the process was configured wrongly: restarting it cannot help
BACKOFF_MIN_S = 0.2
BACKOFF_MAX_S = 10.0  # unless a process says otherwise
FAILED_CRASHES = 4  # in a row, within some seconds: from then on it is shown as failed, and goes on being tried
SILENT_AFTER_S = 6.0  # without a sign of life, which is due every BEAT_S
LAST_LINES = 15  # of what a process printed before it died, or first when it was asked where it is: kept for people
TELL_S = 1.0  # for a process to print where it is
STEADY_S = 30.0  # ready for so long: the next crash starts at the smallest back-off again
STOP_TIMEOUT_S = 10.0  # from SIGTERM to SIGKILL
PR_SET_PDEATHSIG = 1


class State(StrEnum):
    STARTING = "starting"
    READY = "ready"
    SILENT = "silent"  # was ready, and has given no sign of life for SILENT_AFTER_S: it hangs, or is paused
    BACKOFF = "restarting"
    FINISHED = "finished"  # a job that exited 0
    FAILED = "failed"  # `reason` says why, and when it is tried again, if it is
    STOPPED = "stopped"


@dataclass(frozen=True)
class ProcessSpec:
    """What to run. One of kind `job` ends well by exiting 0; any other that exits is started again."""

    name: str
    command: tuple[str, ...]
    kind: str = "service"  # broker, mirror, worker, job: shown to people; those of a kind are stopped together
    environment: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None  # working directory
    stop_timeout_s: float = 0.0  # from SIGTERM to SIGKILL, where it needs more than STOP_TIMEOUT_S
    backoff_max_s: float = BACKOFF_MAX_S  # the longest pause before it is started again
    tells_where: bool = False  # asked by the signal WHERE (`isthmus/readiness.py`), it prints its stack
    facts: Mapping[str, str | int] = field(default_factory=dict)  # shown to people and programs beside its state


@dataclass
class Status:
    """What people and `supervisor.json` are told of a process."""

    name: str
    kind: str
    state: State
    pid: int | None = None
    address: str = ""  # what it told when it was ready
    restarts: int = 0
    since_ms: int = 0
    reason: str = ""
    log: str = ""
    facts: Mapping[str, str | int] = field(default_factory=dict)
    last_lines: list[str] = field(default_factory=list)  # before it died, if that was lately; where it hangs, if silent


@dataclass(frozen=True)
class Event:
    """Something a person should see: a process started, got ready, died, was restarted."""

    process: str
    state: State
    text: str


class Process:
    """One supervised process: its task runs it again and again until it is stopped."""

    def __init__(self, spec: ProcessSpec, supervisor: Supervisor) -> None:
        self.spec = spec
        self.supervisor = supervisor
        self.log = supervisor.folder / "logs" / f"{spec.name}.log"
        self.status = Status(spec.name, spec.kind, State.STARTING, log=str(self.log), facts=dict(spec.facts))
        self.on_stdout_line: Callable[[str], None] | None = None
        self.changed = asyncio.Event()
        self.child: asyncio.subprocess.Process | None = None
        self.stopping = False
        self._is_ready = False  # it has told so since its start
        self._steady: asyncio.TimerHandle | None = None  # from when it is ready on
        self._silence: asyncio.TimerHandle | None = None  # from its first sign of life on
        self._crashes = 0  # in a row
        self._how = ""  # it crashed the last time
        self._pause: asyncio.Future[None] | None = None  # before it is started again
        self._last_lines: deque[str] = deque(maxlen=LAST_LINES)  # that are not blank, of both streams
        self._where: list[str] = []  # the first lines since it was asked where it is
        self._mark = leftovers.mark(supervisor.folder, spec.name)
        self.task = asyncio.get_running_loop().create_task(self._run(), name=f"supervise {spec.name}")

    async def _run(self) -> None:
        while not self.stopping:
            self._set(State.STARTING, self.status.reason if self.status.state is State.FAILED else "")
            self._is_ready = False
            self._last_lines.clear()
            try:
                code = await self._run_once()
            except OSError as error:
                self._set(State.FAILED, f"{self.spec.command[0]} cannot be run: {error.strerror}")
                return
            self.status.pid = None
            if self.stopping:
                break
            if code == 0 and self.spec.kind == "job":
                self._set(State.FINISHED)
                return
            self.status.last_lines = list(self._last_lines)
            if code == EXIT_CONFIG:
                self._set(State.FAILED, self.last_line() or f"exited {code}")
                return
            await self._wait_after(code)
        self._set(State.STOPPED)

    async def _wait_after(self, code: int) -> None:
        """A pause that is twice as long after each crash in a row; `stop` ends it."""
        self._crashes += 1
        self.status.restarts += 1
        pause_s = min(BACKOFF_MIN_S * 2 ** min(self._crashes - 1, 30), self.spec.backoff_max_s)
        self._how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited {code}: {self.last_line()}"
        self._pause = asyncio.get_running_loop().create_future()
        state = State.FAILED if self._crashes >= FAILED_CRASHES else State.BACKOFF
        self._set(state, f"{self._how}; starts again in {pause_s:.1f} s")
        await asyncio.wait([self._pause], timeout=pause_s)
        self._pause = None

    async def _run_once(self) -> int:
        """Run it until it and what it left behind are dead; gives its exit code. Raises OSError: it cannot be run."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        log = Log(self.log)
        outputs = [Output(log.write, self._take_stdout_line), Output(log.write, self._last)]
        fifo = self._make_fifo()
        loop = asyncio.get_running_loop()
        try:
            try:
                self.child = await asyncio.create_subprocess_exec(
                    *self.spec.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=outputs[0].end,
                    stderr=outputs[1].end,
                    env={
                        **os.environ,
                        **self.spec.environment,
                        READY_VARIABLE: str(self._fifo_path),
                        leftovers.VARIABLE: self._mark,
                    },
                    cwd=self.spec.folder,
                    start_new_session=True,  # Ctrl-C is for the supervisor, which then stops its children in order
                    preexec_fn=_die_with_parent,
                )
            finally:
                for each in outputs:
                    each.begin()
            loop.add_reader(fifo, self._read_ready, fifo)
            self.status.pid = self.child.pid
            self.supervisor.save()
            if self.stopping:  # `stop` was called before there was a process to signal
                self._kill_group()
            # Its death alone ends this: asyncio has none of its pipes, which a child of its own may hold open.
            code = await self.child.wait()
            pid = self.child.pid
            await leftovers.end(lambda: leftovers.of_process(pid, self._mark))
            return code
        finally:
            loop.remove_reader(fifo)
            os.close(fifo)
            self._end_silence()
            if self._steady:
                self._steady.cancel()
            for each in outputs:
                each.finish()

    @property
    def _fifo_path(self) -> Path:
        return (self.supervisor.folder / "ready" / self.spec.name).absolute()

    def _make_fifo(self) -> int:
        """A new one for each start, so that a late write of the process before is ignored."""
        path = self._fifo_path
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK)  # O_RDWR: else reads are at EOF while it has no writer

    def _read_ready(self, fifo: int) -> None:
        """It tells that it is ready, or gives a sign of life."""
        with contextlib.suppress(BlockingIOError):
            text, _, more = os.read(fifo, TEXT_MAX_BYTES + 1).partition(b"\n")
            is_beat = (self._is_ready and not text) or more != b""
            if not self._is_ready:
                self._is_ready = True
                self.status.address = text.decode(errors="replace")
                self._steady = asyncio.get_running_loop().call_later(STEADY_S, self._is_steady)
                self._works()
            if is_beat:
                self._beat()

    def _beat(self) -> None:
        self._end_silence()
        self._silence = asyncio.get_running_loop().call_later(SILENT_AFTER_S, self._is_silent)
        if self.status.state is State.SILENT:
            self._works()

    def _works(self) -> None:
        """Why it crashed before is told until it has worked for STEADY_S: it may be about to do so again."""
        if not self._crashes:
            self.status.last_lines = []
        self._set(State.READY, f"crashed {counted(self._crashes, 'time')}, {self._how}" if self._crashes else "")

    def _is_steady(self) -> None:
        self._crashes = 0
        if self.status.state is State.READY:
            self._works()

    def _is_silent(self) -> None:
        if self.status.state is State.READY:
            what = f"no sign of life for {SILENT_AFTER_S:.0f} s: it hangs, or is paused"
            self._set(State.SILENT, f"{what}; `isthmus restart {self.spec.name}` ends it and starts it anew")
            if self.spec.tells_where:
                self._where = []
                self.signal(WHERE)
                self._silence = asyncio.get_running_loop().call_later(TELL_S, self._is_somewhere)

    def _is_somewhere(self) -> None:
        """One that is paused has told nothing."""
        if self.status.state is State.SILENT and self._where:
            self.status.last_lines = list(self._where)
            self.supervisor.save()

    def _end_silence(self) -> None:
        if self._silence:
            self._silence.cancel()

    def _take_stdout_line(self, line: str) -> None:
        self._last(line)
        if self.on_stdout_line:
            self.on_stdout_line(line)

    def _last(self, line: str) -> None:
        if line.strip():
            self._last_lines.append(line.rstrip())
            if len(self._where) < LAST_LINES:
                self._where.append(line.rstrip())

    @property
    def fails(self) -> bool:
        """It does not work; or it does for now, and has crashed again and again until lately."""
        return self.status.state in (State.FAILED, State.BACKOFF) or self._crashes >= FAILED_CRASHES

    def last_line(self) -> str:
        """The last that it printed, which is where a process says why it died."""
        return self._last_lines[-1].strip().removeprefix("error: ") if self._last_lines else ""

    def signal(self, number: int) -> None:
        if self.child and self.child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(number)

    def _kill_group(self) -> None:
        if self.child:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, signal.SIGKILL)

    async def kill(self) -> None:
        """SIGKILL, without a restart: the caller starts it again."""
        self._end_pause()
        self.signal(signal.SIGKILL)
        await asyncio.wait([self.task])
        self._set(State.STOPPED, "killed")

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL after STOP_TIMEOUT_S, or its own if it is not silent; returns when it is gone."""
        is_over = self.task.done()
        self._end_pause()
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)  # a paused process gets SIGTERM only then
        await asyncio.wait([self.task], timeout=STOP_TIMEOUT_S)
        more_s = self.spec.stop_timeout_s - STOP_TIMEOUT_S
        if more_s > 0 and self.status.state is not State.SILENT:  # one that was paused gives signs again by now
            await asyncio.wait([self.task], timeout=more_s)
        if not self.task.done():
            self._kill_group()
        await asyncio.wait([self.task])
        if not is_over:
            self._set(State.STOPPED)

    def _end_pause(self) -> None:
        self.stopping = True
        if self._pause and not self._pause.done():
            self._pause.set_result(None)

    def _set(self, state: State, reason: str = "") -> None:
        if state is self.status.state and reason == self.status.reason and self.status.since_ms:
            return
        self.status.state, self.status.reason = state, reason
        self.status.since_ms = time.time_ns() // 1_000_000
        self.changed.set()
        self.changed = asyncio.Event()
        self.supervisor.tell(Event(self.spec.name, state, reason))


class Supervisor:
    """All processes of one folder. `on_event` is called on the loop for each change."""

    def __init__(self, folder: Path, on_event: Callable[[Event], None] = lambda event: None) -> None:
        self.folder = folder
        self.on_event = on_event
        self.processes: dict[str, Process] = {}
        folder.mkdir(parents=True, exist_ok=True)
        other = read_state(folder)
        if other and other.running:
            raise SupervisorError(
                f"{folder} is run by process {other.pid} already: stop it with `isthmus down`, or use another --data"
            )
        leftovers.kill(leftovers.of_folder(folder))  # of one that was killed
        self.save()

    def start(self, spec: ProcessSpec) -> Process:
        if (old := self.processes.get(spec.name)) and not old.task.done():
            raise SupervisorError(f"two processes are called {spec.name}")
        process = self.processes[spec.name] = Process(spec, self)
        return process

    async def remove(self, name: str) -> None:
        """Stop a process and forget it."""
        await self.processes[name].stop()
        del self.processes[name]
        self.save()

    def change(self, spec: ProcessSpec) -> None:
        """From its next start on, a process that runs is to be as this says."""
        self.processes[spec.name].spec = spec

    async def until(self, name: str, *states: State, timeout_s: float = 60.0) -> Status:
        """Wait until the process is in one of `states`; SupervisorError when it failed, or the time is over."""
        process = self.processes[name]
        try:
            async with asyncio.timeout(timeout_s):
                while process.status.state not in states:
                    if process.status.state is State.FAILED:
                        raise SupervisorError(f"{name}: {process.status.reason} (log: {process.log})")
                    await process.changed.wait()
        except TimeoutError:
            raise SupervisorError(
                f"{name} is not {' or '.join(states)} after {timeout_s:.0f} s but {process.status.state}: "
                f"{process.status.reason or process.last_line() or 'it said nothing'} (log: {process.log})"
            ) from None
        return process.status

    async def stop(self) -> None:
        """Stop everything, the last started first, each kind at once."""
        kinds: dict[str, list[Process]] = {}
        for process in self.processes.values():
            kinds.setdefault(process.spec.kind, []).append(process)
        for processes in reversed(kinds.values()):
            await asyncio.gather(*(process.stop() for process in processes))
        self.state_file.unlink(missing_ok=True)

    def tell(self, event: Event) -> None:
        self.save()
        self.on_event(event)

    @property
    def state_file(self) -> Path:
        return self.folder / "supervisor.json"

    def save(self) -> None:
        statuses = [asdict(process.status) for process in self.processes.values()]
        state = {"pid": os.getpid(), "start": start_ticks(os.getpid()), "processes": statuses}
        with contextlib.suppress(FileNotFoundError):  # somebody has removed the folder
            write_whole(self.state_file, json.dumps(state))


@dataclass(frozen=True)
class SavedState:
    """What `supervisor.json` says, for those outside the supervisor's process."""

    pid: int
    running: bool
    processes: list[Status]


def read_state(folder: Path) -> SavedState | None:
    """The state of the supervisor of `folder`; None when there is none."""
    try:
        said = json.loads((folder / "supervisor.json").read_text())
        processes = [Status(**{**each, "state": State(each["state"])}) for each in said["processes"]]
        return SavedState(said["pid"], start_ticks(said["pid"]) == said["start"] != 0, processes)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SupervisorError(f"{folder / 'supervisor.json'} cannot be read ({error}): remove it") from None


def start_ticks(pid: int) -> int:
    """When a process started, in clock ticks since boot: with the pid it names a process for good. 0: it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == "Z" else int(fields[19])


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
