"""One open file of a simulated process, and the lock of a data directory."""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import Sequence
from typing import TYPE_CHECKING

from isthmus.core_broker.storage.disk.errors import TornWrite

from .inode import Buffer, Inode

if TYPE_CHECKING:
    from .files import SimDisk, SimFiles


NOTE_POINTS = 6  # where a kill may fall between a sync that fails and the end of the broker's note of it


class Held:
    """A held lock of a data directory."""

    def __init__(self, files: SimFiles, path: str) -> None:
        self._files = files
        self._disk = files.disk
        self._path = path

    def sync_volume(self) -> bool:
        """By chance as where there is no such call. One that fails leaves its errors for the syncs of each file."""
        if self._disk.random.random() < 0.4:
            return False
        return self._files.sync_volume(posixpath.dirname(self._path))

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self:
            del self._disk.locks[self._path]

    close = release


class SimFile:
    """An open file of one process."""

    __slots__ = ("__weakref__", "_closed", "_files", "_is_kept", "_is_new", "_made", "path", "size")

    def __init__(self, files: SimFiles, inode: Inode | None, path: str, is_new: bool) -> None:
        self._files = files
        self._made = inode
        self._closed = False
        self._is_kept = False
        self._is_new = is_new
        self.path = path
        self.size = 0 if inode is None else len(inode.data)  # what this object knows, as in production

    @property
    def _inode(self) -> Inode:
        assert self._made is not None, "not checked"
        return self._made

    def _check(self) -> SimDisk:
        self._files.process.check_alive()
        if self._closed:
            raise ValueError(f"{self.path} is closed")
        disk = self._files.disk
        if self._made is None:
            self._made = self._files.open(self.path)._inode
        # In production it may be closed whenever it is not in use, and is found again by its name: here it always is.
        if not self._is_kept and disk.names.get(self._files.absolute(self.path)) is not self._inode:
            raise OSError(errno.ESTALE, "its name is gone, and nobody kept it open", self.path)
        return disk

    def append(self, parts: Sequence[Buffer]) -> None:
        disk = self._check()
        process = self._files.process
        data = b"".join(parts)
        position = self.size
        disk.crash_point(process)
        disk.step("append", self.path)
        disk.room_for(len(data), self.path)
        try:
            disk.step("tear", self.path)
        except OSError as error:
            self._put(data[: disk.random.randint(0, len(data))], position)
            raise TornWrite(error.errno, os.strerror(error.errno or 0), self.path) from error
        self._put(data, position)
        disk.sim.trace.add("append", disk.name, self.path, position, data)
        disk.crash_point(process)

    def _put(self, data: Buffer, position: int) -> None:
        before = len(self._inode.data)
        self._inode.write(position, data)
        self._files.disk.used_bytes += len(self._inode.data) - before
        self.size = max(self.size, position + len(data))

    def pread(self, n: int, position: int) -> bytes:
        disk = self._check()
        disk.step("read", self.path)
        return bytes(memoryview(self._inode.data)[position : position + n])

    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool:
        disk = self._check()
        if not disk.cold_share or disk.random.random() >= disk.cold_share:
            return True
        disk.sim.counters["found_cold"] += 1
        return False

    def pread_cached(self, n: int, position: int) -> bytes:
        if not self.is_cached(position, n):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), self.path)
        return self.pread(n, position)

    def pwrite(self, data: Buffer, position: int) -> None:
        disk = self._check()
        process = self._files.process
        disk.crash_point(process)
        disk.step("write", self.path)
        disk.room_for(max(0, position + len(data) - len(self._inode.data)), self.path)
        self._put(data, position)
        disk.sim.trace.add("write", disk.name, self.path, position, bytes(data))
        disk.crash_point(process)

    def truncate(self, size: int) -> None:
        disk = self._check()
        process = self._files.process
        disk.crash_point(process)
        disk.step("truncate", self.path)
        disk.used_bytes += size - len(self._inode.data)
        self._inode.truncate(size)
        self.size = size
        disk.sim.trace.add("truncate", disk.name, self.path, size)
        disk.crash_point(process)

    def give_back(self) -> None:
        self._check()

    def sync(self) -> None:
        self.sync_content()
        if self._is_new:
            self._is_new = False
            self._files.sync_directory(posixpath.dirname(self.path))

    def sync_content(self) -> None:
        """The bytes and the size, as by fsync: nothing of the name."""
        disk = self._check()
        process = self._files.process
        disk.crash_point(process)
        try:
            disk.step("sync", self.path)
            self._inode.raise_error(self.path)
        except OSError:
            # As Linux does it: the dirty pages are dropped from the list of what is to be written,
            # and the next sync says all is well.
            self._inode.lost_by_failed_sync()
            disk.put_off_the_crash(NOTE_POINTS)
            raise
        self._inode.sync()
        disk.sim.trace.add("sync", disk.name, self.path, len(self._inode.data))
        disk.sim.counters["syncs"] += 1
        disk.crash_point(process)

    def close(self) -> None:
        self._closed = True

    def keep(self) -> None:
        if self._made is not None:
            self._check()
            self._is_kept = True

    def renamed(self, path: str) -> None:
        self.path = path
        self._is_kept = False

    def hold(self) -> None:
        return None
