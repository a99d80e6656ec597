"""The operating system's files. Together with `_data_file.py`, this is the only place of the broker that opens, reads,
writes, syncs or renames a file. It is also the only place with threads.

A `DataFile` is not a descriptor. `OpenFiles` limits how many of them are open; a file that was closed to open another
is opened again by its name when it is used. So there may be more partitions than descriptors.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import itertools
import os
import resource
import shutil
import stat
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._data_file import DataFile, sync_directory
from .files import Buffer, Descriptor, DirectoryLocked, File, Held, T, Volume

MAX_THREADS = 4  # of the pool for blocking file work
READ_THREADS = 4  # of the pool for reads that clients wait for
COMPUTE_THREADS = 2  # of the pool for long computations
MAX_OPEN = 10_000  # default number of files that are held open
READ_BYTES = 4096  # read from a small file in one call
_IN_PLACE = {  # what may be found in place of a file, by its type
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NOT_OPENED = (errno.EISDIR, errno.ENXIO, errno.ENODEV)  # errors on opening some of these
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TEMPORARY_SUFFIX = ".tmp"  # of `write_atomic`; such a file is left by a crash


class OpenFiles:
    """The files that are open: at most `limit`, plus those whose names were removed.

    Above the limit the least recently used file is closed, approximately: a file that was used since the last look gets
    a second chance. A file in use is closed after that use.
    """

    __slots__ = ("_files", "_lock", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = max(limit, 1)
        self._files: OrderedDict[int, weakref.ref[DataFile]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._files)

    def open(self, path: str, flags: int) -> tuple[Descriptor, os.stat_result]:
        """A new descriptor of a regular file, and its stat result.

        If the process may not open another file, half of the files here are closed first.
        """
        try:
            return _open_regular(path, flags)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
        self._shrink(len(self._files) // 2)
        try:
            return _open_regular(path, flags)
        except OSError as error:
            if error.errno == errno.EMFILE:
                most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
                raise OSError(
                    errno.EMFILE,
                    f"{os.strerror(errno.EMFILE)}: this process may have {most} (raise it with `ulimit -n` or "
                    "LimitNOFILE, or lower max.connections)",
                    path,
                ) from None
            raise

    def admit(self, file: DataFile) -> None:
        """The file was opened."""
        with self._lock:
            self._files[id(file)] = weakref.ref(file)
        if len(self._files) > self.limit:
            self._shrink(self.limit)

    def forget(self, file: DataFile) -> None:
        """The file was closed by someone else."""
        self._files.pop(id(file), None)

    def keep(self, file: DataFile) -> None:
        """From now on this object must not close the file."""
        with self._lock:  # it may be about to close the file
            file.is_kept = True
            self._files.pop(id(file), None)

    def _shrink(self, most: int) -> None:
        with self._lock:
            chances = len(self._files)
            while len(self._files) > most:
                key, reference = self._files.popitem(last=False)
                file = reference()
                if file is None or file.is_kept:
                    continue
                if file.is_used and chances > 0:
                    chances -= 1
                    file.is_used = False
                    self._files[key] = reference
                else:
                    file.let_go()


class _RealLock:
    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = -1
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # flock keeps our own brokers apart, even in one process; Kafka uses lockf.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            if error.errno in (errno.EACCES, errno.EAGAIN):
                raise DirectoryLocked(
                    f"{os.path.dirname(path)} is in use by another process, which holds {path}"
                ) from None
            raise

    def sync_volume(self) -> bool:
        from .real_volume import sync_volume  # needed only with many partitions

        return sync_volume(self._fd)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.release()


class RealFiles:
    """The operating system's files, with a bounded pool of threads for what may block."""

    def __init__(
        self,
        max_threads: int = MAX_THREADS,
        max_open: int = MAX_OPEN,
        read_threads: int = READ_THREADS,
        compute_threads: int = COMPUTE_THREADS,
    ) -> None:
        self.open_files = OpenFiles(max_open)
        self._temporary = itertools.count()  # two writers of one file need different temporary files
        self._pool = ThreadPoolExecutor(max_threads, thread_name_prefix="files")
        self._readers = ThreadPoolExecutor(read_threads, thread_name_prefix="reads")
        self._computers = ThreadPoolExecutor(compute_threads, thread_name_prefix="computes")

    def open(self, path: str, *, create: bool = True) -> File:
        return DataFile(path, self.open_files, create=create)

    def new(self, path: str) -> File:
        return DataFile(path, self.open_files, create=True, later=True)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def volume(self, path: str) -> Volume:
        about = os.statvfs(path)
        return Volume(os.path.abspath(path), about.f_blocks * about.f_frsize, about.f_bavail * about.f_frsize)

    def boot_id(self) -> str:
        try:
            with open(BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        shutil.rmtree(path)

    def read(self, path: str) -> bytes:
        held, about = self.open_files.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = about.st_size  # 0 for generated files, as in /proc
        try:
            found = os.read(held.fd, max(size, READ_BYTES))
            while len(found) != size and (data := os.read(held.fd, max(size - len(found), READ_BYTES))):
                found += data
        except OSError as error:
            error.filename = path
            raise
        return found

    def write_atomic(self, path: str, data: Buffer) -> None:
        temporary = f"{path}.{next(self._temporary)}{TEMPORARY_SUFFIX}"
        try:
            held, _ = self.open_files.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
            view = memoryview(data)
            while len(view):
                view = view[os.write(held.fd, view) :]
            os.fsync(held.fd)
            os.rename(temporary, path)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise OSError(error.errno, error.strerror, path) from error
        sync_directory(os.path.dirname(path))

    def sync_directory(self, path: str) -> None:
        try:
            sync_directory(path)
        except OSError as error:
            raise OSError(error.errno, error.strerror, path) from error

    def lock(self, path: str) -> Held:
        return _RealLock(path)

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, fn, *args)

    async def run_read(self, fn: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._readers, fn, *args)

    async def compute(self, fn: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._computers, fn, *args)

    def close(self) -> None:
        """End the threads after their current work."""
        self._computers.shutdown()
        self._readers.shutdown()
        self._pool.shutdown()


def _open_regular(path: str, flags: int) -> tuple[Descriptor, os.stat_result]:
    """Open a regular file. Raises OSError for anything else, since opening or reading it might block for ever."""
    try:
        held = Descriptor(os.open(path, flags | os.O_NONBLOCK, 0o644))  # the flag has no effect on a regular file
        about = os.fstat(held.fd)
        if stat.S_ISREG(about.st_mode):
            return held, about
        del held  # else it stays open as long as somebody keeps the error
    except OSError as error:
        if error.errno not in _NOT_OPENED:
            raise
        about = os.stat(path)
    what = _IN_PLACE.get(stat.S_IFMT(about.st_mode), "no file")
    number = errno.EISDIR if stat.S_ISDIR(about.st_mode) else errno.EINVAL
    raise OSError(number, f"{what} is in its place: move it away, and restore the file if you have it", path)
