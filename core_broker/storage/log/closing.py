"""The end of logs, of one or of thousands together: what they leave so that the next start need not look through them.

Each writes its indexes, producers and leader epochs into the page cache; all of that is put on disk; then the epochs'
files take the place of the old ones, and the directories are put on disk. Synced one by one, that is five or six
waits for the disk a log. Many logs are synced by two calls for their whole volume, where the system has one that
tells whether it worked.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ....protocol.errors import KafkaError
from ..disk.files import Files
from .epochs import EPOCH_CHECKPOINT
from .segment import SNAPSHOT_SUFFIX, Segment, file_name
from .snapshots import remove_stray_snapshots, write_snapshot
from .syncing import noted, sync_file, sync_name

if TYPE_CHECKING:
    from .upkeep import LogUpkeep

VOLUME_LOGS_MIN = 64  # fewer logs are not worth waiting for what others have written to the volume
LOGS_AT_ONCE = 32  # that one thread deals with before others have their turn


class LogEnd:
    """What one log leaves. Its steps block, so they run in the pool; a log has no more of them after an error."""

    __slots__ = ("_epochs", "_files", "_is_unnamed", "_segments", "error", "log")

    def __init__(self, log: LogUpkeep, segments: Sequence[Segment], is_unnamed: bool) -> None:
        self.log = log
        self.error: OSError | None = None
        self._files = log.files
        self._segments = segments
        self._is_unnamed = is_unnamed
        self._epochs = f"{log.directory}/{EPOCH_CHECKPOINT}" if log.epochs.dirty else None

    @property
    def renames(self) -> bool:
        """Whether `rename` has something to do."""
        return self._epochs is not None

    def write(self) -> None:
        """All of it into the page cache, nothing in place of what a start after a crash would go by."""
        log, files = self.log, self._files
        log.active_segment.file.give_back()  # nobody appends any more: only what lies past the end is cut
        log.active_segment.write_indexes(files)
        write_snapshot(files, log.directory, log.log_end_offset, log.producers)
        remove_stray_snapshots(files, log.directory, self._segments)
        if self._epochs is not None:
            file = files.open(f"{self._epochs}.tmp")
            try:
                if file.size:
                    file.truncate(0)
                file.append([log.epochs.encode()])
            finally:
                file.close()

    def sync(self) -> None:
        """What was written, to the disk: the next start believes the indexes, even after a power cut."""
        log, files = self.log, self._files
        if self._is_unnamed:
            sync_name(files, log.directory)
        for segment in self._segments:
            if not segment.synced:
                segment.sync(files, True)
        if len(log.producers):  # of none, the snapshot's checksum says whether it is there
            sync_file(files, f"{log.directory}/{file_name(log.log_end_offset, SNAPSHOT_SUFFIX)}")
        if self._epochs is not None:
            sync_file(files, f"{self._epochs}.tmp")

    def rename(self) -> None:
        if self._epochs is not None:
            self._files.rename(f"{self._epochs}.tmp", self._epochs)

    def sync_names(self) -> None:
        self._files.sync_directory(self.log.directory)


async def close_logs(
    files: Files,
    logs: Sequence[LogUpkeep],
    sync_volume: Callable[[], bool] = lambda: False,
    volume_logs_min: int = VOLUME_LOGS_MIN,
) -> list[KafkaError]:
    """Sync and write all that makes the next start a clean one; gives the errors of the logs that could not be.

    Logs that are offline, and those that have not changed since a clean stop, are only let go. sync_volume: see
    `Held`; asked when so many logs have something to write.
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
    """One step of all that have had no error, by the pool's threads."""
    sound = [end for end in ends if end.error is None]
    parts = [sound[start : start + LOGS_AT_ONCE] for start in range(0, len(sound), LOGS_AT_ONCE)]
    if len(parts) > 1:
        await asyncio.gather(*(files.run(_some, files, part, step) for part in parts))
    elif parts:
        await files.run(_some, files, sound, step)


def _some(files: Files, ends: Sequence[LogEnd], step: Callable[[LogEnd], None]) -> None:
    for end in ends:
        try:
            noted(files, end.log.directory, step, end)
        except OSError as error:
            end.error = error
