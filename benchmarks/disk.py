"""The cases of latency and of the disk: an open loop alone, fsync before every answer, and cold reads beside others.

`cold` fills a topic with `--cold-gb` gigabytes, puts it on disk and out of the page cache, has the system say that it
is out (a control), and reads it all by librdkafka while an open-loop producer and a tailing consumer on another topic
are measured. The sides do so one after the other, and each removes its data before the other begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from integration_tests.brokers import ROOT

from .cases import (
    GB,
    LOAD_TIMEOUT_S,
    MB,
    PARTITIONS,
    SMALL_BYTES,
    Bench,
    Sample,
    SmallRequests,
    fill,
    librdkafka,
)
from .frames import batch, produce_frame, random_batch
from .load import ask
from .sides import Side

SKIP_S = 1.5  # of an open loop: connections and caches
COLD_RATE = 1000.0
COLD_VALUE_BYTES = 8192  # few enough records that the disk is slower than the reading client
COLD_BATCH_RECORDS = 8
COLD_TIMEOUT_S = 900.0
RESIDENT_SHARE_MAX = 0.01  # of a topic that counts as out of the page cache
FILL_STEP_BYTES = 1 << 30
FSYNC_PARTITIONS = 6
FLUSH_MS = 1000
COMPACT_KEYS = 1000
COMPACT_PAUSE_S = 0.02  # between appends of about a megabyte to the topic that is compacted
COMPACT_SEGMENT_BYTES = 16 << 20
COMPACTED_SHARE_MAX = 0.6  # of what was written to it, while the cleaner is at work


class Latency(Bench):
    """1,000 records of 100 bytes a second on a schedule, from when each was due until a tailing consumer has it."""

    rate = 1000.0

    def prepare(self) -> None:
        self.name = self.topic()

    def measure(self, seconds: float) -> Sample:
        before = self.side.cpu_seconds()
        with OpenLoop(self.side, self.name, self.rate, seconds + SKIP_S) as running:
            late = running.result()
        cpu_s = self.side.cpu_seconds() - before
        return {**late, "cpu": cpu_s / (self.rate * (seconds + SKIP_S)) * 1e6}

    def clean(self) -> None:
        self.side.delete_topic(self.name)


class FastLatency(Latency):
    """The same with 5,000 records a second."""

    rate = 5000.0


class Fsync(Bench):
    """librdkafka's producer, 6 partitions, each answer after an fsync (Kafka: flush.messages=1):

    value_bytes: of each record. batch_records: as many of them in a batch at most and sent at once, many requests in
    flight, instead of librdkafka's defaults. clients: so many processes at once.
    """

    def __init__(
        self, side: Side, seconds: float, *, value_bytes: int = SMALL_BYTES, batch_records: int = 0, clients: int = 1
    ) -> None:
        super().__init__(side, seconds)
        self.value_bytes = value_bytes
        self.batch_records = batch_records
        self.clients = clients

    def measure(self, seconds: float) -> Sample:
        name = self.begun_topic(FSYNC_PARTITIONS, self.side.fsync_options)
        got, cpu_s = librdkafka(
            "produce", self.side, name, seconds, FSYNC_PARTITIONS, self.value_bytes, batch_records=self.batch_records,
            clients=self.clients,
        )  # fmt: skip
        self.side.delete_topic(name)
        return {"rate": got["records"] / got["seconds"], "cpu": cpu_s / got["records"] * 1e6}


class FsyncSmall(SmallRequests):
    """One record of 100 bytes a request on 100 connections, each answer after an fsync (Kafka: flush.messages=1)."""

    def prepare(self) -> None:
        self.name = self.topic(options=self.side.fsync_options)
        self.frame = produce_frame(self.name, 0, random_batch(1, SMALL_BYTES))


class Cold(Bench):
    """A consumer reads a topic that is not in the page cache; the latencies are of others, at 1,000 records/s."""

    live_options: dict[str, str] = {}

    def prepare(self) -> None:
        self.live = self.topic(options=self.live_options)

    def warm(self, seconds: float) -> None:
        with OpenLoop(self.side, self.live, COLD_RATE, SKIP_S + seconds) as running:
            running.result()

    def prepare_sample(self) -> None:
        self.cold = self.topic(PARTITIONS)
        one = random_batch(COLD_BATCH_RECORDS, COLD_VALUE_BYTES)
        left = self.cold_bytes
        while left > 0:
            fill(self.side, self.cold, PARTITIONS, min(left, FILL_STEP_BYTES), one)
            left -= FILL_STEP_BYTES
        chill(self.side, self.cold)

    def measure(self, seconds: float) -> Sample:
        with self.beside(), OpenLoop(self.side, self.live, COLD_RATE, COLD_TIMEOUT_S) as running:
            time.sleep(SKIP_S)
            got, cpu_s = librdkafka(
                "drain", self.side, self.cold, COLD_TIMEOUT_S, PARTITIONS, COLD_VALUE_BYTES, timeout_s=COLD_TIMEOUT_S
            )
            late = running.result()
        self.side.delete_topic(self.cold)
        if got["bytes"] < 0.9 * self.cold_bytes:
            raise RuntimeError(f"{self.side.name} gave {got['bytes']} bytes of {self.cold_bytes}")
        return {**late, "rate": got["bytes"] / got["seconds"] / MB, "cpu": cpu_s / (got["bytes"] / GB)}

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """What else runs meanwhile."""
        yield

    def clean(self) -> None:
        self.side.delete_topic(self.live)


class ColdBusy(Cold):
    """The same while the cleaner compacts a topic that grows, and with an fsync every second."""

    live_options = {"flush.ms": str(FLUSH_MS)}
    compact_options = {
        "cleanup.policy": "compact", "segment.bytes": str(COMPACT_SEGMENT_BYTES), "min.cleanable.dirty.ratio": "0.01",
        "flush.ms": str(FLUSH_MS),
    }  # fmt: skip

    def prepare(self) -> None:
        super().prepare()
        entry = ConfigEntry("log.cleaner.backoff.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        admin = self.side.admin()  # its futures end with it
        (node,) = admin.list_topics(timeout=LOAD_TIMEOUT_S).brokers
        resource = ConfigResource(ResourceType.BROKER, str(node), incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result()

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        name = self.topic(options=self.compact_options)
        values = [os.urandom(1024) for _ in range(COMPACT_KEYS)]
        frame = produce_frame(name, 0, batch(values, COMPACT_KEYS))
        stop = threading.Event()
        sent: list[int] = []

        def write() -> None:
            while not stop.wait(COMPACT_PAUSE_S):
                ask(self.side.address, frame)
                sent.append(len(frame))

        def share() -> float:
            return self.side.log_bytes(name) / max(sum(sent), 1)

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        try:
            deadline = time.monotonic() + LOAD_TIMEOUT_S
            while sum(sent) < 4 * COMPACT_SEGMENT_BYTES or share() > COMPACTED_SHARE_MAX:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.side.name}'s cleaner leaves {share():.0%} of {sum(sent)} bytes")
                time.sleep(0.1)
            yield
        finally:
            stop.set()
            writer.join()
        left = share()
        self.side.delete_topic(name)
        if left > COMPACTED_SHARE_MAX:
            raise RuntimeError(f"{self.side.name}'s cleaner has left {left:.0%} of {sum(sent)} bytes: it did not work")


class OpenLoop:
    """The two processes of `benchmarks.openloop` on a topic: the tail first, then the producer."""

    def __init__(self, side: Side, topic: str, rate: float, seconds: float) -> None:
        self.side = side
        self.arguments = [side.address, topic, f"--rate={rate}", f"--seconds={seconds}", f"--skip={SKIP_S}"]
        self.held = contextlib.ExitStack()
        self.seconds = seconds

    def __enter__(self) -> OpenLoop:
        try:
            self.tail = self._start("tail")
            assert self.tail.stdout
            if self.tail.stdout.readline().strip() != "ready":
                self._fail(self.tail)
            self.producer = self._start("produce")
        except BaseException:
            self.held.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.held.close()

    def _start(self, what: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.openloop", what, *self.arguments],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.held.callback(process.communicate)
        self.held.callback(process.kill)
        return process

    def _fail(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        raise RuntimeError(f"open loop against {self.side.name}: {process.communicate()[1][-2000:]}")

    def result(self) -> Sample:
        """The latencies: at the end of the schedule, or of what was sent by now where that takes long."""
        if self.seconds >= COLD_TIMEOUT_S:
            self.producer.send_signal(signal.SIGTERM)
        if self.producer.wait(self.seconds + LOAD_TIMEOUT_S):
            self._fail(self.producer)
        said = self.tail.communicate(timeout=LOAD_TIMEOUT_S)[0]
        if self.tail.returncode:
            self._fail(self.tail)
        late = json.loads(said)
        return {"p50": late["p50_ms"], "p99": late["p99_ms"], "p999": late["p999_ms"], "max": late["max_ms"]}


def chill(side: Side, topic: str) -> None:
    """Put a topic's logs on disk and out of the page cache; RuntimeError when the system says that they are in it."""
    logs = side.log_files(topic)
    for path in logs:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
    size = side.log_bytes(topic)
    resident = resident_bytes(logs)
    if not size or resident > RESIDENT_SHARE_MAX * size:
        raise RuntimeError(f"{resident} of the {size} bytes of {topic} are still in the page cache")


def resident_bytes(paths: list[Path]) -> int:
    """What of some files is in the page cache, by util-linux' fincore."""
    said = subprocess.run(
        ["fincore", "--bytes", "--noheadings", "--output", "RES", *map(str, paths)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return sum(map(int, said.stdout.split()))
