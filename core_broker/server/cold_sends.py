"""Sends what the page cache does not have, by a pool, so that the loop and all other clients do not wait for the disk.

A sender asks before each piece of a range, which costs some system calls a megabyte. A cold piece, and what follows it
as its reader goes on, is sent by a thread of the pool, straight from the file to the socket. The system reads ahead
there, as for any reader in order. It also sees that each page is used once, and does not keep pages of old segments in
the place of others. When the reader has caught up with what is cached, the loop sends again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
from collections.abc import Callable
from weakref import WeakKeyDictionary

from ..storage.disk.files import Descriptor, File, Files

PIECE_BYTES = 1024 * 1024  # asked for and sent at a time
FEW = 16  # one page in so many may be missing from what counts as cached
AHEAD_BYTES = 64 * 1024 * 1024  # of what follows: if it is cached, the reader has caught up
READ_AHEAD_BYTES = AHEAD_BYTES // 2  # more than systems read ahead by themselves: what else is cached was so before
READERS_MAX = 16  # of one file that are remembered; for the others each piece is looked up
WAIT_MS = 5  # a thread waits for a full socket, ...
WAITS_MAX = 16  # ... and so many times for one piece; then the loop waits

Done = Callable[[int, bytes, Exception | None], None]

log = logging.getLogger(__name__)


class ColdSends:
    """One for a broker. At most as many sends are at work as the pool for reads has threads."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._next: WeakKeyDictionary[File, list[int]] = WeakKeyDictionary()  # where the cold readers of a file go on
        self._has_readers = False  # False while there are none, since to ask a WeakKeyDictionary costs more
        self._tasks: dict[asyncio.Task[None], None] = {}

    def is_cold(self, file: File, position: int, n: int) -> bool:
        """Whether a send of n bytes may have to wait for the disk.

        A few missing pages do not count. Some systems drop single pages of files that are read all the time, and a wait
        for those costs all clients less than a send by the pool.
        """
        if self._has_readers and any(_is_near(position, each) for each in self._next.get(file, ())):
            return True
        return not file.is_cached(position, n, n // FEW)

    def send(self, file: File, fd: int, position: int, n: int, done: Done) -> None:
        """Send up to n bytes of a file to a socket, close its fd and call `done(sent, b"", error)`.

        With fd -1 they are only read: `done(0, data, error)`.
        """
        task = asyncio.get_running_loop().create_task(
            self._send(file, fd, position, n, done), name=f"cold send of {file.path}"
        )
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)

    async def _send(self, file: File, fd: int, position: int, n: int, done: Done) -> None:
        sent, data, has_caught_up = 0, b"", False
        error: Exception | None = None
        try:
            sent, data, has_caught_up = await self._files.run_read(_send, file, fd, position, n)
        except OSError as refused:
            error = refused
        except Exception as unforeseen:  # so that the connection is closed now, not by its timeout
            log.error("cold send of %s at %d", file.path, position, exc_info=unforeseen)
            error = unforeseen
        readers = [each for each in self._next.get(file, ()) if not _is_near(position, each)]
        if error is None and not has_caught_up:
            readers = [*readers[1 - READERS_MAX :], position + sent + len(data)]
        if readers:
            self._next[file] = readers
        else:
            self._next.pop(file, None)
        self._has_readers = len(self._next) > 0
        done(sent, data, error)


def _is_near(position: int, expected: int) -> bool:
    """Whether a piece at a position may be what a cold reader wants next.

    A fetch begins with the batch that did not fit into the one before.
    """
    return abs(position - expected) <= PIECE_BYTES


def _send(file: File, fd: int, position: int, n: int) -> tuple[int, bytes, bool]:
    """How many bytes were sent, the bytes that were read, and whether the reader has caught up. Runs in the pool.

    fd is closed here, since the task that asked may have been cancelled meanwhile.
    """
    sent, data = 0, b""
    try:
        held = file.hold() if fd >= 0 else None
        if held is None:
            data = file.pread(n, position)
        else:
            sent = _send_file(fd, held, position, n)
    finally:
        if fd >= 0:
            os.close(fd)
    end = position + sent + len(data)
    ahead = min(AHEAD_BYTES, file.size - end)
    return sent, data, file.is_cached(end, ahead, max(ahead - READ_AHEAD_BYTES, 0))


def _send_file(fd: int, held: Descriptor, position: int, n: int) -> int:
    sent = waits = 0
    room = select.poll()
    room.register(fd, select.POLLOUT)
    while sent < n:
        try:
            size = os.sendfile(fd, held.fd, position + sent, n - sent)
        except BlockingIOError:
            waits += 1
            if waits > WAITS_MAX or not room.poll(WAIT_MS):
                break
            continue
        except OSError:
            if sent:
                break  # the next send meets it at its first byte, where its cause can be found
            raise
        if size == 0:
            raise OSError(f"the file ends before the range at {position + sent}, {n - sent} bytes")
        sent += size
    return sent
