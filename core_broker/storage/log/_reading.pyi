from collections.abc import Callable
from typing import Any

from ..disk.files import FileRange, Files
from ._tail import LogTail
from .index_window import IndexWindows
from .segment import Segment

ANY_OFFSET: int
INTERVALS_MIN: int
SURE_SHARE: int

class NotCached(Exception):
    log: Any
    segment: Segment
    offset: int
    def __init__(self, log: LogRanges, segment: Segment, offset: int) -> None: ...

class LogRanges(LogTail):
    files: Files
    directory: str
    name: str
    windows: IndexWindows
    _segments: list[Segment]
    _bases: list[int]
    _unreadable: Callable[[OSError], None]
    def ranges(
        self, offset: int, max_bytes: int, upper_offset: int | None, min_one: bool, may_wait: bool
    ) -> list[FileRange]: ...
    def end_with_batch(self, offset: int, ranges: list[FileRange]) -> int: ...
