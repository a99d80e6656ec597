"""Cases of clusters: what a producer notices of a fault, and many partitions. See `sides.py` for what a node is."""

from __future__ import annotations

import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from integration_tests.brokers import ROOT
from integration_tests.peers.peers import quorum_leader
from isthmus.protocol.header import decode_response_header
from isthmus.protocol.messages import create_topics, metadata

from . import stalls
from .cases import Bench, Sample, fill, rates
from .disk import COLD_TIMEOUT_S, OpenLoop
from .load import ask
from .partitions import ADMIN_VERSION, METADATA_VERSION, TIMEOUT_MS, TOPIC_PARTITIONS, framed
from .sides import Side

BEFORE_S = 1.0  # of load before a fault
HANG_S = 20.0  # a process that hangs does so for longer than either side's session timeout
IN_SYNC_S = 120.0  # in which all replicas are in sync again
POLL_S = 0.02
LOOK_S = 0.1
LIVE_RECORDS_S = 1000.0
_runs = itertools.count()


class Stall(Bench):
    """A fault under a small record each 5 ms to one partition, idempotent, acks=all; then all is in sync again.

    fault: of the leader, the controller (which is not the leader), or a follower (which is not the controller). The
    producer is librdkafka's, but where a process hangs it is Isthmus', on both sides: see `stalls.py`.
    """

    warms_by_load = False

    def __init__(self, side: Side, seconds: float, *, fault: str, who: str) -> None:
        super().__init__(side, seconds)
        self.fault = fault
        self.who = who

    def prepare(self) -> None:
        self.name = self.topic(options={"min.insync.replicas": "2"})

    def warm(self, seconds: float) -> None:
        with self._producer() as load:
            time.sleep(seconds)
            load.terminate()
            _said(load, self.side)

    def measure(self, seconds: float) -> Sample:
        """seconds: of load after the fault, if the process does not hang."""
        in_sync(self.side, self.name)
        node = self.side.nodes[self._chosen()]
        with self._producer() as load:
            time.sleep(BEFORE_S)
            if self.fault == "hang":
                node.signal(signal.SIGSTOP)
            elif self.fault == "kill":
                node.kill()
            else:
                node.stop()
            time.sleep(HANG_S if self.fault == "hang" else seconds)
            if self.fault == "hang":
                node.signal(signal.SIGCONT)
            else:
                node.begin()
                node.wait()
            in_sync(self.side, self.name)
            load.terminate()
            said = _said(load, self.side)
        return {"stall": said["stall"] * 1000, "failed": said["failed"]}

    def clean(self) -> None:
        self.side.delete_topic(self.name)

    def _chosen(self) -> int:
        """Node id."""
        leader = self.side.leader_id(self.name)
        controller = controller_of(self.side)
        while self.who == "controller" and controller == leader:
            node = self.side.nodes[controller]
            node.stop()  # another one is elected; it may lead this partition, too
            node.begin()
            node.wait()
            in_sync(self.side, self.name)
            leader, controller = self.side.leader_id(self.name), controller_of(self.side)
        if self.who == "leader":
            return leader
        if self.who == "controller":
            return controller
        return next(each for each in self.side.nodes if each not in (leader, controller))

    @contextlib.contextmanager
    def _producer(self) -> Iterator[subprocess.Popen[str]]:
        client = stalls.ISTHMUS if self.fault == "hang" else stalls.LIBRDKAFKA
        command = [sys.executable, "-m", "benchmarks.stalls", self.side.address, self.name, "--client", client]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout
                if process.stdout.readline() != "ready\n":
                    raise RuntimeError(f"{self.side.name}: the producer did not get ready")
                yield process
            finally:
                process.kill()


class ManyReplicas(Bench):
    """Partitions with three replicas on three brokers: created; one broker killed and replaced; all started again."""

    warms_by_load = False

    def __init__(self, side: Side, seconds: float, *, count: int) -> None:
        super().__init__(side, seconds)
        self.count = count

    def warm(self, seconds: float) -> None:
        pass

    def measure(self, seconds: float) -> Sample:
        run = next(_runs)
        topics = [f"many-{run:03d}-{number:04d}" for number in range(self.count // TOPIC_PARTITIONS)]
        began = time.perf_counter()
        for topic in topics:
            self._create(topic)
        self._until_led(topics, ())
        sample = {"create": time.perf_counter() - began, "rss": self.side.rss_bytes() / (1 << 20)}
        dead = max(each for each in self.side.nodes if each != controller_of(self.side))
        self.side.nodes[dead].kill()
        began = time.perf_counter()
        self._until_led(topics, (dead,))
        sample["failover"] = time.perf_counter() - began
        self.side.nodes[dead].begin()
        self.side.nodes[dead].wait()
        self.side.stop()
        began = time.perf_counter()
        self.side.launch()
        self._until_led(topics, ())
        sample["start"] = time.perf_counter() - began
        return sample

    def _create(self, name: str) -> None:
        topic = create_topics.CreatableTopic(name=name, num_partitions=TOPIC_PARTITIONS, replication_factor=3)
        frame = framed(create_topics, create_topics.Request(topics=[topic], timeout_ms=TIMEOUT_MS), ADMIN_VERSION)
        answer = ask(self.side.nodes[controller_of(self.side)].address, frame)
        at = decode_response_header(answer, create_topics.API.response_header_version(ADMIN_VERSION))[1]
        [row] = create_topics.API.decode_response(answer, at, ADMIN_VERSION).topics
        if row.error_code:
            raise RuntimeError(f"{self.side.name} did not create {name}: {row.error_message}")

    def _until_led(self, topics: list[str], dead: tuple[int, ...]) -> None:
        """By brokers that live, as each that lives tells."""
        wanted = [metadata.MetadataRequestTopic(name=name) for name in topics]
        frame = framed(metadata, metadata.Request(topics=wanted), METADATA_VERSION)
        end = time.perf_counter() + TIMEOUT_MS / 1000 * 5
        for number, node in self.side.nodes.items():
            while number not in dead and not self._is_led(node.address, frame, dead):
                if time.perf_counter() > end:
                    raise RuntimeError(f"{self.side.name}: not all partitions have a leader after 300 s")
                time.sleep(LOOK_S)

    def _is_led(self, address: str, frame: bytes, dead: tuple[int, ...]) -> bool:
        with contextlib.suppress(OSError):
            answer = ask(address, frame)
            at = decode_response_header(answer, metadata.API.response_header_version(METADATA_VERSION))[1]
            topics = metadata.API.decode_response(answer, at, METADATA_VERSION).topics
            rows = [row for topic in topics for row in topic.partitions]
            count = len(topics) * TOPIC_PARTITIONS
            return len(rows) == count and all(row.leader_id >= 0 and row.leader_id not in dead for row in rows)
        return False


class CatchUp(Bench):
    """A broker that was away comes back: a topic of its copies the bytes it has missed, beside 1,000 live records/s."""

    warms_by_load = False

    def __init__(self, side: Side, seconds: float, *, behind_bytes: int) -> None:
        super().__init__(side, seconds)
        self.behind_bytes = behind_bytes

    def warm(self, seconds: float) -> None:
        pass

    def measure(self, seconds: float) -> Sample:
        behind, live = self.topic(3), self.topic()
        in_sync(self.side, behind)
        away = max(each for each in self.side.nodes if each != self.side.leader_id(live))
        self.side.nodes[away].stop()
        fill(self.side, behind, 3, self.behind_bytes)
        before = self.side.nodes[away]
        before.begin()
        began = time.perf_counter()
        with OpenLoop(self.side, live, LIVE_RECORDS_S, COLD_TIMEOUT_S) as running:
            before.wait()
            cpu_s = self.side.cpu_seconds()
            for partition in range(3):
                in_sync(self.side, behind, partition)
            took = time.perf_counter() - began
            used = self.side.cpu_seconds() - cpu_s
            late = running.result()
        for name in behind, live:
            self.side.delete_topic(name)
        return {**rates(self.behind_bytes, took, used), "p99": late["p99"], "max": late["max"]}


def controller_of(side: Side) -> int:
    """Node id of the active controller, as any broker tells. Raises RuntimeError."""
    end = time.perf_counter() + IN_SYNC_S
    while time.perf_counter() < end:
        for node in side.nodes.values():
            with contextlib.suppress(OSError):
                found = quorum_leader(int(node.address.rpartition(":")[2]))
                if found in side.nodes:
                    return found
        time.sleep(POLL_S)
    raise RuntimeError(f"{side.name} has no controller after {IN_SYNC_S:g} s")


def in_sync(side: Side, topic: str, partition: int = 0) -> None:
    """Wait until all replicas of a partition are. Raises RuntimeError."""
    end = time.perf_counter() + IN_SYNC_S
    admin = side.admin()
    while time.perf_counter() < end:
        found = admin.list_topics(topic, timeout=IN_SYNC_S).topics[topic].partitions[partition]
        if found.leader in side.nodes and len(found.isrs) == side.replication_factor:
            return
        time.sleep(POLL_S)
    raise RuntimeError(f"{side.name}: {topic}-{partition} is not in sync after {IN_SYNC_S:g} s")


def _said(load: subprocess.Popen[str], side: Side) -> dict[str, float]:
    assert load.stdout
    figures: dict[str, float] = json.loads(load.stdout.readline())
    if figures["failed"]:
        print(f"  {side.name}: {figures['failed']} records failed: {figures['why']}", file=sys.stderr)
    return figures
