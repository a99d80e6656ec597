"""The keeping half of a log: its state, rolling, syncing, and its end. What takes records away is in cutting.py.

Two locks keep what is awaited apart. `_maintenance` is held by whatever changes which files the log has or what of it
is on disk; `_cleaning` by each step of a compaction, which only adds files beside them. Appends and reads need
neither, they run between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable

from ...protocol.errors import ErrorCode, KafkaError
from . import retention
from .closing import LogEnd, close_logs
from .config import LogConfig
from .epochs import EPOCH_CHECKPOINT
from .errors import StorageError, anew, is_passing, wants_room
from .files import Files
from .reader import LogReader
from .recovery import Loaded, write_snapshot
from .segment import Segment
from .syncing import noted, sync_files

logger = logging.getLogger(__name__)

ROOM_TRIED = "room.tmp"  # one that a crash leaves goes with the next start
NOTHING = bytes(64 << 10)  # what is written there, again and again


class LogUpkeep(LogReader):
    """What a log needs to be kept. `LogCutting` adds what takes records away, `Log` appends."""

    # A dict of more than thirty attributes is no longer one of those whose keys all logs share: 1.2 KB a partition.
    __slots__ = (
        "_as_closed",
        "_cleaning",
        "_cut",
        "_first_dirty_offset",
        "_has_new_names",
        "_is_unnamed",
        "_maintenance",
        "_recovery_point",
        "on_broken",
        "on_change",
        "on_failure",
        "on_roll",
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
        # It is offline and could be opened anew, since only room was missing: somebody sees to that.
        self.on_failure: Callable[[LogUpkeep, StorageError], None] | None = None
        self.on_broken: Callable[[LogUpkeep], None] | None = None  # it is offline until the next start
        self.is_noted = False  # that there were appends: who does what is to do at times takes it back
        self._first_dirty_offset = loaded.first_dirty_offset
        self._cut = False  # a truncation is not on disk yet
        self._is_unnamed = loaded.is_new  # which topic this is of is not on disk yet
        self._has_new_names = loaded.has_new_names  # of files made before this start, that may not be on disk
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

    def _fail(self, error: OSError, doing: str) -> StorageError:
        failure = StorageError(error, self.directory, doing)
        if self.failure is not None:
            return failure
        if self.on_failure is None or not wants_room(failure):
            failure = super()._fail(error, doing)
            if self.on_broken is not None:
                self.on_broken(self)
            return failure
        self.failure = anew(failure)  # the other is raised
        logger.error("%s is offline until there is room: %s", self.name, failure.message)
        self.on_failure(self, failure)
        return failure

    def _shape(self) -> tuple[int, ...]:
        """What changes with every change of the files that a clean stop leaves."""
        return self.log_start_offset, self.log_end_offset, self.cuts, self._bases[0], len(self._bases)

    def next_due_ms(self, high_watermark: int) -> int | None:
        """From when on `enforce_retention` may have something to do, as long as the log does not change."""
        return retention.next_due_ms(self, self._segments, high_watermark)

    @property
    def is_on_disk(self) -> bool:
        """Whether all that was appended is."""
        return self.recovery_point >= self.log_end_offset

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
                active.file.give_back()
                active.write_indexes(self.files)
                write_snapshot(self.files, self.directory, self.log_end_offset, self.producers)
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
        self._positions = None
        if self.on_roll is not None:
            self.on_roll(self)
        return segment

    def _unlink(self, segment: Segment) -> None:
        try:
            segment.unlink(self.files)
        except OSError as error:
            logger.warning("%s: cannot remove %r: %s", self.name, segment, error)

    # --- Sync ---------------------------------------------------------------------------------------------------------

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
        has_closed = any(is_closed for _, is_closed in waiting)
        if target <= self.recovery_point and not (has_closed or self.epochs.dirty or self._cut):
            return
        epochs = self.epochs.encode() if self.epochs.dirty else None
        self.epochs.dirty = False
        if not only_closed:
            self.unsynced_since_ms, self.is_noted = None, False
        named = self.directory if self._is_unnamed else None
        # A sync of the log puts only its own name on disk, not those of indexes and partition.metadata.
        has_new_names = self._has_new_names or self._is_unnamed or has_closed or self._active.has_aborted
        listed = self.directory if has_new_names else None
        try:
            await self.files.run(noted, self.files, self.directory, sync_files, self.files, waiting, named, listed)
        except OSError as error:
            raise self._fail(error, "cannot sync") from error
        self._is_unnamed = self._has_new_names = False
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

    # --- The end ------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Sync and write all that makes the next start a clean one. A log that is offline is only let go.

        Raises StorageError.
        """
        for failure in await close_logs(self.files, [self]):
            raise failure

    @contextlib.asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Nothing is at work in the directory, appends aside, nor will be until this is left."""
        async with self._maintenance, self._cleaning:
            yield

    def end(self) -> LogEnd | None:
        """What is to be written before it is let go; None for nothing. It must be at rest."""
        if self.failure is not None or self._shape() == self._as_closed:
            return None
        return LogEnd(self, self._segments, self._is_unnamed)

    def ended(self, error: OSError | None) -> StorageError | None:
        """What `end` told is on disk, or why it is not; gives what to say of that."""
        if error is not None:
            return self._fail(error, "cannot close")
        self.recovery_point = self.log_end_offset
        return None

    def abandon(self) -> None:
        """Let go of the files as they are. Ranges that are being sent stay readable."""
        if self.failure is None:
            self.failure = KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} is closed")

    async def leave(self) -> None:
        """`abandon`, and wait for what is at work in the directory: from then on nothing touches its files.

        They stay readable for whoever was given a range, when their names go.
        """
        self.abandon()
        async with self.at_rest():
            for segment in self._segments:
                with contextlib.suppress(OSError):
                    segment.file.keep()
        # Others may refer to this log for long, as its own callback for ranges does. Its files are to close as soon as
        # nobody reads them.
        del self._unreadable, self._active
        self._segments.clear()


def _try_room(files: Files, path: str, size_bytes: int) -> None:
    file = files.open(path)
    try:
        count, rest = divmod(size_bytes, len(NOTHING))
        file.append([*[NOTHING] * count, NOTHING[:rest]])
    finally:
        file.close()
        files.unlink(path)
