"""One round of compaction of one log: the keys of the dirty part go into a map, then all closed segments are copied.

`Round.work()` handles a bounded number of bytes in each step, so that it can run in the files' pool while the loop goes
on. It reads closed segments and writes `.cleaned` files only. It yields a `Replacement`; the log takes it over, or
discards it if the log has changed meanwhile. The semantics are those of Kafka's log cleaner.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ....protocol.batch_layout import HEADER_SIZE
from ....protocol.compaction import (
    Filtered,
    OffsetMap,
    delete_horizon_ms,
    empty_batch,
    filter_batch,
    map_batch,
    with_delete_horizon,
)
from ....protocol.records import BatchHeader, CorruptBatch, read_header, walk
from ..disk.files import Buffer, Files
from ..log._segment import MAX_RELATIVE, Segment
from ..log.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX
from ..log.index_files import OFFSET_ENTRY, TIME_ENTRY
from ..log.log_config import LogConfig
from ..log.swap_files import CLEANED, Replacement, discard
from ..log.transactions import TransactionIndex
from .compacted_transactions import CompactedTransactions

SYNC_BYTES = 32 << 20  # written between two syncs, so that no sync takes long

_AS_IT_IS = Filtered(-1, None, -1)


class Plan(NamedTuple):
    """What a round reads: closed segments from the log's first one on, all below the last stable offset."""

    segments: tuple[Segment, ...]
    later: tuple[Segment, ...]  # the rest of the log: transactions that began before may end there
    first_dirty_offset: int  # keys before it do not go into the map
    first_uncleanable_offset: int  # the end of the last of `segments`

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class Round:
    """See the module. The caller sets `last_records` before the first step and after each Replacement.

    end_offset: after the work, the offset up to which the log is clean. bytes_read, bytes_written, records_read,
    records_kept: counts of the copying half. A read has at most `buffer_bytes`, except for a single larger batch.
    """

    def __init__(
        self, files: Files, config: LogConfig, plan: Plan, offsets: OffsetMap, now_ms: int, buffer_bytes: int
    ) -> None:
        self.plan = plan
        self.last_records: dict[int, tuple[int, int]] = {}  # producer id -> last data offset, -1 for none; epoch
        self.unfinished: Segment | None = None  # its files belong to no log yet
        self.end_offset = plan.first_dirty_offset
        self.bytes_read = 0
        self.bytes_written = 0
        self.records_read = 0
        self.records_kept = 0
        self._files = files
        self._config = config
        self._offsets = offsets
        self._now_ms = now_ms
        self._buffer_bytes = max(buffer_bytes, HEADER_SIZE)

    def work(self) -> Iterator[int | Replacement]:
        """The round in steps: yields the bytes handled since the last step, or a Replacement.

        Raises OSError, CorruptBatch.
        """
        segments, files = self.plan.segments, self._files
        aborted = []
        for segment in (*segments, *self.plan.later):
            aborted += TransactionIndex.read(files, segment)
        yield from self._map(CompactedTransactions(aborted))
        self.end_offset = self._offsets.latest_offset + 1
        transactions = CompactedTransactions(aborted)
        covered = [segment for segment in segments if segment.base_offset < self.end_offset]
        for group in grouped(files, covered, self.plan.first_uncleanable_offset, self._config):
            yield from self._copy_group(group, transactions)

    # --- The map ------------------------------------------------------------------------------------------------------

    def _map(self, transactions: CompactedTransactions) -> Iterator[int]:
        """Put the keys of the dirty part into the map until it ends or the map is full. Only whole batches count."""
        offsets, first = self._offsets, self.plan.first_dirty_offset
        offsets.latest_offset = first - 1
        ends = [segment.base_offset for segment in self.plan.segments[1:]] + [self.plan.first_uncleanable_offset]
        for segment, end in zip(self.plan.segments, ends, strict=True):
            if end <= first:
                continue
            found = segment.find(self._files, max(first, segment.base_offset))
            for chunk in self._chunks(segment, segment.size_bytes if found is None else found.position):
                for position, header in walk(chunk):
                    if header.last_offset < first:
                        continue
                    if header.is_control:
                        transactions.take_control(chunk, position, header)
                    elif not transactions.take_data(header):
                        if not map_batch(chunk, position, header, offsets, first):
                            return
                    offsets.latest_offset = header.last_offset
                yield len(chunk)
            offsets.latest_offset = end - 1

    def _chunks(self, segment: Segment, position: int) -> Iterator[memoryview]:
        """Whole batches of a segment, from a position on."""
        file, end = segment.file, segment.size_bytes
        while position < end:
            chunk = memoryview(file.pread(min(self._buffer_bytes, end - position), position))
            size = sum(header.size_bytes for _, header in walk(chunk))
            if not size:
                size = read_header(chunk).size_bytes  # raises if the header is incomplete
                if size > end - position:
                    raise CorruptBatch(f"{file.path}: a batch of {size} bytes at position {position} goes past the end")
                chunk = memoryview(file.pread(size, position))
            yield chunk[:size]
            position += size

    # --- The copy -----------------------------------------------------------------------------------------------------

    def _copy_group(self, group: Sequence[Segment], transactions: CompactedTransactions) -> Iterator[int | Replacement]:
        files = self._files
        newest_ms = max(segment.newest_ms for segment in group)  # the new segment's age if no record is kept
        new = Segment.create(files, group[0].directory, group[0].base_offset, newest_ms, CLEANED)
        self.unfinished = new
        has_changed = len(group) > 1
        synced_bytes = 0
        for segment in group:
            for chunk in self._chunks(segment, 0):
                before = new.size_bytes
                has_changed |= self._copy(chunk, new, transactions)
                if new.size_bytes - synced_bytes >= SYNC_BYTES:
                    new.file.sync()
                    synced_bytes = new.size_bytes
                yield len(chunk) + new.size_bytes - before
        aborted = transactions.take_retained()
        if not has_changed:
            discard(files, new)
            self.unfinished = None
            return
        self.bytes_written += new.size_bytes
        for each in aborted:
            TransactionIndex.append(files, new, each)
        new.write_indexes(files)
        new.sync(files, True)
        new.synced = True
        yield Replacement(new, tuple(group))
        self.unfinished = None

    def _copy(self, chunk: memoryview, new: Segment, transactions: CompactedTransactions) -> bool:
        """Append what is kept of a chunk to the new segment. Returns whether anything has changed."""
        parts: list[Buffer] = []
        notes: list[tuple[int, int, int]] = []  # for each batch: size, last offset, largest timestamp
        start = end = 0  # the range of unchanged batches since the last part
        has_changed = False
        for position, header in walk(chunk):
            self.records_read += header.records_count
            kept, data, max_timestamp = self._left_of(chunk, position, header, transactions)
            if data is None:
                if position != end:
                    if end > start:
                        parts.append(chunk[start:end])
                    start = position
                end = position + header.size_bytes
                timestamp = header.max_timestamp if header.records_count else -1
                notes.append((header.size_bytes, header.last_offset, timestamp))
                self.records_kept += header.records_count
                continue
            has_changed = True
            if data:
                if end > start:
                    parts.append(chunk[start:end])
                start = end = 0
                parts.append(data)
                notes.append((len(data), header.last_offset, max_timestamp))
                self.records_kept += kept
        if end > start:
            parts.append(chunk[start:end])
        self.bytes_read += len(chunk)
        position = new.size_bytes
        if parts:
            new.file.append(parts)
        for size, last_offset, timestamp in notes:
            new.note(position, size, last_offset, timestamp, self._config.index_interval_bytes)
            position += size
        return has_changed

    def _left_of(
        self, chunk: memoryview, position: int, header: BatchHeader, transactions: CompactedTransactions
    ) -> Filtered:
        """What is kept of a batch; data None: all of it, unchanged."""
        horizon = delete_horizon_ms(header)
        new_horizon = self._now_ms + self._config.delete_retention_ms
        if header.is_control:
            is_obsolete = transactions.take_control(chunk, position, header)
            if is_obsolete and horizon is None:
                found = with_delete_horizon(chunk, position, header, new_horizon)
            elif is_obsolete and horizon is not None and horizon <= self._now_ms:
                found = Filtered(0, b"", -1)
            else:
                found = _AS_IT_IS
        elif transactions.take_data(header):
            found = Filtered(0, b"", -1)
        else:
            found = filter_batch(chunk, position, header, self._offsets, self._now_ms, new_horizon)
        if found.data == b"" and self._says_more_than_records(header):
            if header.size_bytes == HEADER_SIZE:
                return _AS_IT_IS
            return Filtered(0, empty_batch(header), -1)
        return found

    def _says_more_than_records(self, header: BatchHeader) -> bool:
        """Whether a batch is kept even without records: for its producer's sequence or epoch, or the last offset."""
        if header.next_offset == self.plan.first_uncleanable_offset:
            return True
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        last_data_offset, epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.is_control and header.producer_epoch == epoch


def grouped(
    files: Files, segments: Sequence[Segment], upper_offset: int, config: LogConfig
) -> Iterator[tuple[Segment, ...]]:
    """Groups of neighbouring segments that fit into one: by size, by sizes of the indexes, by relative offsets."""
    group: list[Segment] = []
    sizes = (0, 0, 0)
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for number, segment in enumerate(segments):
        following = segments[number + 1].base_offset if number + 1 < len(segments) else upper_offset
        own = (segment.size_bytes, _size(files, segment, INDEX_SUFFIX), _size(files, segment, TIME_INDEX_SUFFIX))
        together = tuple(a + b for a, b in zip(sizes, own, strict=True))
        fits = all(size <= limit for size, limit in zip(together, limits, strict=True))
        reaches = not segment.size_bytes or following - 1 - (group or [segment])[0].base_offset <= MAX_RELATIVE
        if group and not (fits and reaches):
            yield tuple(group)
            group, sizes = [], (0, 0, 0)
            together = own
        group.append(segment)
        sizes = together  # type: ignore[assignment]
    if group:
        yield tuple(group)


def _size(files: Files, segment: Segment, suffix: str) -> int:
    offsets, times = segment.offsets, segment.times
    if suffix == INDEX_SUFFIX and offsets is not None:
        return len(offsets) * OFFSET_ENTRY.size
    if suffix == TIME_INDEX_SUFFIX and times is not None:
        return len(times) * TIME_ENTRY.size
    return files.size(segment.path(suffix))
