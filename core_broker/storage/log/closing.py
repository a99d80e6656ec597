"""The end of logs, of one or of thousands together: what they leave so that the next start need not look through them.

Each writes its indexes, producers and leader epochs into the page cache; all of that is put on disk; then the epochs'
files take the place of the old ones, and the directories are put on disk. Synced one by one, that is five or six
waits for the disk a log. Many logs are synced by two calls for their whole volume, where the system has a call that
reports whether it worked.
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

VOLUME_LOGS_MIN = 64  # fewer logs are not worth waiting for what others have written to the volume
LOGS_AT_ONCE = 32  # that one thread deals with before others have their turn


class Closable(Protocol):
    """What a log is to `close_logs`."""

    def at_rest(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Nothing is at work in the directory, appends aside, nor will be until this is left."""

    def end(self) -> LogEnd | None:
        """What is to be written before it is closed; None for nothing. It must be at rest."""

    def ended(self, error: OSError | None) -> KafkaError | None:
        """What `end` gave is on disk, or why it is not; gives the error to report."""

    def abandon(self) -> None:
        """Close it. Ranges that are being sent stay readable."""


class LogEnd:
    """What one log leaves. Its steps block, so they run in the pool; after an error no other step follows."""

    __slots__ = ("_epochs", "_is_unnamed", "_ranges", "error", "log")

    def __init__(self, log: Closable, ranges: LogRanges, is_unnamed: bool) -> None:
        self.log = log
        self.error: OSError | None = None
        self._ranges = ranges
        self._is_unnamed = is_unnamed
        self._epochs = f"{self.directory}/{EPOCH_CHECKPOINT}" if ranges.tail.epochs.dirty else None

    @property
    def directory(self) -> str:
        """Of the log."""
        return self._ranges.status.directory

    @property
    def renames(self) -> bool:
        """Whether `rename` has something to do."""
        return self._epochs is not None

    def write(self) -> None:
        """All of it into the page cache, nothing in place of what a start after a crash would read."""
        tail, files = self._ranges.tail, self._ranges.files
        tail.active.file.give_back()  # no appends follow: only what lies past the end is cut
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
        """What was written, to the disk: the next start believes the indexes, even after a power cut."""
        tail, files = self._ranges.tail, self._ranges.files
        if self._is_unnamed:
            sync_name(files, self.directory)
        for segment in self._ranges.segments:
            if not segment.synced:
                segment.sync(files, True)
        if len(tail.producers):  # of an empty snapshot the checksum tells whether it is whole
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
    """Close logs: sync and write all that makes the next start a clean one. Gives the errors of those that failed.

    Of logs that are offline, and of those that have not changed since a clean stop, nothing is written. sync_volume:
    see `Held`; used when at least `volume_logs_min` logs have something to write.
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
    """One step of all that have had no error, in the pool."""
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
