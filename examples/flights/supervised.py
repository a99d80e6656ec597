"""The demo's topology as processes under a supervisor of its own, as `isthmus up` would run it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from isthmus.deploy.launch import FAILURE, Layout, last_words, python, told
from isthmus.deploy.supervisor import Status, read_state
from isthmus.deploy.topology import Topology

from .stage import DemoError

START_TIMEOUT_S = 90.0
POLL_S = 0.1


class Supervised:
    """A stage on this machine; the supervisor is a process of its own, so that it can outlive the demo."""

    look_every_s = POLL_S  # it reads a file
    pace = 1.0

    def __init__(self, topology: Topology, file: Path, folder: Path, kept: bool) -> None:
        self.topology = topology
        self.file = file
        self.kept = kept
        self.folder = folder.resolve()
        self.addresses: dict[str, str] = {}
        self.process: asyncio.subprocess.Process | None = None

    def check(self) -> None:
        """What an earlier run left would be counted as doubled."""
        folder = os.path.relpath(self.folder)
        if (state := read_state(self.folder)) and state.running:
            down = f"isthmus down -f {os.path.relpath(self.file)} --data {folder}"
            raise DemoError(f"a topology runs in {folder}: stop it (`{down}`), or choose another folder by --data")
        if (self.folder / "data").exists():
            raise DemoError(
                f"{folder} holds the data of an earlier run: remove it (rm -r {folder}), or choose another by --data"
            )
        self.addresses = Layout.make(self.topology, self.file, self.folder).addresses

    @property
    def logs(self) -> str:
        return f"{self.folder}/logs"

    async def start(self, say: Callable[[str], None]) -> None:
        log = self.folder / "logs" / "supervisor.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        until = [] if self.kept else ["--while", str(os.getpid())]  # whatever kills the demo
        with open(log, "wb") as sink:
            self.process = process = await asyncio.create_subprocess_exec(
                *python("deploy"), "-f", str(self.file), "--data", str(self.folder), *until,
                stdin=asyncio.subprocess.DEVNULL, stdout=sink, stderr=sink, start_new_session=True,
            )  # fmt: skip
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while b"\nready\n" not in b"\n" + log.read_bytes():
                    if process.returncode is not None:
                        raise DemoError(f"the topology did not start: {last_words(log)}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise DemoError(f"the topology is not ready after {START_TIMEOUT_S:.0f} s; see {log}") from None
        if failures := told(log, FAILURE):
            raise DemoError("the topology did not start: " + "; ".join(failures))

    async def processes(self) -> Sequence[Status]:
        state = read_state(self.folder)
        return state.processes if state else ()

    async def kill(self, name: str) -> str:
        found = {each.name: each for each in await self.processes()}
        pid = found[name].pid if name in found else None
        if not pid:
            raise DemoError(f"--kill {name}: no such process runs; there are {', '.join(sorted(found))}")
        os.kill(pid, signal.SIGKILL)
        return f"pid {pid}"

    async def stop(self) -> None:
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGTERM)
            await self.process.wait()

    def next_steps(self) -> Sequence[str]:
        data = os.path.relpath(self.folder)
        return [f"isthmus down -f {os.path.relpath(self.file)} --data {data}"]
