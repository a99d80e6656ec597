"""Cuts a log off at an offset, or empties it.

Both wait for the disk first. `last_check` is called once nothing is waited for any more; if it raises, the log is as it
was.

A crash must not bring back what was cut off, nor leave a checkpoint that covers it. So the checkpoints are saved before
anything is removed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from ._ranges import LogRanges
from ._segment import Segment
from .epochs import EPOCH_CHECKPOINT
from .errors import OffsetMismatch
from .progress import LogLocks, LogProgress
from .snapshots import load_producers, remove_snapshots
from .transactions import TransactionIndex

Check = Callable[[], None]


def unchecked() -> None:
    """For those who alone use the log."""


class Truncation:
    """The truncation of one log."""

    __slots__ = ("_locks", "_progress", "_ranges")

    def __init__(self, ranges: LogRanges, progress: LogProgress, locks: LogLocks) -> None:
        self._ranges = ranges
        self._progress = progress
        self._locks = locks

    async def truncate_to(self, offset: int, last_check: Check = unchecked) -> None:
        """Cut off everything from the batch with `offset` on. Raises StorageError, and what `last_check` raises.

        The log then ends at `offset`, or before it if a batch extends across it.
        """
        ranges, progress = self._ranges, self._progress
        async with self._locks.maintenance:
            ranges.status.check_online()
            last_check()
            if offset >= ranges.tail.log_end_offset:
                self._forget_empty_epoch()
                return
            # What is appended after the cut is not on disk, even if the checkpoint covers its offsets. Nor is the cut
            # itself: a start must read the segment that was cut and sync it again, though its end looks valid.
            cut_segment = ranges.bases[max(0, bisect_left(ranges.bases, offset) - 1)]
            progress.recovery_point = min(progress.recovery_point, cut_segment)
            progress.first_dirty_offset = min(progress.first_dirty_offset, offset)
            await ranges.status.save_points()
            last_check()
            try:
                self._truncate(max(offset, ranges.tail.log_start_offset))
            except OSError as error:
                raise ranges.status.fail(error, "cannot truncate") from error

    async def reset_to(
        self, offset: int, expected_next_offset: int | None = None, last_check: Check = unchecked
    ) -> None:
        """Remove all records; the log then begins at `offset`. Raises StorageError, and what `last_check` raises.

        expected_next_offset: the log must still end here when its records are removed, else OffsetMismatch.
        """
        ranges, progress = self._ranges, self._progress
        async with self._locks.maintenance:
            ranges.status.check_online()
            progress.recovery_point = progress.first_dirty_offset = 0
            await ranges.status.save_points()
            last_check()
            end = ranges.tail.log_end_offset
            if expected_next_offset is not None and expected_next_offset != end:
                raise OffsetMismatch(f"{ranges.status.name} ends at offset {end}, not {expected_next_offset}", end)
            try:
                self._begin_at(offset)
            except OSError as error:
                raise ranges.status.fail(error, "cannot reset") from error

    def _truncate(self, offset: int) -> None:
        ranges, tail, files, directory = self._ranges, self._ranges.tail, self._ranges.files, self._directory
        self._progress.is_cut = True
        ranges.cuts += 1
        tail.recent = None
        while len(ranges.segments) > 1 and ranges.bases[-1] >= offset:
            ranges.segments.pop().unlink(files)
            ranges.bases.pop()
        tail.active = active = ranges.segments[-1]
        active.open_indexes(files)
        ranges.windows.drop(active)
        ranges.aborted_indexes.drop(active)
        found = active.find(files, offset)
        if found is not None:
            active.truncate(files, found)
            TransactionIndex.truncate(files, active, found.base_offset)
        tail.log_end_offset = end = active.last_offset + 1
        if end < tail.log_start_offset:
            self._begin_at(tail.log_start_offset)  # only records before the log start offset remained
            return
        self._progress.recovery_point = min(self._progress.recovery_point, end)
        tail.epochs.truncate_end(end)
        remove_snapshots(files, directory, above=end)
        complete = tail.producers.complete
        tail.producers = load_producers(files, directory, ranges.segments, end, tail.wall_ms)
        tail.producers.complete = complete
        self._write_epochs()

    def _forget_empty_epoch(self) -> None:
        """This broker may have led in an epoch without an append: its leader does not know that epoch."""
        tail = self._ranges.tail
        tail.epochs.truncate_end(tail.log_end_offset)
        if tail.epochs.dirty:
            try:
                self._write_epochs()
            except OSError as error:
                raise self._ranges.status.fail(error, "cannot truncate") from error

    def _begin_at(self, offset: int) -> None:
        ranges, tail, files, directory = self._ranges, self._ranges.tail, self._ranges.files, self._directory
        self._progress.is_cut = True
        ranges.cuts += 1
        self._progress.first_dirty_offset = 0
        while ranges.segments:
            ranges.segments.pop().unlink(files)
        remove_snapshots(files, directory, above=-1)
        tail.active = Segment.create(files, directory, offset, tail.wall_ms)
        ranges.segments.append(tail.active)
        ranges.bases[:] = [offset]
        tail.recent = None
        tail.epochs.clear()
        tail.producers.clear()
        tail.log_start_offset = tail.log_end_offset = self._progress.recovery_point = offset
        self._write_epochs()

    def _write_epochs(self) -> None:
        """Write and sync the epochs, with the directory: after a crash no removed segment comes back."""
        epochs = self._ranges.tail.epochs
        self._ranges.files.write_atomic(f"{self._directory}/{EPOCH_CHECKPOINT}", epochs.encode())
        epochs.dirty = False

    @property
    def _directory(self) -> str:
        return self._ranges.status.directory
