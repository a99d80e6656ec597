"""Stock Kafka and our broker side by side, with a view of the files that each keeps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.differential.peer import Case, Peer
from integration_tests.differential.requests import fetch_request, produce_request
from integration_tests.peers.peers import cluster
from isthmus.core_broker.storage.disk.small_files import CheckpointError, parse_offsets
from isthmus.protocol.records import decode_batch, walk

DELETE_HORIZON = 0x40
HEADER_BYTES = 61


@dataclass
class Side:
    """A broker and where it keeps its files."""

    peer: Peer
    data: Path

    def checkpoint(self, topic: str) -> int:
        """Up to where the topic's first partition is compacted."""
        path = self.data / "cleaner-offset-checkpoint"
        try:
            return parse_offsets(path.read_bytes(), str(path)).get((topic, 0), 0)
        except (FileNotFoundError, CheckpointError):  # Kafka makes it with its first round, and empties it to write it
            return 0

    def segments(self, topic: str) -> list[int]:
        """Base offsets of its segments."""
        return sorted(int(path.stem) for path in (self.data / f"{topic}-0").glob("*.log"))

    def active_base(self, topic: str) -> int:
        return self.segments(topic)[-1]


@contextmanager
def both(folder: Path, options: dict[str, object]) -> Iterator[tuple[Side, Side, BrokerProcess]]:
    """Kafka, ours, and our process."""
    with ExitStack() as stack:
        kafka = stack.enter_context(cluster(properties=options, heap="512m", folder=folder / "kafka"))
        broker = stack.enter_context(running_broker(folder / "ours", options))
        theirs = Side(Peer("stock Kafka", kafka.bootstrap), folder / "kafka" / "node-1" / "data")
        ours = Side(Peer("isthmus", broker.bootstrap), folder / "ours" / "data")
        yield theirs, ours, broker


def new_topic(case: Case, options: dict[str, str]) -> bytes:
    named: dict[str, Any] = {key.replace(".", "_"): value for key, value in options.items()}
    return case.topic(**named)


def send(case: Case, topic_id: bytes, made: list[bytes]) -> None:
    for data in made:
        answer = case.prepare(produce_request(case, data, topic_id))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer


def stored_bytes(case: Case, topic_id: bytes) -> Iterator[tuple[bytes, int, Any]]:
    """Every batch of the log: the bytes it was fetched in, where it is in them, its header."""
    offset = 0
    while True:
        answer = case.prepare(fetch_request(case, offset, topic_id, max_wait_ms=0, partition_max_bytes=1 << 26))
        [data] = answer.responses[0].partitions
        assert data.error_code == 0
        records = bytes(data.records or b"")
        if not records:
            return
        for position, header in walk(records):
            yield records, position, header
            offset = header.next_offset


def stored(case: Case, topic_id: bytes) -> list[tuple[Any, ...]]:
    """All batches, by what must be equal: offsets, count, codec, producer, flags, times, records."""
    found: list[tuple[Any, ...]] = []
    for records, position, header in stored_bytes(case, topic_id):
        rows = [(r.offset, r.timestamp_ms, r.key, r.value, r.headers) for r in decode_batch(records, position)]
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        found.append(
            (
                header.base_offset, header.last_offset, header.records_count, header.attributes,
                header.producer_id, header.producer_epoch, header.base_sequence, header.max_timestamp,
                "horizon" if has_horizon else header.base_timestamp, rows,
            )
        )  # fmt: skip
    return found
