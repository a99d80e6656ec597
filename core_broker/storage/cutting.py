"""The shrinking half of a log: cut off at its end, deleted at its start, compacted between.

Two locks keep what is awaited apart, see upkeep.py. What takes files away makes sure first that no crash can bring
back, or leave believed, what is not there any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from ...protocol.errors import ErrorCode, KafkaError
from . import retention, swap
from .cleaning import Replacement
from .epochs import EPOCH_CHECKPOINT
from .errors import OffsetMismatch
from .files import Files
from .recovery import load_producers, remove_snapshots
from .segment import Segment
from .syncing import noted
from .transactions import TransactionIndex
from .upkeep import LogUpkeep


class LogCutting(LogUpkeep):
    """What takes records out of a log; `Log` adds those that come in."""

    __slots__ = ()

    # --- At the end ---------------------------------------------------------------------------------------------------

    async def truncate_to(self, offset: int) -> None:
        """Cut off all from the batch that holds `offset` on. The end is `offset` then, or less in a batch."""
        async with self._maintenance:
            self._check_online()
            if offset >= self.log_end_offset:
                return
            # What is appended after the cut is not on disk, whatever the checkpoint says of the offsets cut off. Nor is
            # the cut: a start must read the segment that it is in, and sync it again, though its end does not show it.
            cut_segment = self._bases[max(0, bisect_left(self._bases, offset) - 1)]
            self.recovery_point = min(self.recovery_point, cut_segment)
            self.first_dirty_offset = min(self.first_dirty_offset, offset)
            if self.save_points is not None:
                await self.save_points()
            try:
                self._truncate(max(offset, self.log_start_offset))
            except OSError as error:
                raise self._fail(error, "cannot truncate") from error

    def _truncate(self, offset: int) -> None:
        files = self.files
        self._cut = True
        self.cuts += 1
        self._positions = None
        while len(self._segments) > 1 and self._bases[-1] >= offset:
            self._segments.pop().unlink(files)
            self._bases.pop()
        self._active = active = self._segments[-1]
        active.open_indexes(files)
        self.windows.drop(active)
        found = active.find(files, offset)
        if found is not None:
            active.truncate(files, found)
            TransactionIndex.truncate(files, active, found.base_offset)
        self.log_end_offset = end = active.last_offset + 1
        if end < self.log_start_offset:
            self._begin_at(self.log_start_offset)  # only what is not served any more was left
            return
        self.recovery_point = min(self.recovery_point, end)
        self.epochs.truncate_end(end)
        remove_snapshots(files, self.directory, above=end)
        complete = self.producers.complete
        self.producers = load_producers(files, self.directory, self._segments, end, self._wall_ms)
        self.producers.complete = complete
        # Synced with its directory: after a crash no segment that was cut off comes back.
        files.write_atomic(f"{self.directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())
        self.epochs.dirty = False

    def _begin_at(self, offset: int) -> None:
        self._cut = True
        self.cuts += 1
        self.first_dirty_offset = 0
        while self._segments:
            self._segments.pop().unlink(self.files)
        remove_snapshots(self.files, self.directory, above=-1)
        self._active = Segment.create(self.files, self.directory, offset, self._wall_ms)
        self._segments.append(self._active)
        self._bases[:] = [offset]
        self._positions = None
        self.epochs.clear()
        self.producers.clear()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.files.write_atomic(f"{self.directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())
        self.epochs.dirty = False

    async def reset_to(self, offset: int, expected_next_offset: int | None = None) -> None:
        """Throw everything away and begin at `offset`. Raises StorageError.

        expected_next_offset: where the log must end still when it is thrown away, else OffsetMismatch.
        """
        async with self._maintenance:
            self._check_online()
            self.recovery_point = self.first_dirty_offset = 0
            if self.save_points is not None:
                await self.save_points()
            end = self.log_end_offset
            if expected_next_offset is not None and expected_next_offset != end:
                raise OffsetMismatch(f"{self.name} ends at offset {end}, not {expected_next_offset}", end)
            try:
                self._begin_at(offset)
            except OSError as error:
                raise self._fail(error, "cannot reset") from error

    # --- At the start -------------------------------------------------------------------------------------------------

    def advance_start(self, offset: int) -> None:
        """Offsets before `offset` are no longer served; their segments go with the next retention."""
        self._check_online()
        if offset > self.log_end_offset:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: the log cannot start at {offset}, it ends at {self.log_end_offset}",
            )
        if offset > self.log_start_offset:
            self.log_start_offset = offset
            self.epochs.truncate_start(offset)
            self._changed()

    async def enforce_retention(self, high_watermark: int, wall_ms: int) -> int:
        """Delete old closed segments below the high watermark; gives how many. An active one that has expired closes.

        By retention.ms and retention.bytes for cleanup.policy delete; below the log start offset for any.
        """
        async with self._maintenance:
            self._check_online()
            self.producers.expire(wall_ms, self.config.producer_id_expiration_ms)
            count = retention.deletable(self, self._segments, high_watermark, wall_ms)
            if not count:
                return 0
            if count == len(self._segments):
                # On disk before the others go, or a crash might leave none that says where the log ends.
                fresh = self._roll(self.log_end_offset, wall_ms)
                try:
                    await self.files.run(noted, self.files, self.directory, fresh.file.sync)
                except OSError as error:
                    raise self._fail(error, "cannot sync") from error
            gone = self._segments[:count]
            del self._segments[:count], self._bases[:count]
            start = self._bases[0]
            self.log_start_offset = max(self.log_start_offset, start)
            self.epochs.truncate_start(self.log_start_offset)
            self._changed()
            try:
                await self.files.run(_remove, self.files, self.directory, gone, start)
            except OSError as error:
                raise self._refuse(error, "cannot delete old segments of") from error
            return count

    # --- Compaction ---------------------------------------------------------------------------------------------------

    async def cleaning_step(self, work: Iterator[int | Replacement]) -> int | Replacement | None:
        """The next step of a round, in the pool; None after the last. Raises StorageError, CorruptBatch."""
        async with self._cleaning:
            self._check_online()
            try:
                return await self.files.run(_next, work)
            except OSError as error:
                raise self._refuse(error, "cannot compact") from error

    async def end_cleaning(self, unfinished: Segment) -> None:
        """Remove what a round that will not go on has written. Raises StorageError."""
        async with self._cleaning:
            if self.failure is None:
                try:
                    await self.files.run(swap.discard, self.files, unfinished)
                except OSError as error:
                    raise self._refuse(error, "cannot remove the rest of a compaction in") from error

    async def replace_segments(self, new: Segment, old: Sequence[Segment], cuts: int) -> bool:
        """Let a cleaned segment take the place of closed ones; False, and nothing done, when the log has changed.

        cuts: what it was when the round began. Raises StorageError; the log is offline when it is not known any more
        which of the two a start will find.
        """
        files = self.files
        async with self._maintenance, self._cleaning:
            self._check_online()
            if cuts != self.cuts or not self._are_closed_neighbours(old):
                return False
            try:
                await files.run(swap.decide, files, new, old)
            except OSError as error:
                try:
                    await files.run(swap.discard, files, new)
                except OSError as second:
                    raise self._fail(second, "cannot undo a compaction in") from error
                raise self._refuse(error, "cannot compact") from error
            number = self._bases.index(old[0].base_offset)  # an append may have rolled meanwhile
            self._segments[number : number + len(old)] = [new]
            self._bases[number : number + len(old)] = [new.base_offset]
            try:
                await files.run(swap.finish, files, new, old)
            except OSError as error:
                raise self._fail(error, "cannot finish a compaction in") from error
            return True

    def _are_closed_neighbours(self, segments: Sequence[Segment]) -> bool:
        number = bisect_left(self._bases, segments[0].base_offset)
        found = self._segments[number : number + len(segments)]
        return len(found) == len(segments) and all(
            a is b and a is not self._active for a, b in zip(found, segments, strict=True)
        )

    def last_records(self) -> dict[int, tuple[int, int]]:
        """Of each producer that is remembered: the last offset of its last data batch (-1: none), and its epoch."""
        return {
            producer_id: (entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for producer_id, entry in self.producers.items()
        }


def _next(work: Iterator[int | Replacement]) -> int | Replacement | None:
    return next(work, None)


def _remove(files: Files, directory: str, segments: list[Segment], start: int) -> None:
    for segment in segments:
        segment.unlink(files)
        if segment is not segments[-1]:
            files.sync_directory(
                directory
            )  # else a power cut may bring it back without the next: a start would see a gap
    remove_snapshots(files, directory, below=start)
