"""Files of which nothing is in the page cache until somebody waits for it, and that tell who has waited where."""

from __future__ import annotations

import threading
from typing import Any

from isthmus.core_broker.storage.disk.files import File
from isthmus.core_broker.storage.disk.real_files import RealFiles

PAGE = 4096


def pages(position: int, n: int) -> range:
    return range(position // PAGE, (position + max(n, 1) - 1) // PAGE + 1)


class ColdFiles(RealFiles):
    """`chill` empties the page cache. `waits`: what the thread that made this has waited for since; it never should."""

    def __init__(self) -> None:
        super().__init__(2)
        self.owner = threading.get_ident()
        self.is_cold = False
        self.cached: set[tuple[str, int]] = set()
        self.waits: list[tuple[str, int]] = []
        self.broken: Exception | None = None  # what the disk says to reads that wait for it

    def chill(self) -> None:
        self.is_cold = True
        self.cached.clear()

    def open(self, path: str, *, create: bool = True) -> File:
        return ColdFile(self, super().open(path, create=create))

    def new(self, path: str) -> File:
        return ColdFile(self, super().new(path))

    def missing_bytes(self, path: str, position: int, n: int) -> int:
        return PAGE * sum((path, page) not in self.cached for page in pages(position, n)) if self.is_cold else 0

    def has(self, path: str, position: int, n: int) -> bool:
        return not self.missing_bytes(path, position, n)

    def wait(self, path: str, position: int, n: int) -> None:
        if self.has(path, position, n):
            return
        if threading.get_ident() == self.owner:
            self.waits.append((path.rpartition("/")[2], position))
        if self.broken is not None:
            raise self.broken
        self.cached.update((path, page) for page in pages(position, n))


class ColdFile:
    def __init__(self, files: ColdFiles, file: File) -> None:
        self._files = files
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    @property
    def size(self) -> int:
        return self._file.size

    def pread(self, n: int, position: int) -> bytes:
        self._files.wait(self._file.path, position, n)
        return self._file.pread(n, position)

    def pread_cached(self, n: int, position: int) -> bytes:
        if not self._files.has(self._file.path, position, min(n, PAGE)):
            raise BlockingIOError
        return self._file.pread(n, position)

    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool:
        return self._files.missing_bytes(self._file.path, position, n) <= missing_max_bytes
