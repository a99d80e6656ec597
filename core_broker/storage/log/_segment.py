# cython: auto_pickle=False
"""A segment: one `.log` file of whole record batches with its two indexes.

Knows bytes, offsets and positions; decides nothing. Batches are seen by their headers only. Offsets in a segment fit
in 31 bits above its base, as Kafka's index format requires.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import cython

from ....protocol.batch_layout import (
    BOUNDS,
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LENGTH_OVERHEAD,
)
from ....protocol.records import OFFSET_MAX
from ..disk.files import File, Files
from ._indexes import OffsetIndex, TimeIndex
from ._limits import AppendLimits
from .file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from .index_files import (
    NO_TIME,
    OFFSET_ENTRY,
    TIME_ENTRY,
    glance,
    is_within,
    search_offset_index,
    search_time_index,
)

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.isthmus.core_broker.storage.disk._data_file import size_of
    from cython.cimports.isthmus.protocol._batch_header import _int32, _int64
else:
    from ..disk._data_file import size_of

    _int32: Any  # only compiled code calls them
    _int64: Any
    PyBytes_AS_STRING: Any

if TYPE_CHECKING:
    from ....compiled import Public
    from .index_files import AbortedTransaction

COMPILED = cython.compiled

MAX_RELATIVE = 2**31 - 1  # of offsets in a segment above its base
SCAN_BYTES = 4096  # read at once by a walk from batch to batch: what an index entry covers by default

_MAX_RELATIVE: cython.longlong = MAX_RELATIVE
_SCAN_BYTES: cython.longlong = SCAN_BYTES


class BatchAt(NamedTuple):
    """Where a batch is, and what searches compare."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp: int  # of its records: -1 where compaction has left none, whatever the header says


@cython.cclass
class Segment:
    """Batches from `base_offset` on."""

    file: Public[File]  # the log
    directory: Public[str]
    suffix: Public[str]  # of its files' names while a compaction writes it, see swap_files.py
    offsets: Public[OffsetIndex | None]  # indexes of the active segment. None: it is closed, the files are searched
    times: Public[TimeIndex | None]
    base_offset: Public[cython.longlong]
    created_ms: Public[cython.longlong]  # wall time; stands in for timestamps where no record has one
    last_offset: Public[cython.longlong]
    max_timestamp: Public[cython.longlong]
    max_timestamp_offset: Public[cython.longlong]  # the last offset of the batch that has it
    first_timestamp: Public[cython.longlong]  # of the first batch; segment.ms counts from it
    bytes_since_index: Public[cython.longlong]  # since the last entry of the indexes
    synced: Public[cython.bint]  # a closed segment: all its files are on disk
    aborted: Public[list[AbortedTransaction] | None]  # while the file that has them changes its name
    has_aborted: Public[bool | None]  # whether there is a transaction index; None: not known yet
    __weakref__: object

    def __init__(self, file: File, directory: str, base_offset: int, created_ms: int, suffix: str = "") -> None:
        self.file = file
        self.directory = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        self.last_offset = base_offset - 1
        self.max_timestamp = -1
        self.max_timestamp_offset = base_offset
        self.first_timestamp = -1
        self.bytes_since_index = 0
        self.synced = False
        self.offsets = OffsetIndex()
        self.times = TimeIndex()
        self.aborted = None
        self.has_aborted = None

    @classmethod
    def create(cls, files: Files, directory: str, base_offset: int, wall_ms: int, swap_suffix: str = "") -> Segment:
        """A new, empty segment. What a crash has left under its names is removed."""
        for suffix in SEGMENT_SUFFIXES[1:]:
            path = f"{directory}/{file_name(base_offset, suffix)}{swap_suffix}"
            if files.exists(path):
                files.unlink(path)
        file = files.open(f"{directory}/{file_name(base_offset, LOG_SUFFIX)}{swap_suffix}")
        if file.size:
            file.truncate(0)
        return cls(file, directory, base_offset, wall_ms, swap_suffix)

    @property
    def size_bytes(self) -> int:
        return size_of(self.file)

    @property
    def newest_ms(self) -> int:
        """The largest record timestamp; where no record has one, when the segment was made."""
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    def path(self, suffix: str) -> str:
        """Of one of its files."""
        return f"{self.directory}/{file_name(self.base_offset, suffix)}{self.suffix}"

    def __repr__(self) -> str:
        return f"Segment({self.path(LOG_SUFFIX)!r}, {self.size_bytes} bytes, last offset {self.last_offset})"

    # --- Growing ----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def surely_fits(
        self,
        limits: AppendLimits,
        size: cython.longlong,
        last: cython.longlong,
        stamp: cython.longlong,
        wall_ms: cython.longlong,
    ) -> cython.bint:
        """Whether a batch belongs into this segment, by what is cheap to compare; else see `rolling.must_roll`."""
        held: cython.longlong = size_of(self.file)
        if last - self.base_offset > _MAX_RELATIVE:
            return False
        if not held:
            return True
        offsets: OffsetIndex = cython.cast(OffsetIndex, self.offsets)  # an active segment has them
        if held + size > limits.segment_bytes or len(offsets) > limits.index_entries_safe:
            return False
        if self.first_timestamp >= 0 and stamp >= 0:
            return stamp - self.first_timestamp <= limits.roll_ms
        return wall_ms - self.created_ms <= limits.roll_ms

    @cython.ccall
    @cython.exceptval(-1)
    def note(
        self,
        position: cython.longlong,
        size_bytes: cython.longlong,
        last_offset: cython.longlong,
        max_timestamp: cython.longlong,
        interval_bytes: cython.longlong,
    ) -> cython.int:
        """Take a batch that was written at `position` into the indexes."""
        if not position:
            self.first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self.bytes_since_index > interval_bytes:
            assert self.offsets is not None and self.times is not None
            self.offsets.append(last_offset - self.base_offset, position)
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self.bytes_since_index = 0
        self.bytes_since_index += size_bytes
        self.last_offset = last_offset
        return 0

    # --- Indexes ----------------------------------------------------------------------------------------------------

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
        self.drop_indexes()

    def drop_indexes(self) -> None:
        """The files have all of the indexes: memory need not."""
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

    @cython.ccall
    @cython.exceptval(-2)
    def start_of(self, offset: cython.longlong) -> cython.longlong:
        """The position at which a search for an offset begins, by the index in memory; -1 when its file must be asked.

        The end of the log where the offset is past all that a segment can hold.
        """
        relative: cython.longlong = offset - self.base_offset
        offsets: OffsetIndex | None = self.offsets  # another thread may search while the segment closes
        if relative > _MAX_RELATIVE:
            return size_of(self.file)
        return -1 if offsets is None else offsets.lookup(relative)

    @cython.ccall
    @cython.exceptval(-2)
    def indexed_before(self, position: cython.longlong) -> cython.longlong:
        """The last batch at or before a position that the index in memory knows; -1 where there is none."""
        offsets: OffsetIndex | None = self.offsets
        return -1 if offsets is None else offsets.position_before(position)

    @cython.ccall
    @cython.exceptval(-2)
    def offset_from(self, position: cython.longlong) -> cython.longlong:
        """An offset that no batch before a position reaches, by the index in memory; -1 where it has none."""
        offsets: OffsetIndex | None = self.offsets
        found: cython.longlong = -1 if offsets is None else offsets.offset_from(position)
        return found if found < 0 else self.base_offset + found

    @cython.ccall
    def seek(self, offset: cython.longlong, position: cython.longlong, may_wait: cython.bint) -> tuple:
        """(position, size in bytes) of the first batch whose last offset is `offset` or later, (end of the log, 0) if
        there is none. position: of the batch at which the search begins.

        Raises BlockingIOError for what is not in the page cache, if it may not wait for the disk.
        """
        file = self.file
        end: cython.longlong = size_of(file)
        chunk: bytes = b""
        chunk_start: cython.longlong = position
        at: cython.longlong
        last: cython.longlong
        length: cython.longlong
        while end - position >= HEADER_SIZE:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = (file.pread if may_wait else file.pread_cached)(min(_SCAN_BYTES, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    break
            if cython.compiled:
                b: cython.p_const_uchar = cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(chunk)) + at
                last, length = _int64(b, 0) + _int32(b, LAST_OFFSET_DELTA_AT), _int32(b, LENGTH_AT)
            else:
                base, length, delta, _, _ = BOUNDS.unpack_from(chunk, at)
                last = base + delta
            if length < HEADER_SIZE - LENGTH_OVERHEAD or position + length + LENGTH_OVERHEAD > end:
                break
            if last >= offset:
                return position, length + LENGTH_OVERHEAD
            position += length + LENGTH_OVERHEAD
        return end, 0

    def batches(self, position: int = 0) -> Iterator[BatchAt]:
        """The batches from a position, which must be a batch's, to the end, by their headers. May wait for the disk."""
        file = self.file
        end = file.size
        chunk = b""
        chunk_start = position
        while end - position >= HEADER_SIZE:
            at = position - chunk_start
            if at + HEADER_SIZE > len(chunk):
                chunk = file.pread(min(_SCAN_BYTES, end - position), position)
                chunk_start, at = position, 0
                if len(chunk) < HEADER_SIZE:
                    return
            base, length, delta, max_timestamp, count = BOUNDS.unpack_from(chunk, at)
            size = length + LENGTH_OVERHEAD
            if size < HEADER_SIZE or position + size > end or not 0 <= base <= base + delta <= OFFSET_MAX:
                return
            yield BatchAt(position, size, base, base + delta, max_timestamp if count else -1)
            position += size

    def start_on_disk(self, files: Files, offset: int) -> int:
        """`start_of`, by the file of the index."""
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

    # --- Opening, truncating, removing ------------------------------------------------------------------------------

    @classmethod
    def open_trusted(
        cls, files: Files, directory: str, base_offset: int, wall_ms: int, following: int | None
    ) -> Segment | None:
        """A segment as its index files describe it; None when they do not fit its log.

        following: the base offset of the next segment, if there is one.
        """
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
            for batch in segment.batches():
                segment.first_timestamp = batch.max_timestamp
                break
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
        start = max(self.offsets.lookup(_MAX_RELATIVE), 0)
        for kept in self.batches(start):
            self.last_offset = kept.last_offset
            if kept.max_timestamp > self.max_timestamp:
                self.max_timestamp, self.max_timestamp_offset = kept.max_timestamp, kept.last_offset
            self.bytes_since_index += kept.size_bytes

    def unlink(self, files: Files) -> None:
        """Remove the files, the log first. Ranges that are being sent keep the log readable."""
        with contextlib.suppress(OSError):  # if it cannot be opened now, whoever still wants to read it cannot either
            self.file.keep()
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if files.exists(path):
                if suffix == TRANSACTION_INDEX_SUFFIX:
                    files.sync_directory(self.directory)  # a log that came back without it would hide no aborted record
                files.unlink(path)
