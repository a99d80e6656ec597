"""A segment: one `.log` file of whole record batches with its two indexes.

Knows bytes, offsets and positions; decides nothing. Batches are seen by their headers only. Offsets in a segment fit
in 31 bits above its base, as Kafka's index format wants.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ...protocol.crc import crc32c
from ._tail import BOUNDS, SCAN_BYTES, SegmentTail
from .config import MAX_INT64, LogConfig
from .files import File, Files
from .index import (
    INDEX_SUFFIX,
    NO_TIME,
    OFFSET_ENTRY,
    TIME_ENTRY,
    TIME_INDEX_SUFFIX,
    OffsetIndex,
    TimeIndex,
    glance,
    is_within,
    search_offset_index,
    search_time_index,
)

if TYPE_CHECKING:
    from .transactions import AbortedTransaction

LOG_SUFFIX = ".log"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SNAPSHOT_SUFFIX = ".snapshot"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)

HEADER_SIZE = 61
LOG_OVERHEAD = 12  # base offset and length, which the length does not count
MAX_RELATIVE = 2**31 - 1

# base offset, length, partition leader epoch, magic, crc, attributes, last offset delta, base timestamp, max
# timestamp, producer id, producer epoch, base sequence, record count
HEADER = struct.Struct(">qiibIhiqqqhii")
assert HEADER.size == BOUNDS.size == HEADER_SIZE


class BatchAt(NamedTuple):
    """Where a batch is, and what a search wants to know of it."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int  # of its records: -1 where compaction has left none, whatever the header says


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset in the name of a segment's or snapshot's file; None for other names."""
    stem = name.partition(".")[0]
    if len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    offset = int(stem)
    return offset if offset <= MAX_INT64 else None


class Segment(SegmentTail):
    """Batches from `base_offset` on. What an append touches of it is in SegmentTail."""

    __slots__ = (
        "__weakref__",
        "aborted",
        "directory",
        "has_aborted",
        "synced",
        "tail",
    )

    def __init__(self, file: File, directory: str, base_offset: int, created_ms: int, tail: str = "") -> None:
        self.file = file
        self.directory = directory
        self.base_offset = base_offset
        self.tail = tail  # of its files' names while it is in the making, see swap.py
        self.created_ms = created_ms
        self.last_offset = base_offset - 1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.synced = False  # a closed segment: all its files are on disk
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.aborted: list[AbortedTransaction] | None = None  # what its index has, while that file changes its name
        self.has_aborted: bool | None = None  # whether there is such an index; None: nobody has looked

    @classmethod
    def create(cls, files: Files, directory: str, base_offset: int, wall_ms: int, tail: str = "") -> Segment:
        """A new, empty segment; what an older crash left under its names goes."""
        for suffix in SEGMENT_SUFFIXES[1:]:
            path = f"{directory}/{file_name(base_offset, suffix)}{tail}"
            if files.exists(path):
                files.unlink(path)
        file = files.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{tail}")
        if file.size:
            file.truncate(0)
        return cls(file, directory, base_offset, wall_ms, tail)

    @property
    def size_bytes(self) -> int:
        return self.file.size

    @property
    def newest_ms(self) -> int:
        """The largest record timestamp; where no record has one, when the segment was made."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self.tail}"

    # --- Growing ----------------------------------------------------------------------------------------------------

    def must_roll(self, config: LogConfig, size_bytes: int, last_offset: int, max_timestamp: int, wall_ms: int) -> bool:
        """Whether an append of this size and reach belongs into the next segment."""
        size = self.file.size
        if size + size_bytes > config.segment_bytes and size:
            return True
        if last_offset - self.base_offset > MAX_RELATIVE:
            return True
        if not size:
            return False
        assert self.offsets is not None
        if len(self.offsets) > config.index_entries_safe and self._has_full_index(config.segment_index_bytes):
            return True
        roll_ms = config.roll_ms
        if config.segment_jitter_ms:
            # Spread over segments without a random source: the same for one however often it is asked.
            roll_ms -= crc32c(self.path("").encode()) % max(1, min(config.segment_jitter_ms, roll_ms))
        if self.first_timestamp >= 0 and max_timestamp >= 0:
            return max_timestamp - self.first_timestamp > roll_ms
        return wall_ms - self.created_ms > roll_ms

    def _has_full_index(self, limit_bytes: int) -> bool:
        assert self.offsets is not None and self.times is not None
        offsets_bytes = (len(self.offsets) + 1) * OFFSET_ENTRY.size
        times_bytes = (len(self.times) + 2) * TIME_ENTRY.size
        return offsets_bytes > limit_bytes or times_bytes > limit_bytes

    def write_indexes(self, files: Files) -> None:
        """Bring the index files up to the memory; the time index gets its last entry, as a closing segment's does."""
        if self.offsets is not None and self.times is not None:
            if self.max_timestamp >= 0:
                self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.offsets.write(files, self.path(INDEX_SUFFIX))
            self.times.write(files, self.path(TIME_INDEX_SUFFIX))

    def close_indexes(self, files: Files) -> None:
        """The segment is closed: its indexes go to their files and out of memory."""
        self.write_indexes(files)
        self.offsets = self.times = None

    def load_indexes(self, files: Files) -> None:
        """Bring the indexes into memory: searches do not need their files from now on."""
        if self.offsets is None or self.times is None or not (self.offsets.is_whole and self.times.is_whole):
            self.write_indexes(files)
            times = TimeIndex.load(files.read(self.path(TIME_INDEX_SUFFIX)))
            self.offsets = OffsetIndex.load(files.read(self.path(INDEX_SUFFIX)))
            self.times = times

    def open_indexes(self, files: Files) -> None:
        """The segment is active again. What its indexes have stays in their files."""
        if self.offsets is None or self.times is None:
            index = glance(files, self.path(INDEX_SUFFIX), OFFSET_ENTRY) or (0, None)
            times = glance(files, self.path(TIME_INDEX_SUFFIX), TIME_ENTRY) or (0, None)
            self.offsets = OffsetIndex(index[0])
            self.times = TimeIndex(times[0], times[1] or NO_TIME)
        self.synced = False

    def sync(self, files: Files, is_closed: bool) -> None:
        """Put the log on disk with its aborted transactions, and the other indexes if the segment is closed. Blocks.

        Their names are not synced. A start makes lost indexes anew, but nothing shows it that aborted transactions are.
        """
        self.file.sync()
        suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX] if is_closed else []
        if self.has_aborted is not False and files.exists(self.path(TRANSACTION_INDEX_SUFFIX)):
            suffixes.append(TRANSACTION_INDEX_SUFFIX)
        for suffix in suffixes:
            index = files.open(self.path(suffix))
            index.sync()
            index.close()

    # --- Reading ----------------------------------------------------------------------------------------------------

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """The batches from a position, which must be a batch's, to the end, by their headers. May wait for the disk."""
        file = self.file
        end = file.size
        chunk = b""
        chunk_start = position
        while end - position >= HEADER_SIZE:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = file.pread(min(SCAN_BYTES, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            base, length, delta, max_timestamp, count = BOUNDS.unpack_from(chunk, at)
            size = length + LOG_OVERHEAD
            if size < HEADER_SIZE or position + size > end or not 0 <= base <= base + delta <= MAX_INT64:
                return
            yield BatchAt(position, size, base, base + delta, max_timestamp if count else -1)
            position += size

    def start_on_disk(self, files: Files, offset: int) -> int:
        """`start_of`, by the index' file."""
        return search_offset_index(files, self.path(INDEX_SUFFIX), offset - self.base_offset)

    def find(self, files: Files, offset: int) -> BatchAt | None:
        """The first batch whose last offset is `offset` or later."""
        start = self.start_of(offset)
        for batch in self.batches(self.start_on_disk(files, offset) if start < 0 else start):
            if batch.last_offset >= offset:
                return batch
        return None

    def find_timestamp(self, files: Files, timestamp: int, start_offset: int) -> BatchAt | None:
        """The first batch from `start_offset` on that may hold a record of `timestamp` or later."""
        times = self.times
        relative = None if times is None else times.lookup(timestamp)
        if relative is None:
            relative = search_time_index(files, self.path(TIME_INDEX_SUFFIX), timestamp)
        found = self.find(files, max(self.base_offset + relative, start_offset))
        if found is None:
            return None
        for batch in self.batches(found.position):
            if batch.max_timestamp >= timestamp:
                return batch
        return None

    # --- Opening, cutting, ending -----------------------------------------------------------------------------------

    @classmethod
    def open_trusted(
        cls, files: Files, directory: str, base_offset: int, wall_ms: int, following: int | None
    ) -> Segment | None:
        """A segment by its index files; None when they cannot be. `following` is the base of the next one, if any."""
        file = files.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}", create=False)
        segment = cls(file, directory, base_offset, wall_ms)
        index = glance(files, segment.path(INDEX_SUFFIX), OFFSET_ENTRY)
        times = glance(files, segment.path(TIME_INDEX_SUFFIX), TIME_ENTRY)
        if index is None or times is None or not is_within(index[1], file.size):
            return None
        timestamp, relative = times[1] or NO_TIME
        if times[1] and (timestamp < 0 or relative < 0):
            return None
        segment.max_timestamp, segment.max_timestamp_offset = timestamp, base_offset + relative
        start = index[1][1] if index[1] else 0
        end = 0
        if start:
            segment.first_timestamp = next((batch.max_timestamp for batch in segment.batches()), -1)
        for batch in segment.batches(start):
            if not batch.position:
                segment.first_timestamp = batch.max_timestamp
            segment.last_offset = batch.last_offset
            segment.bytes_since_index += batch.size_bytes
            if batch.max_timestamp > segment.max_timestamp:
                segment.max_timestamp, segment.max_timestamp_offset = batch.max_timestamp, batch.last_offset
            end = batch.position + batch.size_bytes
        if end != file.size or (following is not None and segment.last_offset >= following):
            return None
        if following is None:  # what the indexes have stays in their files
            segment.offsets, segment.times = OffsetIndex(index[0]), TimeIndex(times[0], times[1] or NO_TIME)
        else:
            segment.offsets = segment.times = None
            segment.synced = True
        return segment

    def truncate(self, files: Files, batch: BatchAt) -> None:
        """Cut a batch and all after it off. The segment must be active."""
        self.load_indexes(files)
        assert self.offsets is not None and self.times is not None
        self.offsets.truncate(batch.position)
        self.times.truncate(batch.base_offset - self.base_offset)
        self.file.truncate(batch.position)
        # What came after the last index entry is looked through again: only headers, and little.
        self.max_timestamp, relative = self.times.last
        self.max_timestamp_offset = self.base_offset + relative
        self.last_offset = self.base_offset - 1
        if not batch.position:
            self.first_timestamp = -1
        self.bytes_since_index = 0
        start = max(self.offsets.lookup(MAX_RELATIVE), 0)
        for kept in self.batches(start):
            self.last_offset = kept.last_offset
            if kept.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = kept.max_timestamp, kept.last_offset
            self.bytes_since_index += kept.size_bytes

    def unlink(self, files: Files) -> None:
        """Remove the files, the log first. Ranges that are being sent keep the log readable."""
        with contextlib.suppress(OSError):  # if it cannot be opened now, who still wants to read it cannot either
            self.file.keep()
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if files.exists(path):
                if suffix == TRANSACTION_INDEX_SUFFIX:
                    files.sync_directory(self.directory)  # a log that came back without it would hide no aborted record
                files.unlink(path)

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, {self.size_bytes} bytes, last offset {self.last_offset})"
