"""One partition's log: append, read, roll, truncate, retain.

Appends and reads run on the event loop and see batches by their headers only; whatever may wait for the disk (sync,
opening, deleting, searches by timestamp) is awaited. An append checks everything, then writes, then remembers: when it
raises, the log is as before. When the disk leaves a log in doubt, it goes offline and says why.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ._appended import Positions
from .append import CONTROL, TRANSACTIONAL, Checked, Origin, check
from .config import LogConfig
from .cutting import LogCutting
from .errors import OffsetMismatch, StorageError, anew
from .files import Buffer, Files, TornWrite, make_directory
from .preparing import Prepared
from .reader import LogSlice, TimestampOffset
from .recovery import load
from .segment import MAX_RELATIVE, Segment
from .transactions import AbortedTransaction, TransactionIndex, follow

__all__ = [
    "AbortedTransaction",
    "AppendInfo",
    "Log",
    "LogConfig",
    "LogSlice",
    "OffsetMismatch",
    "Origin",
    "StorageError",
    "TimestampOffset",
]

MIRROR = Origin.MIRROR  # a member of an enumeration is found by its name each time, at the cost of a call


class AppendInfo(NamedTuple):
    """What an append did. For a duplicate: what the first one did."""

    first_offset: int
    last_offset: int
    next_offset: int  # the log's end now
    max_timestamp: int
    log_append_time_ms: int  # -1 under CreateTime
    log_start_offset: int
    records_count: int
    size_bytes: int
    duplicate: bool


class Log(LogCutting):
    """A partition's log in one directory. Made by `Log.open`. Not for several threads."""

    __slots__ = ()

    @classmethod
    async def open(
        cls,
        files: Files,
        directory: str,
        config: LogConfig | None = None,
        *,
        wall_ms: int = 0,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        first_dirty_offset: int = 0,
        clean: bool = False,
    ) -> Log:
        """Open or make the log in `directory`. `clean`: it was closed, no check is needed. Raises StorageError.

        recovery_point, log_start_offset and first_dirty_offset: from the checkpoints, if there are any.
        """
        config = config or LogConfig()
        try:
            await files.run(make_directory, files, directory)
            points = recovery_point, log_start_offset, first_dirty_offset
            loaded = await files.run(load, files, directory, config, wall_ms, *points, clean)
        except OSError as error:
            raise StorageError(error, directory, "cannot open") from error
        return cls(files, directory, config, loaded, wall_ms)

    # --- Append -------------------------------------------------------------------------------------------------------

    def append(
        self,
        batches: Buffer,
        origin: Origin,
        leader_epoch: int,
        wall_ms: int,
        expected_next_offset: int | None = None,
        prepared: Prepared | None = None,
    ) -> AppendInfo:
        """Append whole batches into the page cache, all or none. Raises KafkaError, OffsetMismatch, StorageError.

        CLIENT and COORDINATOR are given offsets and `leader_epoch`; REPLICATION and MIRROR keep every byte.
        prepared: of the first batch, see `preparing.py`.
        """
        if self.failure is not None:
            raise anew(self.failure)
        end = self.log_end_offset
        if expected_next_offset is not None and expected_next_offset != end:
            raise OffsetMismatch(f"{self.name} ends at offset {end}, not {expected_next_offset}", end)
        view = batches if type(batches) is memoryview else memoryview(batches)
        plan = check(view, origin, self.config, self.producers, self.name, end, leader_epoch, wall_ms, prepared)
        parts, checked, size, records, max_timestamp, append_time, repeated = plan
        if not checked:
            if repeated is None:
                return AppendInfo(end, end - 1, end, -1, -1, self.log_start_offset, 0, 0, False)
            first, last = repeated.first_offset, repeated.last_offset
            stamped = repeated.timestamp if self.config.stamps else -1
            start, count = self.log_start_offset, last - first + 1
            return AppendInfo(first, last, end, repeated.timestamp, stamped, start, count, len(view), True)
        if origin is MIRROR:
            self._check_epochs(checked)
        first_offset, last_offset = checked[0][1], checked[-1][2]
        segment = self._segment_for(first_offset, last_offset, size, max_timestamp, wall_ms)
        file = segment.file
        position = file.size
        try:
            file.append(parts)
        except OSError as error:
            raise self._append_failed(error) from error
        # The batches are in the log; nothing below may refuse them.
        interval = self.config.index_interval_bytes
        epochs = self.epochs
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
                    self.producers.update(producer_id, producer_epoch, sequence, base, last, stamp, wall_ms)
        self._wall_ms = wall_ms
        if not self.is_noted:
            self._note_append(wall_ms)
        self.log_end_offset = end = last_offset + 1
        if self._positions is None:
            self._positions = Positions()
        self._positions.append(end, position)
        return AppendInfo(
            first_offset, last_offset, end, max_timestamp, append_time, self.log_start_offset, records, size, False
        )

    def _segment_for(
        self, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int, wall_ms: int
    ) -> Segment:
        """The segment into which an append of these offsets, size and time belongs."""
        if not self._active.must_roll(self.config, size_bytes, last_offset, max_timestamp, wall_ms):
            return self._active
        # Segments begin where the one before ends, so that recovery can tell a lost tail from a hole in offsets.
        end = self.log_end_offset
        return self._roll(end if last_offset - end <= MAX_RELATIVE else first_offset, wall_ms)

    def _append_failed(self, error: OSError) -> StorageError:
        if isinstance(error, TornWrite):
            return self._fail(error, "cannot append to")
        return self._refuse(error, "cannot append to")

    def _check_epochs(self, checked: list[Checked]) -> None:
        """A source's epochs only rise: a batch of an earlier one is of another history, and would rewrite this one."""
        latest = self.epochs.latest
        for _, base, _, _, epoch, *_ in checked:
            if 0 <= epoch < latest:
                raise KafkaError.of(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.name}: batch at offset {base} is of leader epoch {epoch}, the log holds epoch {latest}",
                )
            latest = max(latest, epoch)

    def _follow_transaction(self, segment: Segment, base: int, last: int, *batch: Any) -> None:
        aborted = follow(self.producers, base, last, *batch)
        if aborted is not None:
            try:
                TransactionIndex.append(self.files, segment, aborted)
            except OSError as error:
                self._fail(error, "cannot write the transaction index in")

    def assign_epoch(self, epoch: int) -> None:
        """A leader begins its epoch at the log's end."""
        self.epochs.assign(epoch, self.log_end_offset)
