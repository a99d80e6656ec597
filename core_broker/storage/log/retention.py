"""Which segments are old enough to go. A pure decision over what the segments say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .segment import Segment

if TYPE_CHECKING:
    from .upkeep import LogUpkeep


def next_due_ms(log: LogUpkeep, segments: Sequence[Segment], high_watermark: int) -> int | None:
    """From when on something may be to do in a log that does not change; None for never."""
    config = log.config
    oldest = segments[0]
    due = log.producers.oldest_ms
    if due is not None:
        due += config.producer_id_expiration_ms
    if high_watermark < log.log_end_offset:
        return 0  # it rises without a change of the log
    if config.deletes and config.retention_ms >= 0 and (len(segments) > 1 or oldest.size_bytes):
        expires = oldest.newest_ms + config.retention_ms + 1
        due = expires if due is None else min(due, expires)
    return due


def deletable(log: LogUpkeep, segments: Sequence[Segment], high_watermark: int, wall_ms: int) -> int:
    """How many segments from the oldest on may be deleted.

    All of them only when even the active one has records and every one has expired: the caller then rolls first.
    Never one with an offset at the high watermark or above. Time counts from a segment's largest record timestamp.
    """
    config = log.config
    excess = -1
    if config.deletes and config.retention_bytes >= 0:
        excess = log.size_bytes - config.retention_bytes
    count = 0
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        end = segment.last_offset + 1 if is_active else segments[number + 1].base_offset
        if end > high_watermark or (is_active and not segment.size_bytes):
            break
        excess -= segment.size_bytes
        is_before_start = end <= log.log_start_offset
        is_expired = config.deletes and 0 <= config.retention_ms < wall_ms - segment.newest_ms
        is_in_excess = excess >= 0  # with retention.bytes=0 the active one is, too
        if not (is_before_start or is_expired or is_in_excess):
            break
        count += 1
    return count
