"""The checkpoint files of a data directory. Each has one number for each log.

The cost of a save depends on the number of logs that have changed: the lines of thousands of idle logs are neither
computed nor formatted again. The files and their format are Kafka's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container

from ..disk.errors import StorageError
from ..disk.files import Files
from ..disk.small_files import (
    CHECKPOINT_VERSION,
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    Offsets,
    parse_offsets,
)
from ..log.log import Log

logger = logging.getLogger(__name__)

CHECKPOINTS = (RECOVERY_POINT_CHECKPOINT, LOG_START_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT, CLEANER_CHECKPOINT)

Key = tuple[str, int]  # topic, partition


class CheckpointFile:
    """One file. value: the current entry of a log, None for no entry.

    settled: whether the value can change only after a `note`. If not, the log is asked again at the next save.
    """

    def __init__(
        self,
        files: Files,
        path: str,
        value: Callable[[Key, Log], int | None],
        settled: Callable[[Key, Log], bool] = lambda key, log: True,
    ) -> None:
        self.path = path
        self._files = files
        self._value = value
        self._settled = settled
        self._offsets: Offsets = {}
        self._lines: dict[Key, str] = {}  # the lines of the file, by topic and partition
        self._is_sorted = True
        self._changed: dict[Key, Log] = {}
        self._is_behind = False  # the file lacks changes that are in memory
        self._unsaved: dict[Key, None] = {}  # of which logs

    def __getitem__(self, key: Key) -> int:
        return self._offsets.get(key, 0)

    def get(self, key: Key) -> int | None:
        return self._offsets.get(key)

    def is_saved(self, key: Key, offset: int) -> bool:
        """Whether a log has this entry in the file, as far as is known for certain. None is 0."""
        return key not in self._unsaved and self[key] == offset

    def load(self) -> bool:
        """Read the file; False if it exists and cannot be used. Raises OSError."""
        if not self._files.exists(self.path):
            return True
        try:
            found = parse_offsets(self._files.read(self.path), self.path)
        except CheckpointError as error:
            logger.warning("%s; going on without it", error)
            self._is_behind = True
            return False
        for key, offset in found.items():
            self._put(key, offset)
        return True

    def keep_only(self, keys: Container[Key]) -> bool:
        """Forget all other logs. True if there were any, or if the file could not be used."""
        for key in [key for key in self._offsets if key not in keys]:
            self.forget(key)
        return self._is_behind

    def note(self, key: Key, log: Log) -> None:
        """The value of this log may have changed."""
        self._changed[key] = log

    def forget(self, key: Key) -> None:
        """The log was deleted."""
        self._changed.pop(key, None)
        self._unsaved.pop(key, None)
        if self._offsets.pop(key, None) is not None:
            del self._lines[key]
            self._is_behind = True

    def leave(self, key: Key) -> None:
        """The log is closed and will be opened again: until then its entry stays what it is now."""
        self.take_up()
        self._changed.pop(key, None)

    def take_up(self) -> bool:
        """Get the values of the logs that have changed; True if the file must be written."""
        changed, self._changed = self._changed, {}
        for key, log in changed.items():
            offset = self._value(key, log)
            if offset is None:
                self.forget(key)
            elif self._offsets.get(key) != offset:
                self._put(key, offset)
                self._is_behind = True
                self._unsaved[key] = None
            if not self._settled(key, log):
                self._changed[key] = log
        return self._is_behind

    def _put(self, key: Key, offset: int) -> None:
        self._is_sorted &= key in self._offsets
        self._offsets[key] = offset
        self._lines[key] = f"{key[0]} {key[1]} {offset}"

    def encode(self) -> bytes:
        if not self._is_sorted:
            self._lines = dict(sorted(self._lines.items()))
            self._is_sorted = True
        return "\n".join((CHECKPOINT_VERSION, str(len(self._lines)), *self._lines.values(), "")).encode()

    async def save(self) -> None:
        """Write the file if anything has changed. Must not run twice at once. Raises StorageError."""
        if self.take_up():
            self._is_behind = False
            saving = {key: self._offsets[key] for key in self._unsaved}
            try:
                await self._files.run(self._files.write_atomic, self.path, self.encode())
            except OSError as error:
                self._is_behind = True
                raise StorageError(error, self.path, "cannot save") from error
            for key, offset in saving.items():
                if self.get(key) == offset:
                    self._unsaved.pop(key, None)


class Checkpoints:
    """The four files of a data directory. high_watermark: returns the current one of a log.

    recovery_points: up to where each log is on disk. log_starts: the log start offsets. high_watermarks: up to where
    records are committed. first_dirty_offsets: up to where a compacted log is clean; other logs have no entry.
    """

    def __init__(self, files: Files, data_dir: str, high_watermark: Callable[[Key, Log], int]) -> None:
        def file(name: str, value: Callable[[Key, Log], int | None]) -> CheckpointFile:
            return CheckpointFile(files, f"{data_dir}/{name}", value)

        self._high_watermark = high_watermark
        self.recovery_points = file(RECOVERY_POINT_CHECKPOINT, lambda key, log: log.recovery_point)
        self.log_starts = file(LOG_START_CHECKPOINT, lambda key, log: log.log_start_offset)
        self.high_watermarks = CheckpointFile(
            files, f"{data_dir}/{HIGH_WATERMARK_CHECKPOINT}", high_watermark, self._is_settled
        )
        self.first_dirty_offsets = file(CLEANER_CHECKPOINT, lambda key, log: log.progress.first_dirty_offset or None)
        self._all = self.recovery_points, self.log_starts, self.high_watermarks, self.first_dirty_offsets
        self._saving = asyncio.Lock()

    def _is_settled(self, key: Key, log: Log) -> bool:
        """Whether the high watermark cannot rise before the next append, which calls `note`."""
        log.tail.is_noted = False
        return self._high_watermark(key, log) >= log.log_end_offset

    def load(self) -> bool:
        """Read the files; False if the recovery points cannot be used: all logs need recovery. Raises OSError."""
        usable = {each.path: each.load() for each in self._all}
        return usable[self.recovery_points.path]

    async def keep_only(self, keys: Container[Key]) -> bool:
        """Forget all other logs, on disk too; True if a file was written for that. Raises StorageError."""
        changed = [each for each in self._all if each.keep_only(keys)]
        for each in changed:
            await self._save(each)
        return bool(changed)

    def note(self, key: Key, log: Log) -> None:
        """The offsets of this log may have changed."""
        for each in self._all:
            each.note(key, log)

    def forget(self, key: Key) -> None:
        """The log was deleted."""
        for each in self._all:
            each.forget(key)

    def leave(self, key: Key) -> None:
        """The log is closed and will be opened again: its entries stay what they are now."""
        for each in self._all:
            each.leave(key)

    # The saves write only what has changed, one file at a time. They raise StorageError.

    async def save_recovery_points(self) -> None:
        await self._save(self.recovery_points)

    async def save_log_starts(self) -> None:
        """Call it after records are deleted, so that they stay deleted."""
        await self._save(self.log_starts)

    async def save_high_watermarks(self) -> None:
        await self._save(self.high_watermarks)

    async def save_first_dirty_offsets(self) -> None:
        await self._save(self.first_dirty_offsets)

    async def save_points(self) -> None:
        """Save the points that may lie past a log's new end: call it before a log is cut."""
        await self.save_recovery_points()
        await self.save_first_dirty_offsets()

    async def save(self) -> None:
        """All four."""
        for each in self._all:
            await self._save(each)

    async def _save(self, file: CheckpointFile) -> None:
        async with self._saving:
            await file.save()
