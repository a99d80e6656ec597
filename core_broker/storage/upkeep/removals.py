"""Directories of deleted partitions, whose files go in the background: later, in bounded pieces, one at a time.

A deletion is over for everybody else when a directory has its `-delete` name on disk. What is left of it is removed
when `log.segment.delete.delay.ms` has passed, as in Kafka; a stop leaves the rest to the next start, which finds it by
the name and waits for the whole delay again.
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

PIECE_FILES = 64  # that one call of the pool removes, before syncs have their turn
PIECE_DIRECTORIES = 16  # that it looks into


class Removals:
    """See the module."""

    def __init__(self, files: Files, delay_ms: int) -> None:
        self._files = files
        self._delay_ms = delay_ms
        self._waiting: deque[tuple[float, str]] = deque()  # when they were added, by the loop's time
        self._pauses = Pauses()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """Directories that are still there."""
        return len(self._waiting)

    @property
    def delay_ms(self) -> int:
        """How long a directory stays, those that wait already too."""
        return self._delay_ms

    @delay_ms.setter
    def delay_ms(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        self._pauses.wake()

    def add(self, directory: str) -> None:
        """It belongs to no partition any more, and its `-delete` name is on disk."""
        self._waiting.append((asyncio.get_running_loop().time(), directory))
        self._pauses.wake()

    def start(self, name: str) -> None:
        """Begin; ends with `stop`."""
        self._task = asyncio.get_running_loop().create_task(self._work(), name=f"removals in {name}")

    async def stop(self) -> None:
        """After the piece at hand; what is left stays for the next start."""
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
        """The next few whose time has come, in the order of their coming."""
        due: list[str] = []
        for added_s, directory in self._waiting:
            if added_s + self._delay_ms / 1000 > now_s or len(due) == PIECE_DIRECTORIES:
                break
            due.append(directory)
        return due


def remove_piece(files: Files, directories: Sequence[str]) -> tuple[int, list[StorageError]]:
    """Remove directories, no more of them than have PIECE_FILES files together, or as many files of the first.

    Gives how many are done with, and why some of these cannot be removed.
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
    """Directories, if they are there, to other names; the new names, and the errors of those that cannot be."""
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
