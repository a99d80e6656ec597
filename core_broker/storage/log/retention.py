"""Moves the start of a log, and removes old segments: by age, by size, and before the log start offset."""

from __future__ import annotations

from collections.abc import Sequence

from ....protocol.errors import ErrorCode, KafkaError
from ..disk.files import Files
from ._ranges import LogRanges
from ._segment import Segment
from ._tail import LogTail
from .progress import LogLocks
from .rolling import Rolling
from .snapshots import remove_snapshots
from .syncing import with_note


class Retention:
    """The retention of one log."""

    __slots__ = ("_locks", "_ranges", "_rolling")

    def __init__(self, ranges: LogRanges, rolling: Rolling, locks: LogLocks) -> None:
        self._ranges = ranges
        self._rolling = rolling
        self._locks = locks

    def advance_start(self, offset: int) -> None:
        """Stop serving offsets before `offset`; the next `enforce` removes their segments.

        Raises KafkaError OFFSET_OUT_OF_RANGE past the end of the log.
        """
        tail, status = self._ranges.tail, self._ranges.status
        status.check_online()
        if offset > tail.log_end_offset:
            raise KafkaError.of(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{status.name}: the log cannot start at {offset}, since it ends at {tail.log_end_offset}",
            )
        if offset > tail.log_start_offset:
            tail.log_start_offset = offset
            tail.epochs.truncate_start(offset)
            status.changed()

    async def enforce(self, high_watermark: int, wall_ms: int) -> int:
        """Remove old closed segments below the high watermark; returns how many. An expired active segment is closed.

        With cleanup.policy delete by retention.ms and retention.bytes; with any policy below the log start offset.
        Raises StorageError.
        """
        ranges, tail, status, files = self._ranges, self._ranges.tail, self._ranges.status, self._ranges.files
        async with self._locks.maintenance:
            status.check_online()
            tail.producers.expire(wall_ms, tail.config.producer_id_expiration_ms)
            count = deletable(tail, ranges.segments, high_watermark, wall_ms)
            if not count:
                return 0
            if count == len(ranges.segments):
                # Sync it before the others are removed, or a crash might leave no file that shows where the log ends.
                fresh = self._rolling.roll(tail.log_end_offset, wall_ms)
                try:
                    await files.run(with_note, files, status.directory, fresh.file.sync)
                except OSError as error:
                    raise status.fail(error, "cannot sync") from error
            gone = ranges.segments[:count]
            del ranges.segments[:count], ranges.bases[:count]
            start = ranges.bases[0]
            tail.log_start_offset = max(tail.log_start_offset, start)
            tail.epochs.truncate_start(tail.log_start_offset)
            status.changed()
            try:
                await files.run(remove_segments, files, status.directory, gone, start)
            except OSError as error:
                raise status.refuse(error, "cannot delete old segments of") from error
            return count

    def next_due_ms(self, high_watermark: int) -> int | None:
        """When `enforce` may next have something to do if the log does not change; None for never."""
        tail, segments = self._ranges.tail, self._ranges.segments
        config = tail.config
        oldest = segments[0]
        due: int | None = tail.producers.oldest_ms
        if due is not None:
            due += config.producer_id_expiration_ms
        if high_watermark < tail.log_end_offset:
            return 0  # the high watermark may rise without a change of the log
        if config.deletes and config.retention_ms >= 0 and (len(segments) > 1 or oldest.size_bytes):
            expires: int = oldest.newest_ms + config.retention_ms + 1
            due = expires if due is None else min(due, expires)
        return due


def deletable(tail: LogTail, segments: Sequence[Segment], high_watermark: int, wall_ms: int) -> int:
    """How many segments, from the oldest on, may be removed.

    All of them only if every one, even the active one, has records and has expired: the caller then rolls first.
    Never one with an offset at the high watermark or above. A segment's age counts from its largest record timestamp.
    """
    config = tail.config
    excess = -1
    if config.deletes and config.retention_bytes >= 0:
        excess = sum(segment.size_bytes for segment in segments) - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        end = segment.last_offset + 1 if is_active else segments[number + 1].base_offset
        if end > high_watermark or (is_active and not segment.size_bytes):
            break
        excess -= segment.size_bytes
        is_before_start = end <= tail.log_start_offset
        is_expired = config.deletes and 0 <= config.retention_ms < wall_ms - segment.newest_ms
        is_in_excess = excess >= 0  # with retention.bytes=0 also the active one
        if not (is_before_start or is_expired or is_in_excess):
            break
        count += 1
    return count


def remove_segments(files: Files, directory: str, segments: list[Segment], start: int) -> None:
    """Remove segments, the oldest first, and the snapshots before `start`. Blocks."""
    for segment in segments:
        segment.unlink(files)
        files.sync_directory(directory)  # else a power cut may bring it back without the next segment: a gap
    remove_snapshots(files, directory, below=start)
