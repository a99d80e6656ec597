"""The seam through which a broker touches its files and its only threads: what is asked of them, by types.

Production has `RealFiles` (`real_files.py`), the simulator its own with faults and timed completions. Every method but
those of `Files` that are awaited may block and raises OSError (with its errno) when the disk refuses. What may take
long (fsync, cold reads, scans) goes through `Files.run`; what ends in the page cache is called directly.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from ._data_file import Buffer as Buffer
from ._data_file import FileRange as FileRange
from .descriptor import Descriptor as Descriptor

# Errors of the sync of a directory that is not ours: we may not read it, or its file system has no such call.
NEVER_SYNCED = (errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS)
T = TypeVar("T")


class DirectoryLocked(Exception):
    """Another process holds the data directory."""


class File(Protocol):
    """One file, read and written. `size` is what this object has written or found, never stat'ed again.

    It may be closed while it is not in use, and is then opened again by its name: whoever is about to remove the name
    calls `keep`. A file that is kept lives as long as someone refers to it: who deletes a segment drops its reference,
    and ranges still being sent keep it readable although its name is gone.
    """

    path: str
    size: int

    def append(self, parts: Sequence[Buffer]) -> None:
        """All parts after the end of the file, or OSError and the file as before; TornWrite when it is not."""

    def pread(self, n: int, position: int) -> bytes:
        """At most n bytes; fewer at the end of the file only."""

    def pread_cached(self, n: int, position: int) -> bytes:
        """`pread` of what needs no disk, maybe less, but no less than CACHED_BYTES_MIN; else BlockingIOError."""

    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool:
        """Whether n bytes, but for so many, can be had without waiting for the disk.

        Where the system does not count what is cached, a look at some tells, and none of these may be missing.
        """

    def pwrite(self, data: Buffer, position: int) -> None:
        """All of data at a position, the file growing as needed."""

    def truncate(self, size: int) -> None: ...

    def give_back(self) -> None:
        """Nothing is appended for now: what lies past the end, space that appends had asked for and zeros, is gone."""

    def sync(self) -> None:
        """Data and size to the disk and, the first time after the file was created, its name in the directory."""

    def close(self) -> None: ...

    def keep(self) -> None:
        """Stay open from now on, whatever the bound: the name is about to go or to change."""

    def renamed(self, path: str) -> None:
        """It is called `path` from now on; it need not stay open any more."""

    def hold(self) -> Descriptor | None:
        """The open descriptor, for sendfile: it stays open while this is referred to. None where there is none."""


class Volume(NamedTuple):
    """Where a directory lies: its absolute path, the size of its file system, and what of it this process may use."""

    path: str
    total_bytes: int
    usable_bytes: int


class Held(Protocol):
    """A lock that is held until released."""

    def release(self) -> None: ...

    def sync_volume(self) -> bool:
        """Put on disk all that anybody has written to the volume of the lock's file, names too, by one call.

        False where the system has no call that reports each error since the lock was taken, or it reported one: then
        files are to be synced one by one, which shows which of them failed. May wait for long.
        """


class Files(Protocol):
    """The file system as one host sees it."""

    def open(self, path: str, *, create: bool = True) -> File: ...

    def new(self, path: str) -> File:
        """A file that is not there yet: the first call that needs it makes it."""

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

    async def run_read(self, fn: Callable[..., T], *args: Any) -> T:
        """The same for what only reads and clients wait for: it does not queue behind syncs, nor they behind it."""

    async def compute(self, fn: Callable[..., T], *args: Any) -> T:
        """fn(*args), which takes long for want of a processor, not of the disk."""


def make_directory(files: Files, path: str) -> None:
    """Make a directory, and those above it, where they are missing. Its name is on disk then. Raises OSError.

    The name of one that is there and empty is synced, too: a process that was killed may just have made it.
    """
    parent = os.path.dirname(path)
    if files.exists(path):
        if _holds_something(files, path):
            return  # it was synced before anything was made in it
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
