"""Producer snapshots: the `.snapshot` files in a log's directory, and the producers read from them and the log."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Sequence

from ..disk.files import Files
from ._producers import ProducerStates, SnapshotError
from ._segment import Segment
from .file_names import SNAPSHOT_SUFFIX, file_name, offset_of
from .scanning import headers
from .transactions import follow_batch

logger = logging.getLogger(__name__)


def snapshots(files: Files, directory: str) -> list[int]:
    """Offsets of the producer snapshots in a directory, sorted."""
    names = files.listdir(directory)
    return [offset for name in names if name.endswith(SNAPSHOT_SUFFIX) and (offset := offset_of(name)) is not None]


def remove_snapshots(files: Files, directory: str, *, above: int | None = None, below: int | None = None) -> bool:
    """Remove snapshots by their offset. Returns whether there were any."""
    doomed = [
        offset
        for offset in snapshots(files, directory)
        if (above is not None and offset > above) or (below is not None and offset < below)
    ]
    for offset in doomed:
        files.unlink(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    return bool(doomed)


def remove_stray_snapshots(files: Files, directory: str, segments: Sequence[Segment]) -> None:
    """As in Kafka: keep the snapshots at the base offset of a segment, and the last one, which a close has written."""
    bases = dict.fromkeys(segment.base_offset for segment in segments)
    for offset in snapshots(files, directory)[:-1]:
        if offset not in bases:
            files.unlink(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")


def write_snapshot(files: Files, directory: str, offset: int, states: ProducerStates) -> None:
    """Write the producers at an offset into the page cache; the file's CRC shows later whether it is whole.

    Raises OSError.
    """
    file = files.open(f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}")
    try:
        if file.size:
            file.truncate(0)
        file.append([states.encode()])
    finally:
        file.close()


def load_producers(files: Files, directory: str, segments: list[Segment], end: int, wall_ms: int) -> ProducerStates:
    """The producers at `end`, where the last of `segments` ends: from the latest readable snapshot and the batch
    headers after it."""
    states = ProducerStates()
    start = segments[0].base_offset if segments else end
    for offset in reversed(snapshots(files, directory)):
        if offset > end:
            continue
        path = f"{directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"
        try:
            states = ProducerStates.decode(files.read(path), path)
            start = max(offset, start)
            break
        except SnapshotError as error:
            logger.warning("%s: producer snapshot removed: %s", directory, error)
            files.unlink(path)
    bases = [segment.base_offset for segment in segments]
    for segment in segments[max(0, bisect_right(bases, start) - 1) :]:
        found = segment.find(files, start) if segment.last_offset >= start else None
        if found is not None:
            for position, header in headers(segment.file, found.position, False):
                follow_batch(files, states, segment, position, header, wall_ms, False)
    return states
