"""Pieces of closed segments' offset indexes that are kept in memory for those who read on.

A closed segment keeps no index in memory, and a search of its file may wait for the disk. So the piece that follows the
entry found is kept: a reader that goes on through the segment finds its next positions in it, without a system call.
"""

from __future__ import annotations

import sys
from array import array
from weakref import WeakKeyDictionary

from ..disk.files import Files
from ._appended import OffsetTail
from .index import INDEX_SUFFIX, OFFSET_ENTRY, read_entry
from .segment import MAX_RELATIVE, Segment

WINDOW_ENTRIES = 1024  # 8 KB: positions of 4 MB of log, or of 1,024 batches where those are larger than 4 KB
WINDOWS_KEPT = 1024  # of all segments of a broker


class IndexWindow(OffsetTail):
    """Entries of an offset index that follow each other: relative offset -> position, from `first` to before `end`."""

    __slots__ = ("end", "first")

    def __init__(self, first: int, end: int, relative: array, positions: array) -> None:
        self.first = first
        self.end = end
        self._relative = relative
        self._positions = positions
        self._before = 0

    @classmethod
    def load(cls, files: Files, segment: Segment, relative_offset: int) -> IndexWindow:
        """The window of a closed segment that begins with the entry for an offset. May wait for the disk."""
        file = files.open(segment.path(INDEX_SUFFIX), create=False)
        try:
            count = file.size // OFFSET_ENTRY.size
            low, high = 0, count
            while low < high:
                middle = (low + high) // 2
                if read_entry(file, OFFSET_ENTRY, middle)[0] <= relative_offset:
                    low = middle + 1
                else:
                    high = middle
            number = max(low - 1, 0)
            data = file.pread((WINDOW_ENTRIES + 1) * OFFSET_ENTRY.size, number * OFFSET_ENTRY.size)
        finally:
            file.close()
        pairs = array("i", data[: len(data) // OFFSET_ENTRY.size * OFFSET_ENTRY.size])
        if sys.byteorder == "little":
            pairs.byteswap()
        relative, positions = pairs[0::2], pairs[1::2]
        end = MAX_RELATIVE + 1
        if len(relative) > WINDOW_ENTRIES:
            end = relative[-1]  # the entry after the window, whose batch it does not know
            del relative[-1], positions[-1]
        first = 0 if not number or not relative else relative[0]
        return cls(first, end, relative, positions)


class IndexWindows:
    """The last window of each segment that is read, at most WINDOWS_KEPT; a segment that goes takes its own along."""

    def __init__(self, most: int = WINDOWS_KEPT) -> None:
        self._most = most
        self._held: WeakKeyDictionary[Segment, IndexWindow] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._held)

    def start_of(self, segment: Segment, relative_offset: int) -> int:
        """Where to begin to look for an offset; -1 when no window has it."""
        window = self._held.get(segment)
        if window is None or not window.first <= relative_offset < window.end:
            return -1
        return window.lookup(relative_offset)

    def indexed_before(self, segment: Segment, position: int) -> int:
        """As `Segment.indexed_before`, by its window."""
        window = self._held.get(segment)
        return -1 if window is None else window.position_before(position)

    def drop(self, segment: Segment) -> None:
        """Its index changes."""
        self._held.pop(segment, None)

    def keep(self, segment: Segment, window: IndexWindow) -> None:
        self._held.pop(segment, None)
        if len(self._held) >= self._most:
            self._held.pop(next(iter(self._held)))
        self._held[segment] = window


def locate(files: Files, segment: Segment, offset: int) -> IndexWindow | None:
    """Bring what a search for an offset needs into the page cache; gives the window, where the file had to be asked."""
    start = segment.start_of(offset)
    window = None
    if start < 0:
        relative = offset - segment.base_offset
        window = IndexWindow.load(files, segment, relative)
        start = window.lookup(relative)
    segment.seek(offset, start, may_wait=True)
    return window
