"""A topology as processes of the local supervisor, with faults: kill is SIGKILL, pause is SIGSTOP, a cut WAN is relays
and gates that let nothing through.

As in containers, a mirror stands in its source's datacenter and reaches its target over the WAN. So each mirror has a
relay of its own, and its target's broker a listener of its own that is advertised under the relay's address: what the
target tells the mirror of itself leads back to the relay.

Where a datacenter has several brokers, they reach each other by listeners of their own, BETWEEN and the controllers',
each advertised under the address of a gate. So a broker can be cut off from the others, and not from its clients.
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
from ...deploy.nodes import BETWEEN_BY, CONTROLLER, Node, cluster_id, nodes
from ...deploy.supervisor import ProcessSpec, State, Supervisor
from ...deploy.topology import Mirror, Topology
from ..errors import IsthmusTestingError
from ..owner import make_folder, remove_left_folders
from ..ports import Ports
from .gate import BOTH_OPEN, Gate
from .options import check
from .owners import owner
from .parts import Part
from .relay import HOST, Relay

BETWEEN = "BETWEEN"  # the listener of brokers for the others of their cluster
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
    """A layout whose mirrors go through relays, and brokers of one cluster through gates."""

    lines: dict[str, list[Line]]  # by mirror; to each broker of its target, by their ids
    gates: dict[str, list[dict[str, Gate]]]  # by datacenter, those of each broker, by their ids, by listener

    def cluster_options(self, node: Node) -> dict[str, str]:
        options = super().cluster_options(node)
        return options | {BETWEEN_BY: BETWEEN} if options else {}

    def listeners(self, node: Node) -> tuple[list[str], list[str]]:
        mirrors = [link.name for link in self.topology.mirrors if link.target == node.datacenter]
        lines = [self.lines[name][(node.node_id or 1) - 1] for name in mirrors]
        gates = self.gates[node.datacenter][node.node_id - 1] if node.node_id else {}
        [main, *_], _ = super().listeners(node)
        main = main if "://" in main else f"PLAINTEXT://{main}"
        own = [main, *(f"{name}://{HOST}:{gate.target[1]}" for name, gate in gates.items())]
        told = [main, *(f"{name}://{gate.address}" for name, gate in gates.items())]
        return (
            [*own, *(f"{each.listener}://{HOST}:{each.port}" for each in lines)],
            [*told, *(f"{each.listener}://{each.relay.address}" for each in lines)],
        )

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
        self._gates: dict[str, list[dict[str, Gate]]] = {}
        self._reaches: dict[tuple[str, int], tuple[bool, bool]] = {}  # of brokers that are cut off
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
                self._gates[name] = [
                    {listener: self._gate(name) for listener in (BETWEEN, CONTROLLER)}
                    for _ in range(datacenter.brokers)
                ]
                controllers = [gates[CONTROLLER].address for gates in self._gates[name]]
                clusters[name] = Cluster(cluster_id(os.urandom(16)), controllers)
        for number, link in enumerate(self.topology.mirrors):
            count = self.topology.datacenters[link.target].brokers
            self._lines[link.name] = [self._line(f"WAN{number}") for _ in range(count)]
        layout = FaultyLayout(
            self.topology, self.file, self._folder, self.addresses, clusters, self._lines, self._gates
        )
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

    def _gate(self, datacenter: str) -> Gate:
        gate = Gate((HOST, self._ports.take(HOST)), lambda own, peer: owner(own, peer, self._pids(datacenter)))
        gate.start()
        return gate

    def _pids(self, datacenter: str) -> dict[int, int]:
        """Of the brokers that run, by their ids."""
        if self._supervisor is None:
            return {}
        processes = self._supervisor.processes
        every = nodes(datacenter, self.topology.datacenters[datacenter])
        found = {each.node_id or 1: processes[each.process].status.pid for each in every if each.process in processes}
        return {node_id: pid for node_id, pid in found.items() if pid}

    async def stop(self) -> None:
        """End everything; nothing is left of it."""
        if self._supervisor:
            for process in self._supervisor.processes.values():
                process.signal(signal.SIGCONT)
            await self._supervisor.stop()
        for line in (each for lines in self._lines.values() for each in lines):
            line.relay.close()
        for gate in (each for brokers in self._gates.values() for gates in brokers for each in gates.values()):
            gate.close()
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

    async def reach(self, part: Part, hears: bool, is_heard: bool) -> None:
        self._reaches[part.name, part.node_id or 1] = hears, is_heard
        brokers = dict(enumerate(self._gates[part.name], 1))
        for here, gates in brokers.items():
            hears, is_heard = self._reaches.get((part.name, here), BOTH_OPEN)
            for there in brokers:
                hears_there, is_heard_there = self._reaches.get((part.name, there), BOTH_OPEN)
                for gate in gates.values():
                    gate.let(there, inward=hears and is_heard_there, outward=is_heard and hears_there)

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
