"""Batches to append, and files that fail or die at a chosen call."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import stat
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from isthmus.core_broker.storage.disk.files import Descriptor, File
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup import opening
from isthmus.protocol.records import build_batch, walk

T = TypeVar("T")

NOW_MS = 1_700_000_000_000


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(coroutine)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run what never waits, as with BrokenFiles, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError("it waits")


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW_MS,
    size: int = 10,
    key: bytes | None = b"k",
    codec: Any = "none",
    **header: Any,
) -> bytes:
    return build_batch([(timestamp + n, key, bytes([n % 251]) * size, ()) for n in range(count)], codec, **header)


def at(data: bytes, base_offset: int, epoch: int = 0) -> bytes:
    """A batch as another log holds it."""
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big", signed=True) + data[16:]


def append(log: Log, data: bytes, *, origin: Origin = Origin.CLIENT, epoch: int = 0, **more: Any) -> Any:
    return log.append(data, origin, epoch, NOW_MS, **more)


def contents(log: Log, offset: int | None = None) -> bytes:
    """All bytes from an offset on, by the log's own reads."""
    part = log.read(log.log_start_offset if offset is None else offset, 1 << 30)
    return b"".join(piece.read() for piece in part.ranges)


def spans(data: bytes) -> list[tuple[int, int]]:
    """(base offset, last offset) of the batches."""
    return [(header.base_offset, header.last_offset) for _, header in walk(data)]


def open_log(files: Any, path: Any, config: LogConfig | None = None, **more: Any) -> Log:
    return run(opening.open_log(files, f"{path}/t-0", config, wall_ms=NOW_MS, **more))


class Died(BaseException):
    """The process is gone: nothing after the chosen call happens."""


@contextlib.contextmanager
def files_may_have(size_bytes: int) -> Iterator[None]:
    """No file of this process may grow past so many bytes; what begins below is written up to there."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, previous)


@contextlib.contextmanager
def fifo(path: Path) -> Iterator[None]:
    """A FIFO of that name. Whoever opens it to read finds its end, where without a writer it would wait for ever."""
    os.mkfifo(path)
    named = os.open(path, os.O_PATH)  # by which it is found again, whatever has become of its name
    is_over = threading.Event()

    def write_nothing() -> None:
        while not is_over.is_set():
            os.close(os.open(f"/proc/self/fd/{named}", os.O_WRONLY))  # which waits for a reader

    writer = threading.Thread(target=write_nothing)
    writer.start()
    try:
        yield
    finally:
        is_over.set()
        reader = os.open(f"/proc/self/fd/{named}", os.O_RDONLY | os.O_NONBLOCK)
        writer.join()
        os.close(reader)
        os.close(named)
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def socket(path: Path) -> Iterator[None]:
    os.mknod(path, stat.S_IFSOCK | 0o600)
    yield
    path.unlink()


@contextlib.contextmanager
def device(path: Path) -> Iterator[None]:
    """What is empty and takes all."""
    path.symlink_to(os.devnull)
    yield
    path.unlink()


@contextlib.contextmanager
def directory(path: Path) -> Iterator[None]:
    path.mkdir()
    yield
    path.rmdir()


NO_FILES = {"FIFO": fifo, "socket": socket, "device": device, "directory": directory}  # in place of one


class FilesAtOnce(RealFiles):
    """Those of the operating system, of which everything is done by who asks for it."""

    async def run(self, fn: Callable[..., T], *args: Any) -> T:
        return fn(*args)

    async def compute(self, fn: Callable[..., T], *args: Any) -> T:
        return fn(*args)

    async def run_read(self, fn: Callable[..., T], *args: Any) -> T:
        return fn(*args)


def place(path: str) -> str:
    """A file and the folder it is in, for who looks for a name: what is above them is the run's, and has any name."""
    return "/" + "/".join(path.split("/")[-2:])


class BrokenFiles(FilesAtOnce):
    """Files that count their calls. `trap(kind, path)` may raise, before the call does anything."""

    def __init__(self) -> None:
        super().__init__(1)
        self.calls: list[tuple[str, str]] = []
        self.trap: Callable[[str, str], None] = lambda kind, path: None

    def _call(self, kind: str, path: str) -> None:
        self.calls.append((kind, path))
        self.trap(kind, path)

    def die_at(self, number: int) -> None:
        """The process dies at the n-th call from now, and stays dead."""
        first = len(self.calls)

        def trap(kind: str, path: str) -> None:
            if len(self.calls) - first > number:
                raise Died

        self.trap = trap

    def open(self, path: str, *, create: bool = True) -> File:
        self._call("open", path)
        return BrokenFile(self, super().open(path, create=create))

    def new(self, path: str) -> File:
        return BrokenFile(self, super().new(path))

    def rename(self, source: str, target: str) -> None:
        self._call("rename", source)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._call("unlink", path)
        super().unlink(path)

    def rmtree(self, path: str) -> None:
        self._call("rmtree", path)
        super().rmtree(path)

    def makedirs(self, path: str) -> None:
        self._call("makedirs", path)
        super().makedirs(path)

    def write_atomic(self, path: str, data: Any) -> None:
        self._call("write_atomic", path)
        super().write_atomic(path, data)

    def sync_directory(self, path: str) -> None:
        self._call("sync_directory", path)
        super().sync_directory(path)


class BrokenFile:
    def __init__(self, files: BrokenFiles, file: File) -> None:
        self._files = files
        self._file = file
        self.path = file.path

    @property
    def size(self) -> int:
        return self._file.size

    @size.setter
    def size(self, size: int) -> None:
        self._file.size = size

    def append(self, parts: Any) -> None:
        self._files._call("append", self.path)
        self._file.append(parts)

    def pread(self, n: int, position: int) -> bytes:
        self._files._call("pread", self.path)
        return self._file.pread(n, position)

    def pread_cached(self, n: int, position: int) -> bytes:
        self._files._call("pread", self.path)
        return self._file.pread_cached(n, position)

    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool:
        return self._file.is_cached(position, n, missing_max_bytes)

    def pwrite(self, data: Any, position: int) -> None:
        self._files._call("pwrite", self.path)
        self._file.pwrite(data, position)

    def truncate(self, size: int) -> None:
        self._files._call("truncate", self.path)
        self._file.truncate(size)

    def give_back(self) -> None:
        self._files._call("give_back", self.path)
        self._file.give_back()

    def sync(self) -> None:
        self._files._call("sync", self.path)
        self._file.sync()

    def close(self) -> None:
        self._file.close()

    def keep(self) -> None:
        self._file.keep()

    def renamed(self, path: str) -> None:
        self._file.renamed(path)
        self.path = path

    def hold(self) -> Descriptor | None:
        return self._file.hold()
