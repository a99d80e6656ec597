"""The only place of the broker that opens, reads, writes, syncs or renames a file, and the only one with threads.

`Files` and `File` are the seam: production has `RealFiles`, the simulator its own with faults and timed completions.
Every method but `Files.run` may block and raises OSError (with its errno) when the disk refuses. What may take long
(fsync, cold reads, scans) goes through `Files.run`; what ends in the page cache is called directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")

MAX_THREADS = 4  # of a host's pool of blocking file work
IOV_MAX = 1024  # buffers in one writev (Linux)
TEMPORARY_SUFFIX = ".tmp"  # of `write_atomic`; one that is found is the rest of a crash


class DirectoryLocked(Exception):
    """Another process holds the data directory."""


class TornWrite(OSError):
    """An append failed half-way and what it left could not be cut off: the file's end is not to be trusted."""


class File(Protocol):
    """One open file, read and written. `size` is what this object has written or found, never stat'ed again.

    A file lives as long as someone refers to it: who deletes a segment drops its reference, and ranges still being
    sent keep it readable although its name is gone.
    """

    path: str
    size: int

    def append(self, parts: Sequence[Buffer]) -> None:
        """All parts after the end of the file, or OSError and the file as before; TornWrite when it is not."""

    def pread(self, n: int, position: int) -> bytes:
        """At most n bytes; fewer at the end of the file only."""

    def pwrite(self, data: Buffer, position: int) -> None:
        """All of data at a position, the file growing as needed."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Data and size to the disk and, the first time after the file was created, its name in the directory."""

    def close(self) -> None: ...

    def fileno(self) -> int | None:
        """The descriptor, for sendfile and mmap; None where there is none."""


class Volume(NamedTuple):
    """Where a directory lies: its absolute path, the size of its file system, and what of it this process may use."""

    path: str
    total_bytes: int
    usable_bytes: int


class Held(Protocol):
    """A lock that is held until released."""

    def release(self) -> None: ...


class Files(Protocol):
    """The file system as one host sees it."""

    def open(self, path: str, *, create: bool = True) -> File: ...

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def size(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """The volume that holds a directory. May wait for a network file system."""

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def read(self, path: str) -> bytes:
        """All of a file."""

    def write_atomic(self, path: str, data: Buffer) -> None:
        """The file is, after any crash, as before or as given: a synced temporary file, renamed, directory synced."""

    def sync_directory(self, path: str) -> None:
        """The names in a directory to the disk: what was created, renamed and removed in it."""

    def lock(self, path: str) -> Held:
        """Hold the lock file of a data directory. Raises DirectoryLocked."""

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """fn(*args) where it may block."""


class FileRange:
    """Bytes of a file to be sent or read. Holding the range holds the file open, even one deleted meanwhile."""

    __slots__ = ("file", "position", "size_bytes")

    def __init__(self, file: File, position: int, size_bytes: int) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, {self.position}, {self.size_bytes})"

    def read(self) -> bytes:
        """The bytes, copied out; may block when they are cold. Shorter when the file was truncated since."""
        return self.file.pread(self.size_bytes, self.position)


class RealFile:
    """A file of the operating system."""

    __slots__ = ("_fd", "_is_new", "path", "size")

    def __init__(self, path: str, *, create: bool) -> None:
        self._fd = -1
        self._is_new = False
        flags = os.O_RDWR | os.O_CLOEXEC
        try:
            self._fd = os.open(path, flags)
        except FileNotFoundError:
            if not create:
                raise
            self._fd = os.open(path, flags | os.O_CREAT, 0o644)
            self._is_new = True
        self.path = path
        self.size = os.fstat(self._fd).st_size

    def append(self, parts: Sequence[Buffer]) -> None:
        start = self.size
        total = sum(map(len, parts))
        try:
            written = os.pwritev(self._fd, parts if len(parts) <= IOV_MAX else parts[:IOV_MAX], start)
            if written != total:
                self._write_rest(parts, start, written, total)
        except OSError as error:
            try:
                os.ftruncate(self._fd, start)
            except OSError as second:
                raise TornWrite(
                    error.errno,
                    f"{os.strerror(error.errno or 0)}, then {second.strerror} on cutting it back",
                    self.path,
                ) from error
            raise OSError(error.errno, os.strerror(error.errno or 0), self.path) from error
        self.size = start + total

    def _write_rest(self, parts: Sequence[Buffer], start: int, written: int, total: int) -> None:
        """The short write of a full disk, a signal or more buffers than one call takes: go on until all or an error."""
        skip = written
        for part in parts:
            view = memoryview(part)
            if skip >= len(view):
                skip -= len(view)
                continue
            view = view[skip:]
            skip = 0
            while len(view):
                n = os.pwrite(self._fd, view, start + written)
                if n == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
                written += n
                view = view[n:]
        assert written == total

    def pread(self, n: int, position: int) -> bytes:
        data = os.pread(self._fd, n, position)
        if len(data) == n or not data:
            return data
        pieces = [data]  # a read stops short at 2 GiB or a signal
        got = len(data)
        while got < n:
            data = os.pread(self._fd, n - got, position + got)
            if not data:
                break
            pieces.append(data)
            got += len(data)
        return b"".join(pieces)

    def pwrite(self, data: Buffer, position: int) -> None:
        view = memoryview(data)
        while len(view):
            n = os.pwrite(self._fd, view, position)
            position += n
            view = view[n:]
        self.size = max(self.size, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self.size = size

    def sync(self) -> None:
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        if self._is_new:
            _sync_directory(os.path.dirname(self.path))
            self._is_new = False

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int | None:
        return self._fd

    def __del__(self) -> None:
        self.close()


class _RealLock:
    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock tells our own brokers apart, even in one process; lockf is what Kafka takes.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryLocked(
                    f"{os.path.dirname(path)} is in use by another process, which holds {path}"
                ) from None
            raise

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class RealFiles:
    """The operating system's files, with a bounded pool of threads for what may block."""

    def __init__(self, max_threads: int = MAX_THREADS) -> None:
        self._temporary = itertools.count()  # two writers of one file must not share a temporary one
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="files")

    def open(self, path: str, *, create: bool = True) -> File:
        return RealFile(path, create=create)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def volume(self, path: str) -> Volume:
        about = os.statvfs(path)
        return Volume(os.path.abspath(path), about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.{next(self._temporary)}{TEMPORARY_SUFFIX}"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise OSError(error.errno, error.strerror, path) from error
        _sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        try:
            _sync_directory(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def lock(self, path: str) -> Held:
        return _RealLock(path)

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, fn, *args)

    def close(self) -> None:
        """End the threads; what they are doing is finished first."""
        self._pool.shutdown()


def _sync_directory(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
