"""Produce and consume in bulk by outside clients: librdkafka and Kafka's own Java tools, by record size and codec."""

from __future__ import annotations

import subprocess
import threading

from integration_tests.peers.peers import java_command

from .cases import GB, KEPT_BYTES, LOAD_TIMEOUT_S, MB, SAMPLE_BYTES, Bench, Sample, fill, heat, librdkafka, load, rates
from .frames import produce_frame, read_back, text_batch
from .sides import Side

PARTITIONS = 3
BOTH_PARTITIONS = 6
# Java's tools end after a number of records, not of seconds: this many a second of a sample, about what they reach.
JAVA_RECORDS = {1024: 250_000, 100: 1_000_000}
BATCH_BYTES = 64 << 10  # of values, in the topics that are read
REPLAYED_RECORDS = 1000  # a batch
REPLAYED_BATCHES = 48  # distinct ones, each sent again and again by a connection of its own

Load = tuple[dict[str, float], float]  # records, bytes and seconds; the broker's CPU-seconds


class Bulk(Bench):
    """value_bytes: of each record. codec: the producer's. java: Java's performance tools instead of librdkafka.
    python: librdkafka by Python's calls. clients: of librdkafka, so many processes at once. kind: of librdkafka's
    producer, see `librdkafka.py`. isolation: of its consumer."""

    partitions = PARTITIONS

    def __init__(
        self, side: Side, seconds: float, *, value_bytes: int = 1024, codec: str = "none", java: bool = False,
        python: bool = False, clients: int = 1, kind: str = "plain", isolation: str = "read_committed",
    ) -> None:  # fmt: skip
        super().__init__(side, seconds)
        self.value_bytes = value_bytes
        self.codec = codec
        self.java = java
        self.python = python
        self.clients = clients
        self.kind = kind
        self.isolation = isolation

    def produced(self, name: str, seconds: float) -> Load:
        if not self.java:
            return librdkafka(
                "produce", self.side, name, seconds, self.partitions, self.value_bytes, self.codec,
                clients=self.clients, python=self.python, more=[f"--kind={self.kind}"],
            )  # fmt: skip
        count = min(int(JAVA_RECORDS[self.value_bytes] * seconds), SAMPLE_BYTES // self.value_bytes)
        said, cpu_s = self._tool(
            "ProducerPerformance", "--topic", name, "--num-records", str(count), "--record-size",
            str(self.value_bytes), "--throughput", "-1", "--command-property",
            f"bootstrap.servers={self.side.address}", f"compression.type={self.codec}",
        )  # fmt: skip
        rate = float(said.strip().splitlines()[-1].partition("records sent, ")[2].split()[0])
        return {"bytes": count * self.value_bytes, "seconds": count / rate}, cpu_s

    def consumed(self, name: str, seconds: float) -> Load:
        if not self.java:
            return librdkafka(
                "fetch", self.side, name, seconds, self.partitions, self.value_bytes, python=self.python,
                more=[f"--isolation={self.isolation}"],
            )  # fmt: skip
        count = min(int(JAVA_RECORDS[self.value_bytes] * seconds), KEPT_BYTES // self.value_bytes)
        said, cpu_s = self._tool(
            "ConsumerPerformance", "--bootstrap-server", self.side.address, "--topic", name, "--num-records", str(count)
        )
        head, line = said.strip().splitlines()[-2:]
        row = dict(zip((each.strip() for each in head.split(",")), line.split(", "), strict=True))
        mib = float(row["data.consumed.in.MB"])
        return {"bytes": mib * (1 << 20), "seconds": mib / float(row["fetch.MB.sec"])}, cpu_s

    def _tool(self, main: str, *arguments: str) -> tuple[str, float]:
        before = self.side.cpu_seconds()
        done = subprocess.run(java_command(main, *arguments), capture_output=True, text=True, timeout=LOAD_TIMEOUT_S)
        used = self.side.cpu_seconds() - before
        if done.returncode:
            raise RuntimeError(f"{main} against {self.side.name}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
        return done.stdout, used


class Produce(Bulk):
    """A producer with its defaults, acks=all."""

    def measure(self, seconds: float) -> Sample:
        name = self.begun_topic(self.partitions)
        got, cpu_s = self.produced(name, seconds)
        self.side.delete_topic(name)
        return rates(got["bytes"], got["seconds"], cpu_s)


class Consume(Bulk):
    """A consumer that reads ahead, from the page cache; batches of 64 KB."""

    def prepare(self) -> None:
        self.name = self.topic(self.partitions)
        batch = text_batch(BATCH_BYTES // self.value_bytes, self.value_bytes)
        # The values are as many as the Java tool is told to read; keys, headers and frames come on top.
        fill(self.side, self.name, self.partitions, KEPT_BYTES // BATCH_BYTES * (len(batch) + 256), batch)

    def measure(self, seconds: float) -> Sample:
        heat(self.side, self.name)
        got, cpu_s = self.consumed(self.name, seconds)
        return rates(got["bytes"], got["seconds"], cpu_s)

    def clean(self) -> None:
        self.side.delete_topic(self.name)


class ProduceAndConsume(Consume):
    """A producer and a consumer at once, on two topics of six partitions; MB/s in and out together."""

    partitions = BOTH_PARTITIONS

    def measure(self, seconds: float) -> Sample:
        name = self.begun_topic(self.partitions)
        heat(self.side, self.name)
        read: list[Load] = []
        before = self.side.cpu_seconds()
        reader = threading.Thread(target=lambda: read.append(self.consumed(self.name, seconds)))
        reader.start()
        written, _ = self.produced(name, seconds)
        reader.join()
        cpu_s = self.side.cpu_seconds() - before
        self.side.delete_topic(name)
        if not read:
            raise RuntimeError(f"{self.side.name}: the consumer failed")
        both = written, read[0][0]
        rate = sum(each["bytes"] / each["seconds"] for each in both) / MB
        return {"rate": rate, "cpu": cpu_s / (sum(each["bytes"] for each in both) / GB)}


class Replay(Bench):
    """Ready-made, distinct lz4 batches of 1,000 records of 100 B; then all that was taken is read and counted."""

    def measure(self, seconds: float) -> Sample:
        name = self.topic(PARTITIONS)
        batches = [text_batch(REPLAYED_RECORDS, 100, "lz4") for _ in range(REPLAYED_BATCHES)]
        frames = [produce_frame(name, number % PARTITIONS, each) for number, each in enumerate(batches)]
        written, cpu_s = load(self.side, frames, len(frames), seconds, SAMPLE_BYTES)
        count = (written["requests"] + len(frames)) * REPLAYED_RECORDS  # `load` tries each frame once before
        read_s, found = read_back(self.side.address, name, PARTITIONS)
        self.side.delete_topic(name)
        if found != count:
            raise RuntimeError(f"{self.side.name}: {count:,.0f} records were acknowledged, {found:,} are there")
        rate = written["requests"] * REPLAYED_RECORDS / written["seconds"]
        return {
            "in": rate,
            "out": found / read_s,
            "both": 1 / (1 / rate + read_s / found),
            "cpu": cpu_s / (written["requests"] * REPLAYED_RECORDS) * 1e6,
        }
