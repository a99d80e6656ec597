"""The cases on brokers: what is done to a side, and which figures come of it. `table.py` lists them.

CPU-seconds are of the broker's process, or of the
worker's where the case measures a worker; none counts the load.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from integration_tests.brokers import ROOT

from .frames import checked_size, fetch_frame, produce_frame, random_batch
from .load import run
from .sides import Side

Sample = dict[str, float]
GB = 1e9
MB = 1e6
PARTITIONS = 3
LOAD_TIMEOUT_S = 120.0
# Bounds of what one sample writes or a case keeps to read, so that a run fits a small disk and its page cache.
SAMPLE_BYTES = 1 << 30
KEPT_BYTES = 512 << 20
BATCH_RECORDS, VALUE_BYTES = 64, 1024
BEGIN_RECORDS = 8
FETCH_BYTES = 1 << 20
SMALL_BYTES = 100
RAW_CONNECTIONS = 4
SETTLE_S = 3.0
_names = itertools.count()


class Bench:
    """One case on one side. `measure` may be called often."""

    cold_bytes = 0  # what the cases of cold reads write and read
    warms_by_load = True  # whether `warm` again and again brings a side nearer to its speed

    def __init__(self, side: Side, seconds: float) -> None:
        self.side = side
        self.seconds = seconds

    def prepare(self) -> None:
        """What is needed before the first measure, such as topics that are full."""

    def warm(self, seconds: float) -> None:
        """Load that is not measured, for the JVM's compiler and all caches."""
        self.measure(seconds)

    def prepare_sample(self) -> None:
        """What one sample needs and does not measure. The memory it leaves is touched before the sample."""

    def measure(self, seconds: float) -> Sample:
        raise NotImplementedError

    def clean(self) -> None:
        """Remove what `prepare` made."""

    def topic(self, partitions: int = 1, options: Mapping[str, str] | None = None) -> str:
        name = f"bench-{next(_names)}"
        self.side.create_topic(name, partitions, options)
        return name

    def begun_topic(self, partitions: int, options: Mapping[str, str] | None = None) -> str:
        """One with two batches of 8 KB or more in each partition: the first entry of an index has been made.

        Where an index is a mapped file the system reads around that entry, once, and with a large read-ahead that is
        what a sample of a few seconds measures.
        """
        name = self.topic(partitions, options)
        begin = random_batch(BEGIN_RECORDS, VALUE_BYTES)
        fill(self.side, name, partitions, partitions * len(begin), begin)
        return name


class SmallRequests(Bench):
    """One record of 100 bytes a request, acks=all, the next one when the answer is there."""

    connections = 100

    def prepare(self) -> None:
        self.name = self.topic()
        self.frame = produce_frame(self.name, 0, random_batch(1, SMALL_BYTES))

    def measure(self, seconds: float) -> Sample:
        got, cpu_s = load(self.side, [self.frame], self.connections, seconds)
        return {
            "requests": got["requests"] / got["seconds"],
            "cpu": cpu_s / got["requests"] * 1e6,
            "p50": got["p50_ms"],
            "p99": got["p99_ms"],
        }

    def clean(self) -> None:
        self.side.delete_topic(self.name)


class OneConnection(SmallRequests):
    """The same on one connection."""

    connections = 1


class ProduceBatches(Bench):
    """Batches of 64 records of 1 KB, one a request, ready-made: what the broker takes when the client costs nothing."""

    def measure(self, seconds: float) -> Sample:
        name = self.begun_topic(RAW_CONNECTIONS)
        batch = random_batch(BATCH_RECORDS, VALUE_BYTES)
        frames = [produce_frame(name, each, batch) for each in range(RAW_CONNECTIONS)]
        got, cpu_s = load(self.side, frames, RAW_CONNECTIONS, seconds, SAMPLE_BYTES)
        self.side.delete_topic(name)
        return rates(got["bytes"], got["seconds"], cpu_s)


class FetchBatches(Bench):
    """1 MB a request from the page cache, thrown away by the client."""

    def prepare(self) -> None:
        self.name = self.topic(RAW_CONNECTIONS)
        fill(self.side, self.name, RAW_CONNECTIONS, 64 << 20)

    def measure(self, seconds: float) -> Sample:
        heat(self.side, self.name)
        frames = [fetch_frame(self.name, each, FETCH_BYTES) for each in range(RAW_CONNECTIONS)]
        got, cpu_s = load(self.side, frames, RAW_CONNECTIONS, seconds)
        return rates(got["bytes"], got["seconds"], cpu_s)

    def clean(self) -> None:
        self.side.delete_topic(self.name)


class ColdStart(Bench):
    """From the start of the process, on the data directory of a clean stop, to the first Metadata answer."""

    warms_by_load = False

    def prepare(self) -> None:
        self.name = self.topic(PARTITIONS)

    def warm(self, seconds: float) -> None:
        pass

    def measure(self, seconds: float) -> Sample:
        return {"start": self.side.restart()}


class Idle(Bench):
    """A broker just started, with one topic, and nobody connected."""

    warms_by_load = False

    def prepare(self) -> None:
        self.topic(PARTITIONS)
        self.side.restart()

    def warm(self, seconds: float) -> None:
        time.sleep(min(seconds, SETTLE_S))

    def measure(self, seconds: float) -> Sample:
        before = self.side.cpu_seconds()
        time.sleep(seconds)
        used = self.side.cpu_seconds() - before
        return {"rss": self.side.rss_bytes() / (1 << 20), "cpu": used / seconds * 100}


# --- Loads ----------------------------------------------------------------------------------------------------------


def load(
    side: Side, frames: list[bytes], connections: int, seconds: float, max_bytes: int = 1 << 62
) -> tuple[dict[str, float], float]:
    """What `benchmarks.load` says in a process of its own, and the broker's CPU-seconds meanwhile."""
    size = checked_size(side.address, frames)
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(frames))]
        for path, frame in zip(paths, frames, strict=True):
            path.write_bytes(frame)
        [said], used = alongside(
            side, "benchmarks.load", side.address, *map(str, paths), f"--connections={connections}",
            f"--seconds={seconds}", f"--max-bytes={max_bytes}", f"--answer-bytes={size}",
        )  # fmt: skip
    return said, used


def librdkafka(
    what: str, side: Side, topic: str, seconds: float, partitions: int = PARTITIONS, value_bytes: int = VALUE_BYTES,
    codec: str = "none", batch_records: int = 0, timeout_s: float = LOAD_TIMEOUT_S, clients: int = 1,
    python: bool = False, more: Sequence[str] = (),
) -> tuple[dict[str, float], float]:  # fmt: skip
    """clients: processes that do so at once; records and bytes are of all of them, seconds of the slowest. python:
    by confluent-kafka's calls. more: options of `benchmarks.librdkafka`."""
    arguments = (
        "benchmarks.librdkafka", what, side.address, topic, f"--partitions={partitions}",
        f"--value-bytes={value_bytes}", f"--codec={codec}", f"--seconds={seconds}",
        f"--max-bytes={SAMPLE_BYTES // clients}", f"--batch-records={batch_records}",
        *["--python"] * python, *more,
    )  # fmt: skip
    said, used = alongside(side, *arguments, clients=clients, timeout_s=timeout_s)
    together = {key: sum(each[key] for each in said) for key in ("records", "bytes")}
    return {**together, "seconds": max(each["seconds"] for each in said)}, used


def alongside(
    side: Side, *arguments: str, clients: int = 1, timeout_s: float = LOAD_TIMEOUT_S
) -> tuple[list[dict[str, float]], float]:
    """What each of so many processes says, all at work at once, and the broker's CPU-seconds meanwhile."""

    before = side.cpu_seconds()
    with ThreadPoolExecutor(clients) as pool:
        figures = list(pool.map(lambda _: figures_of(side.name, *arguments, timeout_s=timeout_s), range(clients)))
    return figures, side.cpu_seconds() - before


def figures_of(against: str, *arguments: str, timeout_s: float = LOAD_TIMEOUT_S) -> dict[str, float]:
    """What a load says that is a process of its own. Raises RuntimeError that tells against whom it failed, and how."""
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=timeout_s
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments[:2])} against {against}: {done.stderr[-2000:]}")
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def fill(side: Side, topic: str, partitions: int, max_bytes: int, batch: bytes | None = None) -> None:
    """Write `max_bytes` evenly into a topic's partitions."""
    batch = batch or random_batch(BATCH_RECORDS, VALUE_BYTES)
    led: dict[str, list[bytes]] = {}  # frames by the leader's address
    for each in range(partitions):
        led.setdefault(side.leader(topic, each).address, []).append(produce_frame(topic, each, batch))
    for address, frames in led.items():
        run(address, frames, connections=len(frames), seconds=LOAD_TIMEOUT_S,
            max_bytes=max_bytes * len(frames) // partitions, answer_bytes=checked_size(address, frames))  # fmt: skip


def heat(side: Side, topic: str) -> None:
    """Read all files of a topic: a host that wants its memory takes what has not been looked at for some seconds."""
    for path in side.log_files(topic):
        with path.open("rb", buffering=0) as file:
            while file.read(FETCH_BYTES):
                pass


def rates(size: float, seconds: float, cpu_s: float) -> Sample:
    return {"rate": size / seconds / MB, "cpu": cpu_s / (size / GB)}
