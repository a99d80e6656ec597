from collections.abc import Callable

from .files import Descriptor, File

CACHED_BYTES_MIN: int
LOOK_BYTES: int
KNOWN_BYTES: int
KNOWN_MS: int
AHEAD_FROM_BYTES: int
AHEAD_SHARE: int
AHEAD_BYTES_MAX: int
ZEROS_BYTES: int

class DataFile:
    path: str
    size: int
    asked_end: int
    zeros_end: int
    is_used: bool
    tells_cached: bool
    known_start: int
    known_end: int
    known_until_ms: int
    _descriptor: Descriptor | None
    def hold(self) -> Descriptor: ...
    def pread(self, n: int, position: int) -> bytes: ...
    def pread_cached(self, n: int, position: int) -> bytes: ...
    def is_cached(self, position: int, n: int, missing_max_bytes: int = 0) -> bool: ...

class FileRange:
    file: File
    position: int
    size_bytes: int
    unreadable: Callable[[OSError], None]
    def __init__(
        self, file: File, position: int, size_bytes: int, unreadable: Callable[[OSError], None] | None = None
    ) -> None: ...
    def __len__(self) -> int: ...
    def read(self) -> bytes: ...
