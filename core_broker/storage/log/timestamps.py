"""Finds the offset of a timestamp. Reads the records of one batch, rarely of two."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ....protocol.batch_layout import HEADER, HEADER_SIZE
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records import CorruptBatch, decode_batch
from ..disk.files import Files
from ._ranges import LogRanges
from ._segment import Segment

SEARCH_BYTES_MAX = 16 * 1024 * 1024  # decompressed for a search; for a larger batch the answer is its first offset
SEARCHES_MAX = 10  # repeated because the log has changed during the search


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class _Changed(Exception):
    """The segment that was searched has changed, or is no longer the log's."""


class TimestampSearch:
    """Searches one log."""

    __slots__ = ("_ranges",)

    def __init__(self, ranges: LogRanges) -> None:
        self._ranges = ranges

    async def first_from(self, timestamp: int) -> TimestampOffset | None:
        """The first record with `timestamp` or a later one; None if there is none. Raises KafkaError."""

        async def search() -> TimestampOffset | None:
            for segment in list(self._ranges.segments):
                start = self._ranges.tail.log_start_offset
                if segment.max_timestamp >= timestamp and segment.last_offset >= start:
                    found = await self._search_in(segment, timestamp)
                    if found is not None:
                        return found
            return None

        return await self._searching(search)

    async def largest(self) -> TimestampOffset | None:
        """The first record with the largest timestamp, -1 if no record has one; None in an empty log.

        Raises KafkaError.
        """

        async def search() -> TimestampOffset | None:
            newest = max(self._ranges.segments, key=lambda segment: segment.max_timestamp)
            return await self._search_in(newest, newest.max_timestamp)

        return await self._searching(search)

    async def _searching(self, search: Callable[[], Awaitable[TimestampOffset | None]]) -> TimestampOffset | None:
        """Repeat a search while the log changes during it."""
        status = self._ranges.status
        for _ in range(SEARCHES_MAX):
            status.check_online()
            try:
                return await search()
            except _Changed:
                continue
        raise KafkaError.of(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{status.name} has changed {SEARCHES_MAX} times while it was searched"
        )

    async def _search_in(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        """Search a segment in the pool. Raises _Changed, and StorageError if the disk refuses.

        Meanwhile retention, compaction or a truncation may remove the segment's files, or put others under their names.
        What the search has found then, or could not read, is ignored.
        """
        ranges = self._ranges
        files, cuts, start = ranges.files, ranges.cuts, ranges.tail.log_start_offset
        found: TimestampOffset | None = None
        failure: Exception | None = None
        try:
            found = await files.run(_search_timestamp, files, start, segment, timestamp)
        except Exception as error:
            failure = error
        if self._has_changed(segment, cuts, found):
            raise _Changed
        if isinstance(failure, OSError):
            raise ranges.status.refuse(failure, "cannot read from") from failure
        if failure is not None:
            raise failure
        return found

    def _has_changed(self, segment: Segment, cuts: int, found: TimestampOffset | None) -> bool:
        """Whether the log has changed so that a result may not be valid. cuts: when the search began."""
        ranges = self._ranges
        is_before_start = found is not None and found.offset < ranges.tail.log_start_offset
        return cuts != ranges.cuts or not ranges.has(segment) or is_before_start


def _search_timestamp(files: Files, start_offset: int, segment: Segment, timestamp: int) -> TimestampOffset | None:
    """The first record of a segment from `start_offset` on with `timestamp` or later."""
    found = segment.find_timestamp(files, timestamp, start_offset)
    if found is None:
        return None
    for batch in segment.batches(found.position):
        if batch.max_timestamp < timestamp:
            continue
        data = segment.file.pread(batch.size_bytes, batch.position)
        epoch = HEADER.unpack_from(data)[2] if len(data) >= HEADER_SIZE else -1
        try:
            for record in decode_batch(data, max_bytes=max(len(data), SEARCH_BYTES_MAX)):
                if record.timestamp_ms >= timestamp and record.offset >= start_offset:
                    return TimestampOffset(record.timestamp_ms, record.offset, epoch)
        except CorruptBatch:
            # The batch cannot be decoded, or is too large: the header gives the nearest answer.
            return TimestampOffset(batch.max_timestamp, max(batch.base_offset, start_offset), epoch)
    return None
