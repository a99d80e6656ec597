"""What the quorum's step function asks of the log: where it ends, what it has of another log, where the two part.

A log may begin with a snapshot instead of its first records (KIP-630); then the snapshot's end and epoch are known.
"""

from __future__ import annotations

from typing import Protocol

from .messages import OffsetAndEpoch


class LogView(Protocol):
    """The log as it is now. flushed_offset: all before it is on disk. snapshot: the id of the newest; the log begins
    at its end or before it. last_epoch: of the last record, or of the snapshot; 0 if there is nothing."""

    @property
    def start_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def last_epoch(self) -> int: ...
    @property
    def snapshot(self) -> OffsetAndEpoch | None: ...

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch | None:
        """The largest epoch in the log up to this one, with its end; None if there is none, or this one is later than
        all."""


def end_of(log: LogView) -> OffsetAndEpoch:
    return OffsetAndEpoch(log.end_offset, log.last_epoch)


def has_all_of(last: OffsetAndEpoch, log: LogView) -> bool:
    """Whether a log that ends there has all that this one may have of what is committed."""
    return (last.epoch, last.offset) >= (log.last_epoch, log.end_offset)


def end_for_epoch(log: LogView, epoch: int) -> OffsetAndEpoch:
    """Where the largest epoch up to this one ends; the log's end if this one is later than all."""
    found, snapshot = log.end_offset_for_epoch(epoch), log.snapshot
    if found is None:
        return end_of(log)
    if snapshot is not None and found == (snapshot.offset, epoch):
        return snapshot  # the epoch is older than all in the log
    return found


def check_position(log: LogView, offset: int, epoch: int) -> tuple[OffsetAndEpoch | None, OffsetAndEpoch | None]:
    """How the leader's log goes on after another one, which ends at `offset` with `epoch`.

    Returns (the end of what it may have in common, if it diverges; the snapshot to load if the records are gone).
    """
    snapshot, start = log.snapshot, log.start_offset
    if offset == 0 and start == 0 and (snapshot is None or snapshot.offset == 0):
        return None, None
    if snapshot is not None and snapshot.offset > 0:
        is_before = offset < start or (offset == start and start > 0 and epoch != snapshot.epoch)
        if offset == 0 or is_before or (start > 0 and epoch < snapshot.epoch):
            return None, snapshot
    end = end_for_epoch(log, epoch)
    return (end, None) if end.epoch != epoch or end.offset < offset else (None, None)


def truncation_offset(log: LogView, leaders: OffsetAndEpoch) -> int:
    """Where to cut a log off that diverges from the leader's, in which an epoch ends there."""
    if leaders.epoch == 0:
        return min(leaders.offset, log.end_offset)
    own = end_for_epoch(log, leaders.epoch)
    return min(own.offset, leaders.offset) if own.epoch == leaders.epoch else own.offset
