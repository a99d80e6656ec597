# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The segments of a log, and where in them the bytes of an offset are: each partition of each Fetch asks for that.

Gives ranges of files, never bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import cython

from ....protocol.errors import ErrorCode, KafkaError
from ..disk._data_file import FileRange
from ..disk.errors import fresh_copy
from ..disk.files import Files
from ._limits import AppendLimits
from ._segment import Segment
from ._tail import LogTail
from .aborted_indexes import AbortedIndex, AbortedIndexes
from .index_window import IndexWindows
from .status import LogStatus
from .transactions import TransactionIndex

if cython.compiled:
    from cython.cimports.isthmus.core_broker.storage.disk._data_file import size_of
else:
    from ..disk._data_file import size_of

if TYPE_CHECKING:
    from ....compiled import Public

_ANY_OFFSET: cython.longlong = -(2**63 - 1)
_INTERVALS_MIN: cython.longlong = 16
_SURE_SHARE: cython.longlong = 8

ANY_OFFSET = _ANY_OFFSET
INTERVALS_MIN = _INTERVALS_MIN  # of the index: a shorter range stays as it was cut, in the middle of a batch
SURE_SHARE = _SURE_SHARE  # more than one part in so many is left out of a range only where one batch has all of it


class NotCached(Exception):
    """A read needs what the page cache does not have, and may not wait. `index_window.bring(this)` waits for it."""

    def __init__(self, ranges: LogRanges, segment: Segment, offset: int) -> None:
        super().__init__(f"{ranges.status.name}: offset {offset}")
        self.ranges = ranges
        self.segment = segment
        self.offset = offset


@cython.cclass
class LogRanges:
    """See the module. A log's parts change `segments` and `bases` together."""

    tail: Public[LogTail]
    status: Public[LogStatus]
    files: Public[Files]
    segments: Public[list[Segment]]  # by their offsets; the last is the active one
    bases: Public[list[int]]  # their first offsets
    windows: Public[IndexWindows]  # pieces of closed segments' indexes; the manager has one for all logs
    aborted_indexes: Public[AbortedIndexes]  # the same
    unreadable: Public[Callable[[OSError], None]]  # called when a range that was given out cannot be read
    cuts: Public[cython.longlong]  # how often the log was truncated

    def __init__(self, files: Files, tail: LogTail, status: LogStatus, segments: list[Segment]) -> None:
        self.files = files
        self.tail = tail
        self.status = status
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        self.windows = IndexWindows()
        self.aborted_indexes = AbortedIndexes()
        self.unreadable = status.unreadable  # bound once, for all ranges
        self.cuts = 0

    @property
    def size_bytes(self) -> int:
        """Of all segments."""
        return sum([segment.size_bytes for segment in self.segments])

    def ranges(
        self,
        offset: int,
        max_bytes: int,
        upper_offset: int | None = None,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> list[FileRange]:
        """`ranges_up_to` from Python; upper_offset None: the log's end."""
        return self.ranges_up_to(
            offset, max_bytes, self.tail.log_end_offset if upper_offset is None else upper_offset, min_one, may_wait
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
        """See `Log.read`."""
        ranges: list = []
        segment: Segment
        count: cython.Py_ssize_t
        number: cython.Py_ssize_t
        position: cython.longlong
        first_bytes: cython.longlong
        size: cython.longlong
        limit: cython.longlong
        left: cython.longlong = max_bytes
        end: cython.longlong = self.tail.log_end_offset
        if self.tail.failure is not None:
            raise fresh_copy(self.tail.failure)
        if offset < self.tail.log_start_offset or offset > end:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.status.name}: offset {offset} is not between {self.tail.log_start_offset} and {end}",
            )
        if upper > end:
            upper = end
        if offset >= upper:
            return ranges
        count = len(self.segments)
        number = bisect_right(self.bases, offset) - 1
        if number < 0:
            number = 0
        segment = self.segments[number]
        try:
            while left > 0 or (min_one and not ranges):
                if number == count:
                    break
                segment = self.segments[number]
                if segment.base_offset >= upper:
                    break
                number += 1
                position, first_bytes = 0, 0
                if not ranges:
                    position, first_bytes = self._locate(segment, offset, may_wait)
                if upper > segment.last_offset:
                    limit = size_of(segment.file)
                else:
                    limit = self._locate(segment, upper, may_wait)[0]
                size = limit - position
                if size > left:
                    if not ranges:
                        first_bytes = first_bytes or self._size_at(segment, position, may_wait)
                        if first_bytes > left:
                            if not min_one:
                                break
                            left = min(first_bytes, size)
                    size = left
                if size > 0:
                    ranges.append(FileRange(segment.file, position, size, self.unreadable))
                    left -= size
        except BlockingIOError:
            raise NotCached(self, segment, offset) from None
        except OSError as error:
            raise self.status.refuse(error, "cannot read from") from error
        return ranges

    @cython.ccall
    @cython.exceptval(-1)
    def end_with_batch(self, offset: cython.longlong, ranges: list) -> cython.longlong:
        """Shorten ranges that a limit in bytes cut off in the middle of a batch; gives by how many bytes.

        A reader would get the first part of that batch twice. So the last range ends with the last batch that an index
        in memory knows. Beside the batch that was cut this leaves out at most one interval of the index.
        """
        limits: AppendLimits = self.tail.config.limits
        last: FileRange = ranges[len(ranges) - 1]
        segment: Segment
        position: cython.longlong
        left: cython.longlong
        end: cython.longlong = last.position + last.size_bytes
        count: cython.Py_ssize_t = len(self.segments)
        number: cython.Py_ssize_t = max(bisect_right(self.bases, offset) - 1, 0)
        if last.size_bytes < limits.index_interval_bytes * _INTERVALS_MIN:
            return 0
        while number < count:
            segment = self.segments[number]
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
    def _locate(self, segment: Segment, offset: cython.longlong, may_wait: cython.bint) -> tuple:
        """Where the first batch with `offset` or later is in a segment, and its size in bytes, 0 if it is not known.

        The segment's end if there is none. Raises BlockingIOError where it would have to wait for the disk and may not.
        """
        if segment is self.tail.active and self.tail.recent is not None:
            recent = self.tail.recent.get(offset)
            if recent is not None:
                return recent, 0
        start: cython.longlong = segment.start_of(offset)
        if start < 0:
            start = self.windows.start_of(segment, offset - segment.base_offset)
            if start < 0:
                if not may_wait:
                    raise BlockingIOError
                start = segment.start_on_disk(self.files, offset)
        return segment.seek(offset, start, may_wait)

    @cython.cfunc
    @cython.exceptval(-1)
    def _size_at(self, segment: Segment, position: cython.longlong, may_wait: cython.bint) -> cython.longlong:
        """The size of the batch at a position. Raises KafkaError CORRUPT_MESSAGE, and BlockingIOError as `_locate`."""
        size_bytes: cython.longlong = segment.seek(_ANY_OFFSET, position, may_wait)[1]
        if size_bytes:
            return size_bytes
        raise KafkaError.of(  # another process has changed the file
            ErrorCode.CORRUPT_MESSAGE, f"{segment.file.path}: no batch at position {position}"
        )

    def has(self, segment: Segment) -> bool:
        """Whether it is still a segment of the log. Its files may be gone as soon as it is not."""
        number = bisect_left(self.bases, segment.base_offset)
        return number < len(self.segments) and self.segments[number] is segment

    def from_offset(self, offset: int) -> list[Segment]:
        """The segment that holds an offset, and all after it."""
        return self.segments[max(0, bisect_right(self.bases, offset) - 1) :]

    @cython.ccall
    def aborted(self, offset: cython.longlong, upper: cython.longlong, may_wait: cython.bint) -> list | None:
        """(first offset, producer id), ascending, of aborted transactions that overlap the offsets from `offset` to
        before `upper`. None where that takes a look at a file, and it may not wait for one.

        Raises OSError.
        """
        segment: Segment
        number: cython.Py_ssize_t
        found: list = []
        for number in range(max(0, bisect_right(self.bases, offset) - 1), len(self.segments)):
            segment = self.segments[number]
            if segment.has_aborted is False and segment.aborted is None:
                continue
            index = self.aborted_indexes.get(segment)
            if index is None:
                if not may_wait:
                    return None
                index = self._read_aborted(segment)
            if index.least_first < upper and index.overlapping(offset, upper, found):
                break
        found.sort()
        return found

    def _read_aborted(self, segment: Segment) -> AbortedIndex:
        index = AbortedIndex(TransactionIndex.read(self.files, segment))
        if segment.has_aborted and segment.aborted is None:
            self.aborted_indexes.keep(segment, index)
        return index

    @cython.ccall
    @cython.exceptval(-1)
    def end_of(self, ranges: list, offset: cython.longlong, upper: cython.longlong) -> cython.longlong:
        """An offset that no whole batch of ranges from `offset` on reaches; at most `upper`."""
        last: FileRange = ranges[len(ranges) - 1]
        segment: Segment
        position: cython.longlong = last.position + last.size_bytes
        end: cython.longlong
        number: cython.Py_ssize_t
        for number in range(max(0, bisect_right(self.bases, offset) - 1), len(self.segments)):
            segment = self.segments[number]
            if segment.file is last.file:
                end = -1
                if position < size_of(segment.file):
                    end = segment.offset_from(position)
                    if end < 0:
                        end = self.windows.offset_from(segment, position)
                if end < 0:
                    end = segment.last_offset + 1
                return min(end, upper)
        return upper


@cython.cfunc
@cython.exceptval(-1)
def _is_longer(segment: Segment, position: cython.longlong, bytes_left: cython.longlong) -> cython.bint:
    """Whether a batch is larger than that. An index may have been written with a larger interval than today's."""
    try:
        size_bytes: cython.longlong = segment.seek(_ANY_OFFSET, position, False)[1]
    except OSError:  # not in the page cache, or the read of it will say what is wrong
        return False
    return size_bytes > bytes_left
