"""Compares a segment's index files with its batches, by the rules of Kafka's DumpLogSegments and one more.

An entry of the offset index must point to a batch that ends with the entry's offset. An entry of the time index must
name the first batch with the entry's timestamp as its largest one. The last entry must have the segment's largest
timestamp, which retention and searches rely on. An index with fewer entries than usual only makes reads slower; it is
reported if more than SPARSE_BYTES have no entry.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from ..disk.files import Files
from ..log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, file_name
from ..log.index_files import OFFSET_ENTRY, TIME_ENTRY

SPARSE_BYTES = 16 << 20  # of log without an entry; a read that scans more than this is noticeably slow


class IndexCheck:
    """Call `batch` for each valid batch of the segment in order, then `end`.

    refused: called for a file that the operating system refuses to read. The other file is still checked.
    """

    def __init__(self, files: Files, directory: str, base_offset: int, refused: Callable[[str, OSError], None]) -> None:
        self._base = base_offset
        self._offsets = _Entries(files, directory, file_name(base_offset, INDEX_SUFFIX), OFFSET_ENTRY, refused)
        self._times = _Entries(files, directory, file_name(base_offset, TIME_INDEX_SUFFIX), TIME_ENTRY, refused)
        self._max_timestamp = self._max_of_emptied = -1
        self._indexed = 0  # position of the last batch that has an entry
        self._batches = 0  # since that position
        self._sparse = 0

    def batch(
        self,
        position: int,
        size_bytes: int,
        first_offset: int,
        last_offset: int,
        max_timestamp: int,
        is_emptied: bool = False,
    ) -> None:
        """max_timestamp: from the batch's header. is_emptied: compaction has removed all of its records, so that no
        search looks for its timestamp. The time index may list it nevertheless: one that Kafka has rebuilt does."""
        offsets, times = self._offsets, self._times
        while offsets.key < position:
            offsets.wrong(f"no batch begins at position {offsets.key}")
        if offsets.key == position:
            if offsets.value != last_offset - self._base:
                offsets.wrong(f"the batch at position {position} ends at offset {last_offset}")
            else:
                offsets.advance()
            self._indexed, self._batches = position, 0
        self._batches += 1
        reach = position + size_bytes - self._indexed
        if reach > self._sparse and self._batches > 1:
            self._sparse = reach
        before = self._max_timestamp
        if is_emptied:
            self._max_of_emptied = max(self._max_of_emptied, max_timestamp)
        else:
            self._max_timestamp = max(before, max_timestamp)
        while times.key < first_offset - self._base:
            times.wrong(f"no batch holds offset {self._base + times.key}")
        while times.key <= last_offset - self._base:
            if times.value != max_timestamp:
                times.wrong(
                    f"the largest timestamp of the batch with offset {self._base + times.key} is {max_timestamp}"
                )
            elif times.value <= before:
                times.wrong(f"an earlier batch has timestamp {before}")
            else:
                times.advance()

    def end(self, is_empty: bool) -> Iterator[tuple[str, str]]:
        """Yield (file name, what is wrong with it), at most once for each file. An empty segment needs no indexes."""
        if is_empty and self._offsets.is_missing and self._times.is_missing:
            return
        for entries in (self._offsets, self._times):
            while entries.key < _END:
                entries.wrong("it points past the end of the log")
        complaint = self._offsets.complaint
        if complaint is None and self._sparse > SPARSE_BYTES:
            complaint = f"it has no entry for {self._sparse} bytes in a row"
        if complaint is not None and not self._offsets.is_refused:
            yield self._offsets.name, complaint
        complaint = self._times.complaint
        largest = self._max_timestamp
        if complaint is None and self._times.last not in (largest, max(largest, self._max_of_emptied)):
            complaint = f"it ends at timestamp {self._times.last}, but the segment's largest is {largest}"
        if complaint is not None and not self._times.is_refused:
            yield self._times.name, complaint


_END = 1 << 62


class _Entries:
    """The entries of one file, ordered by what they point to. `key` and `value` belong to the next entry."""

    __slots__ = ("_left", "complaint", "is_missing", "is_refused", "key", "last", "name", "value")

    def __init__(
        self, files: Files, directory: str, name: str, entry: struct.Struct, refused: Callable[[str, OSError], None]
    ) -> None:
        self.name = name
        self.is_refused = False
        self.complaint: str | None = None
        self.last = -1  # first field of the last entry
        found: list[tuple[int, int]] = []
        path = f"{directory}/{name}"
        self.is_missing = not files.exists(path)
        if self.is_missing:
            self.complaint = "it is missing"
        else:
            data = b""
            try:
                data = files.read(path)
            except OSError as error:
                self.is_refused = True
                refused(name, error)
            if len(data) % entry.size:
                self.complaint = f"its size, {len(data)} bytes, is not a multiple of the entry size, {entry.size}"
                data = data[: len(data) - len(data) % entry.size]
            found = list(entry.iter_unpack(data))
        for number in range(1, len(found)):
            if found[number][0] <= found[number - 1][0] or found[number][1] <= found[number - 1][1]:
                if self.complaint is None:
                    self.complaint = f"entry {number} {found[number]} is not above {found[number - 1]}"
                break
        if found:
            self.last = found[-1][0]
        found.sort(key=lambda pair: pair[1], reverse=True)
        self._left = found
        self.advance()

    def advance(self) -> None:
        if self._left:
            self.value, self.key = self._left.pop()
        else:
            self.value, self.key = -1, _END

    def wrong(self, why: str) -> None:
        """The next entry does not match the log. Keep the first reason, and go to the entry after it."""
        if self.complaint is None:
            self.complaint = f"entry ({self.value}, {self.key}): {why}"
        self.advance()
