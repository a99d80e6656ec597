"""The two sparse indexes of a segment, in Kafka's binary formats.

Offset index: (int32 last offset of a batch minus the segment's base, int32 position of that batch). Time index:
(int64 largest timestamp so far, int32 relative last offset of the batch that has it), timestamps rising. Big-endian.
What an active segment's indexes gain lives in memory and reaches their files when the segment closes: after a crash
they are made anew from the log. What the files had when the segment was opened stays there, and so does all of a
closed segment's: files are searched in place. So a partition that is only there costs no memory for its indexes.
"""

from __future__ import annotations

import errno
import struct
import sys
from array import array
from bisect import bisect_right
from typing import NamedTuple

from ..disk.files import File, Files
from ._appended import OffsetTail, TimeTail

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
NO_TIME = (-1, 0)  # the last entry of a time index that has none


def _big_endian(values: array) -> array:
    copy = array(values.typecode, values)
    if sys.byteorder == "little":
        copy.byteswap()
    return copy


class OffsetIndex(OffsetTail):
    """Relative offset -> position of a batch that begins at or before it."""

    __slots__ = ("_written",)

    def __init__(self, before: int = 0) -> None:
        """before: entries that the file has and memory has not."""
        self._relative = array("i")
        self._positions = array("i")
        self._before = before
        self._written = before  # entries that the file has

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in memory."""
        return not self._before

    def truncate(self, position: int) -> None:
        """Forget batches at or after a position. The index must be whole."""
        assert not self._before
        kept = len(self._positions)
        while kept and self._positions[kept - 1] >= position:
            kept -= 1
        del self._relative[kept:], self._positions[kept:]
        self._written = min(self._written, kept)

    def encode(self, start: int = 0) -> bytes:
        start -= self._before
        pairs = array("i", bytes(8 * (len(self._relative) - start)))
        pairs[0::2] = self._relative[start:]
        pairs[1::2] = self._positions[start:]
        return _big_endian(pairs).tobytes()

    def write(self, files: Files, path: str) -> None:
        self._written = _write(files, path, self.encode(self._written), self._written, len(self), OFFSET_ENTRY.size)

    @classmethod
    def load(cls, data: bytes) -> OffsetIndex:
        index = cls()
        pairs = array("i", data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index._relative = pairs[0::2]
        index._positions = pairs[1::2]
        index._written = len(index)
        return index


class TimeIndex(TimeTail):
    """Timestamp -> relative offset of a batch, all batches before which are older."""

    __slots__ = ("_written",)

    def __init__(self, before: int = 0, last: tuple[int, int] = NO_TIME) -> None:
        """before: entries that the file has and memory has not, the last of which is `last`."""
        self._timestamps = array("q")
        self._relative = array("i")
        self._before = before
        self._last_before = last
        self._written = before

    @property
    def is_whole(self) -> bool:
        """Whether all of it is in memory."""
        return not self._before

    def lookup(self, timestamp: int) -> int | None:
        """The relative offset of the last entry at or below a timestamp, else 0. None when the file must be asked."""
        found = bisect_right(self._timestamps, timestamp)
        if found:
            return self._relative[found - 1]
        return None if self._before else 0

    @property
    def last(self) -> tuple[int, int]:
        return (self._timestamps[-1], self._relative[-1]) if self._timestamps else self._last_before

    def truncate(self, relative_offset: int) -> None:
        """Forget entries at or after a relative offset. The index must be whole."""
        assert not self._before
        kept = len(self._relative)
        while kept and self._relative[kept - 1] >= relative_offset:
            kept -= 1
        del self._timestamps[kept:], self._relative[kept:]
        self._written = min(self._written, kept)

    def encode(self, start: int = 0) -> bytes:
        start -= self._before
        return b"".join(map(TIME_ENTRY.pack, self._timestamps[start:], self._relative[start:]))

    def write(self, files: Files, path: str) -> None:
        self._written = _write(files, path, self.encode(self._written), self._written, len(self), TIME_ENTRY.size)

    @classmethod
    def load(cls, data: bytes) -> TimeIndex:
        index = cls()
        for timestamp, relative in TIME_ENTRY.iter_unpack(data):
            index._timestamps.append(timestamp)
            index._relative.append(relative)
        index._written = len(index)
        return index


def _write(files: Files, path: str, data: bytes, written: int, count: int, entry_bytes: int) -> int:
    """Bring a file to `count` entries, of which it has the first `written`; gives `count`."""
    file = files.open(path)
    try:
        written = min(written, count)
        if file.size > written * entry_bytes:
            file.truncate(written * entry_bytes)
        if data:
            file.pwrite(data, written * entry_bytes)
    finally:
        file.close()
    return count


def search_offset_index(files: Files, path: str, relative_offset: int) -> int:
    """`OffsetIndex.lookup` on a closed segment's file."""
    entry = _search(files, path, OFFSET_ENTRY, relative_offset)
    return entry[1] if entry else 0


def search_time_index(files: Files, path: str, timestamp: int) -> int:
    """`TimeIndex.lookup` on a closed segment's file."""
    entry = _search(files, path, TIME_ENTRY, timestamp)
    return entry[1] if entry else 0


def _search(files: Files, path: str, entry: struct.Struct, key: int) -> tuple[int, int] | None:
    """The last entry whose first number is at most `key`."""
    file = files.open(path, create=False)
    try:
        low, high = 0, file.size // entry.size
        best = None
        while low < high:
            middle = (low + high) // 2
            found = read_entry(file, entry, middle)
            if found[0] <= key:
                best = found
                low = middle + 1
            else:
                high = middle
        return best
    finally:
        file.close()


def read_entry(file: File, entry: struct.Struct, number: int) -> tuple[int, int]:
    """Raises OSError, ESTALE where the file was cut since it was opened."""
    data = file.pread(entry.size, number * entry.size)
    if len(data) < entry.size:
        raise OSError(errno.ESTALE, f"it ends before entry {number}", file.path)
    found: tuple[int, int] = entry.unpack(data)
    return found


def glance(files: Files, path: str, entry: struct.Struct) -> tuple[int, tuple[int, int] | None] | None:
    """How many entries an index file has, and the last one; None without a file, or with half an entry at its end."""
    try:
        file = files.open(path, create=False)
    except FileNotFoundError:
        return None
    try:
        count, rest = divmod(file.size, entry.size)
        if rest:
            return None
        return count, read_entry(file, entry, count - 1) if count else None
    finally:
        file.close()


def is_sane(files: Files, path: str, log_bytes: int) -> bool:
    """Whether a closed segment's offset index can be used: whole entries, numbers that can be."""
    found = glance(files, path, OFFSET_ENTRY)
    return found is not None and is_within(found[1], log_bytes)


def is_within(last: tuple[int, int] | None, log_bytes: int) -> bool:
    """Whether the last entry of an offset index points into a log of so many bytes."""
    return last is None or (last[0] >= 0 and 0 <= last[1] < log_bytes)


# --- Aborted transactions -------------------------------------------------------------------------------------------

_ABORTED = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset then
_ABORTED_VERSION = 0
ABORTED_ENTRY_BYTES = _ABORTED.size


class AbortedTransaction(NamedTuple):
    """A span of offsets in which one producer's transactional records are void."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # when the marker was written


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """The entry of a transaction index."""
    return _ABORTED.pack(_ABORTED_VERSION, *aborted)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a transaction index; half an entry at its end, which a crash may leave, is left out."""
    whole = len(data) - len(data) % _ABORTED.size
    return [AbortedTransaction(*row[1:]) for row in _ABORTED.iter_unpack(data[:whole])]
