"""Removes the directories of deleted partitions in the background: later, in bounded pieces, one at a time.

A deletion is complete for everybody else when the directory's new name, with `-delete`, is on disk. Its files are
removed when `log.segment.delete.delay.ms` has passed, as in Kafka. A stop leaves the rest to the next start, which
recognizes the name and waits for the whole delay again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Sequence

from ...pauses import Pauses
from ..disk.errors import StorageError
from ..disk.files import Files

logger = logging.getLogger(__name__)

PIECE_FILES = 64  # removed by one call of the pool, so that syncs do not wait long
PIECE_DIRECTORIES = 16  # looked into by one call


class Removals:
    """The directories that are to be removed."""

    def __init__(self, files: Files, delay_ms: int) -> None:
        self._files = files
        self._delay_ms = delay_ms
        self._waiting: deque[tuple[float, str]] = deque()  # (when it was added, by the loop's clock; directory)
        self._pauses = Pauses()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many directories still exist."""
        return len(self._waiting)

    @property
    def delay_ms(self) -> int:
        """How long a directory is kept; applies to those that wait already, too."""
        return self._delay_ms

    @delay_ms.setter
    def delay_ms(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._pauses.wake()

    def add(self, directory: str) -> None:
        """Add a directory that belongs to no partition any more. Its `-delete` name must be on disk."""
        self._waiting.append((asyncio.get_running_loop().time(), directory))
        self._pauses.wake()

    def start(self, name: str) -> None:
        """Begin to remove directories; `stop` ends it."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"removals in {name}")

    async def stop(self) -> None:
        """End after the current piece. The rest stays for the next start."""
        self._pauses.stop()
        if self._task is not None:
            await asyncio.wait([self._task])
            self._task = None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while not self._pauses.is_stopping:
            due = self._due(loop.time())
            if due:
                count, failures = await self._files.run(remove_piece, self._files, due)
                for failure in failures:
                    logger.error("%s; the next start tries again", failure.message)
                for _ in range(count):
                    self._waiting.popleft()
                continue
            wait_s = self._waiting[0][0] + self._delay_ms / 1000 - loop.time() if self._waiting else None
            await self._pauses.pause(wait_s)

    def _due(self, now_s: float) -> list[str]:
        """The next few directories whose delay has passed, oldest first."""
        due: list[str] = []
        for added_s, directory in self._waiting:
            if added_s + self._delay_ms / 1000 > now_s or len(due) == PIECE_DIRECTORIES:
                break
            due.append(directory)
        return due


def remove_piece(files: Files, directories: Sequence[str]) -> tuple[int, list[StorageError]]:
    """Remove the first directories, as many as have at most PIECE_FILES files together, or part of the first one.

    Returns how many directories are finished, and the errors of those that cannot be removed.
    """
    files_left = PIECE_FILES
    failures: list[StorageError] = []
    for number, directory in enumerate(directories):
        try:
            names = files.listdir(directory)
            if len(names) <= files_left:
                files.rmtree(directory)
                files_left -= len(names)
                continue
            if number == 0:
                for name in names[:files_left]:
                    files.unlink(f"{directory}/{name}")
            return number, failures
        except OSError as error:
            failures.append(StorageError(error, directory, "cannot delete"))
    return len(directories), failures


def rename_all(files: Files, names: Iterable[tuple[str, str]]) -> tuple[list[str], list[StorageError]]:
    """Rename directories that exist. Returns the new names, and the errors of those that cannot be renamed."""
    renamed: list[str] = []
    failures: list[StorageError] = []
    for directory, name in names:
        try:
            if files.exists(directory):
                files.rename(directory, name)
                renamed.append(name)
        except OSError as error:
            failures.append(StorageError(error, directory, "cannot delete"))
    return renamed, failures
