"""Brings bytes that are about to be sent into the page cache, off the loop, and stays ahead of who reads on.

A send of what the page cache does not have waits for the disk, and with it the loop and all other clients. So a sender
asks here first, which costs a system call for a quarter of a megabyte, and what is cold is brought by the pool for
reads. Once a reader of a file was cold, what follows is asked for before it gets there: from then on most of its sends
find their bytes. Who reads what is cached starts nothing of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from weakref import WeakKeyDictionary

from .files import File, Files

PIECE_BYTES = 1024 * 1024  # looked at, and waited for, at a time
AHEAD_BYTES = 4 * 1024 * 1024  # asked for beyond what a cold reader waits for

Done = Callable[[OSError | None], None]


class ReadAhead:
    """One for a broker. At most `ahead_bytes` of a file are on their way for nobody yet."""

    def __init__(self, files: Files, ahead_bytes: int = AHEAD_BYTES) -> None:
        self._files = files
        self._step = max(ahead_bytes // 2, 1)
        self._asked: WeakKeyDictionary[File, int] = WeakKeyDictionary()  # up to where, of files with a cold reader
        self._tasks: dict[asyncio.Task[None], None] = {}

    def is_ready(self, file: File, position: int, n: int) -> bool:
        """Whether n bytes can be sent without waiting for the disk; what a cold reader wants next is asked for."""
        if not file.is_cached(position, n):
            return False
        if self._asked:
            asked = self._asked.get(file)
            if asked is not None and asked - self._step <= position + n and position < asked:
                self._go_on(file, asked)
        return True

    def bring(self, file: File, position: int, n: int, done: Done) -> None:
        """Call `done(None)` when n bytes can be sent, or `done(error)` when the disk refuses to read them."""
        end = position + n + 2 * self._step
        self._asked[file] = end
        self._spawn(self._bring(file, position, n, end, done), f"cold read of {file.path}")

    def _go_on(self, file: File, asked: int) -> None:
        if asked >= file.size or file.is_cached(asked, 1):
            del self._asked[file]  # the reader has caught up with what is cached
            return
        self._asked[file] = end = asked + self._step
        self._spawn(self._bring(file, asked, 0, end, _nobody_waits), f"read ahead of {file.path}")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _bring(self, file: File, position: int, n: int, end: int, done: Done) -> None:
        try:
            await self._files.run_read(file.read_ahead, position, n, end)
        except OSError as error:
            self._asked.pop(file, None)
            done(error)
        else:
            done(None)


def _nobody_waits(error: OSError | None) -> None:
    """What was read ahead in vain is read again by who needs it, who is told then."""
