"""Opens the logs of partitions. Most directories are new or were closed by a clean shutdown; few calls show that.

A broker has thousands of them. `recovery.load` opens a directory in any other state. Everything here blocks, so it
runs by `Files.run`, many partitions in one call.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ....protocol.errors import ErrorCode, KafkaError
from ..disk.errors import StorageError
from ..disk.files import Files, make_directory
from ..disk.small_files import PARTITION_METADATA, CheckpointError, parse_partition_metadata, render_partition_metadata
from ..log._producers import ProducerStates, SnapshotError
from ..log._segment import Segment
from ..log.epochs import EPOCH_CHECKPOINT, LeaderEpochs
from ..log.file_names import INDEX_SUFFIX, LOG_SUFFIX, SNAPSHOT_SUFFIX, TIME_INDEX_SUFFIX, file_name, offset_of
from ..log.loaded import Loaded
from ..log.log import Log
from ..log.log_config import LogConfig
from ..log.syncing import SYNC_FAILED
from .recovery import LEFTOVERS, load

NEVER_WRITTEN = {PARTITION_METADATA, EPOCH_CHECKPOINT}  # the files of a log that never had a record


class Points(NamedTuple):
    """What is known of a log before it is opened: three offsets from the checkpoints.

    is_clean: it was closed, so no check is needed. is_named: if its directory exists, the directory's name and the
    file with its topic id are on disk.
    """

    recovery_point: int = 0
    log_start_offset: int = 0
    first_dirty_offset: int = 0
    is_clean: bool = False
    is_named: bool = True


class LogToOpen(NamedTuple):
    """The log of a partition that is to be opened, or created if it does not exist."""

    topic: str
    partition: int
    topic_id: bytes
    config: LogConfig


class OfOtherTopic(Exception):
    """The directory exists, but belongs to an earlier topic of the same name."""


async def open_log(
    files: Files,
    directory: str,
    config: LogConfig | None = None,
    *,
    wall_ms: int = 0,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    first_dirty_offset: int = 0,
    clean: bool = False,
) -> Log:
    """Open or create the log in `directory`. `clean`: it was closed, so no check is needed. Raises StorageError.

    recovery_point, log_start_offset and first_dirty_offset: from the checkpoints, if there are any.
    """
    config = config or LogConfig()
    try:
        await files.run(make_directory, files, directory)
        points = recovery_point, log_start_offset, first_dirty_offset
        loaded = await files.run(load, files, directory, config, wall_ms, *points, clean)
    except OSError as error:
        raise StorageError(error, directory, "cannot open") from error
    return Log(files, directory, config, loaded, wall_ms)


def open_or_make(
    files: Files, data_dir: str, jobs: Iterable[tuple[str, LogToOpen, Points]], wall_ms: int
) -> list[Loaded | KafkaError | OfOtherTopic]:
    """Open or create logs, one after the other. When this returns, the names of new directories are on disk."""
    found: list[Loaded | KafkaError | OfOtherTopic] = []
    for directory, wanted, points in jobs:
        try:
            found.append(open_one(files, directory, wanted, points, wall_ms))
        except (KafkaError, OfOtherTopic) as error:
            found.append(error)
    if any(isinstance(each, Loaded) and each.is_new for each in found):
        try:
            files.sync_directory(data_dir)
        except OSError as error:
            failure = StorageError(error, data_dir, "cannot sync")
            return [failure if isinstance(each, Loaded) and each.is_new else each for each in found]
    return found


def open_one(files: Files, directory: str, wanted: LogToOpen, points: Points, wall_ms: int) -> Loaded:
    """Open or create a partition's log. Raises StorageError, KafkaError, OfOtherTopic."""
    try:
        was_there = True
        try:
            names = files.listdir(directory)
        except FileNotFoundError:
            files.makedirs(directory)
            names, was_there = [], False
        is_named = PARTITION_METADATA in names and _belongs(files, directory, wanted.topic_id)
        if not is_named:
            _name(files, directory, wanted.topic_id)
        loaded = None
        if set(names) <= NEVER_WRITTEN and not any(points[:3]):
            loaded = _new(files, directory, wall_ms)
            # A crash may have lost all records: producers that continue must get an error, see ProducerStates.
            loaded.producers.complete = was_there and not points.is_clean
        elif points.is_clean:
            loaded = opened_clean(files, directory, names, points, wall_ms)
        if loaded is None:
            loaded = load(files, directory, wanted.config, wall_ms, *points[:4])
        loaded.is_new = not (is_named and points.is_named)
        return loaded
    except OSError as error:
        raise StorageError(error, directory, "cannot open") from error


def _belongs(files: Files, directory: str, topic_id: bytes) -> bool:
    """Whether a directory has the id of its topic. Raises OfOtherTopic, KafkaError, OSError."""
    path = f"{directory}/{PARTITION_METADATA}"
    data = files.read(path)
    expected = render_partition_metadata(topic_id)
    if data == expected:
        return True
    if len(data) <= len(expected) and all(byte in (0, wanted) for byte, wanted in zip(data, expected, strict=False)):
        return False  # the power failed just after the partition was created: unwritten blocks read as zeros
    try:
        found = parse_partition_metadata(data, path)
    except CheckpointError as error:
        raise KafkaError.of(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
    if found != topic_id:
        raise OfOtherTopic
    return True


def _name(files: Files, directory: str, topic_id: bytes) -> None:
    """Write the topic's id into a directory. It reaches the disk with the first sync of the log."""
    file = files.open(f"{directory}/{PARTITION_METADATA}")
    try:
        if file.size:
            file.truncate(0)  # this makes ext4 write what follows to the disk at once
        file.append([render_partition_metadata(topic_id)])
    finally:
        file.close()


def _new(files: Files, directory: str, wall_ms: int) -> Loaded:
    """An empty log in a new directory. The first append creates the log file; the indexes follow later."""
    segment = Segment(files.new(f"{directory}/{file_name(0, LOG_SUFFIX)}"), directory, 0, wall_ms)
    return Loaded([segment], LeaderEpochs(), ProducerStates(), 0, 0, 0, 0, is_closed=True)


def opened_clean(files: Files, directory: str, names: Sequence[str], points: Points, wall_ms: int) -> Loaded | None:
    """The log of a directory that was closed by a clean shutdown; None if something must be repaired or removed.

    names: the files in the directory. Raises OSError.
    """
    present = set(names)
    bases = _bases(names)
    if bases is None or SYNC_FAILED in present:
        return None
    segments: list[Segment] = []
    for number, base in enumerate(bases):
        following = bases[number + 1] if number + 1 < len(bases) else None
        if segments and base < segments[-1].last_offset + 1:
            return None
        segment = _open(files, directory, base, following, present, wall_ms)
        if segment is None:
            return None
        segments.append(segment)
    end = segments[-1].last_offset + 1
    if end < points.log_start_offset:
        return None
    epochs = LeaderEpochs()
    if EPOCH_CHECKPOINT in present:
        path = f"{directory}/{EPOCH_CHECKPOINT}"
        try:
            epochs = LeaderEpochs.decode(files.read(path), path)
        except CheckpointError:
            return None
    producers = _producers(files, directory, names, bases, end)
    if producers is None:
        return None
    start = max(points.log_start_offset, bases[0])
    epochs.truncate_end(end)
    epochs.truncate_start(start)
    first_dirty = points.first_dirty_offset if points.first_dirty_offset <= end else 0
    return None if epochs.dirty else Loaded(segments, epochs, producers, start, end, end, first_dirty, is_closed=True)


def _bases(names: Sequence[str]) -> list[int] | None:
    """The base offsets of the segments, sorted; None if a file in the directory belongs to no segment."""
    bases = [base for name in names if name.endswith(LOG_SUFFIX) and (base := offset_of(name)) is not None]
    known = set(bases)
    for name in names:
        if name.endswith(LEFTOVERS):
            return None
        offset = offset_of(name)
        if offset is not None and offset not in known and not name.endswith(SNAPSHOT_SUFFIX):
            return None
    return sorted(bases) or None


def _open(
    files: Files, directory: str, base: int, following: int | None, present: set[str], wall_ms: int
) -> Segment | None:
    has_index = file_name(base, INDEX_SUFFIX) in present, file_name(base, TIME_INDEX_SUFFIX) in present
    if all(has_index):
        return Segment.open_trusted(files, directory, base, wall_ms, following)
    if any(has_index) or following is not None:
        return None
    segment = Segment(files.open(f"{directory}/{file_name(base, LOG_SUFFIX)}", create=False), directory, base, wall_ms)
    return None if segment.size_bytes else segment  # an empty segment has no indexes


def _producers(
    files: Files, directory: str, names: Sequence[str], bases: Sequence[int], end: int
) -> ProducerStates | None:
    """The producers at the log's end, from the snapshot that a clean shutdown writes; None if there is no snapshot."""
    snapshots = [at for name in names if name.endswith(SNAPSHOT_SUFFIX) and (at := offset_of(name)) is not None]
    if not snapshots:
        return ProducerStates() if end == bases[0] else None
    if snapshots[-1] != end or not set(snapshots[:-1]) <= set(bases):
        return None
    path = f"{directory}/{file_name(end, SNAPSHOT_SUFFIX)}"
    try:
        return ProducerStates.decode(files.read(path), path)
    except SnapshotError:
        return None
