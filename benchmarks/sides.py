"""The two sides of a comparison as processes on loopback: an Isthmus broker and a stock Kafka node.

Both have Kafka's defaults (Isthmus' durability is page_cache, which is Kafka's), one node each, data on the same disk.
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

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess
from integration_tests.peers.peers import (
    POM,
    Cluster,
    Node,
    cluster,
    cpu_seconds,
    metadata,
    rss_bytes,
)

SETTINGS = {"log.segment.delete.delay.ms": 1000}
KAFKA_SETTINGS = {
    **SETTINGS,
    "log.flush.scheduler.interval.ms": 1000,  # else it never looks at a topic's flush.ms
}
OTHER_CHECKOUT = "other checkout"
READY_POLL_S = 0.005
READY_TIMEOUT_S = 60.0
ADMIN_TIMEOUT_S = 30.0
GONE_POLL_S = 0.1
GONE_TIMEOUT_S = 120.0
WARNINGS = 4  # of syslog, and what is worse


def age_s(pid: int) -> float:
    """How long a process has lived, to 10 ms."""
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / os.sysconf("SC_CLK_TCK")


class Side:
    """A running broker: `name`, `address`, `pid`."""

    name: str
    fsync_options: dict[str, str]  # of a topic whose every answer comes after an fsync

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def address(self) -> str:
        raise NotImplementedError

    @property
    def pid(self) -> int:
        raise NotImplementedError

    @property
    def data_folder(self) -> Path:
        raise NotImplementedError

    def log_files(self, topic: str) -> list[Path]:
        """The segments of a topic's partitions, those that are about to be deleted too."""
        while True:
            with contextlib.suppress(FileNotFoundError):  # a directory went while it was looked into
                return sorted(self.data_folder.glob(f"{topic}[-.]*/*.log*"))

    def log_bytes(self, topic: str) -> int:
        """The size of those files; of one that goes meanwhile, none."""
        size = 0
        for path in self.log_files(topic):
            with contextlib.suppress(FileNotFoundError):
                size += path.stat().st_size
        return size

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": WARNINGS})

    def create_topic(self, name: str, partitions: int = 1, options: Mapping[str, str] | None = None) -> None:
        admin = self.admin()
        config = {"retention.ms": "-1", **(options or {})}
        wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=config)
        admin.create_topics([wanted], request_timeout=ADMIN_TIMEOUT_S)[name].result()
        deadline = time.monotonic() + ADMIN_TIMEOUT_S
        while time.monotonic() < deadline:
            found = admin.list_topics(timeout=ADMIN_TIMEOUT_S).topics.get(name)
            if found and len(found.partitions) == partitions:
                if all(each.leader >= 0 for each in found.partitions.values()):
                    return
            time.sleep(0.02)
        raise RuntimeError(f"{self.name} has no leader for {name} after {ADMIN_TIMEOUT_S} s")

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
        """Stop it in a controlled way and start it again: seconds from start of the process to a Metadata answer."""
        self.stop()
        self.launch()
        port = int(self.address.rpartition(":")[2])
        while age_s(self.pid) < READY_TIMEOUT_S:
            with contextlib.suppress(OSError):
                if metadata(port)[0]:
                    return age_s(self.pid)
            time.sleep(READY_POLL_S)
        raise RuntimeError(f"{self.name} on {self.address} did not answer within {READY_TIMEOUT_S} s")

    def stop(self) -> None:
        raise NotImplementedError

    def kill(self) -> None:
        """kill -9."""
        raise NotImplementedError

    def launch(self) -> None:
        raise NotImplementedError


class Isthmus(Side):
    name = "Isthmus"
    fsync_options = {"durability": "fsync"}

    def __init__(self, folder: Path, process: BrokerProcess) -> None:
        super().__init__(folder)
        self.process = process

    @property
    def address(self) -> str:
        return self.process.address

    @property
    def data_folder(self) -> Path:
        return self.process.folder / "data"

    @property
    def pid(self) -> int:
        return self.process.pid

    def stop(self) -> None:
        self.process.stop()

    def kill(self) -> None:
        self.process.kill()

    def launch(self) -> None:
        self.process.start()


class Kafka(Side):
    name = "Kafka"
    fsync_options = {"flush.messages": "1"}

    def __init__(self, folder: Path, made: Cluster) -> None:
        super().__init__(folder)
        self.node: Node = made.nodes[0]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.node.port}"

    @property
    def data_folder(self) -> Path:
        return Path(self.node.properties["log.dirs"])

    @property
    def pid(self) -> int:
        process = self.node.process
        if process is None or process.poll() is not None:
            raise RuntimeError(f"Kafka in {self.node.folder} does not run")
        return process.pid

    def stop(self) -> None:
        self.node.stop()

    def kill(self) -> None:
        self.node.kill()

    def launch(self) -> None:
        self.node.start()


def _end(process: BrokerProcess) -> None:
    if process.alive():
        process.kill()


@contextlib.contextmanager
def isthmus(folder: Path) -> Iterator[Side]:
    process = BrokerProcess(folder, SETTINGS)
    with contextlib.ExitStack() as held:
        held.callback(_end, process)
        process.start()
        yield Isthmus(folder, process)


def checkout(root: Path) -> Callable[[Path], contextlib.AbstractContextManager[Side]]:
    """Makes the broker of another checkout of Isthmus, whose modules are compiled: it takes the other side's place."""

    @contextlib.contextmanager
    def other(folder: Path) -> Iterator[Side]:
        process = BrokerProcess(folder, SETTINGS, root.resolve())
        with contextlib.ExitStack() as held:
            held.callback(_end, process)
            process.start()
            side = Isthmus(folder, process)
            side.name = OTHER_CHECKOUT
            yield side

    return other


@contextlib.contextmanager
def kafka(folder: Path) -> Iterator[Side]:
    with cluster(properties=KAFKA_SETTINGS) as made:
        yield Kafka(folder, made)


def kafka_version() -> str:
    found = re.search(r"<broker\.version>([^<]+)", POM.read_text())
    return found[1] if found else "unknown"
