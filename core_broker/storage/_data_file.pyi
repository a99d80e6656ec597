from .files import Descriptor

CACHED_BYTES_MIN: int
LOOK_BYTES: int

class DataFile:
    path: str
    size: int
    is_used: bool
    _descriptor: Descriptor | None
    def hold(self) -> Descriptor: ...
    def pread(self, n: int, position: int) -> bytes: ...
    def pread_cached(self, n: int, position: int) -> bytes: ...
    def is_cached(self, position: int, n: int) -> bool: ...
