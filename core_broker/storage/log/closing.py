"""Closes one log, or thousands together, so that the next start need not read them.

Each log writes its indexes, producers and leader epochs into the page cache, and all of that is synced. Then the new
epoch files replace the old ones, and the directories are synced. If each log were synced on its own, that would be five
or six waits for the disk per log. Many logs are synced by two calls for their whole volume, if the operating system has
a call that reports whether it worked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Protocol

from ....protocol.errors import KafkaError
from ..disk.files import Files
from ._ranges import LogRanges
from .epochs import EPOCH_CHECKPOINT
from .file_names import SNAPSHOT_SUFFIX, file_name
from .snapshots import remove_stray_snapshots, write_snapshot
from .syncing import sync_file, sync_name, with_note

VOLUME_LOGS_MIN = 64  # for fewer logs, a sync of the whole volume is not worth it
LOGS_AT_ONCE = 32  # handled by one thread in one call


class Closable(Protocol):
    """What `close_logs` needs of a log."""

    def at_rest(self) -> contextlib.AbstractAsyncContextManager[None]:
        """While inside, no work runs in the directory, except appends."""

    def end(self) -> LogEnd | None:
        """What must be written before the log is closed; None for nothing. The log must be at rest."""

    def ended(self, error: OSError | None) -> KafkaError | None:
        """The result of `end` is on disk, or failed with this error. Returns the error to report."""

    def abandon(self) -> None:
        """Close the log. Ranges that are being sent stay readable."""


class LogEnd:
    """What one log writes when it closes. The steps block, so they run in the pool; after an error no step follows."""

    __slots__ = ("_epochs", "_is_unnamed", "_ranges", "error", "log")

    def __init__(self, log: Closable, ranges: LogRanges, is_unnamed: bool) -> None:
        self.log = log
        self.error: OSError | None = None
        self._ranges = ranges
        self._is_unnamed = is_unnamed
        self._epochs = f"{self.directory}/{EPOCH_CHECKPOINT}" if ranges.tail.epochs.dirty else None

    @property
    def directory(self) -> str:
        """The log's directory."""
        return self._ranges.status.directory

    @property
    def renames(self) -> bool:
        """Whether `rename` has anything to do."""
        return self._epochs is not None

    def write(self) -> None:
        """Write all files into the page cache. Files that a start after a crash would read are not replaced yet."""
        tail, files = self._ranges.tail, self._ranges.files
        tail.active.file.give_back()  # no append follows
        tail.active.write_indexes(files)
        write_snapshot(files, self.directory, tail.log_end_offset, tail.producers)
        remove_stray_snapshots(files, self.directory, self._ranges.segments)
        if self._epochs is not None:
            file = files.open(f"{self._epochs}.tmp")
            try:
                if file.size:
                    file.truncate(0)
                file.append([tail.epochs.encode()])
            finally:
                file.close()

    def sync(self) -> None:
        """Sync what was written: the next start trusts the indexes, even after a power cut."""
        tail, files = self._ranges.tail, self._ranges.files
        if self._is_unnamed:
            sync_name(files, self.directory)
        for segment in self._ranges.segments:
            if not segment.synced:
                segment.sync(files, True)
        if len(tail.producers):  # an empty snapshot need not be synced: its checksum shows whether it is whole
            sync_file(files, f"{self.directory}/{file_name(tail.log_end_offset, SNAPSHOT_SUFFIX)}")
        if self._epochs is not None:
            sync_file(files, f"{self._epochs}.tmp")

    def rename(self) -> None:
        if self._epochs is not None:
            self._ranges.files.rename(f"{self._epochs}.tmp", self._epochs)

    def sync_names(self) -> None:
        self._ranges.files.sync_directory(self.directory)


async def close_logs(
    files: Files,
    logs: Sequence[Closable],
    sync_volume: Callable[[], bool] = lambda: False,
    volume_logs_min: int = VOLUME_LOGS_MIN,
) -> list[KafkaError]:
    """Close logs: write and sync all that makes the next start a clean one. Returns the errors of those that failed.

    Nothing is written for logs that are offline, or that have not changed since a clean shutdown. sync_volume: see
    `Held`; used if at least `volume_logs_min` logs have something to write.
    """
    async with contextlib.AsyncExitStack() as stack:
        for log in logs:
            await stack.enter_async_context(log.at_rest())
        ends = [end for log in logs if (end := log.end()) is not None]
        await _each(files, ends, LogEnd.write)
        at_once = len(ends) >= volume_logs_min and await files.run(sync_volume)
        if not at_once:
            await _each(files, ends, LogEnd.sync)
        renaming = [end for end in ends if end.renames]
        await _each(files, renaming, LogEnd.rename)
        if not at_once or (renaming and not await files.run(sync_volume)):
            await _each(files, ends, LogEnd.sync_names)
        failures = [end.log.ended(end.error) for end in ends]
        for log in logs:
            log.abandon()
    return [failure for failure in failures if failure is not None]


async def _each(files: Files, ends: Sequence[LogEnd], step: Callable[[LogEnd], None]) -> None:
    """Run one step, in the pool, for all logs that have had no error."""
    sound = [end for end in ends if end.error is None]
    parts = [sound[start : start + LOGS_AT_ONCE] for start in range(0, len(sound), LOGS_AT_ONCE)]
    if len(parts) > 1:
        await asyncio.gather(*(files.run(_some, files, part, step) for part in parts))
    elif parts:
        await files.run(_some, files, sound, step)


def _some(files: Files, ends: Sequence[LogEnd], step: Callable[[LogEnd], None]) -> None:
    for end in ends:
        try:
            with_note(files, end.directory, step, end)
        except OSError as error:
            end.error = error
