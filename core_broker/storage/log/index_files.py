"""The formats of a segment's index files, which are Kafka's, and searches in them.

Offset index: (int32 last offset of a batch minus the segment's base, int32 position of that batch). Time index:
(int64 largest timestamp so far, int32 relative last offset of its batch), with increasing timestamps. Transaction
index: one entry for each abort marker of the segment (KIP-98). All are big-endian.
"""

from __future__ import annotations

import errno
import struct
from typing import NamedTuple

from ..disk.files import File, Files

OFFSET_ENTRY = struct.Struct(">ii")
TIME_ENTRY = struct.Struct(">qi")
NO_TIME = (-1, 0)  # stands for the last entry of an empty time index
ABORTED_ENTRY = struct.Struct(">hqqqq")  # version, producer id, first offset, last offset, last stable offset
_ABORTED_VERSION = 0


def write_entries(files: Files, path: str, data: bytes, written: int, count: int, entry_bytes: int) -> int:
    """Append to a file, which has the first `written` entries, so that it has `count`. Returns `count`."""
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
    """`OffsetIndex.lookup` in a closed segment's file."""
    entry = _search(files, path, OFFSET_ENTRY, relative_offset)
    return entry[1] if entry else 0


def search_time_index(files: Files, path: str, timestamp: int) -> int:
    """`TimeIndex.lookup` in a closed segment's file."""
    entry = _search(files, path, TIME_ENTRY, timestamp)
    return entry[1] if entry else 0


def _search(files: Files, path: str, entry: struct.Struct, key: int) -> tuple[int, int] | None:
    file = files.open(path, create=False)
    try:
        return last_up_to(file, entry, key)[1]
    finally:
        file.close()


def last_up_to(file: File, entry: struct.Struct, key: int) -> tuple[int, tuple[int, int] | None]:
    """The last entry whose first field is at most `key`, as (its number, entry); (-1, None) if there is none."""
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
    return low - 1, best


def read_entry(file: File, entry: struct.Struct, number: int) -> tuple[int, int]:
    """One entry. Raises OSError; ESTALE if the file was cut after it was opened."""
    data = file.pread(entry.size, number * entry.size)
    if len(data) < entry.size:
        raise OSError(errno.ESTALE, f"it ends before entry {number}", file.path)
    found: tuple[int, int] = entry.unpack(data)
    return found


def glance(files: Files, path: str, entry: struct.Struct) -> tuple[int, tuple[int, int] | None] | None:
    """The number of entries in an index file, and its last one; None if it is missing or ends with half an entry."""
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
    """Whether a closed segment's offset index can be used: its entries are whole and the last one is plausible."""
    found = glance(files, path, OFFSET_ENTRY)
    return found is not None and is_within(found[1], log_bytes)


def is_within(last: tuple[int, int] | None, log_bytes: int) -> bool:
    """Whether the last entry of an offset index points into a log of this size."""
    return last is None or (last[0] >= 0 and 0 <= last[1] < log_bytes)


class AbortedTransaction(NamedTuple):
    """A range of offsets in which the transactional records of one producer are aborted."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker
    last_stable_offset: int  # when the marker was written


def encode_aborted(aborted: AbortedTransaction) -> bytes:
    """The entry of a transaction index."""
    return ABORTED_ENTRY.pack(_ABORTED_VERSION, *aborted)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    """The entries of a transaction index. Half an entry at its end, which a crash may leave, is ignored."""
    whole = len(data) - len(data) % ABORTED_ENTRY.size
    return [AbortedTransaction(*row[1:]) for row in ABORTED_ENTRY.iter_unpack(data[:whole])]
