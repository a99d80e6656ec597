from collections.abc import Callable

from ._tail import LogTail
from .files import FileRange, Files
from .index_window import IndexWindows
from .segment import Segment

ANY_OFFSET: int
INTERVALS_MIN: int
SURE_SHARE: int

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
