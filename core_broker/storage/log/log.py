"""One partition's log: append, read, roll, truncate, retain.

Appends and reads run on the event loop and read only the headers of batches. Everything that may wait for the disk
(sync, opening, deleting, searches by timestamp) is awaited. An append first checks everything, then writes, then
changes the state: if it raises, the log is as before. If the state on disk becomes uncertain, the log goes offline.

A `Log` holds its parts and joins them:

    tail        _tail.py        the state that appends use; the short way of an append (compiled)
    ranges      _ranges.py      the segments, and where in them an offset's bytes are (compiled)
    status      status.py       online or offline; reports to the owner
    progress    progress.py     how far the log is synced and compacted
    locks       progress.py     locks for work on the files
    rolling     rolling.py      when a segment ends and the next begins

Parts without a state of their own are created when they are used: `syncing` syncs the log, `truncation` cuts off its
end, `retention` moves its start, `compaction` replaces segments by cleaned ones, `timestamps` searches.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from ....protocol.batch_layout import CONTROL, TRANSACTIONAL
from ....protocol.errors import ErrorCode, KafkaError
from ..disk._data_file import FileRange
from ..disk.errors import StorageError, fresh_copy
from ..disk.files import Buffer, Files
from ._producers import ProducerStates, VerificationGuard
from ._ranges import LogRanges
from ._segment import Segment
from ._tail import LogTail, RecentPositions
from .append import Checked, Origin, check
from .closing import LogEnd, close_logs
from .compaction_swap import CompactionSwap
from .epochs import LeaderEpochs
from .errors import OffsetMismatch
from .inspection import Inspection
from .loaded import Loaded
from .log_config import MAX_INT64, LogConfig
from .progress import LogLocks, LogProgress
from .retention import Retention
from .rolling import Rolling
from .status import LogStatus
from .syncing import LogSync
from .timestamps import TimestampOffset, TimestampSearch
from .transactions import TransactionIndex, follow
from .truncation import Check, Truncation, unchecked

MIRROR = Origin.MIRROR  # looking up an enumeration member costs a call each time


class AppendInfo(NamedTuple):
    """The result of an append; for a duplicate, that of the first append."""

    first_offset: int
    last_offset: int
    next_offset: int  # the log's end after the append
    max_timestamp: int
    log_append_time_ms: int  # -1 under CreateTime
    log_start_offset: int
    records_count: int
    size_bytes: int
    duplicate: bool


class LogSlice(NamedTuple):
    """Whole batches, from the one with the wanted offset on; the last may be cut off by `max_bytes`."""

    ranges: list[FileRange]
    size_bytes: int


class Log:
    """A partition's log in one directory, created by `startup.opening.open_log`. Not thread-safe."""

    __slots__ = ("_shape_on_disk", "locks", "progress", "ranges", "recovery_notes", "rolling", "status", "tail")

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: Loaded, wall_ms: int) -> None:
        self.tail = LogTail(
            config,
            loaded.producers,
            loaded.epochs,
            loaded.segments[-1],
            loaded.log_start_offset,
            loaded.log_end_offset,
            wall_ms,
        )
        self.status = LogStatus(self.tail, directory)
        self.ranges = LogRanges(files, self.tail, self.status, loaded.segments)
        self.progress = LogProgress(self.status, loaded.recovery_point, loaded.first_dirty_offset)
        self.progress.is_unnamed = loaded.is_new
        self.progress.has_new_names = loaded.has_new_names
        self.locks = LogLocks()
        self.rolling = Rolling(self.ranges, self.progress)
        self.tail.rare = self.rolling
        self.recovery_notes = loaded.notes
        self._shape_on_disk = self._shape() if loaded.is_closed else None

    # --- State --------------------------------------------------------------------------------------------------------

    @property
    def files(self) -> Files:
        return self.ranges.files

    @property
    def directory(self) -> str:
        return self.status.directory

    @property
    def name(self) -> str:
        return self.status.name

    @property
    def config(self) -> LogConfig:
        """The options of the topic."""
        return self.tail.config

    def configure(self, config: LogConfig) -> None:
        """Take other options of the topic."""
        self.tail.config = config
        self.status.changed()

    @property
    def failure(self) -> KafkaError | None:
        """Why the log is offline; None if it is online."""
        return self.tail.failure

    @property
    def log_start_offset(self) -> int:
        return self.tail.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self.tail.log_end_offset

    @property
    def producers(self) -> ProducerStates:
        return self.tail.producers

    @property
    def epochs(self) -> LeaderEpochs:
        return self.tail.epochs

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or the one assigned after it; -1 in an empty log."""
        return self.epochs.latest

    @property
    def first_undecided_offset(self) -> int | None:
        """Where the earliest open transaction begins."""
        return self.tail.producers.first_undecided_offset

    def stable_offset(self, high_watermark: int) -> int:
        """Before it every transaction has ended by a marker that is committed; at most the high watermark."""
        unstable = self.tail.producers.unstable
        unstable.commit(high_watermark)
        return min(max(unstable.first, self.tail.log_start_offset), high_watermark)

    @property
    def size_bytes(self) -> int:
        return self.ranges.size_bytes

    @property
    def segments_count(self) -> int:
        return len(self.ranges.segments)

    @property
    def active_segment(self) -> Segment:
        """The segment that appends go to."""
        return self.tail.active

    def closed_segments(self) -> list[Segment]:
        """All segments but the active one, oldest first."""
        return self.ranges.segments[:-1]

    @property
    def recovery_point(self) -> int:
        """All before it is on disk."""
        return self.progress.recovery_point

    @property
    def is_on_disk(self) -> bool:
        """Whether all appended bytes are on disk."""
        return self.recovery_point >= self.log_end_offset

    @property
    def needs_flush(self) -> bool:
        """Whether flush.messages requires a `sync` before the last append counts as written."""
        most = self.config.flush_messages
        return most < MAX_INT64 and self.log_end_offset - self.recovery_point >= most

    # --- Append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Buffer,
        origin: Origin,
        leader_epoch: int,
        wall_ms: int,
        expected_next_offset: int | None = None,
        inspection: Inspection | None = None,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append whole batches into the page cache, all or none. Raises KafkaError, OffsetMismatch, StorageError.

        CLIENT and COORDINATOR get offsets and `leader_epoch`; REPLICATION and MIRROR keep every byte. inspection: of
        the first batch, see `inspection.py`. guard: for CLIENT and COORDINATOR, see `begin_verification`.
        """
        tail = self.tail
        if tail.failure is not None:
            raise fresh_copy(tail.failure)
        end, config, start_offset = tail.log_end_offset, tail.config, tail.log_start_offset
        if expected_next_offset is not None and expected_next_offset != end:
            raise OffsetMismatch(f"{self.name} ends at offset {end}, not {expected_next_offset}", end)
        view = batches if type(batches) is memoryview else memoryview(batches)
        plan = check(
            view, origin, config, tail.producers, self.status.name, end, leader_epoch, wall_ms, inspection, guard
        )
        parts, checked, size, records, max_timestamp, append_time, repeated = plan
        if not checked:
            if repeated is None:
                return AppendInfo(end, end - 1, end, -1, -1, start_offset, 0, 0, False)
            first, last = repeated.first_offset, repeated.last_offset
            stamped = repeated.timestamp if config.stamps else -1
            count = last - first + 1
            return AppendInfo(first, last, end, repeated.timestamp, stamped, start_offset, count, len(view), True)
        if origin is MIRROR:
            self._check_epochs(checked)
        first_offset, last_offset = checked[0][1], checked[-1][2]
        segment = self.rolling.segment_for(first_offset, last_offset, size, max_timestamp, wall_ms)
        file = segment.file
        position = file.size
        try:
            file.append(parts)
        except OSError as error:
            raise self.rolling.append_failed(error) from error
        # The batches are in the log; nothing below may reject them.
        interval = config.index_interval_bytes
        epochs = tail.epochs
        for size_bytes, base, last, stamp, epoch, producer_id, producer_epoch, sequence, attributes, start in checked:
            segment.note(position, size_bytes, last, stamp, interval)
            position += size_bytes
            if epoch != epochs.latest:
                epochs.assign(epoch, base)
            if producer_id >= 0:
                if attributes & (CONTROL | TRANSACTIONAL):
                    self._follow_transaction(
                        segment, base, last, attributes, producer_id, producer_epoch, sequence, stamp, wall_ms,
                        view[start : start + size_bytes],
                    )  # fmt: skip
                else:
                    tail.producers.update(producer_id, producer_epoch, sequence, base, last, stamp, wall_ms)
        tail.wall_ms = wall_ms
        if not tail.is_noted:
            self.rolling.note_append(wall_ms)
        tail.log_end_offset = end = last_offset + 1
        if tail.recent is None:
            tail.recent = RecentPositions()
        tail.recent.append(end, position)
        return AppendInfo(
            first_offset, last_offset, end, max_timestamp, append_time, tail.log_start_offset, records, size, False
        )

    def begin_verification(
        self, producer_id: int, producer_epoch: int, sequence: int, bumps_epochs: bool, wall_ms: int
    ) -> VerificationGuard | None:
        """What `append` must be given with a producer's transactional batch; None if its transaction is open here.

        Once the coordinator of the transaction has said that this partition belongs to it, it counts until something
        of that transaction is appended (KIP-890). sequence: of the batch. bumps_epochs: each of its transactions has an
        epoch of its own. Raises KafkaError INVALID_PRODUCER_EPOCH.
        """
        return self.tail.producers.begin_verification(producer_id, producer_epoch, sequence, bumps_epochs, wall_ms)

    def _check_epochs(self, checked: list[Checked]) -> None:
        """A source's epochs only increase: a batch of an earlier one belongs to another history."""
        latest = self.epochs.latest
        for _, base, _, _, epoch, *_ in checked:
            if 0 <= epoch < latest:
                raise KafkaError.of(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.name}: batch at offset {base} is of leader epoch {epoch}, but the log has epoch {latest}",
                )
            latest = max(latest, epoch)

    def _follow_transaction(self, segment: Segment, base: int, last: int, *batch: Any) -> None:
        aborted = follow(self.producers, base, last, *batch)
        if aborted is not None:
            try:
                TransactionIndex.append(self.files, segment, aborted)
                self.ranges.aborted_indexes.added(segment, aborted)
            except OSError as error:
                self.status.fail(error, "cannot write the transaction index in")

    def assign_epoch(self, epoch: int) -> None:
        """A leader begins its epoch at the log's end."""
        self.epochs.assign(epoch, self.log_end_offset)

    # --- Read ---------------------------------------------------------------------------------------------------------

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_offset: int | None = None,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice:
        """Locate the bytes from the batch with `offset` up to `upper_offset` (None: the end), at most `max_bytes`.

        min_one: the first batch is included even if it is larger. Raises KafkaError OFFSET_OUT_OF_RANGE before the log
        start or after the log end, CORRUPT_MESSAGE, StorageError; NotCached if the read would have to wait for the disk
        and must not.
        """
        ranges = self.ranges.ranges(offset, max_bytes, upper_offset, min_one, may_wait)
        return LogSlice(ranges, sum(map(len, ranges)))

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of aborted transactions that overlap the offsets from `offset` to before
        `upper_offset`, by first offset. Raises StorageError."""
        try:
            found = self.ranges.aborted(offset, upper_offset, True)
        except OSError as error:
            raise self.status.refuse(error, "cannot read from") from error
        assert found is not None
        return [(producer_id, first_offset) for first_offset, producer_id in found]

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset): the largest known epoch up to `epoch` and where it ended; (-1, -1) for none."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which `offset` was written."""
        return self.epochs.epoch_at(offset)

    async def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with `timestamp` or a later one; None if there is none. Raises KafkaError."""
        return await TimestampSearch(self.ranges).first_from(timestamp)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp; see `TimestampSearch.largest`. Raises KafkaError."""
        return await TimestampSearch(self.ranges).largest()

    # --- Parts that are created when they are used --------------------------------------------------------------------

    @property
    def syncing(self) -> LogSync:
        return LogSync(self.ranges, self.progress, self.locks)

    @property
    def truncation(self) -> Truncation:
        return Truncation(self.ranges, self.progress, self.locks)

    @property
    def retention(self) -> Retention:
        return Retention(self.ranges, self.rolling, self.locks)

    @property
    def compaction(self) -> CompactionSwap:
        return CompactionSwap(self.ranges, self.locks)

    async def sync(self) -> None:
        """Sync all that has been appended. Raises StorageError; the log is offline then."""
        await self.syncing.sync()

    async def truncate_to(self, offset: int, last_check: Check = unchecked) -> None:
        """Cut off everything from the batch with `offset` on. Raises StorageError. last_check: called in the moment
        before, and may raise, for this waits for the disk."""
        await self.truncation.truncate_to(offset, last_check)

    async def reset_to(
        self, offset: int, expected_next_offset: int | None = None, last_check: Check = unchecked
    ) -> None:
        """Remove all records; the log then begins at `offset`. Raises StorageError, and OffsetMismatch if the log does
        not end at `expected_next_offset`. last_check: as for `truncate_to`."""
        await self.truncation.reset_to(offset, expected_next_offset, last_check)

    def advance_start(self, offset: int) -> None:
        """Stop serving offsets before `offset`. Raises KafkaError OFFSET_OUT_OF_RANGE past the end."""
        self.retention.advance_start(offset)

    async def enforce_retention(self, high_watermark: int, wall_ms: int) -> int:
        """Remove old segments below the high watermark; returns how many. Raises StorageError."""
        return await self.retention.enforce(high_watermark, wall_ms)

    # --- Closing ------------------------------------------------------------------------------------------------------

    def _shape(self) -> tuple[int, ...]:
        """Numbers that change with every change of the files that a clean shutdown writes."""
        ranges = self.ranges
        return self.log_start_offset, self.log_end_offset, ranges.cuts, ranges.bases[0], len(ranges.bases)

    async def close(self) -> None:
        """Write and sync all that makes the next start a clean one. If the log is offline, nothing is written.

        Raises StorageError.
        """
        for failure in await close_logs(self.files, [self]):
            raise failure

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """While inside, no work runs in the directory, except appends."""
        async with self.locks.maintenance, self.locks.cleaning:
            yield

    def end(self) -> LogEnd | None:
        """What must be written before the log is closed; None for nothing. The log must be at rest."""
        if self.failure is not None or self._shape() == self._shape_on_disk:
            return None
        return LogEnd(self, self.ranges, self.progress.is_unnamed)

    def ended(self, error: OSError | None) -> StorageError | None:
        """The result of `end` is on disk, or failed with this error. Returns the error to report."""
        if error is not None:
            return self.status.fail(error, "cannot close")
        self.progress.recovery_point = self.log_end_offset
        return None

    def abandon(self) -> None:
        """Close the log and leave the files as they are. Ranges that are being sent stay readable."""
        self.status.abandon()

    async def leave(self) -> None:
        """`abandon`, then wait for work in the directory to end: from then on nothing touches its files.

        The files stay readable for ranges that were given out, even after their names are removed.
        """
        self.abandon()
        async with self.at_rest():
            for segment in self.ranges.segments:
                with contextlib.suppress(OSError):
                    segment.file.keep()
        # Others may refer to this log for long. Its files must close as soon as the last reader is done.
        del self.tail.active
        self.ranges.segments.clear()
