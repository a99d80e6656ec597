"""Syncs a log, and leaves a note for the next start if that fails.

The functions block: they run in the pool, by `Files.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..disk.errors import StorageError, is_passing
from ..disk.files import Files
from ..disk.small_files import PARTITION_METADATA
from ._ranges import LogRanges
from ._segment import Segment
from .epochs import EPOCH_CHECKPOINT
from .progress import LogLocks, LogProgress

logger = logging.getLogger(__name__)

SYNC_FAILED = "sync-failed"
SPACE_TRIED = "space.tmp"  # a start removes the file if a crash has left it
NOTHING = bytes(64 << 10)  # written to it repeatedly


class LogSync:
    """Syncs one log."""

    __slots__ = ("_locks", "_progress", "_ranges")

    def __init__(self, ranges: LogRanges, progress: LogProgress, locks: LogLocks) -> None:
        self._ranges = ranges
        self._progress = progress
        self._locks = locks

    async def sync(self) -> None:
        """Sync all that has been appended. Raises StorageError; the log is offline then."""
        async with self._locks.maintenance:
            self._ranges.status.check_online()
            await self._sync(False)

    async def sync_closed(self) -> None:
        """Sync all segments but the active one, so that a start after a crash reads only the active one.

        Raises StorageError; the log is offline then.
        """
        async with self._locks.maintenance:
            self._ranges.status.check_online()
            await self._sync(True)

    async def _sync(self, only_closed: bool) -> None:
        progress, status, files = self._progress, self._ranges.status, self._ranges.files
        tail, directory = self._ranges.tail, self._ranges.status.directory
        epochs = tail.epochs
        target = tail.active.base_offset if only_closed else tail.log_end_offset
        waiting = []
        for segment in reversed(self._ranges.segments):
            if segment.synced:
                break
            if segment is not tail.active or not only_closed:
                waiting.append((segment, segment is not tail.active))
        has_closed = any(is_closed for _, is_closed in waiting)
        if target <= progress.recovery_point and not (has_closed or epochs.dirty or progress.is_cut):
            return
        encoded = epochs.encode() if epochs.dirty else None
        epochs.dirty = False
        if not only_closed:
            progress.unsynced_since_ms, tail.is_noted = None, False
        named = directory if progress.is_unnamed else None
        # A sync of the log file puts only that name on disk, not those of indexes and partition.metadata.
        has_new_names = progress.has_new_names or progress.is_unnamed or has_closed or tail.active.has_aborted
        listed = directory if has_new_names else None
        try:
            await files.run(with_note, files, directory, sync_files, files, waiting, named, listed)
        except OSError as error:
            raise status.fail(error, "cannot sync") from error
        progress.is_unnamed = progress.has_new_names = False
        if not only_closed:
            progress.is_cut = False
        if encoded is not None:
            try:
                await files.run(files.write_atomic, f"{directory}/{EPOCH_CHECKPOINT}", encoded)
            except OSError as error:
                # The data is on disk. A recovery reads what this file lacks from the log, after the old recovery point.
                epochs.dirty = True
                if not is_passing(error):
                    raise status.fail(error, "cannot write leader epochs to") from error
                logger.warning("%s", StorageError(error, directory, "cannot write leader epochs to").message)
                return
        for segment, is_closed in waiting:
            segment.synced = is_closed
        progress.recovery_point = max(progress.recovery_point, target)

    async def try_space(self, size_bytes: int) -> None:
        """Write this many bytes beside the log and remove them. Raises StorageError if there is no space for them."""
        status, files = self._ranges.status, self._ranges.files
        async with self._locks.maintenance:
            status.check_online()
            try:
                await files.run(_try_space, files, f"{status.directory}/{SPACE_TRIED}", size_bytes)
            except OSError as error:
                raise status.refuse(error, "cannot write in") from error


def with_note(files: Files, directory: str, work: Callable[..., None], *arguments: Any) -> None:
    """Call `work`, which syncs. If it fails, leave a note for the next start. Raises OSError.

    The operating system may treat pages that it could not write as written: the page cache then shows what the disk
    will never have, and later syncs succeed. A new process would trust the page cache (see recovery.py). The note is
    written at once, since the process may be killed, and only into the page cache: it lasts as long as those pages.
    """
    try:
        work(*arguments)
    except OSError as error:
        failure = StorageError(error, directory, "cannot sync")
        try:
            write_note(files, directory, failure.message)
        except OSError as second:
            logger.error(
                "%s; %s; unless the machine is started again, a start may serve what the disk does not have",
                failure.message,
                StorageError(second, f"{directory}/{SYNC_FAILED}", "cannot write").message,
            )
        raise


def write_note(files: Files, directory: str, reason: str) -> None:
    """Have the next start write a copy of what may not be on disk. Raises OSError."""
    file = files.open(f"{directory}/{SYNC_FAILED}")
    try:
        file.truncate(0)
        file.append([reason.encode()])
    finally:
        file.close()


def sync_files(
    files: Files, waiting: list[tuple[Segment, bool]], named: str | None = None, listed: str | None = None
) -> None:
    """Sync segments, oldest first; each comes with whether it is closed.

    named: a directory whose partition.metadata is synced first. listed: a directory whose names are synced last.
    """
    if named is not None:
        sync_name(files, named)
    for segment, is_closed in reversed(waiting):
        segment.sync(files, is_closed)
    if listed is not None:
        files.sync_directory(listed)


def sync_name(files: Files, directory: str) -> None:
    """Sync the file with the directory's topic id. Raises OSError."""
    sync_file(files, f"{directory}/{PARTITION_METADATA}")


def sync_file(files: Files, path: str) -> None:
    """Sync a file, but not its name. Raises OSError."""
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()


def _try_space(files: Files, path: str, size_bytes: int) -> None:
    file = files.open(path)
    try:
        count, rest = divmod(size_bytes, len(NOTHING))
        file.append([*[NOTHING] * count, NOTHING[:rest]])
    finally:
        file.close()
        files.unlink(path)
