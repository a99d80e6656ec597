"""Compares the entries of a leader-epoch-checkpoint with the batches of its log."""

from __future__ import annotations

from itertools import pairwise

from ..disk.files import Files
from ..disk.small_files import CheckpointError, parse_checkpoint
from ..log.epochs import EPOCH_CHECKPOINT
from .findings import Kind, Known, PartitionReport

Entry = tuple[int, int]  # leader epoch, its first offset


def read_entries(files: Files, path: str, known: Known, report: PartitionReport) -> list[Entry]:
    """The entries of the file. If it cannot be used, the report says why and the list is empty. Raises OSError."""
    if not files.exists(path):
        return []
    try:
        entries = [(int(epoch), int(start)) for epoch, start in parse_checkpoint(files.read(path), path, 2)]
    except CheckpointError as error:
        report.add(Kind.EPOCH, EPOCH_CHECKPOINT, str(error).partition(": ")[2])
        return []
    for before, after in pairwise(entries):
        if after[0] <= before[0] or after[1] <= before[1]:
            text = f"epoch {after[0]} from offset {after[1]} on follows epoch {before[0]} from {before[1]} on"
            report.add(Kind.EPOCH, EPOCH_CHECKPOINT, text, offset=after[1])
            return []
    latest = known.leader_epoch
    if entries and latest is not None and entries[-1][0] > latest:
        text = f"it holds epoch {entries[-1][0]}, but the latest in the metadata is {latest}"
        report.add(Kind.EPOCH, EPOCH_CHECKPOINT, text, offset=entries[-1][1])
        return []
    return entries


def complaint(entries: list[Entry] | None, floors: list[int], report: PartitionReport, known: Known) -> str | None:
    """What is wrong with the file, judged by the log's batches; None if they agree. entries: None if there is no file.

    floors: for each of the report's epochs, the offset at which the batches before it end.
    """
    if entries is None:
        on_disk = known.recovery_point or 0  # the next start reads all that follows, and writes the file
        return "it is missing" if any(known.clean or first < on_disk for _, first in report.epochs) else None
    if not entries:
        return "it has no entry" if known.clean and report.epochs else None
    if (known.clean or not report.segments) and entries[-1][1] > report.log_end_offset:
        return f"epoch {entries[-1][0]} begins at offset {entries[-1][1]}, past the end {report.log_end_offset}"
    return _misplaced(entries, floors, report, known)


def _misplaced(entries: list[Entry], floors: list[int], report: PartitionReport, known: Known) -> str | None:
    """Check where each epoch begins: at its first batch, or at the log's start if that is later. Compaction may have
    removed the first batches of an epoch; then its first offset is only known to lie within a range."""
    found = {epoch: (first, floor) for (epoch, first), floor in zip(report.epochs, floors, strict=True)}
    is_whole = known.compacted is False
    for epoch, offset in entries:
        if epoch not in found:
            # A leader that wrote nothing has its entry at the log's end, until the next epoch replaces it.
            if known.clean and is_whole and (epoch, offset) != (entries[-1][0], report.log_end_offset):
                return f"it has epoch {epoch} from offset {offset} on, but the log has no batch of this epoch"
            continue
        first, floor = found[epoch]
        if not known.clean and first >= (known.recovery_point or 0):
            continue  # not on disk yet: the next start reads it again
        most = max(first, report.log_start_offset)
        if not (most if is_whole else min(floor, most)) <= offset <= most:
            return f"it has epoch {epoch} from offset {offset} on, but the batches begin at {most}"
    return None
