"""What the producer holds for one partition: batches in order, their sequences, and what became of them. No I/O.

Order is by sequence: batches leave from the front, and one that must be sent again goes back to where it was. After a
failure nothing more is sent until all under way has come back, so that sequences stay in order (KIP-98, KIP-360).
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from ..protocol.records import BatchBuilder
from .types import RecordMetadata, TopicPartition

IN_FLIGHT_MAX = 5  # batches of one partition: as many as a broker remembers of a producer
SEQUENCE_MASK = 0x7FFFFFFF


@dataclass(eq=False)
class Batch:
    """Records that travel together. data: built when it is first sent."""

    builder: BatchBuilder
    created_at: float  # loop time
    deadline: float
    futures: list[asyncio.Future[RecordMetadata]] = field(default_factory=list)
    timestamps: list[int] = field(default_factory=list)
    size_bytes: int = 0  # that it holds of the producer's buffer
    data: bytes | None = None
    attempts: int = 0
    sequence: int = -1
    index: int = -1  # place in the partition's order

    def build(self) -> bytes:
        if self.data is None:
            self.data = self.builder.build()
        return self.data


class Accumulator:
    """One partition. open: takes records; ready: full or flushed; in_flight: sent and not answered."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.recovering = False  # something must be sent again: first let all under way come back
        self.retry_at = 0.0
        self.producer_id = -1
        self.producer_epoch = -1
        self.next_sequence = 0
        self.next_index = 0
        self.last_offset = -1  # highest acknowledged
        self.resetting = False  # a new producer id is on its way

    @property
    def idle(self) -> bool:
        return not (self.open or self.ready or self.in_flight)

    def start_batch(self, batch: Batch) -> None:
        self.open = batch

    def seal(self) -> None:
        """The open batch takes no more records; its sequence is fixed now."""
        batch, self.open = self.open, None
        if batch is None:
            return
        batch.index = self.next_index
        self.next_index += 1
        if self.producer_id >= 0:
            batch.builder.producer_id = self.producer_id
            batch.builder.producer_epoch = self.producer_epoch
            batch.builder.base_sequence = batch.sequence = self.next_sequence
            self.next_sequence = (self.next_sequence + batch.builder.count) & SEQUENCE_MASK
        self.ready.append(batch)

    def sendable(self, now: float) -> bool:
        return (
            bool(self.ready)
            and not self.recovering
            and not self.resetting
            and now >= self.retry_at
            and len(self.in_flight) < IN_FLIGHT_MAX
        )

    def take(self) -> Batch:
        batch = self.ready.popleft()
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def finished(self, batch: Batch) -> None:
        self.in_flight.remove(batch)
        if not self.in_flight:
            self.recovering = False

    def again(self, batch: Batch, retry_at: float) -> None:
        """Send a batch again, in its old place."""
        self.in_flight.remove(batch)
        at = 0
        while at < len(self.ready) and self.ready[at].index < batch.index:
            at += 1
        self.ready.insert(at, batch)
        self.retry_at = max(self.retry_at, retry_at)
        self.recovering = bool(self.in_flight)

    def first_unanswered(self, batch: Batch) -> bool:
        """Whether no batch before this one still waits for its answer or for another try."""
        return self.in_flight[0] is batch and not (self.ready and self.ready[0].index < batch.index)

    def take_all(self) -> list[Batch]:
        """Everything that is not under way, given up."""
        batches = list(self.ready)
        self.ready.clear()
        if self.open is not None:
            batches.append(self.open)
            self.open = None
        return batches


def succeed(batch: Batch, tp: TopicPartition, base_offset: int, append_time_ms: int) -> None:
    """Resolve the futures of a batch that is in the log."""
    for i, future in enumerate(batch.futures):
        if not future.done():
            timestamp_ms = batch.timestamps[i] if append_time_ms < 0 else append_time_ms
            offset = base_offset + i if base_offset >= 0 else -1
            future.set_result(RecordMetadata(tp.topic, tp.partition, offset, timestamp_ms))


def fail(batch: Batch, error: Exception) -> None:
    for future in batch.futures:
        if not future.done():
            future.set_exception(error)
            future.exception()  # whoever does not look at it is not told by the loop at exit
