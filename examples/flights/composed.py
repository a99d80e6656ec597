"""The demo's topology in containers, from the compose file that `isthmus compose` makes of it."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from isthmus.deploy.chosen import keep_addresses
from isthmus.deploy.compose import compose_file, published
from isthmus.deploy.errors import DeployError
from isthmus.deploy.launch import PORT_BASE
from isthmus.deploy.project import ComposeProject
from isthmus.deploy.supervisor import State, Status
from isthmus.deploy.topology import Topology

from .stage import DemoError

PROJECT = "isthmus-demo"
COMPOSE_FILE = "compose.yaml"
PROJECT_FILE = "project"  # with the project's name; written before anything is made


class Stopped(Exception):
    """The demo was told to stop while compose was at work."""


class Composed:
    """A stage of containers, networks and volumes under a project name of the demo's own."""

    look_every_s = 1.0  # it starts two commands
    pace = 2.0

    def __init__(self, topology: Topology, source: Path, folder: Path, port_base: int) -> None:
        self.source = source  # the topology's file
        self.folder = folder.resolve()
        self.port_base = port_base
        self.addresses = published(topology, port_base)
        self.file = self.folder / COMPOSE_FILE
        apart = "" if port_base == PORT_BASE else f"-{port_base}"  # ports that differ allow two at a time
        self.project = ComposeProject(self.file, f"{PROJECT}{apart}")
        self.upping: asyncio.Future[None] | None = None
        self.stopping = False

    def check(self) -> None:
        """What an earlier run left would be counted as doubled."""
        if self.file.exists():
            folder = os.path.relpath(self.folder)
            down = f"{' '.join(self.project.command)} down -v"
            raise DemoError(f"{folder} is an earlier run's: end that (`{down}; rm -r {folder}`), or choose by --data")
        self.project.require(self.addresses)

    @property
    def logs(self) -> str:
        return f"`{' '.join(self.project.command)} logs`"

    async def start(self, say: Callable[[str], None]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / PROJECT_FILE).write_text(self.project.name)
        self.file.write_text(compose_file(self.source, self.file, self.port_base))
        keep_addresses(self.folder, self.addresses)
        say(f"{' '.join(self.project.command[:-4])} brings up the project {self.project.name}")
        self.upping = asyncio.get_running_loop().run_in_executor(None, self.project.up, self._heard)
        await asyncio.shield(self.upping)

    def _heard(self, line: str) -> None:
        """Sees each line of compose, in the thread that waits for it; what this raises breaks it off."""
        if self.stopping:
            raise Stopped

    async def processes(self) -> Sequence[Status]:
        """What runs counts as ready: the health check is up to its interval late, which is long for a demo."""
        found = [each.status for each in (await asyncio.to_thread(self.project.containers)).values()]
        return [replace(each, state=State.READY) if each.pid else each for each in found]

    async def kill(self, name: str) -> str:
        found = {each.name: each for each in await self.processes()}
        if name not in found or found[name].state is not State.READY:
            raise DemoError(f"--kill {name}: no such container runs; there are {', '.join(sorted(found))}")
        return f"container {(await asyncio.to_thread(self.project.crash, name)).short_id}"

    async def stop(self) -> None:
        self.stopping = True
        if self.upping:
            await asyncio.wait([self.upping])
            if not self.upping.cancelled():
                self.upping.exception()  # which `start` has raised already
            await asyncio.to_thread(self.project.down)

    def next_steps(self) -> Sequence[str]:
        command = " ".join([*self.project.command[:-1], os.path.relpath(self.file)])
        return [f"{command} ps", f"{command} down -v && rm -r {os.path.relpath(self.folder)}"]


def was_composed(folder: Path) -> bool:
    """Whether a demo that kept its things in `folder` may have made containers."""
    return os.path.exists(folder / PROJECT_FILE)  # a folder of another user's says no


def end_left(folder: Path, say: Callable[[str], None]) -> None:
    """Take down what a demo that was killed has left, and remove its folder. DemoError.

    Another run that is at it is waited for. Containers that another compose file made are another run's: this one's
    were ended by hand, and the name of the project is in use anew.
    """
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another run was faster, or it is another user's
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_uid != os.geteuid() or not was_composed(folder):
            return
        name = (folder / PROJECT_FILE).read_text()  # empty where the kill came in between: then nothing was made
        project = ComposeProject(folder.resolve() / COMPOSE_FILE, name)
        if name and project.left() and all(each.file == str(project.file) for each in project.containers().values()):
            say(f"project {name} is of a demo that was killed: takes it down")
            project.down()
        shutil.rmtree(folder)
    except (DeployError, OSError) as error:
        raise DemoError(f"what a demo that was killed has left in {folder} cannot be ended: {error}") from error
    finally:
        os.close(lock)
