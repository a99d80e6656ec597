# cython: auto_pickle=False
"""What producers last wrote to a log (KIP-98, KIP-360), so that retries are known and gaps refused, and which of their
transactions are open.

The last five batches of each producer id are remembered. They follow from the log's headers; snapshot files, in
Kafka's format, save reading the whole log. Kafka's snapshot has one entry a producer, its last batch. Ours has up to
five, oldest first: a reader that keeps one entry an id, as Kafka does, ends with the same last one.
"""

from __future__ import annotations

import struct
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

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
LAST_EPOCH = 2**15 - 1  # of a producer id; what comes then has another id
BATCHES_KEPT = 5  # a producer has at most five requests in flight
VERIFICATIONS_MAX = 10_000  # that are under way in a log; the oldest goes first, and must be begun again
BUMPED_EPOCHS = 2  # version of transactions from which on a marker has the producer's next epoch (KIP-890, KIP-1228)

_BATCHES_KEPT: cython.int = BATCHES_KEPT
_ALL_STABLE: cython.longlong = 2**63 - 1

ALL_STABLE = _ALL_STABLE  # as a first unstable offset: there is none


class SnapshotError(Exception):
    """A producer snapshot that cannot be used; says which file and why."""


class ProducerBatch(NamedTuple):
    """One remembered batch."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class VerificationGuard:
    """A producer's transaction that a leader is to verify, or has, before its first batch (KIP-890).

    It is gone as soon as the transaction is open in the log, or has ended: an answer that comes later counts for
    nothing. lowest_sequence: of the batches that wait for it; none after it may come first. bumps_epochs: each
    transaction of the producer has an epoch of its own (part two).
    """

    __slots__ = ("began_ms", "bumps_epochs", "epoch", "lowest_sequence")

    def __init__(self, began_ms: int, epoch: int, sequence: int, bumps_epochs: bool) -> None:
        self.began_ms = began_ms
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.bumps_epochs = bumps_epochs

    def covers(self, epoch: int, sequence: int) -> None:
        """Another batch waits for it, too."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch and sequence < self.lowest_sequence:
            self.lowest_sequence = sequence


@cython.final
@cython.cclass
class UnstableTransactions:
    """Where transactions begin that are open, or whose markers are not committed: readers of what is committed stop at
    the first of them. Each step costs the same, however many there are.

    first: the first of these offsets, ALL_STABLE if there is none.
    """

    first: Readonly[cython.longlong]
    _open: Any  # first offsets, ascending
    _ended: Any  # (offset of the marker, first offset), ascending in both; those that can not be `first` are left out

    def __init__(self) -> None:
        self.first = _ALL_STABLE
        self._open = OrderedDict()
        self._ended = deque()

    def begin(self, first_offset: int) -> None:
        """A transaction begins at the log's end."""
        self._open[first_offset] = None
        if first_offset < self.first:
            self.first = first_offset

    def end(self, first_offset: int, marker_offset: int) -> None:
        """An open transaction ends."""
        del self._open[first_offset]
        ended = self._ended
        while ended and ended[-1][1] > first_offset:
            ended.pop()
        ended.append((marker_offset, first_offset))

    def commit(self, high_watermark: int) -> None:
        """All markers before an offset are committed."""
        ended = self._ended
        if ended and ended[0][0] < high_watermark:
            while ended and ended[0][0] < high_watermark:
                ended.popleft()
            self.first = min(self.first_open, ended[0][1]) if ended else self.first_open

    @property
    def first_open(self) -> int:
        """Where the first open transaction begins, ALL_STABLE if none is open."""
        first: int = next(iter(self._open), _ALL_STABLE)
        return first


@cython.cclass
class ProducerEntry:
    """One producer id's state: its epoch, and its last batches of that epoch."""

    epoch: Public[cython.longlong]
    timestamp: Public[cython.longlong]  # wall time of the last write, what expiry counts from; -1 for none
    coordinator_epoch: Public[cython.longlong]
    transaction_start: Public[cython.longlong]  # first offset of the open transaction, -1 when there is none
    marker_ms: Public[cython.longlong]  # timestamp of a marker that is the last write, else -1
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
        self.marker_ms = -1
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
        self.marker_ms = -1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def goes_on(self, epoch: cython.longlong, first_sequence: cython.longlong) -> cython.bint:
        """Whether a batch is the next after the last that is remembered."""
        return (
            epoch == self.epoch
            and self.kept > 0
            and first_sequence == (self._last_sequences[self.kept - 1] + 1) & SEQUENCE_MASK
        )

    def repeated(self, epoch: int, first_sequence: int, last_sequence: int) -> ProducerBatch | None:
        """The remembered batch with these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.first_sequence == first_sequence and batch.last_sequence == last_sequence:
                    return batch
        return None

    @property
    def last_timestamp(self) -> int:
        """The last batch's largest timestamp, or the time of the marker after it."""
        if self.marker_ms >= 0:
            return self.marker_ms
        return self._timestamps[self.kept - 1] if self.kept else self.timestamp

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
    unstable: Readonly[UnstableTransactions]
    guards: Public[dict[int, VerificationGuard]]  # by producer id, oldest first
    complete: Public[cython.bint]

    def __init__(self) -> None:
        self.complete = False
        self.entries = {}
        self.unstable = UnstableTransactions()
        self.guards = {}

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

    def check(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        last_sequence: int,
        is_transactional: bool = False,
        guard: VerificationGuard | None = None,
        verifies: bool = True,
    ) -> ProducerBatch | None:
        """Whether a producer may write this batch now: None, or the batch that it repeats. Raises KafkaError.

        first_sequence: -1 where only the transaction and the epoch are checked, as of coordinators. guard: the
        verification of the transaction, which is needed unless it is open here or nothing verifies.
        """
        entry: ProducerEntry | None = self.entries.get(producer_id)
        known = None if entry is None or first_sequence < 0 else entry.repeated(epoch, first_sequence, last_sequence)
        if known is not None:
            return known
        if entry is not None and epoch < entry.epoch:
            raise _old_epoch(producer_id, epoch, entry.epoch)
        if is_transactional and verifies and not self.has_open(producer_id, epoch):
            if guard is None or self.guards.get(producer_id) is not guard:
                raise KafkaError.of(
                    ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} writes to a transaction that is not open"
                )
        if first_sequence >= 0:
            self._check_sequence(producer_id, entry, epoch, first_sequence)
        if entry is not None and entry.transaction_start >= 0 and not is_transactional:
            raise KafkaError.of(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} writes beside its transaction, which is open"
            )
        return None

    def _check_sequence(self, producer_id: int, entry: ProducerEntry | None, epoch: int, first_sequence: int) -> None:
        """Raise KafkaError OUT_OF_ORDER_SEQUENCE_NUMBER where a batch is not the next; its epoch is not an old one."""
        verification = self.guards.get(producer_id)
        if verification is not None:
            if verification.bumps_epochs and first_sequence and (entry is None or not entry.kept):
                raise _out_of_order(producer_id, epoch, first_sequence, "a transaction, which begins with sequence 0")
            if first_sequence > verification.lowest_sequence:
                before = f"sequence {verification.lowest_sequence}, which waits"
                raise _out_of_order(producer_id, epoch, first_sequence, before)
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
            return  # nothing is known, because nothing was or all of it has been deleted: any sequence
        if entry.goes_on(epoch, first_sequence):
            return
        last = -1
        if epoch == entry.epoch:
            last = entry.last_sequence
            if last < 0 and first_sequence == 0:
                return
        elif first_sequence == 0 or entry.epoch == NO_EPOCH:
            return
        raise _out_of_order(producer_id, epoch, first_sequence, f"sequence {last} of epoch {entry.epoch}")

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Raise KafkaError where a transaction may not be ended: INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED."""
        entry: ProducerEntry | None = self.entries.get(producer_id)
        if entry is None:
            return
        # A marker that has been written, and is told again, has the epoch that it brought.
        is_again = epoch == entry.epoch and (entry.transaction_start < 0 or epoch == LAST_EPOCH)
        if transaction_version >= BUMPED_EPOCHS and epoch <= entry.epoch and not is_again:
            raise KafkaError.of(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a transaction of producer {producer_id} ends with epoch {epoch}, not after epoch {entry.epoch}",
            )
        if epoch < entry.epoch:
            raise _old_epoch(producer_id, epoch, entry.epoch)
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError.of(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {coordinator_epoch} ends a transaction of producer {producer_id}, "
                f"but epoch {entry.coordinator_epoch} has begun",
            )

    # --- transactions -------------------------------------------------------------------------------------------------

    def has_open(self, producer_id: int, epoch: int) -> bool:
        """Whether a producer has an open transaction here, and goes on under its epoch."""
        entry: ProducerEntry | None = self.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def is_in_transaction(self, producer_id: int) -> bool:
        """Whether a producer has an open transaction here, under any epoch."""
        entry: ProducerEntry | None = self.entries.get(producer_id)
        return entry is not None and entry.transaction_start >= 0

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, bumps_epochs: bool, wall_ms: int
    ) -> VerificationGuard | None:
        """What a producer's next batch needs before it may be written; None if its transaction is open here.

        Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        entry: ProducerEntry | None = self.entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise _old_epoch(producer_id, epoch, entry.epoch)
        if self.has_open(producer_id, epoch):
            return None
        begun = self.guards.get(producer_id)
        if begun is None:
            if len(self.guards) >= VERIFICATIONS_MAX:
                del self.guards[next(iter(self.guards))]
            begun = self.guards[producer_id] = VerificationGuard(wall_ms, epoch, sequence, bumps_epochs)
        else:
            begun.covers(epoch, sequence)
        return begun

    def end_verification(self, producer_id: int, marker_epoch: int = NO_EPOCH) -> None:
        """A transaction is open in the log, or a marker of an epoch has ended one: what was asked before is void.

        Not where the marker has the epoch of the transaction after it, which is being verified.
        """
        if self.guards:
            begun = self.guards.get(producer_id)
            if begun is not None and not (begun.bumps_epochs and begun.epoch == marker_epoch):
                del self.guards[producer_id]

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
            entry.transaction_start = first_offset
            self.unstable.begin(first_offset)

    def end_transaction(
        self, producer_id: int, epoch: int, coordinator_epoch: int, marker_offset: int, timestamp: int, wall_ms: int
    ) -> int:
        """Take a commit or abort marker; gives the transaction's first offset, -1 when it wrote nothing here."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.begin(epoch)
        start, entry.transaction_start = entry.transaction_start, -1
        if start >= 0:
            self.unstable.end(start, marker_offset)
        entry.coordinator_epoch = coordinator_epoch
        entry.timestamp = wall_ms
        entry.marker_ms = timestamp
        return start

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the earliest open transaction begins."""
        first = self.unstable.first_open
        return None if first == _ALL_STABLE else first

    # --- what is kept -------------------------------------------------------------------------------------------------

    def expire(self, wall_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for so long and have no open transaction."""
        for producer_id in [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.transaction_start < 0 and wall_ms - entry.timestamp >= expiration_ms
        ]:
            del self.entries[producer_id]
            self.complete = False
        for producer_id, begun in list(self.guards.items()):
            if wall_ms - begun.began_ms >= expiration_ms:
                del self.guards[producer_id]

    def borrow(self, other: ProducerStates, producer_id: int) -> None:
        """Copy one producer from another collection, if it is there and not here."""
        entry = other.entries.get(producer_id)
        if entry is not None and producer_id not in self.entries:
            twin = self.entries[producer_id] = ProducerEntry(entry.epoch)
            twin.transaction_start = entry.transaction_start
            for batch in entry.batches:
                twin.take(batch.first_sequence, batch.first_offset, batch.last_offset, batch.timestamp)

    def clear(self) -> None:
        self.entries.clear()
        self.unstable = UnstableTransactions()
        self.guards.clear()

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
        open_transactions: dict[int, int] = {}  # producer id, by first offset
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
                open_transactions[start] = producer_id
        for start in sorted(open_transactions):
            states.begin_transaction(open_transactions[start], start)
        return states


def _old_epoch(producer_id: int, epoch: int, begun: int) -> KafkaError:
    return KafkaError.of(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {producer_id} writes with epoch {epoch}, but epoch {begun} has begun",
    )


def _out_of_order(producer_id: int, epoch: int, sequence: int, after: str) -> KafkaError:
    return KafkaError.of(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"producer {producer_id} epoch {epoch} writes sequence {sequence} after {after}",
    )
