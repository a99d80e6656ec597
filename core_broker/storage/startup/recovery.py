"""A partition's directory as it was left, turned into a log that can go on.

After a clean shutdown indexes and snapshots are believed. After anything else every batch from the recovery point's
segment on is read and its CRC checked; the log ends after the last whole valid batch, what follows is cut off, and
indexes, leader epochs and producer state are rebuilt from what is left. It blocks, so it runs by `Files.run`.

A sync that failed leaves the file `sync-failed`. What is read after it may be in the page cache alone, whose pages the
system takes for written: a copy is synced and takes the place of the file, and only then is the log opened. To write
over the same pages is not enough: ext4 has given them blocks that it goes on to hold for never written, and reads as
zeros after a power cut, though all later syncs say that all is well.

Of a log that was never synced a power cut may take the name of the first segment and leave that of the second, where a
file system does not keep creates in order (ext4, xfs and btrfs do). Such a log begins with the second, as after
retention: nothing that was promised to be on disk is missing. The checkpoints are too old to tell the two apart, and
whoever took retention for a loss would remove records that are there.
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

ENTRIES_IN_MEMORY = 256  # of the index of the last segment after a crash: 5 KB
COPY_SUFFIX = ".tmp"  # one that a crash leaves goes with the next start
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
    """Open all that a directory has, repairing what a crash left. Raises OSError."""
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
        self.holes_until = max(recovery_point, first_dirty_offset)  # before it no tail can be lost: it was synced
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
                    self._note(f"segment {later} removed: it came after the end of the valid log")
                    self._remove(later)
                break
        end = self._end()
        if self.segments and end < self.log_start_offset:
            if any(segment.size_bytes for segment in self.segments):
                self._note(f"all removed: it ended at {end}, before its log start offset {self.log_start_offset}")
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
            files.write_atomic(f"{directory}/{EPOCH_CHECKPOINT}", self.epochs.encode())  # and what is renamed here
            self.epochs.dirty = False
        elif self.has_removed:
            files.sync_directory(directory)
        else:
            # Nothing waits for the disk. Epochs that the file lacks, and names that the directory may lack there, come
            # after the recovery point, which stays where it is until a sync of the log has put them on disk.
            new_names = crashed
        recovery_point = end if self.clean else min(self.recovery_point, end)
        dirty = self.first_dirty_offset if self.first_dirty_offset <= end else 0
        return Loaded(
            self.segments, self.epochs, producers, start, end, recovery_point, dirty, self.notes,
            has_new_names=new_names,
        )  # fmt: skip

    def _write_again(self) -> None:
        """Put on disk what a sync that failed may have left in the page cache only, all from the recovery point on."""
        for segment in self.segments:
            if not segment.synced:
                self._copy(segment)
                segment.sync(self.files, segment is not self.segments[-1])
        self.files.sync_directory(self.directory)
        self._note("a sync or an append had failed: what came after the recovery point is on disk now, as a copy")
        self.files.unlink(f"{self.directory}/{SYNC_FAILED}")
        self.files.sync_directory(self.directory)

    def _copy(self, segment: Segment) -> None:
        """Another file, synced, in place of a segment's. It must hold the batches that were found to be valid: the
        system may let go of pages that it could not write at any time."""
        path, old = segment.path(LOG_SUFFIX), segment.file
        file = self.files.open(f"{path}{COPY_SUFFIX}")
        try:
            self._fill(file, segment)
            file.sync()
        except OSError:
            with contextlib.suppress(OSError):
                self.files.unlink(file.path)  # it takes disk space that may be short
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
            raise OSError(errno.EIO, "read once more it is not what it was", old.path)

    def _none_can_have_expired(self) -> bool:
        """Whether the log says of every producer that ever wrote to it what it wrote last."""
        if self.segments[0].base_offset:
            return False
        if not snapshots(self.files, self.directory):
            return True
        return 0 <= self.wall_ms - self.segments[0].first_timestamp < self.config.producer_id_expiration_ms

    def _note(self, what: str) -> None:
        self.notes.append(what)
        logger.warning("%s: %s", self.directory, what)

    def _tidy(self) -> list[int]:
        """End an interrupted compaction and remove what belongs to no segment; the base offsets of the rest, sorted."""
        if swap_files.recover(self.files, self.directory):
            logger.info("%s: a compaction that was interrupted is undone or finished", self.directory)
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
                self._note(f"leader epochs are read from the log again: {error}")
                self.has_lost_epochs = True
        elif self.clean:
            return
        self.has_lost_epochs |= self.recovery_point > 0
        self.recovery_point = 0  # the log is all there is
        self.clean = False

    def _end(self) -> int:
        return self.segments[-1].last_offset + 1 if self.segments else self.log_start_offset

    def _open(self, base: int, following: int | None) -> bool:
        """Open one segment; False when the log ends in it before its file does, or before it."""
        if self.segments and base < self._end():
            self._note(f"segment {base} removed: the one before it goes on to {self._end() - 1}")
            self._remove(base)
            return False
        if self.segments and self._end() < base <= self.segments[-1].base_offset + MAX_RELATIVE and not self.clean:
            if base > self.holes_until:
                self._note(f"segment {base} removed: the end of the one before it, from {self._end()} on, is lost")
                self._remove(base)
                return False
        # After one that was read through all are: epochs and aborted transactions from it on are rebuilt.
        is_trusted = self.clean or (following is not None and following <= self.recovery_point)
        if is_trusted and self.recovered_from is None:
            segment = Segment.open_trusted(self.files, self.directory, base, self.wall_ms, following)
            if segment is not None:
                self.segments.append(segment)
                return True
            self._note(f"segment {base}: its indexes are made anew")
        return self._recover(base, following)

    def _recover(self, base: int, following: int | None) -> bool:
        """Read a segment through, build its indexes and cut what is not valid; False when something was cut."""
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
            logger.info("%s: segment %d: %d bytes of zeros behind the last batch cut off", self.directory, base, cut)
            file.truncate(scan.end)  # if it comes back with a power cut the next start finds it, too
            cut = 0
        elif cut:
            self._note(
                f"segment {base}: {cut} bytes after position {scan.end}, offset {scan.last_offset + 1}, are not valid: "
                "cut off"
            )
            file.truncate(scan.end)
            file.sync()  # the tail must not come back after this start has been trusted
        if not (following is None and self._is_small(segment)):
            segment.close_indexes(files)
        if not scan.end and self.segments and cut:
            self._remove(base)  # nothing of it was valid: the one before is active again
            return False
        self.segments.append(segment)
        return not cut

    def _is_small(self, segment: Segment) -> bool:
        """Whether its indexes may stay in memory, as in a segment that was never closed: then there are no files yet,
        and thousands of partitions do not each wait for two."""
        assert segment.offsets is not None
        return len(segment.offsets) <= ENTRIES_IN_MEMORY and not any(
            self.files.exists(segment.path(suffix)) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        )

    def _remove(self, base: int) -> None:
        _unlink_segment(self.files, self.directory, base)
        self.has_removed = True

    def _take(self, segment: Segment, scan: BatchScan) -> None:
        """Take what a scan has found since the last time."""
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
