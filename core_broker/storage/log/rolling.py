"""When a log begins a new segment, and how; and the other rare steps of an append (`_tail.LongWay`)."""

from __future__ import annotations

import logging

from ....protocol.crc import crc32c
from ..disk.errors import StorageError, TornWrite
from ._ranges import LogRanges
from ._segment import MAX_RELATIVE, Segment
from .index_files import OFFSET_ENTRY, TIME_ENTRY
from .log_config import LogConfig
from .progress import LogProgress
from .snapshots import write_snapshot

logger = logging.getLogger(__name__)


class Rolling:
    """The LongWay of a log."""

    __slots__ = ("_progress", "_ranges")

    def __init__(self, ranges: LogRanges, progress: LogProgress) -> None:
        self._ranges = ranges
        self._progress = progress

    def segment_for(
        self, first_offset: int, last_offset: int, size_bytes: int, max_timestamp: int, wall_ms: int
    ) -> Segment:
        """The segment for an append of these offsets, size and time. Raises StorageError."""
        tail = self._ranges.tail
        if not must_roll(tail.active, tail.config, size_bytes, last_offset, max_timestamp, wall_ms):
            return tail.active
        # A segment begins where the previous one ends, so that recovery can tell a lost tail from a hole in offsets.
        end = tail.log_end_offset
        return self.roll(end if last_offset - end <= MAX_RELATIVE else first_offset, wall_ms)

    def append_failed(self, error: OSError) -> StorageError:
        """The error to raise after a failed write. The log goes offline if part of the append was written."""
        status = self._ranges.status
        if isinstance(error, TornWrite):
            return status.fail(error, "cannot append to")
        return status.refuse(error, "cannot append to")

    def note_append(self, wall_ms: int) -> None:
        """Called for the first append after a sync or after the last call."""
        self._ranges.tail.is_noted = True
        if self._progress.unsynced_since_ms is None:
            self._progress.unsynced_since_ms = wall_ms
        self._ranges.status.changed()

    def roll(self, base_offset: int, wall_ms: int) -> Segment:
        """Close the active segment and begin one at `base_offset`. Raises StorageError, with nothing changed."""
        ranges, status = self._ranges, self._ranges.status
        tail, files = ranges.tail, ranges.files
        active = tail.active
        try:
            if active.size_bytes:
                active.file.give_back()
                active.write_indexes(files)
                write_snapshot(files, status.directory, tail.log_end_offset, tail.producers)
            segment = Segment.create(files, status.directory, base_offset, wall_ms)
        except OSError as error:
            raise status.refuse(error, "cannot roll to a new segment in") from error
        if active.size_bytes:
            active.drop_indexes()
        elif base_offset != active.base_offset:
            # It is empty, but `base_offset` is too far from its base: an append after a very long hole.
            del ranges.segments[-1], ranges.bases[-1]
            if not ranges.segments:
                tail.log_start_offset = base_offset
                status.changed()
            try:
                active.unlink(files)
            except OSError as error:
                logger.warning("%s: cannot remove %r: %s", status.name, active, error)
        ranges.segments.append(segment)
        ranges.bases.append(base_offset)
        tail.active = segment
        tail.recent = None
        status.rolled()
        return segment


def must_roll(
    segment: Segment, config: LogConfig, size_bytes: int, last_offset: int, max_timestamp: int, wall_ms: int
) -> bool:
    """Whether an append of this size and offset range belongs in the next segment."""
    size = segment.size_bytes
    if size + size_bytes > config.segment_bytes and size:
        return True
    if last_offset - segment.base_offset > MAX_RELATIVE:
        return True
    if not size:
        return False
    assert segment.offsets is not None
    if len(segment.offsets) > config.index_entries_safe and _has_full_index(segment, config.segment_index_bytes):
        return True
    roll_ms = config.roll_ms
    if config.segment_jitter_ms:
        # Jitter without a random source: always the same for one segment.
        roll_ms -= crc32c(segment.path("").encode()) % max(1, min(config.segment_jitter_ms, roll_ms))
    if segment.first_timestamp >= 0 and max_timestamp >= 0:
        return max_timestamp - segment.first_timestamp > roll_ms
    return wall_ms - segment.created_ms > roll_ms


def _has_full_index(segment: Segment, limit_bytes: int) -> bool:
    assert segment.offsets is not None and segment.times is not None
    offsets_bytes = (len(segment.offsets) + 1) * OFFSET_ENTRY.size
    times_bytes = (len(segment.times) + 2) * TIME_ENTRY.size
    return offsets_bytes > limit_bytes or times_bytes > limit_bytes
