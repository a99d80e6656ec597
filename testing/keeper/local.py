"""A topology as processes of the local supervisor, with faults: kill is SIGKILL, pause is SIGSTOP, a cut WAN is relays
that let nothing through.

As in containers, a mirror stands in its source's datacenter and reaches its target over the WAN. So each mirror has a
relay of its own, and its target's broker a listener of its own that is advertised under the relay's address: what the
target tells the mirror of itself leads back to the relay.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from ...deploy.chosen import Cluster
from ...deploy.errors import DeployError
from ...deploy.launch import START_TIMEOUT_S, Layout, launch, mirror_arguments, python
from ...deploy.nodes import Node, cluster_id
from ...deploy.supervisor import ProcessSpec, State, Supervisor
from ...deploy.topology import Mirror, Topology
from ..errors import IsthmusTestingError
from ..owner import make_folder, remove_left_folders
from ..ports import Ports
from .parts import Part
from .relay import HOST, Relay

SET_HERE = ("advertised.listeners", "listener.security.protocol.map", "listeners", "log.dirs")
STOPPED_POLL_S = 0.001
_LOG_HINT = re.compile(r" \(log: [^)]*\)")  # of a folder that is removed with the error


@dataclass(frozen=True)
class Line:
    """A mirror's way to a broker of its target. listener, port: of that broker, for this mirror alone."""

    relay: Relay
    listener: str
    port: int


@dataclass(frozen=True)
class FaultyLayout(Layout):
    """A layout whose mirrors go through relays."""

    lines: dict[str, list[Line]]  # by mirror; to each broker of its target, by their ids

    def listeners(self, node: Node) -> tuple[list[str], list[str]]:
        mirrors = [link.name for link in self.topology.mirrors if link.target == node.datacenter]
        lines = [self.lines[name][(node.node_id or 1) - 1] for name in mirrors]
        [main, *rest], _ = super().listeners(node)
        main = main if "://" in main else f"PLAINTEXT://{main}"
        listeners = [main, *rest, *(f"{each.listener}://{HOST}:{each.port}" for each in lines)]
        return listeners, [main, *(f"{each.listener}://{each.relay.address}" for each in lines)]

    def mirror(self, link: Mirror) -> ProcessSpec:
        relays = ",".join(each.relay.address for each in self.lines[link.name])
        arguments = mirror_arguments(link, self.addresses[link.source], relays)
        return ProcessSpec(f"{link.name}-mirror", (*python("mirror"), *arguments), "mirror")


class LocalTopology:
    """Processes, relays, ports and a folder. `file` is what paths of stream apps are relative to."""

    def __init__(self, topology: Topology, file: Path, fixed_ports: bool) -> None:
        self.topology = topology
        self.file = file
        self.fixed_ports = fixed_ports
        self.addresses: dict[str, str] = {}
        self._ports = Ports()
        self._lines: dict[str, list[Line]] = {}
        self._folder: Path | None = None
        self._supervisor: Supervisor | None = None

    async def start(self) -> None:
        """Return once all of it is ready. DeployError names what is not; `stop` then removes what there is."""
        check(self.topology)
        remove_left_folders()
        self._folder = make_folder()
        clusters: dict[str, Cluster] = {}
        for name, datacenter in self.topology.datacenters.items():
            self.addresses[name] = self._ports.of_datacenter(name, datacenter, self.fixed_ports)
            if datacenter.brokers > 1:
                controllers = [f"{HOST}:{self._ports.take(HOST)}" for _ in range(datacenter.brokers)]
                clusters[name] = Cluster(cluster_id(os.urandom(16)), controllers)
        for number, link in enumerate(self.topology.mirrors):
            count = self.topology.datacenters[link.target].brokers
            self._lines[link.name] = [self._line(f"WAN{number}") for _ in range(count)]
        layout = FaultyLayout(self.topology, self.file, self._folder, self.addresses, clusters, self._lines)
        self._supervisor = Supervisor(self._folder)
        try:
            await launch(layout, self._supervisor)
        except DeployError as error:
            raise IsthmusTestingError(_LOG_HINT.sub("", str(error))) from None

    def _line(self, listener: str) -> Line:
        way_in = self._ports.take(HOST)
        relay = Relay((HOST, way_in))
        relay.bind()
        relay.start()
        return Line(relay, listener, way_in)

    async def stop(self) -> None:
        """End everything; nothing is left of it."""
        if self._supervisor:
            for process in self._supervisor.processes.values():
                process.signal(signal.SIGCONT)
            await self._supervisor.stop()
        for line in (each for lines in self._lines.values() for each in lines):
            line.relay.close()
        self._ports.release()
        if self._folder:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def ready(self, part: Part, timeout_s: float) -> None:
        await self._running.until(part.process, State.READY, timeout_s=timeout_s)

    async def pause(self, part: Part) -> None:
        """Return once it does nothing any more."""
        process = self._running.processes[part.process]
        process.signal(signal.SIGSTOP)
        while process.status.pid and _state(process.status.pid) not in "TZ":
            await asyncio.sleep(STOPPED_POLL_S)

    async def unpause(self, part: Part) -> None:
        self._running.processes[part.process].signal(signal.SIGCONT)

    async def kill(self, part: Part) -> None:
        await self._running.processes[part.process].kill()

    async def restart(self, part: Part) -> None:
        process = self._running.processes[part.process]
        process.signal(signal.SIGCONT)
        await process.stop()
        self._running.start(process.spec)
        await self.ready(part, START_TIMEOUT_S)

    async def cut(self, link: Mirror) -> None:
        for line in self._lines[link.name]:
            line.relay.cut()

    async def heal(self, link: Mirror) -> None:
        for line in self._lines[link.name]:
            line.relay.mend()

    async def log(self, part: Part) -> str:
        with contextlib.suppress(FileNotFoundError):
            return self._running.processes[part.process].log.read_text(errors="replace")
        return ""

    @property
    def _running(self) -> Supervisor:
        assert self._supervisor, "not started"
        return self._supervisor


def _state(pid: int) -> str:
    """One letter, as ps shows it: T is stopped by a signal."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def check(topology: Topology) -> None:
    for name, datacenter in topology.datacenters.items():
        for option in SET_HERE:
            if option in datacenter.options:
                raise IsthmusTestingError(
                    f"datacenters.{name}.options.{option}: tests set this themselves: leave it out of the topology"
                )
