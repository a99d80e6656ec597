"""The keeping half of a log: rolling, syncing, cutting, retaining, and its end.

Two locks keep what is awaited apart. `_maintenance` is held by whatever changes which files the log has or what of it
is on disk; `_cleaning` by each step of a compaction, which only adds files beside them. Appends and reads need
neither, they run between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from . import retention, swap
from .cleaning import Replacement
from .config import LogConfig
from .epochs import EPOCH_CHECKPOINT
from .errors import StorageError, is_passing
from .files import Files
from .opening import sync_name
from .reader import LogReader
from .recovery import SYNC_FAILED, Loaded, load_producers, remove_snapshots, remove_stray_snapshots
from .segment import SNAPSHOT_SUFFIX, Segment, file_name
from .transactions import TransactionIndex

logger = logging.getLogger(__name__)

ROOM_TRIED = "room.tmp"  # one that a crash leaves goes with the next start
NOTHING = bytes(64 << 10)  # what is written there, again and again


class LogUpkeep(LogReader):
    """What a log needs besides appends and reads; `Log` adds the first."""

    # A dict of more than thirty attributes is no longer one of those whose keys all logs share: 1.2 KB a partition.
    __slots__ = (
        "_as_closed",
        "_cleaning",
        "_cut",
        "_first_dirty_offset",
        "_is_unnamed",
        "_maintenance",
        "_recovery_point",
        "_wall_ms",
        "config",
        "is_noted",
        "on_change",
        "on_roll",
        "producers",
        "recovery_notes",
        "save_points",
        "unsynced_since_ms",
    )

    def __init__(self, files: Files, directory: str, config: LogConfig, loaded: Loaded, wall_ms: int) -> None:
        super().__init__(files, directory, loaded)
        self.config = config
        self._recovery_point = loaded.recovery_point
        self.producers = loaded.producers
        self.recovery_notes = loaded.notes
        self._wall_ms = wall_ms  # of the last append
        self.unsynced_since_ms: int | None = None  # wall time of the first append that no sync has taken up
        self.save_points: Callable[[], Awaitable[None]] | None = None  # recovery point, first dirty offset
        self.on_roll: Callable[[LogUpkeep], None] | None = None  # a segment was closed: `sync_closed` is due
        self.on_change: Callable[[LogUpkeep], None] | None = None  # what is done at times may be to do for this log
        self.is_noted = False  # that there were appends: who does what is to do at times takes it back
        self._first_dirty_offset = loaded.first_dirty_offset
        self._cut = False  # a truncation is not on disk yet
        self._is_unnamed = loaded.is_new  # which topic this is of is not on disk yet
        self._as_closed = self._shape() if loaded.is_closed else None
        self._maintenance = asyncio.Lock()
        self._cleaning = asyncio.Lock()

    # --- State --------------------------------------------------------------------------------------------------------

    @property
    def recovery_point(self) -> int:
        """All before it is on disk."""
        return self._recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self._recovery_point = offset
        self._changed()

    @property
    def first_dirty_offset(self) -> int:
        """All before it has been compacted."""
        return self._first_dirty_offset

    @first_dirty_offset.setter
    def first_dirty_offset(self, offset: int) -> None:
        self._first_dirty_offset = offset
        self._changed()

    def configure(self, config: LogConfig) -> None:
        """Take other options of the topic."""
        self.config = config
        self._changed()

    def _changed(self) -> None:
        """Offsets or options that are looked at now and then are others; appends tell it once in a while."""
        if self.on_change is not None:
            self.on_change(self)

    def _note_append(self, wall_ms: int) -> None:
        """The first append since the last note, or since a sync."""
        self.is_noted = True
        if self.unsynced_since_ms is None:
            self.unsynced_since_ms = wall_ms
        self._changed()

    def _shape(self) -> tuple[int, ...]:
        """What changes with every change of the files that a clean stop leaves."""
        return self.log_end_offset, self.cuts, self._bases[0], len(self._bases)

    def next_due_ms(self, high_watermark: int) -> int | None:
        """From when on `enforce_retention` may have something to do, as long as the log does not change."""
        return retention.next_due_ms(self, self._segments, high_watermark)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments_count(self) -> int:
        return len(self._segments)

    @property
    def active_segment(self) -> Segment:
        """The one that is appended to."""
        return self._active

    def closed_segments(self) -> list[Segment]:
        """All but the active one, oldest first."""
        return self._segments[:-1]

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch, or that was assigned since; -1 in an empty log."""
        return self.epochs.latest

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the earliest transaction that is still open begins."""
        return self.producers.first_unstable_offset

    @property
    def needs_flush(self) -> bool:
        """Whether flush.messages asks for a `sync` before what was appended counts as written."""
        return self.log_end_offset - self.recovery_point >= self.config.flush_messages

    # --- Segments -----------------------------------------------------------------------------------------------------

    def _roll(self, base_offset: int, wall_ms: int) -> Segment:
        """Close the active segment and begin one at `base_offset`. Raises StorageError, and nothing has changed."""
        active = self._active
        try:
            if active.size_bytes:
                active.write_indexes(self.files)
                self._write_snapshot()
            segment = Segment.create(self.files, self.directory, base_offset, wall_ms)
        except OSError as error:
            raise self._refuse(error, "cannot roll to a new segment in") from error
        if active.size_bytes:
            active.offsets = active.times = None
        elif base_offset != active.base_offset:
            # Empty, and offsets from its base on do not reach `base_offset`: an append after a very long hole.
            del self._segments[-1], self._bases[-1]
            if not self._segments:
                self.log_start_offset = base_offset
                self._changed()
            self._unlink(active)
        self._segments.append(segment)
        self._bases.append(base_offset)
        self._active = segment
        self._positions.clear()
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _write_snapshot(self, sync: bool = False) -> None:
        """Producer state at the log's end, into the page cache: its CRC tells whether it survived."""
        path = f"{self.directory}/{file_name(self.log_end_offset, SNAPSHOT_SUFFIX)}"
        file = self.files.open(path)
        try:
            if file.size:
                file.truncate(0)
            file.append([self.producers.encode()])
            if sync:
                file.sync()
        finally:
            file.close()

    def _unlink(self, segment: Segment) -> None:
        try:
            segment.unlink(self.files)
        except OSError as error:
            logger.warning("%s: cannot remove %r: %s", self.name, segment, error)

    # --- Sync, cut, retain --------------------------------------------------------------------------------------------

    async def sync(self) -> None:
        """Put all that is appended now on disk. Raises StorageError, and then the log is offline."""
        async with self._maintenance:
            self._check_online()
            await self._sync(False)

    async def sync_closed(self) -> None:
        """Put all segments but the active one on disk, so that a start after a crash has no more than that one to read.

        Raises StorageError, and then the log is offline.
        """
        async with self._maintenance:
            self._check_online()
            await self._sync(True)

    async def _sync(self, only_closed: bool) -> None:
        target = self._active.base_offset if only_closed else self.log_end_offset
        waiting = []
        for segment in reversed(self._segments):
            if segment.synced:
                break
            if segment is not self._active or not only_closed:
                waiting.append((segment, segment is not self._active))
        if target <= self.recovery_point and len(waiting) <= 1 and not self.epochs.dirty and not self._cut:
            return
        epochs = self.epochs.encode() if self.epochs.dirty else None
        self.epochs.dirty = False
        if not only_closed:
            self.unsynced_since_ms, self.is_noted = None, False
        named = self.directory if self._is_unnamed else None
        try:
            await self.files.run(_noted, self.files, self.directory, _sync_files, self.files, waiting, named)
        except OSError as error:
            raise self._fail(error, "cannot sync") from error
        self._is_unnamed = False
        if not only_closed:
            self._cut = False
        if epochs is not None:
            try:
                await self.files.run(self.files.write_atomic, f"{self.directory}/{EPOCH_CHECKPOINT}", epochs)
            except OSError as error:
                # The data is on disk. What this file lacks a recovery finds in the log, from the old recovery point on.
                self.epochs.dirty = True
                if not is_passing(error):
                    raise self._fail(error, "cannot write leader epochs to") from error
                logger.warning("%s", StorageError(error, self.directory, "cannot write leader epochs to").message)
                return
        for segment, is_closed in waiting:
            segment.synced = is_closed
        self.recovery_point = max(self.recovery_point, target)

    async def try_room(self, size_bytes: int) -> None:
        """Write so many bytes beside the log and remove them. Raises StorageError while there is no room for them."""
        async with self._maintenance:
            self._check_online()
            try:
                await self.files.run(_try_room, self.files, f"{self.directory}/{ROOM_TRIED}", size_bytes)
            except OSError as error:
                raise self._refuse(error, "cannot write in") from error

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
        self._positions.clear()
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
        self._positions.clear()
        self.epochs.clear()
        self.producers.clear()
        self.log_start_offset = self.log_end_offset = self.recovery_point = offset
        self.files.write_atomic(f"{self.directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())
        self.epochs.dirty = False

    async def reset_to(self, offset: int) -> None:
        """Throw everything away and begin at `offset`."""
        async with self._maintenance:
            self._check_online()
            self.recovery_point = self.first_dirty_offset = 0
            if self.save_points is not None:
                await self.save_points()
            try:
                self._begin_at(offset)
            except OSError as error:
                raise self._fail(error, "cannot reset") from error

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
                    await self.files.run(_noted, self.files, self.directory, fresh.file.sync)
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

    # --- The end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Sync and write all that makes the next start a clean one. A log that is offline is only let go."""
        async with self._maintenance, self._cleaning:
            if self.failure is None and self._shape() != self._as_closed:
                try:
                    await self.files.run(_noted, self.files, self.directory, self._finish)
                except OSError as error:
                    raise self._fail(error, "cannot close") from error
                self.recovery_point = self.log_end_offset
            self.abandon()

    def _finish(self) -> None:
        """All of `close` that touches files, in one go: thousands of logs end together."""
        active, files = self._active, self.files
        active.write_indexes(files)
        waiting = [(segment, True) for segment in reversed(self._segments) if not segment.synced]
        # The next start believes the indexes, even after a power cut.
        _sync_files(files, waiting, self.directory if self._is_unnamed else None)
        self._write_snapshot(sync=len(self.producers) > 0)
        remove_stray_snapshots(files, self.directory, self._segments)
        if self.epochs.dirty:
            files.write_atomic(f"{self.directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())  # and its directory
        else:
            files.sync_directory(self.directory)

    def abandon(self) -> None:
        """Let go of the files as they are. Ranges that are being sent stay readable."""
        if self.failure is None:
            self.failure = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is closed")

    async def leave(self) -> None:
        """`abandon`, and wait for what is at work in the directory: from then on nothing touches its files.

        They stay readable for whoever was given a range, when their names go.
        """
        self.abandon()
        async with self._maintenance, self._cleaning:
            for segment in self._segments:
                with contextlib.suppress(OSError):
                    segment.file.keep()
        # Others may refer to this log for long, as its own callback for ranges does. Its files are to close as soon as
        # nobody reads them.
        del self._unreadable, self._active
        self._segments.clear()


def _next(work: Iterator[int | Replacement]) -> int | Replacement | None:
    return next(work, None)


def _noted(files: Files, directory: str, work: Callable[..., None], *arguments: Any) -> None:
    """In the pool: `work`, which syncs; where it fails, a note of that for the next start. Raises OSError.

    The system may take what it could not write for written: then the page cache shows what the disk will never have,
    and further syncs say that all is well. A process that starts again would believe it (see recovery.py). The note is
    written at once, since the process may be killed, and into the page cache: it lasts as long as what it warns of.
    """
    try:
        work(*arguments)
    except OSError as error:
        failure = StorageError(error, directory, "cannot sync")
        path = f"{directory}/{SYNC_FAILED}"
        try:
            file = files.open(path)
            try:
                file.truncate(0)
                file.append([failure.message.encode()])
            finally:
                file.close()
        except OSError as second:
            logger.error(
                "%s; %s; unless the machine is started again, a broker that is may serve what the disk does not have",
                failure.message,
                StorageError(second, path, "cannot write").message,
            )
        raise


def _try_room(files: Files, path: str, size_bytes: int) -> None:
    file = files.open(path)
    try:
        count, rest = divmod(size_bytes, len(NOTHING))
        file.append([*[NOTHING] * count, NOTHING[:rest]])
    finally:
        file.close()
        files.unlink(path)


def _sync_files(files: Files, waiting: list[tuple[Segment, bool]], named: str | None) -> None:
    if named is not None:
        sync_name(files, named)
    for segment, is_closed in reversed(waiting):
        segment.sync(files, is_closed)


def _remove(files: Files, directory: str, segments: list[Segment], start: int) -> None:
    for segment in segments:
        segment.unlink(files)
    remove_snapshots(files, directory, below=start)
