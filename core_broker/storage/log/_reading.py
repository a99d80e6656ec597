# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (names declared in _reading.pxd)
# mypy: ignore-errors
"""Where the bytes of a log are: what each partition of each Fetch asks, so that it costs C calls when compiled.

`LogReader` is made of `LogRanges` and of all that is asked less often.
"""

from bisect import bisect_right

import cython

from ....protocol.errors import ErrorCode, KafkaError
from ..disk._data_file import FileRange
from ..disk.errors import anew
from ._tail import AppendLimits, LogTail, SegmentTail

# C variables when compiled, see _reading.pxd.
_ANY_OFFSET = -(2**63 - 1)
_INTERVALS_MIN = 16
_SURE_SHARE = 8

ANY_OFFSET = _ANY_OFFSET
INTERVALS_MIN = _INTERVALS_MIN  # of the index: a range of fewer ends where its room does, not with a batch
SURE_SHARE = _SURE_SHARE  # more than one part in so many is left out of a range only where one batch has all of it


class NotCached(Exception):
    """A read needs what the page cache does not have, and was told not to wait: `log.bring(this)` waits for it."""

    def __init__(self, log, segment, offset):
        super().__init__(f"{log.name}: offset {offset}")
        self.log = log
        self.segment = segment
        self.offset = offset


@cython.cclass
class LogRanges(LogTail):
    """_segments: of the log, by their offsets; _bases: their first offsets. windows: see index_window.py.

    _unreadable: is told when a range that was given out cannot be read.
    """

    __slots__ = ("_bases", "_segments", "_unreadable", "directory", "files", "name", "windows")

    def ranges(self, offset, max_bytes, upper_offset=None, min_one=True, may_wait=True):
        """`ranges_up_to` from Python; upper_offset None: the log's end."""
        return self.ranges_up_to(
            offset, max_bytes, self.log_end_offset if upper_offset is None else upper_offset, min_one, may_wait
        )

    @cython.cfunc
    def ranges_up_to(
        self,
        offset: cython.longlong,
        max_bytes: cython.longlong,
        upper: cython.longlong,
        min_one: cython.bint,
        may_wait: cython.bint,
    ) -> list:
        """See `LogReader.read`."""
        ranges: list = []
        segment: SegmentTail
        count: cython.Py_ssize_t
        number: cython.Py_ssize_t
        position: cython.longlong
        first_bytes: cython.longlong
        size: cython.longlong
        limit: cython.longlong
        room: cython.longlong = max_bytes
        end: cython.longlong = self.log_end_offset
        if self.failure is not None:
            raise anew(self.failure)
        if offset < self.log_start_offset or offset > end:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is not between {self.log_start_offset} and {end}",
            )
        if upper > end:
            upper = end
        if offset >= upper:
            return ranges
        count = len(self._segments)
        number = bisect_right(self._bases, offset) - 1
        if number < 0:
            number = 0
        segment = self._segments[number]
        try:
            while room > 0 or (min_one and not ranges):
                if number == count:
                    break
                segment = self._segments[number]
                if segment.base_offset >= upper:
                    break
                number += 1
                position, first_bytes = 0, 0
                if not ranges:
                    position, first_bytes = self._locate(segment, offset, may_wait)
                if upper > segment.last_offset:
                    limit = size_bytes_of(segment.file) if cython.compiled else segment.file.size
                else:
                    limit = self._locate(segment, upper, may_wait)[0]
                size = limit - position
                if size > room:
                    if not ranges:
                        first_bytes = first_bytes or self._size_at(segment, position, may_wait)
                        if first_bytes > room:
                            if not min_one:
                                break
                            room = min(first_bytes, size)
                    size = room
                if size > 0:
                    ranges.append(FileRange(segment.file, position, size, self._unreadable))
                    room -= size
        except BlockingIOError:
            raise NotCached(self, segment, offset) from None
        except OSError as error:
            raise self._refuse(error, "cannot read from") from error
        return ranges

    @cython.ccall
    @cython.exceptval(-1)
    def end_with_batch(self, offset: cython.longlong, ranges: list) -> cython.longlong:
        """Take out of what was found from an offset on, as much as there was room for, the batch that does not end.

        What a reader gets of it, it would get once more. So the last range ends with the last batch that an index in
        memory knows of; what goes beside the one that does not end are batches of less than an interval of the index.
        Gives how many bytes were taken out.
        """
        limits: AppendLimits = self.config.limits
        last: FileRange = ranges[len(ranges) - 1]
        segment: SegmentTail
        position: cython.longlong
        left: cython.longlong
        end: cython.longlong = last.position + last.size_bytes
        count: cython.Py_ssize_t = len(self._segments)
        number: cython.Py_ssize_t = max(bisect_right(self._bases, offset) - 1, 0)
        if last.size_bytes < limits.index_interval_bytes * _INTERVALS_MIN:
            return 0
        while number < count:
            segment = self._segments[number]
            if segment.file is last.file:
                break
            number += 1
        else:
            return 0
        position = segment.indexed_before(end)
        if position < 0:
            position = self.windows.indexed_before(segment, end)
        left = end - position
        if position <= last.position or (
            left > last.size_bytes // _SURE_SHARE and not _is_longer(segment, position, left)
        ):
            return 0
        ranges[len(ranges) - 1] = FileRange(last.file, last.position, position - last.position, last.unreadable)
        return left

    @cython.cfunc
    def _locate(self, segment: SegmentTail, offset: cython.longlong, may_wait: cython.bint) -> tuple:
        """Where the first batch with `offset` or later is in a segment, and its size in bytes, 0 if that was not seen.

        The segment's end if there is none. Raises BlockingIOError where it may not wait for the disk and would have to.
        """
        if segment is self._active and self._positions is not None:
            position = self._positions.get(offset)
            if position is not None:
                return position, 0
        start: cython.longlong = segment.start_of(offset)
        if start < 0:
            start = self.windows.start_of(segment, offset - segment.base_offset)
            if start < 0:
                if not may_wait:
                    raise BlockingIOError
                start = segment.start_on_disk(self.files, offset)
        return segment.sought(offset, start, may_wait)

    @cython.cfunc
    @cython.exceptval(-1)
    def _size_at(self, segment: SegmentTail, position: cython.longlong, may_wait: cython.bint) -> cython.longlong:
        """The size of the batch at a position. Raises KafkaError CORRUPT_MESSAGE, and BlockingIOError as `_locate`."""
        size_bytes: cython.longlong = segment.sought(_ANY_OFFSET, position, may_wait)[1]
        if size_bytes:
            return size_bytes
        raise KafkaError.of(  # somebody else has changed the file
            ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path}: no batch at position {position}"
        )

    @cython.cfunc
    @cython.exceptval(-1)
    def has_none_aborted(self, offset: cython.longlong) -> cython.bint:
        """Whether it is known that no transaction was aborted in the segment of an offset or later."""
        number: cython.Py_ssize_t
        for number in range(max(0, bisect_right(self._bases, offset) - 1), len(self._segments)):
            segment = self._segments[number]
            if segment.aborted is not None or segment.has_aborted is not False:
                return False
        return True


@cython.cfunc
@cython.exceptval(-1)
def _is_longer(segment: SegmentTail, position: cython.longlong, room: cython.longlong) -> cython.bint:
    """Whether a batch has more bytes. An index may be as sparse as an interval was that it was written with."""
    try:
        size_bytes: cython.longlong = segment.sought(_ANY_OFFSET, position, False)[1]
    except OSError:  # not in the page cache, or who reads it is told what is wrong
        return False
    return size_bytes > room
