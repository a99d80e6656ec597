from array import array

from .files import Descriptor

POSITIONS_KEPT: int

class FileTail:
    size: int
    is_used: bool
    _descriptor: Descriptor | None

class OffsetTail:
    _before: int
    _positions: array[int]
    _relative: array[int]
    def __len__(self) -> int: ...
    def append(self, relative_offset: int, position: int) -> None: ...

class TimeTail:
    _before: int
    _last_before: tuple[int, int]
    _relative: array[int]
    _timestamps: array[int]
    def __len__(self) -> int: ...
    def append(self, timestamp: int, relative_offset: int) -> None: ...

class Positions:
    def append(self, offset: int, position: int) -> None: ...
    def get(self, offset: int) -> int | None: ...
    def rows(self) -> list[tuple[int, int]]: ...
