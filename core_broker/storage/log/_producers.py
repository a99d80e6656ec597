# cython: auto_pickle=False
"""What idempotent producers last wrote to a log (KIP-98, KIP-360), so that retries are known and gaps refused.

The last five batches of each producer id are remembered. They follow from the log's headers; snapshot files, in
Kafka's format, save reading the whole log. Kafka's snapshot has one entry a producer, its last batch. Ours has up to
five, oldest first: a reader that keeps one entry an id, as Kafka does, ends with the same last one.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, NamedTuple

import cython

from ....protocol.batch_layout import SEQUENCE_MASK
from ....protocol.crc import crc32c
from ....protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ....compiled import Public, Readonly

SNAPSHOT_VERSION = 1
SNAPSHOT_HEAD = struct.Struct(">hI")  # version, CRC32C of the rest
_COUNT = struct.Struct(">i")
# producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction's first offset
_ENTRY = struct.Struct(">qhiqiqiq")
NO_EPOCH = -1
BATCHES_KEPT = 5  # a producer has at most five requests in flight

_BATCHES_KEPT: cython.int = BATCHES_KEPT


class SnapshotError(Exception):
    """A producer snapshot that cannot be used; says which file and why."""


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@cython.cclass
class ProducerEntry:
    """One producer id's state: its epoch, and its last batches of that epoch."""

    epoch: Public[cython.longlong]
    timestamp: Public[cython.longlong]  # wall time of the last write, what expiry counts from; -1 for none
    coordinator_epoch: Public[cython.longlong]
    transaction_start: Public[cython.longlong]  # first offset of the open transaction, -1 when there is none
    kept: Readonly[cython.int]  # how many batches are remembered
    # Of each batch, oldest first.
    _first_sequences: Annotated[list[cython.longlong], BATCHES_KEPT]
    _last_sequences: Annotated[list[cython.longlong], BATCHES_KEPT]
    _first_offsets: Annotated[list[cython.longlong], BATCHES_KEPT]
    _last_offsets: Annotated[list[cython.longlong], BATCHES_KEPT]
    _timestamps: Annotated[list[cython.longlong], BATCHES_KEPT]

    def __init__(self, epoch: cython.longlong) -> None:
        self.epoch = epoch
        self.timestamp = -1
        self.coordinator_epoch = -1
        self.transaction_start = -1
        self.kept = 0
        if not cython.compiled:
            self._first_sequences, self._last_sequences = [0] * _BATCHES_KEPT, [0] * _BATCHES_KEPT
            self._first_offsets, self._last_offsets = [0] * _BATCHES_KEPT, [0] * _BATCHES_KEPT
            self._timestamps = [0] * _BATCHES_KEPT

    def begin(self, epoch: cython.longlong) -> None:
        """A new epoch: nothing is remembered of the one before."""
        self.epoch = epoch
        self.kept = 0

    @cython.ccall
    @cython.exceptval(-1)
    def take(
        self,
        base_sequence: cython.longlong,
        base_offset: cython.longlong,
        last_offset: cython.longlong,
        timestamp: cython.longlong,
    ) -> cython.int:
        """Remember a batch, and forget the oldest when there are enough."""
        i: cython.int
        at: cython.int = self.kept
        if at == _BATCHES_KEPT:
            at -= 1
            for i in range(at):
                self._first_sequences[i] = self._first_sequences[i + 1]
                self._last_sequences[i] = self._last_sequences[i + 1]
                self._first_offsets[i] = self._first_offsets[i + 1]
                self._last_offsets[i] = self._last_offsets[i + 1]
                self._timestamps[i] = self._timestamps[i + 1]
        self._first_sequences[at] = base_sequence
        self._last_sequences[at] = (base_sequence + (last_offset - base_offset)) & SEQUENCE_MASK
        self._first_offsets[at] = base_offset
        self._last_offsets[at] = last_offset
        self._timestamps[at] = timestamp
        self.kept = at + 1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def next_sequence(self) -> cython.longlong:
        """What the next batch of this epoch begins with. A batch must be remembered."""
        return (self._last_sequences[self.kept - 1] + 1) & SEQUENCE_MASK

    @property
    def last_sequence(self) -> int:
        """Of the last batch, -1 when none is remembered."""
        return self._last_sequences[self.kept - 1] if self.kept else -1

    @property
    def batches(self) -> list[ProducerBatch]:
        """Those that are remembered, of the current epoch, oldest first."""
        i: cython.int
        found: list = []
        for i in range(self.kept):
            found.append(
                ProducerBatch(
                    self._first_sequences[i], self._last_sequences[i], self._first_offsets[i], self._last_offsets[i],
                    self._timestamps[i],
                )
            )  # fmt: skip
        return found


@cython.cclass
class ProducerStates:
    """All producers of one log.

    complete: all that the log ever held is still there to be read, and a crash has taken its end. Then a producer that
    is unknown and goes on with a later sequence has lost records, and gets an error; Kafka takes any sequence from an
    unknown producer.
    """

    entries: Public[dict[int, ProducerEntry]]  # by producer id
    open_transactions: Public[dict[int, int]]  # first offset of the open transaction, by producer id
    complete: Public[cython.bint]

    def __init__(self) -> None:
        self.complete = False
        self.entries = {}
        self.open_transactions = {}

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def oldest_ms(self) -> int | None:
        """When the one wrote that expires first; None where none can."""
        return min([each.timestamp for each in self.entries.values() if each.transaction_start < 0], default=None)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self.entries.get(producer_id)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(sorted(self.entries.items()))

    def check(self, producer_id: int, epoch: int, first_sequence: int, last_sequence: int) -> ProducerBatch | None:
        """Whether a producer may write this batch now: None, or the batch that it repeats. Raises KafkaError."""
        entry = self.entries.get(producer_id)
        if entry is None:
            if epoch < NO_EPOCH:
                raise KafkaError.of(
                    ErrorCode.INVALID_PRODUCER_EPOCH, f"producer {producer_id} writes with epoch {epoch}"
                )
            if self.complete and first_sequence:
                raise KafkaError.of(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {producer_id} writes sequence {first_sequence}, but nothing before it is in the log: "
                    "it was lost in a crash",
                )
            return None  # nothing is known, because nothing was or all of it has been deleted: any sequence
        if epoch == entry.epoch:
            last = entry.last_sequence
            if last >= 0:
                if first_sequence == (last + 1) & SEQUENCE_MASK:
                    return None
                for batch in entry.batches:
                    if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                        return batch
            elif first_sequence == 0:
                return None
        elif epoch < entry.epoch:
            raise KafkaError.of(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} writes with epoch {epoch}, but epoch {entry.epoch} has begun",
            )
        elif first_sequence == 0 or entry.epoch == NO_EPOCH:
            return None
        else:
            last = -1
        raise KafkaError.of(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {producer_id} epoch {epoch} writes sequence {first_sequence} "
            f"after sequence {last} of epoch {entry.epoch}",
        )

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        base_offset: int,
        last_offset: int,
        timestamp: int,
        wall_ms: int,
    ) -> ProducerEntry:
        """Take a data batch that is in the log. `wall_ms` is now: expiry must not go by the records' own time."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.begin(epoch)
        entry.timestamp = wall_ms
        if base_sequence >= 0:
            entry.take(base_sequence, base_offset, last_offset, timestamp)
        return entry

    def begin_transaction(self, producer_id: int, first_offset: int) -> None:
        """Take a producer's transactional batch; the first since its last marker begins a transaction."""
        entry = self.entries[producer_id]
        if entry.transaction_start < 0:
            entry.transaction_start = self.open_transactions[producer_id] = first_offset

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """Take a commit or abort marker; gives the transaction's first offset, -1 when it wrote nothing here."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.begin(epoch)
        start, entry.transaction_start = entry.transaction_start, -1
        self.open_transactions.pop(producer_id, None)
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp = timestamp
        return start

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest open transaction begins."""
        return min(self.open_transactions.values()) if self.open_transactions else None

    def expire(self, wall_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for so long and have no open transaction."""
        for producer_id in [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_start < 0 and wall_ms - entry.timestamp >= expiration_ms
        ]:
            del self.entries[producer_id]
            self.complete = False

    def borrow(self, other: ProducerStates, producer_id: int) -> None:
        """Copy one producer from another collection, if it is there and not here."""
        entry = other.entries.get(producer_id)
        if entry is not None and producer_id not in self.entries:
            twin = self.entries[producer_id] = ProducerEntry(entry.epoch)
            for batch in entry.batches:
                twin.take(batch.first_sequence, batch.first_offset, batch.last_offset, batch.timestamp)

    def clear(self) -> None:
        self.entries.clear()
        self.open_transactions.clear()

    # --- Snapshots --------------------------------------------------------------------------------------------------

    def encode(self) -> bytes:
        rows = []
        for producer_id, entry in self.items():
            batches = entry.batches or [ProducerBatch(-1, -1, 0, -1, entry.timestamp)]
            for batch in batches:
                delta = batch.last_offset - batch.first_offset if batch.last_offset >= 0 else 0
                timestamp = entry.timestamp if batch is batches[-1] else batch.timestamp
                rows.append(
                    _ENTRY.pack(
                        producer_id,
                        entry.epoch,
                        batch.last_sequence,
                        batch.last_offset,
                        delta,
                        timestamp,
                        entry.coordinator_epoch,
                        entry.transaction_start,
                    )
                )
        body = _COUNT.pack(len(rows)) + b"".join(rows)
        return SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: bytes, path: str) -> ProducerStates:
        """Raises SnapshotError naming `path`."""
        if len(data) < SNAPSHOT_HEAD.size + _COUNT.size:
            raise SnapshotError(f"{path}: only {len(data)} bytes")
        version, crc = SNAPSHOT_HEAD.unpack_from(data)
        body = memoryview(data)[SNAPSHOT_HEAD.size :]
        if version != SNAPSHOT_VERSION:
            raise SnapshotError(f"{path}: version {version} is not {SNAPSHOT_VERSION}")
        if crc32c(body) != crc:
            raise SnapshotError(f"{path}: its checksum does not match")
        (count,) = _COUNT.unpack_from(body)
        if len(body) != _COUNT.size + count * _ENTRY.size:
            raise SnapshotError(f"{path}: {count} entries do not fill {len(body)} bytes")
        states = cls()
        for row in _ENTRY.iter_unpack(body[_COUNT.size :]):
            producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, start = row
            if last_offset >= 0:
                if not 0 <= delta <= last_offset:
                    raise SnapshotError(
                        f"{path}: a batch of {delta} offsets more than one ends at offset {last_offset}"
                    )
                first_sequence = (last_sequence - delta) & SEQUENCE_MASK if last_sequence >= 0 else -1
                entry = states.update(
                    producer_id, epoch, first_sequence, last_offset - delta, last_offset, timestamp, timestamp
                )
            else:
                entry = states.entries[producer_id] = ProducerEntry(epoch)
                entry.timestamp = timestamp
            entry.coordinator_epoch = coordinator_epoch
            if start >= 0:
                states.begin_transaction(producer_id, start)
        return states
