"""The interface by which a broker uses its files and its only threads.

Production has `RealFiles` (`real_files.py`); the simulator has its own, with faults and timed completions. All methods
may block and raise OSError, except the awaited methods of `Files`. What may take long (fsync, cold reads, scans) goes
through `Files.run`; what ends in the page cache is called directly.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from .descriptor import Descriptor as Descriptor

# Errors of the sync of a directory that is not ours: we may not read it, or its file system has no such call.
NEVER_SYNCED = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)
Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class DirectoryLocked(Exception):
    """Another process holds the data directory."""


class File(Protocol):
    """One file, read and written. `size` is what this object has written or found; it is not read from the disk again.

    A file may be closed while it is not in use; it is then opened again by its name. Whoever is about to remove the
    name calls `keep` first. A kept file lives as long as someone refers to it: after a segment was deleted, ranges that
    are still being sent keep it readable.
    """

    path: str
    size: int

    def append(self, parts: Sequence[Buffer]) -> None:
        """Append all parts. On OSError the file is as before; on TornWrite it is not."""

    def pread(self, n: int, position: int) -> bytes:
        """At most n bytes; fewer only at the end of the file."""

    def pread_cached(self, n: int, position: int) -> bytes:
        """Like `pread`, but only from memory: maybe less, at least CACHED_BYTES_MIN; else BlockingIOError."""

    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool:
        """Whether n bytes, except for missing_max_bytes of them, can be read without waiting for the disk.

        If the operating system cannot count cached bytes, samples are checked, and each of them must be cached.
        """

    def pwrite(self, data: Buffer, position: int) -> None:
        """Write all of data at a position; the file grows as needed."""

    def truncate(self, size: int) -> None: ...

    def give_back(self) -> None:
        """No append follows for now: drop what lies past the end, that is preallocated space and zeros."""

    def sync(self) -> None:
        """Sync data and size and, the first time after the file was created, its name in the directory."""

    def close(self) -> None: ...

    def keep(self) -> None:
        """Stay open from now on, regardless of the limit: the name is about to be removed or changed."""

    def renamed(self, path: str) -> None:
        """The file's name is now `path`. It need not stay open any more."""

    def hold(self) -> Descriptor | None:
        """The open descriptor, for sendfile; it stays open while referred to. None if there is none."""


class Volume(NamedTuple):
    """The volume of a directory: its absolute path, the size of the file system, and how much this process may use."""

    path: str
    total_bytes: int
    usable_bytes: int


class Held(Protocol):
    """A lock that is held until it is released."""

    def release(self) -> None: ...

    def sync_volume(self) -> bool:
        """Sync all that anybody has written to the volume of the lock's file, names too, with one call. May take long.

        Returns False if the operating system has no call that reports every error since the lock was taken, or if it
        reported one. Then files must be synced one by one, which shows for which of them it fails.
        """


class Files(Protocol):
    """The file system as one host sees it."""

    def open(self, path: str, *, create: bool = True) -> File: ...

    def new(self, path: str) -> File:
        """A file that does not exist yet: the first call that needs it creates it."""

    def exists(self, path: str) -> bool: ...

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""

    def size(self, path: str) -> int: ...

    def volume(self, path: str) -> Volume:
        """The volume that holds a directory. May wait for a network file system."""

    def boot_id(self) -> str:
        """An id of this machine's run since it was switched on: what a process had written, and not synced, is still
        there as long as the id is the same. "" if it is not known."""

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def read(self, path: str) -> bytes:
        """All of a file."""

    def write_atomic(self, path: str, data: Buffer) -> None:
        """Replace a file so that after any crash it is the old or the new one: a synced temporary file is renamed."""

    def sync_directory(self, path: str) -> None:
        """Sync the names in a directory: files that were created, renamed and removed."""

    def lock(self, path: str) -> Held:
        """Hold the lock file of a data directory. Raises DirectoryLocked."""

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Call fn(*args) in the pool, where it may block."""

    async def run_read(self, fn: Callable[..., T], *args: Any) -> T:
        """The same for a read that a client waits for. Reads and syncs do not queue behind each other."""

    async def compute(self, fn: Callable[..., T], *args: Any) -> T:
        """Call fn(*args), which needs a processor for long, but not the disk."""


def make_directory(files: Files, path: str) -> None:
    """Create a directory, and its parents, if they do not exist, and sync its name. Raises OSError.

    If the directory exists and is empty, its name is synced too: a process that was killed may have just created it.
    """
    parent = os.path.dirname(path)
    if files.exists(path):
        if _holds_something(files, path):
            return  # it was synced before anything was created in it
    else:
        if parent:
            make_directory(files, parent)
        files.makedirs(path)
    try:
        files.sync_directory(parent)
    except OSError as error:
        if error.errno not in NEVER_SYNCED:
            raise


def _holds_something(files: Files, path: str) -> bool:
    """Whether a directory is not empty. One that we may not list is not ours to sync, either."""
    try:
        return bool(files.listdir(path))
    except OSError as error:
        if error.errno not in NEVER_SYNCED:
            raise
        return True
