"""The reading half of a log: where the bytes of an offset are, and which offset a time has.

Gives file ranges, never bytes; looks into records only to find a timestamp's offset.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from ....protocol.batch_layout import HEADER, HEADER_SIZE
from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.records import CorruptBatch, decode_batch
from ..disk.errors import StorageError, anew, is_passing
from ..disk.files import FileRange, Files
from ._reading import LogRanges, NotCached
from .index import AbortedTransaction
from .index_window import IndexWindows, locate
from .loaded import Loaded
from .segment import Segment
from .transactions import TransactionIndex

logger = logging.getLogger(__name__)

SEARCH_BYTES_MAX = 16 * 1024 * 1024  # of a batch decompressed to find a timestamp; in one larger, its first offset
SEARCHES_MAX = 10  # for one timestamp, each because the log has changed under the one before


class LogSlice(NamedTuple):
    """Whole batches from the one that holds the wanted offset on; the last may be cut off by `max_bytes`."""

    ranges: list[FileRange]
    size_bytes: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class _Changed(Exception):
    """The segment that was searched is not the log's any more, or not as it was."""


class LogReader(LogRanges):
    """What reads of a log need. `Log` adds the rest; only it changes anything here."""

    def __init__(self, files: Files, directory: str, loaded: Loaded) -> None:
        self.files = files
        self.directory = directory
        self.name = directory.rpartition("/")[2]
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.epochs = loaded.epochs
        self.failure = None  # why the log is offline
        self._segments = loaded.segments
        self._bases = [segment.base_offset for segment in loaded.segments]
        self._active = loaded.segments[-1]
        self._positions = None
        self.windows = IndexWindows()  # the manager has one for all logs
        self.cuts = 0  # how often the log was truncated
        self._unreadable = self._tell_unreadable  # made once, for all ranges that are given out

    def _check_online(self) -> None:
        if self.failure is not None:
            raise anew(self.failure)

    def _fail(self, error: OSError, doing: str) -> StorageError:
        """Take the log offline: what memory and disk hold may differ from now on, or the disk is broken."""
        failure = StorageError(error, self.directory, doing)
        if self.failure is None:
            self.failure = anew(failure)  # the other is raised
            logger.error("%s is offline until the broker starts again: %s", self.name, failure.message)
        return failure

    def _refuse(self, error: OSError, doing: str) -> StorageError:
        """Of a call that was refused and has changed nothing: where that passes the log goes on, else it is offline.

        Kafka takes all logs of the directory offline, whatever the error.
        """
        return StorageError(error, self.directory, doing) if is_passing(error) else self._fail(error, doing)

    def _tell_unreadable(self, error: OSError) -> None:
        """Whoever was given a range of this log could not read it."""
        self._refuse(error, "cannot read from")

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper_offset: int | None = None,
        min_one: bool = True,
        may_wait: bool = True,
    ) -> LogSlice:
        """Where the bytes from the batch with `offset` to `upper_offset` (the end, if None) are, at most `max_bytes`.

        min_one: the first batch is given whole even when it is larger. Raises KafkaError OFFSET_OUT_OF_RANGE outside
        of log start and log end, CORRUPT_MESSAGE, StorageError; and NotCached where it would have to wait for the disk
        and may not.
        """
        ranges = self.ranges(offset, max_bytes, upper_offset, min_one, may_wait)
        return LogSlice(ranges, sum(map(len, ranges)))

    async def bring(self, missing: NotCached) -> None:
        """Wait for what a read needed: the same read finds it then. Errors of the disk are for that read to tell."""
        cuts = self.cuts
        try:
            window = await self.files.run_read(locate, self.files, missing.segment, missing.offset)
        except OSError:
            return
        if window is not None and cuts == self.cuts:
            self.windows.keep(missing.segment, window)

    def aborted_transactions(self, offset: int, upper_offset: int) -> list[AbortedTransaction]:
        """Aborted spans that overlap offsets from `offset` to before `upper_offset`, by their first offset."""
        found = []
        try:
            for segment in self._segments[max(0, bisect_right(self._bases, offset) - 1) :]:
                entries = TransactionIndex.read(self.files, segment)
                found += [e for e in entries if e.last_offset >= offset and e.first_offset < upper_offset]
                if any(entry.last_stable_offset >= upper_offset for entry in entries):
                    break
        except OSError as error:
            raise self._refuse(error, "cannot read from") from error
        return sorted(found, key=lambda entry: entry.first_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset): the largest epoch here up to `epoch` and where it ended; (-1, -1) for none."""
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that `offset` was written in."""
        return self.epochs.epoch_at(offset)

    async def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with `timestamp` or a later one; None when there is none. Raises KafkaError."""

        async def search() -> TimestampOffset | None:
            for segment in list(self._segments):
                if segment.max_timestamp >= timestamp and segment.last_offset >= self.log_start_offset:
                    found = await self._search_in(segment, timestamp)
                    if found is not None:
                        return found
            return None

        return await self._searching(search)

    async def max_timestamp_offset(self) -> TimestampOffset | None:
        """The first record with the largest timestamp, -1 where no record has one; None in an empty log.

        Raises KafkaError.
        """

        async def search() -> TimestampOffset | None:
            newest = max(self._segments, key=lambda segment: segment.max_timestamp)
            return await self._search_in(newest, newest.max_timestamp)

        return await self._searching(search)

    async def _searching(self, search: Callable[[], Awaitable[TimestampOffset | None]]) -> TimestampOffset | None:
        """Search anew as often as the log has changed under it."""
        for _ in range(SEARCHES_MAX):
            self._check_online()
            try:
                return await search()
            except _Changed:
                continue
        raise KafkaError.of(
            ErrorCode.OFFSET_NOT_AVAILABLE, f"{self.name} has changed {SEARCHES_MAX} times while it was searched"
        )

    async def _search_in(self, segment: Segment, timestamp: int) -> TimestampOffset | None:
        """Raises _Changed, and StorageError where the disk refuses.

        While a thread of the pool searches, retention, compaction or a truncation may take the segment's files away, or
        put others under their names: what it found then, or could not read, says nothing.
        """
        cuts = self.cuts
        found: TimestampOffset | None = None
        failure: Exception | None = None
        try:
            found = await self.files.run(_search_timestamp, self.files, self.log_start_offset, segment, timestamp)
        except Exception as error:
            failure = error
        if cuts != self.cuts or not self.has(segment) or (found and found.offset < self.log_start_offset):
            raise _Changed
        if isinstance(failure, OSError):
            raise self._refuse(failure, "cannot read from") from failure
        if failure is not None:
            raise failure
        return found

    def has(self, segment: Segment) -> bool:
        """Whether it is a segment of the log still. Its files may be gone as soon as it is not."""
        number = bisect_left(self._bases, segment.base_offset)
        return number < len(self._segments) and self._segments[number] is segment


def _search_timestamp(files: Files, start_offset: int, segment: Segment, timestamp: int) -> TimestampOffset | None:
    """The first record of a segment from `start_offset` on with `timestamp` or later. Decodes one batch, rarely two."""
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
            # A codec or content that only its producer understands, or too much: as near as its header tells.
            return TimestampOffset(batch.max_timestamp, max(batch.base_offset, start_offset), epoch)
    return None
