"""A topology as containers, by the compose file that `isthmus compose` makes of it: kill is `docker kill`, pause is
`docker pause`, and a mirror's line is cut by taking its container off the network `wan`."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ...deploy import engine
from ...deploy.compose import WAN, document, place
from ...deploy.topology import Mirror, Topology
from ..errors import IsthmusTestingError
from ..labels import LABEL, remove, remove_left
from ..owner import Owner, make_folder, remove_left_folders
from ..ports import Ports
from .parts import Part, Parts

UP_TIMEOUT_S = 150.0
POLL_S = 0.2
STOP_TIMEOUT_S = 10
HEALTH_INTERVAL = "1s"  # compose waits for brokers' health before it starts what needs them
LEFT_OUT = "spark"  # a profile that no test starts
Answer = TypeVar("Answer")


class DockerTopology:
    """Containers, networks, volumes and ports, all under this process's label."""

    def __init__(self, topology: Topology, file: Path, fixed_ports: bool) -> None:
        self.topology = topology
        self.file = file
        self.fixed_ports = fixed_ports
        self.addresses: dict[str, str] = {}
        self._owner = Owner.this_process()
        self._project = f"isthmus-{self._owner.pid}-{self._owner.start}"
        self._ports = Ports()
        self._ids: dict[str, str] = {}  # of containers, by service
        self._folder: Path | None = None
        self._working: dict[asyncio.Future[Any], None] = {}

    async def start(self) -> None:
        await self._in_thread(self._up)
        await asyncio.gather(*(self.ready(part, UP_TIMEOUT_S) for part in Parts(self.topology).all))

    async def stop(self) -> None:
        if self._working:  # a command of Docker's under way would make what is removed here
            await asyncio.wait(self._working)
        await self._in_thread(lambda: remove(str(self._owner)))
        self._ports.release()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    async def ready(self, part: Part, timeout_s: float) -> None:
        """Once its health check has found it ready since it was last started."""
        name = self._ids[part.process]
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    state = json.loads(await self._docker("inspect", "--format", "{{json .State}}", name))
                    if state["Status"] == "running" and state["Health"]["Status"] == "healthy":
                        return
                    said = await self._logs(name, "--since", state["StartedAt"])
                    if state["Status"] in ("exited", "dead"):
                        raise IsthmusTestingError(f"{part.process} is {state['Status']}: {engine.last_line(said)}")
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise IsthmusTestingError(
                f"{part.process} is not ready after {timeout_s:g} s: {engine.last_line(said) or 'it said nothing'}"
            ) from None

    async def pause(self, part: Part) -> None:
        await self._docker("pause", self._ids[part.process])

    async def unpause(self, part: Part) -> None:
        await self._docker("unpause", self._ids[part.process])

    async def kill(self, part: Part) -> None:
        name = self._ids[part.process]
        await self._docker("kill", name)
        await self._docker("wait", name)

    async def restart(self, part: Part) -> None:
        name = self._ids[part.process]
        if "true" in await self._docker("inspect", "--format", "{{.State.Paused}}", name):
            await self._docker("unpause", name)
        await self._docker("restart", "--time", str(STOP_TIMEOUT_S), name)
        await self.ready(part, UP_TIMEOUT_S)

    async def cut(self, link: Mirror) -> None:
        await self._docker("network", "disconnect", f"{self._project}_{WAN}", self._ids[f"{link.name}-mirror"])

    async def heal(self, link: Mirror) -> None:
        await self._docker("network", "connect", f"{self._project}_{WAN}", self._ids[f"{link.name}-mirror"])

    async def reach(self, part: Part, hears: bool, is_heard: bool) -> None:
        if not (hears and is_heard):
            raise IsthmusTestingError(
                f"{part.process}: in Docker no broker is cut off from the others of its cluster: "
                "set ISTHMUS_TESTING=local"
            )

    async def log(self, part: Part) -> str:
        return await self._logs(self._ids[part.process])

    # --- Docker -------------------------------------------------------------------------------------

    def _up(self) -> None:
        remove_left()
        remove_left_folders()
        self._folder = make_folder()
        for name, datacenter in self.topology.datacenters.items():
            self.addresses[name] = self._ports.of_datacenter(name, datacenter, self.fixed_ports)
        file = self._folder / "compose.json"
        file.write_text(json.dumps(self._document(self._folder), indent=1))
        compose = (*engine.compose_command(), "--project-name", self._project, "--file", str(file))
        engine.run((*compose, "up", "--detach"), UP_TIMEOUT_S)
        said = engine.docker(
            "ps", "--all", "--no-trunc", "--filter", f"label={LABEL}={self._owner}",
            "--format", '{{.Label "com.docker.compose.service"}} {{.ID}}',
        )  # fmt: skip
        self._ids = dict(line.split() for line in said.splitlines())

    def _document(self, folder: Path) -> dict[str, Any]:
        """The topology's compose document, with the ports that were taken, and our label on everything."""
        places = {worker.name: place(worker, self.file, folder) for worker in self.topology.workers}
        made = document(self.topology, places, addresses=self.addresses)
        made["services"].pop(LEFT_OUT, None)
        made["volumes"].pop(f"{LEFT_OUT}-data", None)
        for kind in ("services", "networks", "volumes"):
            for each in made[kind].values():
                each["labels"] = {LABEL: str(self._owner)}
        for part in Parts(self.topology).all:
            service = made["services"][part.process]
            service["healthcheck"] = {**service.get("healthcheck", {}), "interval": HEALTH_INTERVAL}
        for each in made["services"].values():
            if each["restart"] == "unless-stopped":  # an engine that is restarted must not bring tests back to life
                each["restart"] = "on-failure"
        return made

    async def _docker(self, *arguments: str) -> str:
        return await self._in_thread(lambda: engine.docker(*arguments))

    async def _logs(self, name: str, *arguments: str) -> str:
        """Both streams, as the container wrote them."""
        command = ("docker", "logs", *arguments, name)
        return await self._in_thread(lambda: engine.run(command, on_line=lambda line: None))

    async def _in_thread(self, work: Callable[[], Answer]) -> Answer:
        future = asyncio.get_running_loop().run_in_executor(None, work)
        self._working[future] = None
        try:
            return await asyncio.shield(future)
        finally:
            if future.done():
                del self._working[future]
            else:
                future.add_done_callback(lambda done: self._working.pop(done, None))
