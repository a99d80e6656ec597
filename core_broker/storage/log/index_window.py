"""Parts of closed segments' offset indexes, kept in memory for readers that go on.

A closed segment keeps no index in memory, and a search in its file may wait for the disk. So the entries after the one
that was found are kept: a reader that goes on through the segment finds the next positions without a system call.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from ..disk.files import Files
from ._indexes import OffsetIndex
from ._segment import MAX_RELATIVE, Segment
from .file_names import INDEX_SUFFIX
from .index_files import OFFSET_ENTRY, last_up_to

WINDOW_ENTRIES = 1024  # 8 KB: positions of 4 MB of log, or of 1,024 batches where those are larger than 4 KB
WINDOWS_KEPT = 1024  # of all segments of a broker


class IndexWindow:
    """Consecutive entries of an offset index, for relative offsets from `first` up to, but not including, `end`."""

    __slots__ = ("end", "entries", "first")

    def __init__(self, first: int, end: int, entries: OffsetIndex) -> None:
        self.first = first
        self.end = end
        self.entries = entries

    @classmethod
    def load(cls, files: Files, segment: Segment, relative_offset: int) -> IndexWindow:
        """The window of a closed segment that begins with the entry for an offset. May wait for the disk."""
        file = files.open(segment.path(INDEX_SUFFIX), create=False)
        try:
            number = max(last_up_to(file, OFFSET_ENTRY, relative_offset)[0], 0)
            data = file.pread((WINDOW_ENTRIES + 1) * OFFSET_ENTRY.size, number * OFFSET_ENTRY.size)
        finally:
            file.close()
        whole = data[: len(data) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
        end = MAX_RELATIVE + 1
        if len(whole) > WINDOW_ENTRIES * OFFSET_ENTRY.size:
            last = len(whole) - OFFSET_ENTRY.size
            end = OFFSET_ENTRY.unpack_from(whole, last)[0]  # the first entry after the window
            whole = whole[:last]
        first = OFFSET_ENTRY.unpack_from(whole)[0] if number and whole else 0
        return cls(first, end, OffsetIndex.load(whole))


class IndexWindows:
    """The last window of each segment that is read, at most WINDOWS_KEPT. It is dropped with its segment."""

    def __init__(self, most: int = WINDOWS_KEPT) -> None:
        self._most = most
        self._held: WeakKeyDictionary[Segment, IndexWindow] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._held)

    def start_of(self, segment: Segment, relative_offset: int) -> int:
        """The position at which a search for an offset begins; -1 if no window has it."""
        window = self._held.get(segment)
        if window is None or not window.first <= relative_offset < window.end:
            return -1
        return window.entries.lookup(relative_offset)

    def indexed_before(self, segment: Segment, position: int) -> int:
        """Like `Segment.indexed_before`, by the segment's window."""
        window = self._held.get(segment)
        return -1 if window is None else window.entries.position_before(position)

    def offset_from(self, segment: Segment, position: int) -> int:
        """Like `Segment.offset_from`, by the segment's window; -1 where it has none."""
        window = self._held.get(segment)
        found = -1 if window is None else window.entries.offset_from(position)
        return found if found < 0 else segment.base_offset + found

    def drop(self, segment: Segment) -> None:
        """The segment's index changes: drop its window."""
        self._held.pop(segment, None)

    def keep(self, segment: Segment, window: IndexWindow) -> None:
        self._held.pop(segment, None)
        if len(self._held) >= self._most:
            self._held.pop(next(iter(self._held)))
        self._held[segment] = window


def locate(files: Files, segment: Segment, offset: int) -> IndexWindow | None:
    """Read what a search for an offset needs into the page cache. Returns the window if the file was searched."""
    start = segment.start_of(offset)
    window = None
    if start < 0:
        relative = offset - segment.base_offset
        window = IndexWindow.load(files, segment, relative)
        start = window.entries.lookup(relative)
    segment.seek(offset, start, may_wait=True)
    return window
