"""The two sides of a comparison as processes on loopback: Isthmus brokers and stock Kafka nodes, one each or three.

Both have Kafka's defaults (Isthmus' durability is page_cache, which is Kafka's), data on the same disk. In a cluster
each node is a broker and a controller.
Only the delay before a deleted topic's files go is shortened, so that a run does not fill the disk. And Kafka looks for
topics with `flush.ms` every second: by default never.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import ROOT, BrokerProcess, running_cluster
from integration_tests.peers import peers
from integration_tests.peers.peers import cpu_seconds, metadata, rss_bytes

ISTHMUS, KAFKA = "Isthmus", "Kafka"
SETTINGS = {"log.segment.delete.delay.ms": 1000}
KAFKA_SETTINGS = {
    **SETTINGS,
    "log.flush.scheduler.interval.ms": 1000,  # else it never looks at a topic's flush.ms
}
OTHER_CHECKOUT = "other checkout"
REPLICAS = 3  # of each partition, in a cluster
READY_POLL_S = 0.005
READY_TIMEOUT_S = 600.0  # of a JVM after kill -9, with thousands of logs
STOP_TIMEOUT_S = 120.0  # the last of three controllers never ends its shutdown
ADMIN_TIMEOUT_S = 30.0
GONE_POLL_S = 0.1
GONE_TIMEOUT_S = 120.0
WARNINGS = 4  # of syslog, and what is worse


def age_s(pid: int) -> float:
    """How long a process has lived, to 10 ms."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


class Node(Protocol):
    """A broker's process, which `begin` starts; `wait` returns when it serves."""

    @property
    def address(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def data_folder(self) -> Path: ...
    def begin(self) -> None: ...
    def wait(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...
    def signal(self, number: int) -> None: ...


class IsthmusNode:
    def __init__(self, process: BrokerProcess) -> None:
        self.process = process

    @property
    def address(self) -> str:
        return self.process.address

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def data_folder(self) -> Path:
        return self.process.folder / "data"

    def begin(self) -> None:
        self.process.begin()

    def wait(self) -> None:
        self.process.wait(READY_TIMEOUT_S)

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def signal(self, number: int) -> None:
        self.process.signal(number)


class KafkaNode:
    def __init__(self, node: peers.Node, size: int) -> None:
        self.node = node
        self.size = size

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def pid(self) -> int:
        process = self.node.process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"Kafka in {self.node.folder} does not run")
        return process.pid

    @property
    def data_folder(self) -> Path:
        return Path(self.node.properties["log.dirs"])

    def begin(self) -> None:
        self.node.start()

    def wait(self) -> None:
        self.node.wait(self.size, READY_TIMEOUT_S)

    def stop(self) -> None:
        self.node.stop(STOP_TIMEOUT_S)

    def kill(self) -> None:
        self.node.kill()

    def signal(self, number: int) -> None:
        self.node.signal(number)


class Side:
    """Running brokers of one kind. nodes: by node id; a case that speaks of `the` broker is for sides with one.

    fsync_options: of a topic whose every answer comes after an fsync.
    """

    def __init__(self, name: str, nodes: Mapping[int, Node], fsync_options: Mapping[str, str]) -> None:
        self.name = name
        self.nodes = dict(nodes)
        self.fsync_options = fsync_options

    @property
    def node(self) -> Node:
        """The broker of a side that has one."""
        [node] = self.nodes.values()
        return node

    @property
    def address(self) -> str:
        """HOST:PORT; of a cluster all, with commas."""
        return ",".join(node.address for node in self.nodes.values())

    @property
    def pids(self) -> list[int]:
        return [node.pid for node in self.nodes.values()]

    @property
    def replication_factor(self) -> int:
        return min(len(self.nodes), REPLICAS)

    def log_files(self, topic: str) -> list[Path]:
        """The segments of a topic's partitions, those that are about to be deleted too."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # a directory went while it was looked into
                folders = [node.data_folder for node in self.nodes.values()]
                return [path for each in folders for path in sorted(each.glob(f"{topic}[-.]*/*.log*"))]

    def log_bytes(self, topic: str) -> int:
        """The size of those files; of one that goes meanwhile, none."""
        size = 0
        for path in self.log_files(topic):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def cpu_seconds(self) -> float:
        """Of all brokers."""
        return sum(map(cpu_seconds, self.pids))

    def rss_bytes(self) -> int:
        """Of a broker; in a cluster, on average."""
        return sum(map(rss_bytes, self.pids)) // len(self.nodes)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": WARNINGS})

    def create_topic(self, name: str, partitions: int = 1, options: Mapping[str, str] | None = None) -> None:
        admin = self.admin()
        config = {"retention.ms": "-1", **(options or {})}
        wanted = NewTopic(name, partitions, self.replication_factor, config=config)
        admin.create_topics([wanted], request_timeout=ADMIN_TIMEOUT_S)[name].result()
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while time.monotonic() < deadline:
            found = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics.get(name)
            if found and len(found.partitions) == partitions:
                if all(each.leader >= 0 for each in found.partitions.values()):
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} has no leader for {name} after {ADMIN_TIMEOUT_S} s")

    def leader_id(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader."""
        return self.admin().list_topics(topic, timeout=ADMIN_TIMEOUT_S).topics[topic].partitions[partition].leader

    def leader(self, topic: str, partition: int = 0) -> Node:
        return self.nodes[self.leader_id(topic, partition)] if len(self.nodes) > 1 else self.node

    def delete_topic(self, name: str) -> None:
        """Returns once its files are gone, too, so that nobody's are unlinked while the other side is measured."""
        admin = self.admin()  # its futures end with it
        admin.delete_topics([name], request_timeout=ADMIN_TIMEOUT_S)[name].result()
        deadline = time.monotonic() + GONE_TIMEOUT_S
        while self.log_files(name):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} still has files of {name} {GONE_TIMEOUT_S} s after its deletion")
            time.sleep(GONE_POLL_S)

    def restart(self) -> float:
        """Stop it in a controlled way and start it again: seconds from start of the process to a Metadata answer; of
        a cluster, to the last one's."""
        self.stop()
        self.launch()
        pid = self.pids[0]
        ports = [int(node.address.rpartition(":")[2]) for node in self.nodes.values()]
        while ports and age_s(pid) < READY_TIMEOUT_S:
            with contextlib.suppress(OSError):
                if len(metadata(ports[-1])[0]) == len(self.nodes):
                    ports.pop()
                    continue
            time.sleep(READY_POLL_S)
        if ports:
            raise RuntimeError(f"{self.name} on {self.address} did not answer within {READY_TIMEOUT_S} s")
        return age_s(pid)

    def stop(self) -> None:
        for node in reversed(self.nodes.values()):
            node.stop()

    def kill(self) -> None:
        """kill -9."""
        for node in self.nodes.values():
            node.kill()

    def launch(self) -> None:
        """Start the processes, and wait until they serve."""
        for node in self.nodes.values():
            node.begin()
        for node in self.nodes.values():
            node.wait()


def isthmus_side(processes: Mapping[int, BrokerProcess], name: str = ISTHMUS) -> Side:
    return Side(name, {number: IsthmusNode(each) for number, each in processes.items()}, {"durability": "fsync"})


def _end(process: BrokerProcess) -> None:
    if process.alive():
        process.kill()


Maker = Callable[..., contextlib.AbstractContextManager[Side]]  # (folder, size=1)


def isthmus_of(root: Path, name: str) -> Maker:
    """Makes the brokers of a checkout of Isthmus whose modules are compiled."""

    @contextlib.contextmanager
    def made(folder: Path, size: int = 1) -> Iterator[Side]:
        if size > 1:
            with running_cluster(folder, size, SETTINGS, root) as cluster:
                yield isthmus_side(cluster.brokers, name)
            return
        process = BrokerProcess(folder, SETTINGS, root)
        with contextlib.ExitStack() as held:
            held.callback(_end, process)
            process.start()
            yield isthmus_side({1: process}, name)

    return made


isthmus: Maker = isthmus_of(ROOT, ISTHMUS)


def checkout(root: Path) -> Maker:
    """Makes the brokers of another checkout: they take the other side's place."""
    return isthmus_of(root.resolve(), OTHER_CHECKOUT)


def kafka_with(settings: Mapping[str, str]) -> Maker:
    """Makes Kafka's nodes, with these settings beside those that all runs have."""

    @contextlib.contextmanager
    def kafka(folder: Path, size: int = 1) -> Iterator[Side]:
        with peers.cluster(size, {**KAFKA_SETTINGS, **settings}) as made:
            nodes = {node.id: KafkaNode(node, size) for node in made.nodes}
            yield Side(KAFKA, nodes, {"flush.messages": "1"})

    return kafka


kafka: Maker = kafka_with({})


def kafka_version() -> str:
    found = re.search(r"<broker\.version>([^<]+)", peers.POM.read_text())
    return found[1] if found else "unknown"
