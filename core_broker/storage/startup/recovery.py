"""Opens a partition's directory in whatever state it was left, and repairs it.

After a clean shutdown the indexes and snapshots are trusted. After a crash every batch is read and its CRC checked,
from the segment with the recovery point on. The log ends after the last valid batch and the rest is cut off. Indexes,
leader epochs and producer state are rebuilt from the valid batches. Everything here blocks, so it runs by `Files.run`.

A sync that failed leaves the file `sync-failed`. What is read afterwards may be in the page cache only, in pages that
the operating system takes for written. Therefore a copy of the segment is synced and replaces the file before the log
is opened. Writing over the same pages is not enough: ext4 has allocated blocks for them that it still marks as
unwritten, and reads them as zeros after a power cut, although all later syncs succeed.

A power cut may take the name of the first segment of a log that was never synced, and leave that of the second, where a
file system does not keep creates in order (ext4, xfs and btrfs do). The log then begins with the second segment, as
after retention. Nothing that was promised to be on disk is missing. The checkpoints are too old to tell a loss from
retention, and a repair that took retention for a loss would remove valid records.
"""

from __future__ import annotations

import contextlib
import errno
import logging

from ....protocol._walk import BatchScan
from ..disk.files import File, Files
from ..disk.small_files import CheckpointError
from ..log import swap_files
from ..log._producers import BATCHES_KEPT, ProducerStates
from ..log._segment import MAX_RELATIVE, Segment
from ..log.epochs import EPOCH_CHECKPOINT, LeaderEpochs
from ..log.file_names import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, file_name, offset_of
from ..log.loaded import Loaded
from ..log.log_config import LogConfig
from ..log.scanning import READ_BYTES, scanned, zeros_behind
from ..log.snapshots import load_producers, remove_snapshots, remove_stray_snapshots, snapshots
from ..log.syncing import SYNC_FAILED
from ..log.transactions import TransactionIndex, follow_batch

logger = logging.getLogger(__name__)

ENTRIES_IN_MEMORY = 256  # index entries of the last segment after a crash: 5 KB
COPY_SUFFIX = ".tmp"  # the next start removes a copy that a crash left
LEFTOVERS = (".tmp", ".deleted", ".cleaned", ".swap")


def load(
    files: Files,
    directory: str,
    config: LogConfig,
    wall_ms: int,
    recovery_point: int,
    log_start_offset: int,
    first_dirty_offset: int,
    clean: bool,
) -> Loaded:
    """Open all segments of a directory and repair what a crash left. Raises OSError."""
    loader = _Loader(files, directory, config, wall_ms, recovery_point, log_start_offset, first_dirty_offset, clean)
    return loader.load()


class _Loader:
    def __init__(
        self,
        files: Files,
        directory: str,
        config: LogConfig,
        wall_ms: int,
        recovery_point: int,
        log_start_offset: int,
        first_dirty_offset: int,
        clean: bool,
    ) -> None:
        self.files = files
        self.directory = directory
        self.config = config
        self.wall_ms = wall_ms
        self.recovery_point = recovery_point
        self.log_start_offset = log_start_offset
        self.first_dirty_offset = first_dirty_offset
        self.holes_until = max(recovery_point, first_dirty_offset)  # before it all was synced: a hole is no loss
        self.clean = clean
        self.epochs = LeaderEpochs()
        self.segments: list[Segment] = []
        self.notes: list[str] = []
        self.has_files = False  # of segments or producers, be it without the segments themselves
        self.has_lost_epochs = False  # their file cannot be read, and each start would read all of the log
        self.has_removed = False  # what must not come back: segments, snapshots and aborted transactions of another end
        self.recovered_from: int | None = None  # base of the first segment that was read through
        self.producers = ProducerStates()  # where that one ended, and the others after it

    def load(self) -> Loaded:
        files, directory = self.files, self.directory
        sync_failed = files.exists(f"{directory}/{SYNC_FAILED}")
        self.clean = self.clean and not sync_failed
        bases = self._tidy()
        self._load_epochs()
        for number, base in enumerate(bases):
            following = bases[number + 1] if number + 1 < len(bases) else None
            if not self._open(base, following):
                for later in bases[number + 1 :]:
                    self._note(f"segment {later} removed: it lies after the end of the valid log")
                    self._remove(later)
                break
        end = self._end()
        if self.segments and end < self.log_start_offset:
            if any(segment.size_bytes for segment in self.segments):
                self._note(f"all segments removed: the log ended at {end}, it starts at {self.log_start_offset}")
            while self.segments:
                self.segments.pop().unlink(files)
            remove_snapshots(files, directory, above=-1)
            self.has_removed = True
            self.epochs.clear()
            self.producers.clear()
        if not self.segments:
            self.segments.append(Segment.create(files, directory, self.log_start_offset, self.wall_ms))
            end = self.log_start_offset
        if sync_failed:
            self._write_again()
        active = self.segments[-1]
        active.open_indexes(files)
        start = max(self.log_start_offset, self.segments[0].base_offset)
        self.epochs.truncate_end(end)
        self.epochs.truncate_start(start)
        self.has_removed |= remove_snapshots(files, directory, above=end)
        remove_stray_snapshots(files, directory, self.segments)
        crashed = self.has_files and not self.clean
        producers = self.producers
        if self.recovered_from is None:
            producers = load_producers(files, directory, self.segments, end, self.wall_ms)
        producers.complete = crashed and start == 0 and self._none_can_have_expired()
        new_names = False
        if self.has_lost_epochs:
            files.write_atomic(f"{directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())  # syncs the directory too
            self.epochs.dirty = False
        elif self.has_removed:
            files.sync_directory(directory)
        else:
            # The directory need not be synced now. Epochs or names that may be missing on disk belong to batches after
            # the recovery point, which does not move until a sync of the log has put them on disk.
            new_names = crashed
        recovery_point = end if self.clean else min(self.recovery_point, end)
        dirty = self.first_dirty_offset if self.first_dirty_offset <= end else 0
        return Loaded(
            self.segments, self.epochs, producers, start, end, recovery_point, dirty, self.notes,
            has_new_names=new_names,
        )  # fmt: skip

    def _write_again(self) -> None:
        """After a failed sync, write a copy of all that follows the recovery point, and sync it."""
        for segment in self.segments:
            if not segment.synced:
                self._copy(segment)
                segment.sync(self.files, segment is not self.segments[-1])
        self.files.sync_directory(self.directory)
        self._note("a sync or an append had failed: what follows the recovery point was copied and synced")
        self.files.unlink(f"{self.directory}/{SYNC_FAILED}")
        self.files.sync_directory(self.directory)

    def _copy(self, segment: Segment) -> None:
        """Replace the file of a segment by a synced copy. The copy is checked to hold the batches that were found to be
        valid, because the system may drop pages that it could not write at any time."""
        path, old = segment.path(LOG_SUFFIX), segment.file
        file = self.files.open(f"{path}{COPY_SUFFIX}")
        try:
            self._fill(file, segment)
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self.files.unlink(file.path)  # disk space may be short
            raise
        file.keep()
        self.files.rename(file.path, path)
        file.renamed(path)
        segment.file = file
        old.close()

    def _fill(self, file: File, segment: Segment) -> None:
        old = segment.file
        if file.size:
            file.truncate(0)
        while file.size < old.size:
            data = old.pread(min(READ_BYTES, old.size - file.size), file.size)
            if not data:
                break
            file.append([data])
        scan = BatchScan(segment.base_offset, self.config.index_interval_bytes, BATCHES_KEPT)
        for _ in scanned(file, scan):
            pass
        if (scan.end, scan.last_offset) != (old.size, segment.last_offset):
            raise OSError(errno.EIO, "a second read gave other bytes than the first", old.path)

    def _none_can_have_expired(self) -> bool:
        """Whether the log has the last batch of every producer that ever wrote to it."""
        if self.segments[0].base_offset:
            return False
        if not snapshots(self.files, self.directory):
            return True
        return 0 <= self.wall_ms - self.segments[0].first_timestamp < self.config.producer_id_expiration_ms

    def _note(self, what: str) -> None:
        self.notes.append(what)
        logger.warning("%s: %s", self.directory, what)

    def _tidy(self) -> list[int]:
        """Finish or undo an interrupted compaction, and remove files that belong to no segment. Returns the base
        offsets of the segments, sorted."""
        if swap_files.recover(self.files, self.directory):
            logger.info("%s: an interrupted compaction was undone or finished", self.directory)
        names = self.files.listdir(self.directory)
        logs = {offset: None for name in names if name.endswith(LOG_SUFFIX) and (offset := offset_of(name)) is not None}
        for name in names:
            offset = offset_of(name)
            self.has_files |= offset is not None
            if name.endswith(LEFTOVERS) or (
                offset is not None and offset not in logs and name.endswith(SEGMENT_SUFFIXES[1:])
            ):
                self.files.unlink(f"{self.directory}/{name}")
        return sorted(logs)

    def _load_epochs(self) -> None:
        path = f"{self.directory}/{EPOCH_CHECKPOINT}"
        if self.files.exists(path):
            try:
                self.epochs = LeaderEpochs.decode(self.files.read(path), path)
                return
            except CheckpointError as error:
                self._note(f"the leader epochs are rebuilt from the log: {error}")
                self.has_lost_epochs = True
        elif self.clean:
            return
        self.has_lost_epochs |= self.recovery_point > 0
        self.recovery_point = 0  # the epochs must be read from the whole log
        self.clean = False

    def _end(self) -> int:
        return self.segments[-1].last_offset + 1 if self.segments else self.log_start_offset

    def _open(self, base: int, following: int | None) -> bool:
        """Open one segment. Returns False if the log ends in it or before it, so that later segments are removed."""
        if self.segments and base < self._end():
            self._note(f"segment {base} removed: the previous one ends with offset {self._end() - 1}")
            self._remove(base)
            return False
        if self.segments and self._end() < base <= self.segments[-1].base_offset + MAX_RELATIVE and not self.clean:
            if base > self.holes_until:
                self._note(f"segment {base} removed: the end of the previous one, from {self._end()} on, is lost")
                self._remove(base)
                return False
        # Once a segment was read, all later ones are read too: the epochs and aborted transactions are being rebuilt.
        is_trusted = self.clean or (following is not None and following <= self.recovery_point)
        if is_trusted and self.recovered_from is None:
            segment = Segment.open_trusted(self.files, self.directory, base, self.wall_ms, following)
            if segment is not None:
                self.segments.append(segment)
                return True
            self._note(f"segment {base}: its indexes are rebuilt")
        return self._recover(base, following)

    def _recover(self, base: int, following: int | None) -> bool:
        """Read a segment, build its indexes and cut off what is not valid. Returns False if something was cut off."""
        files = self.files
        file = files.open(f"{self.directory}/{file_name(base, LOG_SUFFIX)}", create=False)
        segment = Segment(file, self.directory, base, self.wall_ms)
        self.epochs.truncate_end(base)
        if self.recovered_from is None:
            self.recovered_from = base
            self.producers = load_producers(files, self.directory, self.segments, base, self.wall_ms)
        self.has_removed |= TransactionIndex.remove(files, segment)
        scan = BatchScan(base, self.config.index_interval_bytes, BATCHES_KEPT)
        for found in scanned(file, scan):
            self._take(segment, found)
        cut = file.size - scan.end
        if zeros_behind(file, scan.end, scan.last_offset + 1, self.recovery_point, following):
            logger.info("%s: segment %d: %d bytes of zeros after the last batch cut off", self.directory, base, cut)
            file.truncate(scan.end)  # no sync: if a power cut undoes this, the next start does it again
            cut = 0
        elif cut:
            self._note(
                f"segment {base}: {cut} bytes after position {scan.end}, offset {scan.last_offset + 1}, are not valid: "
                "cut off"
            )
            file.truncate(scan.end)
            file.sync()  # the tail must not come back once later starts trust this one
        if not (following is None and self._is_small(segment)):
            segment.close_indexes(files)
        if not scan.end and self.segments and cut:
            self._remove(base)  # no batch was valid: the previous segment is active again
            return False
        self.segments.append(segment)
        return not cut

    def _is_small(self, segment: Segment) -> bool:
        """Whether its indexes may stay in memory, as those of an active segment do. Then there are no index files yet,
        and a start with thousands of partitions does not wait for two files each."""
        assert segment.offsets is not None
        return len(segment.offsets) <= ENTRIES_IN_MEMORY and not any(
            self.files.exists(segment.path(suffix)) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )

    def _remove(self, base: int) -> None:
        _unlink_segment(self.files, self.directory, base)
        self.has_removed = True

    def _take(self, segment: Segment, scan: BatchScan) -> None:
        """Add to the segment what the scan has found since the last call."""
        offsets, times = segment.offsets, segment.times
        assert offsets is not None and times is not None
        for relative, position, timestamp, timestamp_relative in scan.points:
            offsets.append(relative, position)
            times.append(timestamp, timestamp_relative)
        segment.last_offset = scan.last_offset
        segment.first_timestamp = scan.first_timestamp
        segment.max_timestamp, segment.max_timestamp_offset = scan.max_timestamp, scan.max_timestamp_offset
        segment.bytes_since_index = scan.bytes_since_index
        for epoch, first in scan.epochs:
            self.epochs.assign(epoch, first)
        for position, header in scan.producers:
            follow_batch(self.files, self.producers, segment, position, header, self.wall_ms, True)


def _unlink_segment(files: Files, directory: str, base: int) -> None:
    for suffix in SEGMENT_SUFFIXES:
        path = f"{directory}/{file_name(base, suffix)}"
        if files.exists(path):
            files.unlink(path)
