"""Turns a topology into supervised processes, in the order they need each other: brokers, topics, mirrors, workers.

Every process is started by its command line only; what a datacenter's ports are, and its cluster's id where it has
several brokers, is chosen once and kept in the folder, so that clients find it again after `down` and `up`.
"""

from __future__ import annotations

import asyncio
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..client import Admin, Client
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import ErrorCode, KafkaError
from .addresses import counted_up
from .chosen import Cluster, choose, note_made
from .errors import DeployError, counted
from .nodes import (
    CONTROLLER,
    KIND,
    METRICS,
    Node,
    cluster_options,
    factor_of,
    id_of,
    nodes,
    plain,
    topic_options,
)
from .supervisor import ProcessSpec, State, Supervisor

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command that starts no topology can do without
    from .topology import Datacenter, Mirror, Topology, Worker

NONE: Mapping[str, str] = MappingProxyType({})
NOTE = "note: "  # before a line of the supervisor's log that is for whoever started it
PORT_BASE = 19092  # in containers: the published ports count up from here, in the order of the datacenters
START_TIMEOUT_S = 60.0
START_CRASHES = 4  # what crashed so often while it starts is given up: about five seconds
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
        """Choose ports where the topology leaves them open. DeployError."""
        return cls(topology, file, folder, *choose(topology, folder))

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
        return ProcessSpec(node.process, command, KIND, stop_timeout_s=stop_grace_s(datacenter), facts=facts)

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
        return ProcessSpec(f"{link.name}-mirror", (*python("mirror"), *arguments), "mirror")

    def worker(self, worker: Worker) -> ProcessSpec:
        path, colon, name = worker.app.rpartition(":")
        app = f"{self.file.parent / path}{colon}{name}" if path.endswith(".py") else worker.app
        command = (*python("streams"), *worker_arguments(app, self.addresses[worker.datacenter]))
        return ProcessSpec(f"{worker.name}-worker", command, "worker")


def last_words(log: Path) -> str:
    """Why a supervisor gave up, by its log: the lines from its last `error: ` on."""
    text = log.read_text(errors="replace")
    _, found, words = f"\n{text}".rpartition("\nerror: ")
    if found:
        return words.strip()
    *_, last = text.strip().splitlines() or ["nothing"]
    return f"the supervisor died, and said at last: {last} (log: {log})"


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


def worker_arguments(app: str, bootstrap: str) -> tuple[str, ...]:
    """What `isthmus.streams` is told; app: path/to/file.py:app or module:app."""
    return (app, f"--bootstrap={bootstrap}")


async def launch(layout: Layout, supervisor: Supervisor) -> list[str]:
    """Start everything and return when all of it is ready; DeployError names what is not. Gives what people should
    know of it nevertheless, a line each."""
    brokers = [each for name in layout.topology.datacenters for each in layout.brokers(name)]
    await _ready(supervisor, [supervisor.start(each).spec.name for each in brokers])
    made = replace(layout, clusters=note_made(layout.folder, layout.clusters))
    for each in (spec for name in layout.topology.datacenters for spec in made.brokers(name)):
        supervisor.change(each)
    differing = await asyncio.gather(
        *(create_topics(layout.addresses[name], name, dc) for name, dc in layout.topology.datacenters.items())
    )
    mirrors = [supervisor.start(layout.mirror(link)).spec.name for link in layout.topology.mirrors]
    await _ready(supervisor, mirrors)
    workers = [supervisor.start(layout.worker(worker)).spec.name for worker in layout.topology.workers]
    await _ready(supervisor, workers)
    return [line for lines in differing for line in lines]


async def _ready(supervisor: Supervisor, names: list[str]) -> None:
    waits = (supervisor.until(name, State.READY, timeout_s=START_TIMEOUT_S, crashes=START_CRASHES) for name in names)
    await asyncio.gather(*waits)


async def create_topics(bootstrap: str, name: str, datacenter: Datacenter) -> list[str]:
    """Make the datacenter's topics that are not there yet. Those that are stay as they are: gives a line for each that
    is not as the file says. Raises DeployError."""
    wanted = [
        NewTopic(topic, each.partitions, factor_of(datacenter, each), topic_options(datacenter, each))
        for topic, each in datacenter.topics.items()
    ]
    if not wanted:
        return []
    client = Client(bootstrap, client_id="isthmus-up")
    differing = []
    try:
        await client.start()
        admin = Admin(client)
        for topic in wanted:
            try:
                await admin.create_topics([topic])
            except KafkaError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise DeployError(f"datacenter {name}: topic {topic.name}: {error}") from None
                if found := await differences(admin, topic):
                    differing.append(f"datacenter {name}: topic {topic.name} is left as it was made: {found}")
    except (ClientError, KafkaError) as error:
        raise DeployError(f"datacenter {name}: {error}") from None
    finally:
        await client.close()
    return differing


async def differences(admin: Admin, wanted: NewTopic) -> str:
    """In what a topic that is there is not as it is wanted: an empty text where it is. An option that is not wanted
    may be set: somebody has done so by hand."""
    [there] = await admin.describe_topics([wanted.name])
    found = []
    factors = sorted({len(each.replica_nodes) for each in there.partitions})
    if factors != [wanted.replication_factor]:
        found.append(f"it has {' or '.join(map(str, factors))} replicas, the file says {wanted.replication_factor}")
    if len(there.partitions) != wanted.partitions:
        found.append(f"it has {counted(len(there.partitions), 'partition')}, the file says {wanted.partitions}")
    options = {each.name: each.value for each in (await admin.describe_configs([wanted.name]))[wanted.name]}
    for option, value in wanted.configs.items():
        if _parts(options.get(option)) != _parts(value):
            found.append(f"its {option} is {options.get(option)}, the file says {value}")
    return "; ".join(found)


def _parts(value: str | None) -> list[str] | None:
    """A value without the spaces that one of several may have."""
    return None if value is None else [part.strip() for part in value.split(",")]


def python(room: str) -> tuple[str, ...]:
    """The command that runs a room's `__main__` in this interpreter."""
    return (sys.executable, *(("-X", "dev") if os.environ.get("PYTHONDEVMODE") else ()), "-m", f"isthmus.{room}")
