"""Repairs a partition's directory after a check: cuts the log before a broken batch and rebuilds the derived files.

What is cut off is lost. All other files (indexes, snapshots, checkpoints, leader epochs) can be derived from the
batches that are kept. The log's own recovery does that: a repair removes the wrong files, then opens and closes the
log as a broker does.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..disk.files import Files
from ..disk.small_files import PARTITION_METADATA, render_partition_metadata
from ..log.epochs import EPOCH_CHECKPOINT, LeaderEpochs
from ..log.file_names import LOG_SUFFIX, SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX, file_name, offset_of
from ..log.log_config import LogConfig
from ..log.snapshots import snapshots
from ..startup.opening import open_log
from .findings import Cut, Kind, Known, PartitionReport


@dataclass(slots=True)
class Repair:
    """What was done to one partition, one line each, and where its log now starts and ends."""

    done: list[str] = field(default_factory=list)
    log_start_offset: int = 0
    log_end_offset: int = 0


async def repair_partition(
    files: Files, directory: str, report: PartitionReport, known: Known, config: LogConfig, wall_ms: int
) -> Repair:
    """Do what the report asks for. The caller corrects the checkpoints by the result. Raises OSError, StorageError."""
    repair = Repair()
    await files.run(_remove, files, directory, report, known, repair)
    start = min(known.log_start_offset or 0, report.log_end_offset if report.cut is None else report.cut.offset)
    # All before the end has been checked: a recovery reads only the last segment, and those without an index.
    log = await open_log(
        files, directory, config, wall_ms=wall_ms, recovery_point=1 << 62, log_start_offset=start, clean=False
    )
    repair.done += log.recovery_notes
    repair.log_start_offset, repair.log_end_offset = log.log_start_offset, log.log_end_offset
    await log.close()
    return repair


def _remove(files: Files, directory: str, report: PartitionReport, known: Known, repair: Repair) -> None:
    if report.cut is not None:
        _cut(files, directory, report.cut)
        repair.done.append(f"cut off {report.cut}")
    for name in report.bad_files:
        path = f"{directory}/{name}"
        if files.exists(path):
            files.unlink(path)
            repair.done.append(f"removed {name}")
        base = offset_of(name)
        assert base is not None
        if not name.endswith(SNAPSHOT_SUFFIX) and files.exists(f"{directory}/{file_name(base, LOG_SUFFIX)}"):
            _forget_indexes(files, directory, base)
    # Without this file a recovery would read the whole log, and take holes between segments for lost batches.
    if report.has(Kind.EPOCH) or not files.exists(f"{directory}/{EPOCH_CHECKPOINT}"):
        epochs = LeaderEpochs()
        for epoch, start in report.epochs:
            if report.cut is None or start < report.cut.offset:
                epochs.assign(epoch, start)
        files.write_atomic(f"{directory}/{EPOCH_CHECKPOINT}", epochs.encode())
        repair.done.append(f"wrote {EPOCH_CHECKPOINT} from the log")
    if report.has(Kind.IDENTITY) and known.topic_id is not None:
        files.write_atomic(f"{directory}/{PARTITION_METADATA}", render_partition_metadata(known.topic_id))
        repair.done.append(f"wrote {PARTITION_METADATA} from the cluster's metadata")


def _cut(files: Files, directory: str, cut: Cut) -> None:
    """End the log at the cut. The last segments go first: after a crash in between, a check finds the same again."""
    names = files.listdir(directory)
    has_earlier = any(name.endswith(LOG_SUFFIX) and (offset_of(name) or 0) < cut.segment for name in names)
    first_gone = cut.segment + (0 if cut.position == 0 and has_earlier else 1)
    for name in reversed(names):
        base = offset_of(name)
        if base is not None and base >= first_gone and name.endswith(SEGMENT_SUFFIXES):
            files.unlink(f"{directory}/{name}")
    for offset in snapshots(files, directory):
        if offset > cut.offset:
            files.unlink(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    files.sync_directory(directory)  # before the cut: until then a check finds this again
    if first_gone == cut.segment:
        return
    _forget_indexes(files, directory, cut.segment)
    file = files.open(f"{directory}/{file_name(cut.segment, LOG_SUFFIX)}", create=False)
    try:
        file.truncate(cut.position)
        file.sync()
    finally:
        file.close()


def _forget_indexes(files: Files, directory: str, base: int) -> None:
    """Remove the indexes of a segment and of all later ones. A recovery rebuilds them."""
    for name in files.listdir(directory):
        offset = offset_of(name)
        if offset is not None and offset >= base and name.endswith(SEGMENT_SUFFIXES[1:]):
            files.unlink(f"{directory}/{name}")
