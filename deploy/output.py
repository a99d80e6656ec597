"""What a supervised process prints: read from its pipes into a log that is rotated by size.

A pipe may outlive the process, held open by a child of its own. So its end says nothing: the supervisor reads until
the process is dead, and then what is still in the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

LOG_MAX_BYTES = 16 << 20
LOGS_KEPT = 3  # full ones, beside the one that is written: NAME.1 is the newest
LINE_MAX_BYTES = 1 << 16  # longer ones are cut
PIPE_BYTES = 1 << 16
DRAIN_MAX_BYTES = 1 << 20  # read after a death; whoever else holds the pipe may write for ever


class Log:
    """A file that is appended to. When it is full it becomes NAME.1, and the oldest of LOGS_KEPT goes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._size_bytes = path.stat().st_size if path.exists() else 0

    def write(self, data: bytes) -> None:
        """Output is lost where the disk takes none: the process must not wait for it."""
        with contextlib.suppress(OSError):
            if self._size_bytes and self._size_bytes + len(data) > LOG_MAX_BYTES:
                rotate(self.path, self.path)
                self._size_bytes = 0
            with open(self.path, "ab", buffering=0) as file:
                self._size_bytes += file.write(data)


def rotate(full: Path, path: Path) -> None:
    """NAME.2 becomes NAME.3, NAME.1 NAME.2, and the full one NAME.1, where `path` is NAME. Raises OSError."""
    names = [full, *(path.with_name(f"{path.name}.{number}") for number in range(1, LOGS_KEPT + 1))]
    for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
        with contextlib.suppress(FileNotFoundError):
            newer.replace(older)


def rotate_own(file: int) -> None:
    """The same for what this process prints: its descriptor stays, so that the full log is copied and emptied. Nothing
    happens where `file` is none or is not full."""
    with contextlib.suppress(OSError):
        facts = os.fstat(file)
        if stat.S_ISREG(facts.st_mode) and facts.st_size > LOG_MAX_BYTES:
            path = Path(os.readlink(f"/proc/self/fd/{file}"))
            shutil.copyfile(path, copy := path.with_name(f"{path.name}.0"))
            rotate(copy, path)
            os.ftruncate(file, 0)
            os.lseek(file, 0, os.SEEK_SET)


class Output:
    """One pipe of a process. `end`: the descriptor that the process is given, which `begin` closes here.

    take: gets the bytes as they come. line: gets each line, without its end, cut to LINE_MAX_BYTES.
    """

    def __init__(self, take: Callable[[bytes], None], line: Callable[[str], None]) -> None:
        self._read_end, self.end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._take, self._line = take, line
        self._part = b""  # of a line whose end has not come yet

    def begin(self) -> None:
        os.close(self.end)
        asyncio.get_running_loop().add_reader(self._read_end, self._readable)

    def finish(self) -> None:
        """Take what is still in the pipe, and close it."""
        asyncio.get_running_loop().remove_reader(self._read_end)
        left_bytes = DRAIN_MAX_BYTES
        while left_bytes > 0 and (data := self._read()):
            left_bytes -= len(data)
        if self._part:
            self._lines(b"\n")
        os.close(self._read_end)

    def _readable(self) -> None:
        if self._read() == b"":  # all have closed it
            asyncio.get_running_loop().remove_reader(self._read_end)

    def _read(self) -> bytes | None:
        """Empty at the end; None where there is nothing yet."""
        try:
            data = os.read(self._read_end, PIPE_BYTES)
        except BlockingIOError:
            return None
        if data:
            self._take(data)
            self._lines(data)
        return data

    def _lines(self, data: bytes) -> None:
        *whole, rest = data.split(b"\n")
        for each in whole:
            raw, self._part = self._part + each, b""
            self._line(raw[:LINE_MAX_BYTES].decode(errors="replace"))
        self._part = (self._part + rest)[:LINE_MAX_BYTES]
