"""The case of many partitions on one broker, and what throughput and memory are against their number.

`python -m benchmarks.partitions --counts 10,100,1000,10000 --kafka 10,100,1000,4000` runs the case once a count on a
fresh broker and prints one JSON line for each, of which a plot can be made.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import create_topics, delete_topics, list_offsets, metadata, produce

from .cases import LOAD_TIMEOUT_S, SAMPLE_BYTES, Bench, Sample, alongside, rates
from .frames import CLIENT_ID, PRODUCE_VERSION, batch, random_batch, spread_frame
from .load import ask
from .sides import Side, age_s, isthmus, kafka

COUNT = 4000
TOPIC_PARTITIONS = 100
ADMIN_VERSION, OFFSETS_VERSION, METADATA_VERSION = 5, 6, 12
METADATA_REQUESTS = 100
METADATA_UNMEASURED = 1000  # before them, since the process was started just now: a JVM has yet to compile this
TIMEOUT_MS = 60_000
USABLE_S = 120.0
POLL_S = 0.02
# What one request of the load has: a batch of 16 KB, as a Java client sends it, for each of ten partitions.
REQUEST_PARTITIONS = 10
BATCH_RECORDS, VALUE_BYTES = 16, 1024
CONNECTIONS = 8
# Before the load that is measured, each partition is written to about so often. The first entry of an index that is a
# mapped file has the system read all around it: with a read-ahead of 8 MiB that costs Kafka 10 ms a partition, once.
FIRST_ROUNDS = 2
FIRST_MOST_S = 200.0
SETTLE_S = 3.0
IDLE_S = 12.0  # long enough for what recurs every few seconds
MIB = 1 << 20
_runs = itertools.count()


class Partitions(Bench):
    """4,000 partitions (40 topics of 100): created, written to, left alone, started again, killed, deleted."""

    warms_by_load = False
    count = COUNT
    warm_s = 0.0

    def warm(self, seconds: float) -> None:
        """Each sample loads its own broker process, before it measures, for so long."""
        self.warm_s = seconds

    def measure(self, seconds: float) -> Sample:
        run = next(_runs)
        each = min(self.count, TOPIC_PARTITIONS)
        topics = [f"many-{run:03d}-{number:04d}" for number in range(self.count // each)]
        create_s = self._create(topics, each)
        small = batch([b"x" * 100])
        for topic in topics:
            _all_right(asked(self.side, produce, spread_frame(topic, range(each), small), PRODUCE_VERSION))
        sample = {"create": create_s, "rss": self.side.rss_bytes() / MIB}
        frames = self._frames(topics, each)
        first, _ = load_in_turn(self.side, frames, FIRST_MOST_S, FIRST_ROUNDS * sum(map(len, frames)))
        if first["requests"] < len(frames):
            raise RuntimeError(f"{self.side.name}: not all partitions were written to within {FIRST_MOST_S} s")
        sample["first"] = first["seconds"]
        if self.warm_s:
            load_in_turn(self.side, frames, self.warm_s)
        got, cpu_s = load_in_turn(self.side, frames, seconds)
        sample |= rates(got["bytes"], got["seconds"], cpu_s)
        time.sleep(SETTLE_S)
        before = self.side.cpu_seconds()
        time.sleep(IDLE_S)
        sample["idle"] = (self.side.cpu_seconds() - before) / IDLE_S * 100
        sample["loaded"] = self.side.rss_bytes() / MIB
        start = time.perf_counter()
        self.side.stop()
        sample["stop"] = time.perf_counter() - start
        sample["start"] = self._start(topics, each)
        sample["metadata"] = self._metadata_cpu_ms()
        for topic in topics:
            _all_right(asked(self.side, produce, spread_frame(topic, range(each), small), PRODUCE_VERSION))
        self.side.kill()
        sample["killed"] = self._start(topics, each)
        sample["delete"] = self._delete(topics)
        return sample

    def _frames(self, topics: Sequence[str], each: int) -> list[bytes]:
        data = random_batch(BATCH_RECORDS, VALUE_BYTES)
        step = min(REQUEST_PARTITIONS, each)
        parts = [range(start, start + step) for start in range(0, each, step)]
        # Neighbours in time are of other topics: nothing is near in one request that is not near in the next.
        return [spread_frame(topic, part, data) for part in parts for topic in topics]

    def _create(self, topics: Sequence[str], each: int) -> float:
        """Seconds from the request to create all topics until every partition answers."""
        wanted = [
            create_topics.CreatableTopic(
                name=topic, num_partitions=each, replication_factor=1,
                configs=[create_topics.CreatableTopicConfig(name="retention.ms", value="-1")],
            )
            for topic in topics
        ]  # fmt: skip
        request = create_topics.Request(topics=wanted, timeout_ms=TIMEOUT_MS)
        frame = framed(create_topics, request, ADMIN_VERSION)
        start = time.perf_counter()
        answer = asked(self.side, create_topics, frame, ADMIN_VERSION)
        refused = [topic.name for topic in answer.topics if topic.error_code]
        if refused:
            raise RuntimeError(f"{self.side.name} did not create {refused[0]} and {len(refused) - 1} others")
        offsets = offsets_frame(topics, each)
        while not all_answer(self.side, offsets):
            if time.perf_counter() - start > USABLE_S:
                raise RuntimeError(f"{self.side.name}: not all partitions can be used after {USABLE_S} s")
            time.sleep(POLL_S)
        return time.perf_counter() - start

    def _start(self, topics: Sequence[str], each: int) -> float:
        """Seconds from the start of the next process until every partition answers."""
        offsets = offsets_frame(topics, each)
        self.side.launch()
        while age_s(self.side.node.pid) < USABLE_S:
            with contextlib.suppress(OSError):
                if all_answer(self.side, offsets):
                    return age_s(self.side.node.pid)
            time.sleep(POLL_S)
        raise RuntimeError(f"{self.side.name}: not all partitions answer {USABLE_S} s after its start")

    def _metadata_cpu_ms(self) -> float:
        """CPU of the broker for an answer with the metadata of all topics."""
        request = framed(metadata, metadata.Request(topics=None), METADATA_VERSION)
        asked(self.side, metadata, request, METADATA_VERSION)
        for _ in range(METADATA_UNMEASURED):
            ask(self.side.address, request)
        before = self.side.cpu_seconds()
        for _ in range(METADATA_REQUESTS):
            ask(self.side.address, request)
        return (self.side.cpu_seconds() - before) / METADATA_REQUESTS * 1000

    def _delete(self, topics: Sequence[str]) -> float:
        """Seconds until the deletion of all topics is answered."""
        request = framed(delete_topics, delete_topics.Request(topic_names=topics, timeout_ms=TIMEOUT_MS), ADMIN_VERSION)
        start = time.perf_counter()
        answer = asked(self.side, delete_topics, request, ADMIN_VERSION)
        refused = [row.name for row in answer.responses if row.error_code]
        if refused:
            raise RuntimeError(f"{self.side.name} did not delete {refused[0]} and {len(refused) - 1} others")
        return time.perf_counter() - start


def framed(module: ModuleType, request: Any, version: int) -> bytes:
    header = RequestHeader(module.API.key, version, 0, CLIENT_ID)
    return b"".join(map(bytes, frame_request(header, module.API.encode_request(request, version))))


def asked(side: Side, module: ModuleType, frame: bytes, version: int) -> Any:
    """The decoded answer to a request on a connection of its own."""
    answer = ask(side.address, frame)
    at = decode_response_header(answer, module.API.response_header_version(version))[1]
    return module.API.decode_response(answer, at, version)


def offsets_frame(topics: Sequence[str], each: int) -> bytes:
    """The end offsets of all partitions in one request."""
    partitions = [list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(each)]
    wanted = [list_offsets.ListOffsetsTopic(name=topic, partitions=partitions) for topic in topics]
    return framed(list_offsets, list_offsets.Request(replica_id=-1, topics=wanted), OFFSETS_VERSION)


def all_answer(side: Side, offsets: bytes) -> bool:
    answer = asked(side, list_offsets, offsets, OFFSETS_VERSION)
    return not any(each.error_code for topic in answer.topics for each in topic.partitions)


def _all_right(answer: Any) -> None:
    for topic in answer.responses:
        for each in topic.partition_responses:
            if each.error_code:
                raise RuntimeError(f"{topic.name}-{each.index} was not written to: error {each.error_code}")


def load_in_turn(
    side: Side, frames: Sequence[bytes], seconds: float, max_bytes: int = SAMPLE_BYTES
) -> tuple[dict[str, float], float]:
    """All frames again and again by a load in a process of its own, and the broker's CPU-seconds meanwhile."""
    answer = ask(side.address, frames[0])
    _all_right(produce.API.decode_response(answer, _body_at(answer), PRODUCE_VERSION))
    with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder:
        paths = [Path(folder) / str(number) for number in range(len(frames))]
        for path, frame in zip(paths, frames, strict=True):
            path.write_bytes(frame)
        [said], used = alongside(
            side, "benchmarks.load", side.address, *map(str, paths), f"--connections={min(CONNECTIONS, len(frames))}",
            f"--seconds={seconds}", f"--max-bytes={max_bytes}", f"--answer-bytes={len(answer) + 4}", "--rotate",
            timeout_s=seconds + LOAD_TIMEOUT_S,
        )  # fmt: skip
    return said, used


def _body_at(answer: bytes) -> int:
    return decode_response_header(answer, produce.API.response_header_version(PRODUCE_VERSION))[1]


def sweep(makers: Iterator[tuple[Any, int]], seconds: float, warm_s: float) -> Iterator[dict[str, Any]]:
    """The case once on a fresh broker for each (maker of a side, number of partitions)."""
    for make, count in makers:
        with tempfile.TemporaryDirectory(prefix="isthmus-bench-") as folder, make(Path(folder)) as side:
            bench = Partitions(side, seconds)
            bench.count = count
            bench.warm(warm_s)
            yield {"side": side.name, "partitions": count, **bench.measure(seconds)}


def _counts(text: str) -> list[int]:
    return [int(each) for each in text.split(",") if each]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.partitions", description=__doc__)
    parser.add_argument("--counts", type=_counts, default=[10, 100, 1000, 10_000], help="numbers of partitions")
    parser.add_argument("--kafka", type=_counts, default=[], help="the same for Kafka (default: none)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of load that is measured (default 3)")
    parser.add_argument("--warm", type=float, default=4.0, help="of load before it (default 4)")
    given = parser.parse_args()
    runs = [(isthmus, count) for count in given.counts] + [(kafka, count) for count in given.kafka]
    for line in sweep(iter(runs), given.seconds, given.warm):
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
