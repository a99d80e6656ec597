"""The producer's state of one partition: batches in order, their sequences, and their outcome. No I/O.

A batch gets its sequence when it is first sent. It keeps it as long as it is unknown whether it is in the log: this is
how a broker recognizes a repeated batch (KIP-98). Batches are sent from the front; one that must be sent again returns
to its place; up to five are in flight. The first batch is sent alone, and so is the first after any error: a broker
that has no state of a producer accepts any sequence, even that of the second batch after it has refused the first. If a
batch is given up, later ones may leave a gap. The broker then refuses them, so they are not in the log, and all are
renumbered under the next producer epoch (KIP-360). A gap without such a cause means lost data.

But a broker may have forgotten what it has: Kafka, back from `kill -9`, knows the last batch of each producer only, and
refuses those before it. So a batch that may be in the log is neither numbered anew nor called lost until the leader has
said how far it has this producer's records. The leader says that of its own log, which followers may not have yet. So
such a batch is final only when a later one has been acknowledged. The broker acknowledges the last one when it is
repeated, as any batch that it knows.

In a transaction nothing of this is needed, since all of it can be aborted: the first doubt ends it. The epoch is the
whole producer's, and `renew` takes the next one. Only a batch that was too large, and is split, gives its numbers back.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Sequence
from itertools import takewhile

from ..protocol.batch_layout import CRC, CRC_AT, CRC_FROM, PRODUCER_ID_AT, SEQUENCE_MASK
from ..protocol.crc import crc32c
from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.records import BatchBuilder, Record, decode_batch, read_header
from .errors import ClientError, DataLost
from .outcomes import Many, Outcome, Run, Stretch, cut
from .types import RecordMetadata, TopicPartition

NOT_APPENDED = frozenset({ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS})
OUT_OF_TURN = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})
KNOWN_FOR_S = 300.0  # a broker may forget a producer that has written nothing for this long
IN_FLIGHT_MAX = 5  # batches of one partition: as many as a broker keeps for a producer
AHEAD_MAX = 1 << 30  # sequences wrap around: a larger distance means behind
EPOCH_MAX = 32766
NUMBERED_ANEW = -2  # the epoch of a batch whose number does not count any more

_PRODUCER = struct.Struct(">qhi")


class Batch:
    """Records that are sent together."""

    __slots__ = (
        "_count",
        "attempts",
        "builder",
        "created_at",
        "data",
        "deadline",
        "depth",
        "done",
        "epoch",
        "number",
        "outcomes",
        "parts",
        "sequence",
        "settled",
        "size_bytes",
        "timestamps",
        "unsure",
    )

    def __init__(self, builder: BatchBuilder, number: float, created_at: float, deadline: float) -> None:
        self.builder: BatchBuilder | None = builder  # until it is first sent
        self.number = number  # place in the partition's order; the halves of a split batch have fractions
        self.depth = 0  # how often it was split
        self.created_at = created_at  # loop time
        self.deadline = deadline
        self.outcomes: list[Outcome] = []  # of its records, in order
        self.timestamps: list[int] = []  # of each outcome's record; without a meaning for a run
        self.size_bytes = 0  # its part of the producer's buffer
        self.data: bytes | None = None
        self.sequence = -1
        self.epoch = -1
        self.attempts = 0
        self.unsure = False  # an attempt had no answer, or one that does not say whether it is in the log
        self.done = False  # its outcomes are resolved; it may still be in flight
        self.settled: asyncio.Future[None] | None = None  # resolved when it is done
        self.parts: list[Batch] = []  # what it was split into
        self._count = 0  # once it is built

    @property
    def count(self) -> int:
        return self._count if self.builder is None else self.builder.count

    def add_run(self, many: Many, rows: Sequence[int], size_bytes: int) -> None:
        """Records that the builder has just taken. rows: their places in the columns of the call."""
        self.outcomes.append(many.run(rows))
        self.timestamps.append(-1)
        self.size_bytes += size_bytes

    def build(self, producer_id: int, epoch: int, sequence: int) -> None:
        assert self.builder is not None
        builder, self.builder = self.builder, None
        builder.producer_id, builder.producer_epoch, builder.base_sequence = producer_id, epoch, sequence
        self._count = builder.count
        self.data = builder.build()

    def finish(self) -> None:
        self.done = True
        if self.settled is not None and not self.settled.done():
            self.settled.set_result(None)

    def split(self) -> list[Batch]:
        """Two batches with half of the records each, which replace this one."""
        records = decode_batch(self.data or b"", check_crc=False)
        header = read_header(self.data or b"")
        half, size = len(records) // 2, self.size_bytes // 2
        waiting = cut(self.outcomes, self.timestamps, half)
        for k, part in enumerate((slice(0, half), slice(half, None))):
            most = 2 * len(self.data or b"") + sum(map(_plain_bytes, records[part]))
            builder = BatchBuilder(header.codec, max_bytes=most, transactional=header.is_transactional)
            builder.extend((r.timestamp_ms, r.key, r.value, r.headers) for r in records[part])
            number = self.number + k * 2.0 ** -(self.depth + 1)
            batch = Batch(builder, number, self.created_at, self.deadline)
            batch.depth = self.depth + 1
            batch.outcomes, batch.timestamps = waiting[k]
            batch.size_bytes = self.size_bytes - size if k else size
            self.parts.append(batch)
        self.finish()
        return self.parts

    def succeed(self, tp: TopicPartition, base_offset: int, append_time_ms: int) -> None:
        """Tell the outcomes of a batch that is in the log."""
        offset = base_offset
        step = 1 if base_offset >= 0 else 0  # -1: unknown
        for outcome, timestamp_ms in zip(self.outcomes, self.timestamps, strict=True):
            if isinstance(outcome, Run):
                outcome.many.acked(Stretch(outcome.rows, tp.partition, offset, append_time_ms))
                offset += step * outcome.count
                continue
            if not outcome.done():
                stamp = timestamp_ms if append_time_ms < 0 else append_time_ms
                outcome.set_result(RecordMetadata(tp.topic, tp.partition, offset, stamp))
            offset += step
        self.finish()

    def fail(self, error: Exception) -> None:
        for outcome in self.outcomes:
            if isinstance(outcome, Run):
                outcome.many.failed(error, outcome.count)
            elif not outcome.done():
                outcome.set_exception(error)
                outcome.exception()  # avoids the loop's "never retrieved" message
        self.finish()


class Accumulator:
    """One partition. open: takes records; ready: to be sent; in_flight: sent and not answered, in order."""

    def __init__(
        self,
        tp: TopicPartition,
        producer_id: int,
        epoch: int,
        in_flight_max: int = IN_FLIGHT_MAX,
        transactional: bool = False,
    ) -> None:
        self.tp = tp
        self.transactional = transactional
        self.where = f"{tp.topic}-{tp.partition}"
        self.open: Batch | None = None
        self.ready: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self._in_flight_max = in_flight_max
        self._is_known = False  # the broker has state of this epoch, and refuses batches out of order
        self._started_at = 0.0  # when the last batch began
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        self.next_number = 0
        self.gap = False  # a numbered batch was given up: later ones may be refused
        self.asking = False  # the broker was asked which batches it has; `remembered` takes the answer
        self.last_offset = -1  # the highest acknowledged one
        self.last_number: float = -1  # number of the batch it belongs to
        self.failures = 0  # in a row
        self.refusal = ""  # what the broker said of the last of them, for people
        self.failed_node: int | None = None  # that led the partition at the last failure
        self.retry_at = 0.0
        self.error: Exception | None = None  # why nothing more may be written to the partition

    @property
    def idle(self) -> bool:
        return not (self.open or self.ready or self.in_flight)

    @property
    def in_flight_max(self) -> int:
        return self._in_flight_max if self._is_known else 1

    def pending(self) -> list[Batch]:
        """All batches whose fate is not known, in order."""
        batches = [*self.in_flight, *self.ready, *([self.open] if self.open else [])]
        return sorted((each for each in batches if not each.done), key=lambda each: each.number)

    def first_deadline(self) -> float:
        """When the time of the first batch is over; never, if the outcome of all batches is known."""
        found = next((batch.deadline for batch in self.in_flight if not batch.done), float("inf"))
        if self.ready:
            found = min(found, self.ready[0].deadline)
        return found if self.open is None else min(found, self.open.deadline)

    # --- Queue --------------------------------------------------------------------------------------

    def start(self, builder: BatchBuilder, now: float, deadline: float) -> Batch:
        """A new open batch."""
        assert self.open is None
        if now - self._started_at > KNOWN_FOR_S:
            self._is_known = False
        self._started_at = now
        self.open = batch = Batch(builder, self.next_number, now, deadline)
        self.next_number += 1
        return batch

    def seal(self) -> None:
        """Close the open batch: it takes no more records."""
        if self.open is not None:
            self.ready.append(self.open)
            self.open = None

    def sendable(self, now: float) -> bool:
        return (
            bool(self.ready)
            and now >= self.retry_at
            and len(self.in_flight) < self.in_flight_max
            and not self.asking
            and not (self.in_flight and self.in_flight[0].epoch != self.epoch)  # answers of the old epoch first
        )

    def take(self) -> Batch:
        """The next batch to send, numbered and built."""
        batch = self.ready.popleft()
        if batch.data is None:
            batch.build(self.producer_id, self.epoch, self._number(batch))
        elif batch.epoch != self.epoch:
            batch.data = renumbered(batch.data, self.producer_id, self.epoch, self._number(batch))
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def _number(self, batch: Batch) -> int:
        batch.epoch = self.epoch
        if self.producer_id < 0:
            return -1
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        return batch.sequence

    # --- The outcome of a batch ---------------------------------------------------------------------

    def acked(self, batch: Batch, base_offset: int) -> Exception | None:
        """A batch is in the log. Returns the error if its offset shows a loss."""
        self.in_flight.remove(batch)
        self.failures, self.refusal = 0, ""
        if self.error is not None:
            return self.error
        if batch.number < self.last_number:
            return None  # it was refused at first although it was in the log; later ones were acknowledged before it
        if self.producer_id >= 0 and 0 <= base_offset <= self.last_offset:
            return self._lost(
                f"offset {self.last_offset} was acknowledged, but a later batch was given offset {base_offset}"
            )
        if batch.epoch == self.epoch:
            self._is_known = True
        if base_offset >= 0:
            self._left_out(batch, base_offset)
            self.last_offset = base_offset + batch.count - 1
            self.last_number = batch.number
        self.gap = False
        return None

    def _left_out(self, batch: Batch, base_offset: int) -> None:
        """Earlier batches are not in the log where an acknowledged one leaves no offsets for them."""
        before = takewhile(lambda each: each.number < batch.number, self.ready)
        skipped = [each for each in before if each.number > self.last_number and each.epoch == batch.epoch]
        if self.last_offset >= 0 and base_offset - self.last_offset - 1 < sum(each.count for each in skipped):
            for each in skipped:
                each.unsure = False

    def refused(self, batch: Batch, code: int, message: str | None, log_start_offset: int) -> Exception | None:
        """A batch was answered with an error. Returns None if it will be sent again, else the error for its records."""
        self.in_flight.remove(batch)
        told = message or KafkaError.of(code).message
        if code == ErrorCode.MESSAGE_TOO_LARGE:
            size = len(batch.data or b"")
            told = f"a record whose batch has {size} bytes is over max.message.bytes"
        error = KafkaError(code, f"{self.where}: {told}", self.tp.topic)
        if batch.done or self.error is not None:
            return self.error or error
        is_stale = batch.epoch != self.epoch
        if code in OUT_OF_TURN and self.producer_id >= 0:
            if is_stale or not self._is_first(batch):
                pass  # an earlier batch failed; it is sent after that one
            elif self.transactional:
                self.gap = True
                return error
            elif batch.unsure:
                self.asking = True
            elif lost := self._forgotten(log_start_offset):
                return lost
            self._put_back(batch)
            return None
        if error.retriable:
            batch.unsure |= code not in NOT_APPENDED  # with other errors it may have been appended
            self._is_known = False
            self.refusal = f"its broker answers {ErrorCode(code).name} ({code}): {told.rstrip('.')}."
            self._put_back(batch)
            return None
        if code == ErrorCode.MESSAGE_TOO_LARGE and self.transactional and batch.attempts == 1 and batch.count > 1:
            self._rewind(batch)
        self.given_up(batch, is_in_log=False if batch.attempts == 1 else None)
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            for part in batch.split():
                self._put_back(part)
            return None
        if code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED) and not self.transactional:
            self.error = error
        return error

    def remembered(self, last_sequence: int | None, log_start_offset: int) -> tuple[list[Batch], Exception | None]:
        """The broker's answer: the last sequence of this producer's epoch that it has; -1: none; None: no answer.

        Removes the batches that are in the log without an acknowledgement, and returns them, with the reason if the
        first of the others must not be written.
        """
        in_log: list[Batch] = []
        if last_sequence is None:
            return in_log, self._untold() if self.ready else None
        self._is_known |= last_sequence >= 0
        while self.ready and self._has(self.ready[0], last_sequence) and self.ready[0].number < self.last_number:
            in_log.append(self.ready.popleft())
            self.failures = 0
        first = self.ready[0] if self.ready else None
        if first is None or first.sequence < 0 or first.epoch != self.epoch or self.in_flight or self.error is not None:
            return in_log, None  # the next one was not refused yet
        if self._has(first, last_sequence):
            return in_log, None  # it waits for the acknowledgement of a later one
        if 0 <= last_sequence == (first.sequence - 1) & SEQUENCE_MASK:
            return in_log, None  # that batch is sent next
        return in_log, self._forgotten(log_start_offset)

    def _untold(self) -> Exception:
        """The broker refuses a batch that may be in the log, and does not say what it has of this producer."""
        self.error = ClientError(
            f"{self.where}: the broker no longer knows what came before a batch that was sent again, and does not tell "
            "what it has (that takes the right to read the topic, and Kafka 2.8): what was not acknowledged may or may "
            "not be in the log. This producer writes nothing more there: go on with a new Producer"
        )
        return self.error

    def _has(self, batch: Batch, last_sequence: int) -> bool:
        last = (batch.sequence + batch.count - 1) & SEQUENCE_MASK
        is_candidate = batch.unsure and batch.sequence >= 0 and batch.epoch == self.epoch
        return is_candidate and last_sequence >= 0 and (last_sequence - last) & SEQUENCE_MASK < AHEAD_MAX

    def _forgotten(self, log_start_offset: int) -> Exception | None:
        """The broker does not know what came before the first batch, and that batch is not in the log."""
        if self.gap or self.last_offset < log_start_offset or self.last_offset < 0:
            return self._next_epoch()  # it was given up here, or deleted by retention: nothing is lost
        return self._lost(f"the broker no longer knows what was written up to offset {self.last_offset}")

    def unanswered(self, batch: Batch) -> None:
        """The connection was lost, or there was none: the batch will be sent again unless it was given up."""
        self.in_flight.remove(batch)
        batch.unsure = True
        self._is_known = False
        if not batch.done:
            self._put_back(batch)

    def expired(self, now: float) -> list[Batch]:
        """Batches whose time is over, out of the queue; those under way stay in `in_flight` until answered."""
        found = [batch for batch in self.pending() if batch.deadline <= now]
        for batch in found:
            if batch is self.open:
                self.open = None
            elif batch in self.ready:
                self.ready.remove(batch)
            self.given_up(batch, is_in_log=None if batch.attempts else False)
        return found

    def given_up(self, batch: Batch, is_in_log: bool | None) -> None:
        """A batch will not be sent again. is_in_log None: unknown."""
        if batch.sequence < 0 or batch.epoch != self.epoch:
            return
        is_last = (batch.sequence + batch.count) & SEQUENCE_MASK == self.next_sequence
        if is_last and is_in_log is False:
            self.next_sequence = batch.sequence  # the next batch takes its number
        else:
            self.gap = True

    def _rewind(self, batch: Batch) -> None:
        """The broker does not have this batch, so it takes none of the later ones: they are numbered anew after it."""
        for later in [*self.in_flight, *self.ready]:
            if later.number > batch.number:
                later.epoch = NUMBERED_ANEW
        self.next_sequence = (batch.sequence + batch.count) & SEQUENCE_MASK
        self._is_known = False

    def renew(self, producer_id: int, epoch: int) -> None:
        """Go on under the producer's next epoch, when no batch is left of the last one."""
        assert self.idle
        self.producer_id, self.epoch = producer_id, epoch
        self.next_sequence = 0
        self.gap = self._is_known = False

    def restart(self) -> None:
        """The topic was deleted and created again: earlier acknowledgements do not count any more."""
        self.last_offset = -1
        self._is_known = False
        self.gap = True

    def hold(self, retry_at: float, node: int | None) -> None:
        """Send nothing before `retry_at`, unless another node than this one leads the partition earlier."""
        self.retry_at, self.failed_node = max(self.retry_at, retry_at), node

    def led_by(self, node: int | None) -> None:
        """A leader that has not failed is not kept waiting."""
        if node is not None and node != self.failed_node:
            self.retry_at = 0.0

    def _put_back(self, batch: Batch) -> None:
        at = 0
        while at < len(self.ready) and self.ready[at].number < batch.number:
            at += 1
        self.ready.insert(at, batch)

    def _is_first(self, batch: Batch) -> bool:
        """Whether no earlier batch waits for its answer or for another attempt."""
        others = [*self.in_flight, *list(self.ready)[:1]]
        return all(each.number > batch.number for each in others)

    def _next_epoch(self) -> Exception | None:
        if self.epoch >= EPOCH_MAX:
            self.error = KafkaError.of(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"{self.where}: producer epochs are used up; make a new Producer"
            )
            return self.error
        self.epoch += 1
        self._is_known = False
        self.next_sequence = 0
        self.gap = False
        self.last_offset = -1
        return None

    def _lost(self, what: str) -> Exception:
        self.error = DataLost(
            f"{self.where}: {what}: the broker lost records that it had acknowledged (a crash with "
            "durability=page_cache?). This producer writes nothing more there: look where the log ends, and go on "
            "from there with a new Producer"
        )
        return self.error


def _plain_bytes(record: Record) -> int:
    headers = sum(len(name) * 4 + len(value or b"") + 10 for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers + 40


def renumbered(data: bytes, producer_id: int, epoch: int, sequence: int) -> bytes:
    """A batch's bytes with another producer id, epoch and base sequence, and their CRC."""
    out = bytearray(data)
    _PRODUCER.pack_into(out, PRODUCER_ID_AT, producer_id, epoch, sequence)
    CRC.pack_into(out, CRC_AT, crc32c(memoryview(out)[CRC_FROM:]))
    return bytes(out)
