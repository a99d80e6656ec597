"""Turns a topology into supervised processes, in the order they need each other: brokers, topics, mirrors, workers.

Every process is started by its command line only; what a datacenter's port is, is chosen once and kept in the
folder, so that clients find it again after `down` and `up`.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import random
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..client import Admin, Client
from ..client.admin import NewTopic
from ..client.errors import ClientError
from ..protocol.errors import ErrorCode, KafkaError
from .errors import DeployError
from .supervisor import ProcessSpec, State, Supervisor
from .whole import write_whole

if TYPE_CHECKING:  # pydantic takes a tenth of a second, which a command that starts no topology can do without
    from .topology import Datacenter, Mirror, Topology, Worker

NOTE = "note: "  # before a line of the supervisor's log that is for whoever started it
KEPT = "addresses.json"
# Where free ports are looked for: below those that Linux gives to outgoing connections (32768 and up), of which one may
# be taken between the choice and the broker's start, or for good while the topology is down.
FREE_PORTS = range(20_000, 30_000)
PORT_BASE = 19092  # in containers: the published ports count up from here, in the order of the datacenters
START_TIMEOUT_S = 60.0
START_CRASHES = 4  # what crashed so often while it starts is given up: about five seconds
BROKER_STOP_MS = 60_000  # the default of shutdown.timeout.ms
BROKER_STOP_SPARE_S = 10


@dataclass(frozen=True)
class Layout:
    """Where a topology lives: its folder of data and logs, and the address of each datacenter."""

    topology: Topology
    file: Path
    folder: Path
    addresses: dict[str, str]

    @classmethod
    def make(cls, topology: Topology, file: Path, folder: Path) -> Layout:
        """Choose ports where the topology leaves them open; those chosen before are kept, and a folder that was removed
        is likely to have the same again."""
        folder.mkdir(parents=True, exist_ok=True)
        kept = kept_addresses(folder)
        said = [*kept.values(), *(datacenter.listen for datacenter in topology.datacenters.values())]
        taken = {int(each.rpartition(":")[2]) for each in said}
        shuffled = random.Random(str(folder.resolve())).sample(FREE_PORTS, len(FREE_PORTS))
        ports = (port for port in shuffled if port not in taken)  # one iterator: none is chosen twice
        addresses = {name: address(name, dc, kept, ports) for name, dc in topology.datacenters.items()}
        keep_addresses(folder, addresses)
        return cls(topology, file, folder, addresses)

    def broker(self, name: str) -> ProcessSpec:
        data = str(self.folder / "data" / name)
        datacenter = self.topology.datacenters[name]
        command = (*python("core_broker"), *broker_arguments(datacenter, data, [self.addresses[name]]))
        return ProcessSpec(f"{name}-broker", command, "broker", stop_timeout_s=stop_grace_s(datacenter))

    def mirror(self, link: Mirror) -> ProcessSpec:
        arguments = mirror_arguments(link, self.addresses[link.source], self.addresses[link.target])
        return ProcessSpec(f"{link.name}-mirror", (*python("mirror"), *arguments), "mirror")

    def worker(self, worker: Worker) -> ProcessSpec:
        path, colon, name = worker.app.rpartition(":")
        app = f"{self.file.parent / path}{colon}{name}" if path.endswith(".py") else worker.app
        command = (*python("streams"), *worker_arguments(app, self.addresses[worker.datacenter]))
        return ProcessSpec(f"{worker.name}-worker", command, "worker")


def kept_addresses(folder: Path) -> dict[str, str]:
    """What was chosen for a topology's datacenters when it ran, HOST:PORT each; DeployError: the file is damaged."""
    file = folder / KEPT
    try:
        kept = json.loads(file.read_text())
        for each in kept.values():
            int(each.rpartition(":")[2])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise DeployError(f"{file} cannot be read ({error}): remove it, and `isthmus up` chooses anew") from None
    return dict(kept)


def keep_addresses(folder: Path, addresses: Mapping[str, str]) -> None:
    write_whole(folder / KEPT, json.dumps(addresses, indent=1))


def last_words(log: Path) -> str:
    """Why a supervisor gave up, by its log: the lines from its last `error: ` on."""
    text = log.read_text(errors="replace")
    _, found, words = f"\n{text}".rpartition("\nerror: ")
    if found:
        return words.strip()
    *_, last = text.strip().splitlines() or ["nothing"]
    return f"the supervisor died, and said at last: {last} (log: {log})"


def broker_arguments(
    datacenter: Datacenter, data: str, listeners: Sequence[str], advertised: Sequence[str] = ()
) -> tuple[str, ...]:
    """What `isthmus.core_broker` is told; listeners, advertised: [NAME://]HOST:PORT each."""
    options = (f"--set={key}={plain(value)}" for key, value in datacenter.options.items())
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
    brokers = [supervisor.start(layout.broker(name)).spec.name for name in layout.topology.datacenters]
    await _ready(supervisor, brokers)
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
        NewTopic(topic, each.partitions, 1, {key: plain(value) for key, value in each.options.items()})
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
    if len(there.partitions) != wanted.partitions:
        found.append(f"it has {_count(len(there.partitions))}, the file says {wanted.partitions}")
    options = {each.name: each.value for each in (await admin.describe_configs([wanted.name]))[wanted.name]}
    for option, value in wanted.configs.items():
        if _parts(options.get(option)) != _parts(value):
            found.append(f"its {option} is {options.get(option)}, the file says {value}")
    return "; ".join(found)


def _parts(value: str | None) -> list[str] | None:
    """A value without the spaces that one of several may have."""
    return None if value is None else [part.strip() for part in value.split(",")]


def _count(partitions: int) -> str:
    return f"{partitions} partition" + ("" if partitions == 1 else "s")


def address(name: str, datacenter: Datacenter, kept: Mapping[str, str], ports: Iterator[int]) -> str:
    """Where a datacenter listens; ports: to choose from where it leaves that open. DeployError: it cannot listen."""
    host, _, port = datacenter.listen.rpartition(":")
    if port != "0":
        return datacenter.listen
    if (before := kept.get(name, "")).rpartition(":")[0] == host:
        try:
            bindable(host, int(before.rpartition(":")[2]))
        except OSError as error:
            raise DeployError(
                f"datacenter {name}: {before}, the address that was chosen for it, cannot be had again "
                f"({error.strerror}): stop what listens there (`ss -ltnp`), or remove {name} from {KEPT} in the "
                "topology's folder and have another chosen"
            ) from None
        return before
    for each in ports:
        try:
            bindable(host, each)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise DeployError(f"datacenter {name}: nothing can listen on {host}: {error.strerror}") from None
        else:
            return f"{host}:{each}"
    raise DeployError(f"datacenter {name}: every port of {host} from {FREE_PORTS[0]} to {FREE_PORTS[-1]} is in use")


def bindable(host: str, port: int) -> None:
    """OSError: nothing can listen on that port of `host` now."""
    with socket.socket(socket.AF_INET6 if host.startswith("[") else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as what ended there lately is no matter
        probe.bind((host.strip("[]"), port))


def plain(value: object) -> str:
    """An option's value as Kafka writes it: YAML's true is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def python(room: str) -> tuple[str, ...]:
    """The command that runs a room's `__main__` in this interpreter."""
    return (sys.executable, *(("-X", "dev") if os.environ.get("PYTHONDEVMODE") else ()), "-m", f"isthmus.{room}")
