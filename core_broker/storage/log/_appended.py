# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (names declared in _appended.pxd)
# mypy: ignore-errors
"""What grows with appends besides the file: a segment's indexes, and the list of where the last few appends end.

`OffsetIndex` and `TimeIndex` are made of these classes and of all that is done less often.
"""

from array import array

import cython

# A C variable when compiled, see _appended.pxd.
_POSITIONS_KEPT = 64  # of recent appends, so that readers at the tail need no search

POSITIONS_KEPT = _POSITIONS_KEPT


@cython.cclass
class OffsetTail:
    """What of an offset index is in memory; _before: how many entries only its file has. See OffsetIndex."""

    __slots__ = (
        "_before",
        "_positions",
        "_relative",
    )

    def __len__(self):
        return self._before + len(self._relative)

    def append(self, relative_offset: cython.int, position: cython.int):
        self.take(relative_offset, position)

    @cython.cfunc
    @cython.exceptval(-1)
    def take(self, relative_offset: cython.longlong, position: cython.longlong) -> cython.int:
        _push_int(self._positions, position)  # before what a search on another thread goes by
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
        """The last entry's at or before it; -1 where memory has none."""
        found: cython.Py_ssize_t = _count_up_to(self._positions, position)
        return _int_at(self._positions, found - 1) if found else -1


@cython.cclass
class TimeTail:
    """What of a time index is in memory; _last_before: the last entry that only its file has. See TimeIndex."""

    __slots__ = (
        "_before",
        "_last_before",
        "_relative",
        "_timestamps",
    )

    def __len__(self):
        return self._before + len(self._timestamps)

    def append(self, timestamp: cython.longlong, relative_offset: cython.int):
        """Takes an entry only when its timestamp is larger than all before it."""
        self.take(timestamp, relative_offset)

    @cython.cfunc
    @cython.exceptval(-1)
    def take(self, timestamp: cython.longlong, relative_offset: cython.longlong) -> cython.int:
        newest: cython.longlong = _last_long(self._timestamps) if len(self._timestamps) else self._last_before[0]
        if timestamp > newest:
            _push_int(self._relative, relative_offset)  # before what a search on another thread goes by
            try:
                _push_long(self._timestamps, timestamp)
            except BaseException:
                self._relative.pop()
                raise
        return 0


@cython.cfunc
@cython.inline
@cython.exceptval(-1)
def _push_int(values: array, value: cython.longlong) -> cython.int:
    at: cython.Py_ssize_t = len(values)
    if cython.compiled:
        if not -2147483648 <= value <= 2147483647:
            raise OverflowError(f"{value} is not of four bytes")  # as the array itself says, in other words
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
        return values[-1]


@cython.final
@cython.cclass
class Positions:
    """Where the last POSITIONS_KEPT appends to a segment end, by the offset that the next batch begins with."""

    __slots__ = ("_count", "_offsets", "_positions")

    def __init__(self):
        self._count = 0
        if not cython.compiled:
            self._offsets, self._positions = [0] * _POSITIONS_KEPT, [0] * _POSITIONS_KEPT

    def append(self, offset: cython.longlong, position: cython.longlong):
        self.take(offset, position)

    @cython.cfunc
    @cython.exceptval(check=False)
    def take(self, offset: cython.longlong, position: cython.longlong) -> cython.void:
        at: cython.longlong = self._count % _POSITIONS_KEPT
        self._offsets[at] = offset
        self._positions[at] = position
        self._count += 1

    def get(self, offset: cython.longlong):
        """The position of a batch, None if it is not known."""
        i: cython.longlong
        for i in range(self._count - 1, max(self._count - _POSITIONS_KEPT, 0) - 1, -1):
            if self._offsets[i % _POSITIONS_KEPT] == offset:
                return self._positions[i % _POSITIONS_KEPT]
        return None

    def rows(self):
        """(offset, position) of each, oldest first."""
        i: cython.longlong
        found: list = []
        for i in range(max(self._count - _POSITIONS_KEPT, 0), self._count):
            found.append((self._offsets[i % _POSITIONS_KEPT], self._positions[i % _POSITIONS_KEPT]))
        return found
