"""Turns a topology into supervised processes, in the order they need each other: brokers, topics, mirrors, workers.

Every process is started by its command line only; what a datacenter's ports are, and its cluster's id where it has
several brokers, is chosen once and kept in the folder, so that clients find it again after `down` and `up`.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from .addresses import counted_up
from .chosen import Cluster, choose, keep, note_made
from .errors import NotAllStarted, SupervisorError
from .nodes import (
    CONTROLLER,
    KIND,
    METRICS,
    Node,
    cluster_options,
    id_of,
    nodes,
    plain,
)
from .plan import DIGEST
from .supervisor import ProcessSpec, State, Supervisor
from .topics import create_topics

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command that starts no topology can do without
    from .topology import Datacenter, Mirror, Topology, Worker

NONE: Mapping[str, str] = MappingProxyType({})
NOTE = "note: "  # before a line of the supervisor's log that is for whoever started it
FAILURE = "failure: "  # before one that says what does not work of a topology that is up
PORT_BASE = 19092  # in containers: the published ports count up from here, in the order of the datacenters
START_TIMEOUT_S = 60.0
WORKER_BACKOFF_MAX_S = 60.0  # each start of an app costs its group a rebalance, and itself its imports
DIGEST_CHARACTERS = 16
BROKER_STOP_MS = 60_000  # the default of shutdown.timeout.ms
BROKER_STOP_SPARE_S = 10


@dataclass(frozen=True)
class Layout:
    """Where a topology lives: its folder of data and logs, and the addresses of each datacenter, HOST:PORT with commas
    between. clusters: those of datacenters with several brokers."""

    topology: Topology
    file: Path
    folder: Path
    addresses: dict[str, str]
    clusters: dict[str, Cluster]

    @classmethod
    def make(cls, topology: Topology, file: Path, folder: Path) -> Layout:
        """Choose ports where the topology leaves them open, and keep them. DeployError."""
        made = cls.planned(topology, file, folder)
        made.keep()
        return made

    @classmethod
    def planned(cls, topology: Topology, file: Path, folder: Path, held: Collection[str] = ()) -> Layout:
        """The same, and nothing is written. held: addresses that brokers of `folder` listen on now."""
        return cls(topology, file, folder, *choose(topology, folder, held))

    def keep(self) -> None:
        keep(self.folder, self.addresses, self.clusters)

    def processes(self) -> list[ProcessSpec]:
        """All of them, in the order they need each other."""
        return [
            *(each for name in self.topology.datacenters for each in self.brokers(name)),
            *map(self.mirror, self.topology.mirrors),
            *map(self.worker, self.topology.workers),
        ]

    def brokers(self, name: str) -> list[ProcessSpec]:
        datacenter = self.topology.datacenters[name]
        return [self._broker(datacenter, node) for node in nodes(name, datacenter)]

    def _broker(self, datacenter: Datacenter, node: Node) -> ProcessSpec:
        listeners, advertised = self.listeners(node)
        options = self.cluster_options(node)
        if node.node_id is not None and METRICS in datacenter.options:
            options[METRICS] = counted_up(str(datacenter.options[METRICS]), node.node_id - 1)
        data = str(self.folder / "data" / node.folder)
        command = (*python("core_broker"), *broker_arguments(datacenter, data, listeners, advertised, options))
        facts: dict[str, str | int] = {"datacenter": node.datacenter, "node_id": id_of(datacenter, node)}
        grace_s = stop_grace_s(datacenter)
        return ProcessSpec(node.process, command, KIND, stop_timeout_s=grace_s, facts=facts, tells_where=True)

    def cluster_options(self, node: Node) -> dict[str, str]:
        """What a broker is told of its cluster."""
        datacenter, cluster = self.topology.datacenters[node.datacenter], self.clusters.get(node.datacenter)
        return cluster_options(datacenter, node, cluster.id, cluster.quorum) if cluster else {}

    def listeners(self, node: Node) -> tuple[list[str], list[str]]:
        """Where a broker listens, and what clients are told: [NAME://]HOST:PORT each; nothing is told that differs."""
        addresses = self.addresses[node.datacenter].split(",")
        if node.node_id is None:
            return addresses, []
        own = node.node_id - 1
        controller = self.clusters[node.datacenter].controllers[own]
        return [f"PLAINTEXT://{addresses[own]}", f"{CONTROLLER}://{controller}"], []

    def mirror(self, link: Mirror) -> ProcessSpec:
        arguments = mirror_arguments(link, self.addresses[link.source], self.addresses[link.target])
        return ProcessSpec(f"{link.name}-mirror", (*python("mirror"), *arguments), "mirror", tells_where=True)

    def worker(self, worker: Worker) -> ProcessSpec:
        path, colon, name = worker.app.rpartition(":")
        file = self.app_file(worker)
        app = f"{file}{colon}{name}" if file else worker.app
        command = (*python("streams"), *worker_arguments(worker, app, self.addresses[worker.datacenter]))
        facts = {DIGEST: digest(file)} if file else {}
        pause_s = WORKER_BACKOFF_MAX_S
        return ProcessSpec(
            f"{worker.name}-worker", command, "worker", facts=facts, backoff_max_s=pause_s, tells_where=True
        )

    def app_file(self, worker: Worker) -> Path | None:
        """Where an app is; None: it is named as a module."""
        path = worker.app.rpartition(":")[0]
        return self.file.parent / path if path.endswith(".py") else None


def digest(file: Path) -> str:
    """What tells a file from what it was; of one that cannot be read, a text that no other has."""
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()[:DIGEST_CHARACTERS]
    except OSError as error:
        return str(error.strerror)


def last_words(log: Path) -> str:
    """Why a supervisor gave up, by its log: the lines from its last `error: ` on."""
    text = log.read_text(errors="replace")
    _, found, words = f"\n{text}".rpartition("\nerror: ")
    if found:
        return words.strip()
    *_, last = text.strip().splitlines() or ["nothing"]
    return f"the supervisor died, and said at last: {last} (log: {log})"


def told(log: Path, mark: str) -> list[str]:
    """What a supervisor has said for people, a line each: what follows `mark`, which is NOTE or FAILURE."""
    lines = log.read_text(errors="replace").splitlines()
    return [line.removeprefix(mark) for line in lines if line.startswith(mark)]


def broker_arguments(
    datacenter: Datacenter,
    data: str,
    listeners: Sequence[str],
    advertised: Sequence[str] = (),
    cluster: Mapping[str, str] = NONE,
) -> tuple[str, ...]:
    """What `isthmus.core_broker` is told; listeners, advertised: [NAME://]HOST:PORT each. cluster: the options of it as
    a member of one, which count before the datacenter's."""
    given = {key: plain(value) for key, value in datacenter.options.items()} | dict(cluster)
    options = (f"--set={key}={value}" for key, value in given.items())
    return (f"--data={data}", *options, *listener_arguments(listeners, advertised))


def listener_arguments(listeners: Sequence[str], advertised: Sequence[str] = ()) -> tuple[str, ...]:
    """Where a broker listens and what clients are told, [NAME://]HOST:PORT each; those with names have a protocol."""
    arguments = [f"--listen={each}" for each in listeners]
    names = [name for name, mark, _ in (each.partition("://") for each in listeners) if mark]
    if names:
        protocols = ",".join(f"{name}:PLAINTEXT" for name in names)
        arguments.append(f"--set=listener.security.protocol.map={protocols}")
    if advertised:
        arguments.append(f"--set=advertised.listeners={','.join(advertised)}")
    return tuple(arguments)


def stop_grace_s(datacenter: Datacenter) -> int:
    """How long the supervisor, or Docker, waits for a broker that stops before it kills: longer than the broker itself,
    which then says why it ends."""
    said = str(datacenter.options.get("shutdown.timeout.ms", ""))
    limit_ms = int(said) if said.isdecimal() else BROKER_STOP_MS  # what else is said, the broker refuses by name
    return math.ceil(limit_ms / 1000) + BROKER_STOP_SPARE_S


def mirror_arguments(link: Mirror, source: str, target: str) -> tuple[str, ...]:
    """What `isthmus.mirror` is told; source, target: HOST:PORT."""
    ends = (f"--source-alias={link.source}", f"--source={source}", f"--target={target}")
    return (f"--link={link.name}", *ends, f"--topics={','.join(link.topics)}", f"--rename={link.rename}")


def worker_arguments(worker: Worker, app: str, bootstrap: str) -> tuple[str, ...]:
    """What `isthmus.streams` is told; app: path/to/file.py:app or module:app. By its name a worker that was killed
    finds again what it had open, and its tables on disk."""
    port = () if worker.web_port is None else (f"--web-port={worker.web_port}",)
    return (app, f"--bootstrap={bootstrap}", f"--name={worker.name}", *port)


async def launch(layout: Layout, supervisor: Supervisor) -> list[str]:
    """Start everything and return when all of it is ready. Gives what people should know of it nevertheless, a line
    each. Raises NotAllStarted: brokers run, and mirrors and workers but those it names, which go on being tried unless
    that is no use; DeployError: the brokers or topics are not what the file asks for."""
    brokers = [each for name in layout.topology.datacenters for each in layout.brokers(name)]
    await _ready(supervisor, [supervisor.start(each).spec.name for each in brokers])
    made = replace(layout, clusters=note_made(layout.folder, layout.clusters))
    for each in (spec for name in layout.topology.datacenters for spec in made.brokers(name)):
        supervisor.change(each)
    differing = await asyncio.gather(
        *(create_topics(layout.addresses[name], name, dc) for name, dc in layout.topology.datacenters.items())
    )
    notes = [line for lines in differing for line in lines]
    mirrors = [supervisor.start(layout.mirror(link)).spec.name for link in layout.topology.mirrors]
    failed = await failures(supervisor, mirrors)
    workers = [supervisor.start(layout.worker(worker)).spec.name for worker in layout.topology.workers]
    failed += await failures(supervisor, workers)
    if failed:
        raise NotAllStarted(failed, notes)
    return notes


async def _ready(supervisor: Supervisor, names: list[str]) -> None:
    await asyncio.gather(*(supervisor.until(name, State.READY, timeout_s=START_TIMEOUT_S) for name in names))


async def failures(supervisor: Supervisor, names: list[str]) -> list[str]:
    """Wait until each is ready, or has failed: a line for each that has."""
    waits = (supervisor.until(name, State.READY, timeout_s=START_TIMEOUT_S) for name in names)
    found = await asyncio.gather(*waits, return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, SupervisorError):
            raise each
    return [str(each) for each in found if isinstance(each, SupervisorError)]


def python(room: str) -> tuple[str, ...]:
    """The command that runs a room's `__main__` in this interpreter."""
    return (sys.executable, *(("-X", "dev") if os.environ.get("PYTHONDEVMODE") else ()), "-m", f"isthmus.{room}")
