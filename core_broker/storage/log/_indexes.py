# cython: auto_pickle=False
"""The two sparse indexes of a segment, as far as they are in memory (index_files.py has the formats of their files).

What an active segment's indexes gain is in memory and reaches their files when the segment closes: after a crash they
are built again from the log. What the files had when the segment was opened stays there, and so does all of a closed
segment's: files are searched in place. So a partition without traffic costs no memory for its indexes.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING

import cython

from ..disk.files import Files
from .index_files import NO_TIME, OFFSET_ENTRY, TIME_ENTRY, write_entries

if cython.compiled:
    from cython.cimports.cpython.array import resize_smart

if TYPE_CHECKING:
    from ....compiled import Public


@cython.cclass
class OffsetIndex:
    """Relative offset -> position of a batch that begins at or before it."""

    _before: Public[cython.Py_ssize_t]  # entries that the file has and memory has not
    _written: Public[cython.Py_ssize_t]  # entries that the file has
    _relative: Public[array[int]]
    _positions: Public[array[int]]

    def __init__(self, before: cython.Py_ssize_t = 0) -> None:
        """before: entries that the file has and memory has not."""
        self._relative = array("i")
        self._positions = array("i")
        self._before = before
        self._written = before

    @classmethod
    def of(cls, relative_offsets: array, positions: array) -> OffsetIndex:
        """An index of these entries, which its file has, too."""
        index = cls()
        index._relative = relative_offsets
        index._positions = positions
        index._written = len(relative_offsets)
        return index

    @classmethod
    def load(cls, data: bytes) -> OffsetIndex:
        """The index of a whole file."""
        pairs = _from_big_endian(array("i", data))
        return cls.of(pairs[0::2], pairs[1::2])

    def __len__(self) -> int:
        return self._before + len(self._relative)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in memory."""
        return not self._before

    @cython.ccall
    @cython.exceptval(-1)
    def append(self, relative_offset: cython.longlong, position: cython.longlong) -> cython.int:
        """Add an entry. Its position first: a search in another thread goes by the offsets."""
        _push_int(self._positions, position)
        try:
            _push_int(self._relative, relative_offset)
        except BaseException:
            self._positions.pop()  # else each later offset would be of the position before its own
            raise
        return 0

    @cython.ccall
    @cython.exceptval(check=False)
    def lookup(self, relative_offset: cython.longlong) -> cython.longlong:
        """Where to begin to look for an offset: the last entry at or below it, else the segment's start.

        -1 when the file must be asked.
        """
        found: cython.Py_ssize_t = _count_up_to(self._relative, relative_offset)
        if found:
            return _int_at(self._positions, found - 1)
        return -1 if self._before else 0

    @cython.ccall
    @cython.exceptval(check=False)
    def position_before(self, position: cython.longlong) -> cython.longlong:
        """The last entry's position that is at or before a position; -1 where memory has none."""
        found: cython.Py_ssize_t = _count_up_to(self._positions, position)
        return _int_at(self._positions, found - 1) if found else -1

    @cython.ccall
    @cython.exceptval(check=False)
    def offset_from(self, position: cython.longlong) -> cython.longlong:
        """The first entry's relative offset that is at or after a position; -1 where memory has none."""
        found: cython.Py_ssize_t = _count_up_to(self._positions, position - 1)
        return _int_at(self._relative, found) if found < len(self._relative) else -1

    def truncate(self, position: cython.longlong) -> None:
        """Forget batches at or after a position. The index must be whole."""
        assert not self._before
        kept: cython.Py_ssize_t = len(self._positions)
        while kept and _int_at(self._positions, kept - 1) >= position:
            kept -= 1
        del self._relative[kept:], self._positions[kept:]
        self._written = min(self._written, kept)

    def encode(self, start: cython.Py_ssize_t = 0) -> bytes:
        """Entries from number `start` on, as the file has them. Memory must have them."""
        start -= self._before
        pairs = array("i", bytes(OFFSET_ENTRY.size * (len(self._relative) - start)))
        pairs[0::2] = self._relative[start:]
        pairs[1::2] = self._positions[start:]
        return _from_big_endian(pairs).tobytes()

    def write(self, files: Files, path: str) -> None:
        """Bring the file up to what memory has."""
        data = self.encode(self._written)
        self._written = write_entries(files, path, data, self._written, len(self), OFFSET_ENTRY.size)


@cython.cclass
class TimeIndex:
    """Timestamp -> relative offset of a batch, all batches before which are older."""

    _before: Public[cython.Py_ssize_t]  # entries that the file has and memory has not,
    _last_before: Public[tuple[int, int]]  # and the last of these
    _written: Public[cython.Py_ssize_t]  # entries that the file has
    _timestamps: Public[array[int]]
    _relative: Public[array[int]]

    def __init__(self, before: cython.Py_ssize_t = 0, last: tuple[int, int] = NO_TIME) -> None:
        """before: entries that the file has and memory has not, the last of which is `last`."""
        self._timestamps = array("q")
        self._relative = array("i")
        self._before = before
        self._last_before = last
        self._written = before

    @classmethod
    def load(cls, data: bytes) -> TimeIndex:
        """The index of a whole file."""
        index = cls()
        for timestamp, relative in TIME_ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp)
            index._relative.append(relative)
        index._written = len(index)
        return index

    def __len__(self) -> int:
        return self._before + len(self._timestamps)

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in memory."""
        return not self._before

    @cython.ccall
    @cython.exceptval(-1)
    def append(self, timestamp: cython.longlong, relative_offset: cython.longlong) -> cython.int:
        """Add an entry, but only when its timestamp is larger than all before it."""
        newest: cython.longlong = _last_long(self._timestamps) if len(self._timestamps) else self._last_before[0]
        if timestamp > newest:
            _push_int(self._relative, relative_offset)  # before what a search in another thread goes by
            try:
                _push_long(self._timestamps, timestamp)
            except BaseException:
                self._relative.pop()
                raise
        return 0

    def lookup(self, timestamp: int) -> int | None:
        """The relative offset of the last entry at or below a timestamp, else 0. None when the file must be asked."""
        found = bisect_right(self._timestamps, timestamp)
        if found:
            return self._relative[found - 1]
        return None if self._before else 0

    @property
    def last(self) -> tuple[int, int]:
        """The last entry, NO_TIME where there is none."""
        count: cython.Py_ssize_t = len(self._timestamps)
        return (self._timestamps[count - 1], self._relative[count - 1]) if count else self._last_before

    def truncate(self, relative_offset: cython.longlong) -> None:
        """Forget entries at or after a relative offset. The index must be whole."""
        assert not self._before
        kept: cython.Py_ssize_t = len(self._relative)
        while kept and _int_at(self._relative, kept - 1) >= relative_offset:
            kept -= 1
        del self._timestamps[kept:], self._relative[kept:]
        self._written = min(self._written, kept)

    def encode(self, start: cython.Py_ssize_t = 0) -> bytes:
        """Entries from number `start` on, as the file has them. Memory must have them."""
        start -= self._before
        return b"".join(map(TIME_ENTRY.pack, self._timestamps[start:], self._relative[start:]))

    def write(self, files: Files, path: str) -> None:
        """Bring the file up to what memory has."""
        data = self.encode(self._written)
        self._written = write_entries(files, path, data, self._written, len(self), TIME_ENTRY.size)


def _from_big_endian(values: array) -> array:
    """A copy in the other byte order where this machine's is not the files'."""
    copy = array(values.typecode, values)
    if sys.byteorder == "little":
        copy.byteswap()
    return copy


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _push_int(values: array, value: cython.longlong) -> cython.int:
    at: cython.Py_ssize_t = len(values)
    if cython.compiled:
        if not -2147483648 <= value <= 2147483647:
            raise OverflowError(f"{value} does not fit into four bytes")  # as the array itself says, in other words
        resize_smart(values, at + 1)
        values.data.as_ints[at] = value
    else:
        values.append(value)
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _push_long(values: array, value: cython.longlong) -> cython.int:
    at: cython.Py_ssize_t = len(values)
    if cython.compiled:
        resize_smart(values, at + 1)
        values.data.as_longlongs[at] = value
    else:
        values.append(value)
    return 0


@cython.cfunc
@cython.exceptval(check=False)
def _count_up_to(values: array, most: cython.longlong) -> cython.Py_ssize_t:
    """How many of the values, which rise, are at most `most`."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = len(values)
    middle: cython.Py_ssize_t
    while low < high:
        middle = (low + high) // 2
        if _int_at(values, middle) <= most:
            low = middle + 1
        else:
            high = middle
    return low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int_at(values: array, i: cython.Py_ssize_t) -> cython.longlong:
    if cython.compiled:
        return values.data.as_ints[i]
    else:
        return values[i]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _last_long(values: array) -> cython.longlong:
    if cython.compiled:
        return values.data.as_longlongs[len(values) - 1]
    else:
        return values[len(values) - 1]
