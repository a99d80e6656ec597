"""Reads one partition's directory and reports all that is wrong with it. Changes nothing.

The CRC of every batch is checked. Offsets, leader epochs and index entries are compared with the batches, and all of
it with the checkpoints. After a broken batch the search for valid ones continues, so that the report can say how much
lies behind it. What no CRC covers (base offsets, leader epochs, indexes) is judged by its neighbours and by the
checkpoints.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import zip_longest

from ....protocol.batch_layout import CONTROL, HEADER, HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, MAGIC_AT, TRANSACTIONAL
from ....protocol.primitives import uuid_to_str
from ..disk.files import File, Files
from ..disk.small_files import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    parse_partition_metadata,
)
from ..log._producers import ProducerStates, SnapshotError
from ..log._segment import MAX_RELATIVE
from ..log.epochs import EPOCH_CHECKPOINT
from ..log.file_names import (
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    offset_of,
)
from ..log.index_files import ABORTED_ENTRY, AbortedTransaction, decode_aborted, encode_aborted
from ..log.scanning import READ_BYTES, Header, headers, zeros_behind
from ..log.snapshots import snapshots
from ..log.transactions import follow
from ..startup.recovery import LEFTOVERS
from .epoch_check import Entry, complaint, read_entries
from .findings import Cut, Kind, Known, PartitionReport, file_of, unread
from .index_check import IndexCheck

NO_EPOCH = -1  # of batches written before leader epochs existed
_MAGIC_BYTE = bytes([MAGIC])


def check_partition(files: Files, directory: str, known: Known) -> PartitionReport:
    """All that is wrong in a partition's directory. Nobody may write to it meanwhile."""
    report = PartitionReport(directory.rpartition("/")[2])
    try:
        _Check(files, directory, known, report).run()
    except OSError as error:
        report.refused(file_of(error, directory), error)
    if report.has(Kind.UNREADABLE):
        report.cut = None  # what a repair would cut off is unknown, so there is none
    return report


class _Check:
    def __init__(self, files: Files, directory: str, known: Known, report: PartitionReport) -> None:
        self.files = files
        self.directory = directory
        self.known = known
        self.report = report
        self.sizes: list[tuple[int, int]] = []  # (base offset, size in bytes) of the segments
        self.expected = 0  # the next batch should begin at this offset
        self.after_break = False  # invalid bytes precede the next batch: its offset proves nothing
        self.before_last: Cut | None = None  # a cut before the last batch, if a hole precedes that batch
        self.hole: tuple[str, int, int, int] | None = None  # the hole before the last batch: file, position, from, to
        self.epoch = -1  # of the last batch
        self.floors: list[int] = []  # for each of the report's epochs, where the batches before it end
        self.epochs_path = f"{directory}/{EPOCH_CHECKPOINT}"
        self.checkpointed: list[Entry] = []  # from the checkpoint file, if they increase
        self._entry = 0  # of the last batch's epoch
        self.disagreement: Cut | None = None  # a cut before the first batch that contradicts the checkpoint's epochs
        self.states = ProducerStates()
        self.replay_is_complete = known.compacted is False  # the log has all that transactions wrote

    def run(self) -> None:
        report, known = self.report, self.known
        bases = self._list()
        with self._reporting_refusal(PARTITION_METADATA):
            self._read_identity()
        with self._reporting_refusal(EPOCH_CHECKPOINT):
            self.checkpointed = read_entries(self.files, self.epochs_path, known, report)
        start = known.log_start_offset or 0
        self.expected = bases[0] if bases else start
        self._begin_replay(bases)
        for base, following in zip_longest(bases, bases[1:]):
            with self._reporting_refusal(file_name(base, LOG_SUFFIX)):
                self._segment(base, following)
        report.segments = len(bases)
        report.size_bytes = sum(size for _, size in self.sizes)
        report.log_start_offset = max(start, bases[0] if bases else 0)
        report.log_end_offset = max(self.expected, bases[-1] if bases else 0)
        self._blame_the_last()
        self._report_hole()
        if report.cut is None and not self._lacks_batches:
            self._compare_with_checkpoints()
        elif report.cut is not None:
            cut = report.cut
            cut.bytes_lost = sum(size for base, size in self.sizes if base >= cut.segment) - cut.position
            cut.batches_lost = report.batches - cut.batches_kept
            cut.last_offset_lost = self.expected - 1 if cut.batches_lost else -1
        self._check_snapshots()

    # --- Files --------------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _reporting_refusal(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._refused(name, error)

    def _refused(self, name: str, error: OSError) -> None:
        """Report a file that the operating system refuses to read. The other files are still checked."""
        self.report.refused(name, error)
        if name.endswith(LOG_SUFFIX):
            self.after_break, self.replay_is_complete = True, False

    @property
    def _lacks_batches(self) -> bool:
        """Whether a log file could not be read, so that the end of the log is unknown."""
        return any(name.endswith(LOG_SUFFIX) for name in unread(self.report.problems))

    def _list(self) -> list[int]:
        """Base offsets of the segments, sorted. Reports files that belong to no segment."""
        names = self.files.listdir(self.directory)
        bases = sorted(base for name in names if name.endswith(LOG_SUFFIX) and (base := offset_of(name)) is not None)
        for name in names:
            offset = offset_of(name)
            if name.endswith(LEFTOVERS):
                self.report.notes.append(f"{name} was left by a crash; the next start sees to it")
            elif offset is not None and offset not in bases and name.endswith(SEGMENT_SUFFIXES):
                if self.known.clean:
                    self._bad_file(Kind.ORPHAN, name, "it belongs to no log segment")
                else:
                    self.report.notes.append(f"{name} belongs to no log segment; the next start removes it")
        return bases

    def _bad_file(self, kind: Kind, name: str, text: str) -> None:
        self.report.add(kind, name, text)
        self.report.bad_files[name] = None

    def _read_identity(self) -> None:
        path = f"{self.directory}/{PARTITION_METADATA}"
        wanted = self.known.topic_id
        if not self.files.exists(path):
            if wanted is not None:
                self.report.add(Kind.IDENTITY, PARTITION_METADATA, "it is missing")
            return
        try:
            found = parse_partition_metadata(self.files.read(path), path)
        except CheckpointError as error:
            self.report.add(Kind.IDENTITY, PARTITION_METADATA, str(error).partition(": ")[2])
            return
        if wanted is not None and wanted != found:
            pair = uuid_to_str(found), uuid_to_str(wanted)
            # Ids of two topics never differ in one digit only: this is damage.
            is_damaged = sum(one != other for one, other in zip(*pair, strict=True)) == 1
            text = "it names topic {}, but the cluster's metadata {}: a start sets the directory aside".format(*pair)
            self.report.add(Kind.IDENTITY if is_damaged else Kind.FOREIGN, PARTITION_METADATA, text)

    # --- Batches ------------------------------------------------------------------------------------------------------

    def _segment(self, base: int, following: int | None) -> None:
        known = self.known
        name = file_name(base, LOG_SUFFIX)
        if base > self.expected and known.compacted is False and not self.after_break:
            # A segment begins where the previous one ends, also in topics with holes.
            self._report_hole()
            text = f"offsets {self.expected} to {base - 1} are missing before this segment"
            self.report.add(Kind.GAP, name, text, 0, self.expected)
            self.expected, self.replay_is_complete = base, False
        file = self.files.open(f"{self.directory}/{name}", create=False)
        self.sizes.append((base, file.size))
        # The next start rebuilds the indexes of other segments, whatever they hold.
        trusted = known.clean or (following is not None and following <= (known.recovery_point or 0))
        indexes = IndexCheck(self.files, self.directory, base, self._refused) if trusted else None
        aborted: list[AbortedTransaction] = []
        markers: dict[int, None] = {}  # last offsets of control batches
        position = 0
        sound = True
        try:
            while position < file.size:
                for at, header in headers(file, position, True):
                    size = header[1] + LENGTH_OVERHEAD
                    self._batch(base, name, at, header)
                    if indexes is not None:
                        indexes.batch(at, size, header[0], header[0] + header[6], header[8], not header[12])
                    if header[9] >= 0 and header[5] & (CONTROL | TRANSACTIONAL):
                        self._follow(file, at, header, aborted, markers)
                    position = at + size
                may_have_zeros = following is not None or not known.clean
                if may_have_zeros and zeros_behind(file, position, self.expected, known.recovery_point or 0, following):
                    text = f"{file.size - position} bytes of zeros behind the last batch; the next start cuts them"
                    self.report.notes.append(f"{name}: {text}")
                    break
                if position < file.size:
                    sound = False
                    position = self._break(base, name, file, position)
        finally:
            file.close()
        if indexes is not None and sound:
            for index_name, text in indexes.end(not file.size):
                self._bad_file(Kind.INDEX, index_name, text)
            with self._reporting_refusal(file_name(base, TRANSACTION_INDEX_SUFFIX)):
                self._check_transaction_index(base, aborted, markers)

    def _batch(self, base: int, name: str, position: int, header: Header) -> None:
        """Take the next valid batch."""
        report = self.report
        first, epoch = header[0], header[2]
        last = first + header[6]
        if self.after_break:
            self.after_break = False
            self._report_hole()
        elif first != self.expected or first < base or last - base > MAX_RELATIVE:
            here = Cut(base, position, self.expected, report.batches)
            if self.expected < first <= last <= base + MAX_RELATIVE and first >= base:
                self._report_hole()
                self.before_last = here
                self.hole = name, position, self.expected, first
            else:
                text = f"the batch at position {position} has offsets {first} to {last}, but {self.expected} is next"
                report.add(Kind.OVERLAP, name, text, position, first)
                self._blame_or(here)
        else:
            self._report_hole()
        if epoch not in (self.epoch, NO_EPOCH):
            latest = self.known.leader_epoch
            if epoch < self.epoch or (latest is not None and epoch > latest):
                than = (
                    f"but the previous one of {self.epoch}"
                    if epoch < self.epoch
                    else f"but the latest in the metadata is {latest}"
                )
                text = f"the batch at position {position} is of leader epoch {epoch}, {than}"
                report.add(Kind.EPOCH, name, text, position, first)
                self._cut(self.disagreement or Cut(base, position, self.expected, report.batches))
            else:
                report.epochs.append((epoch, first))
                self.floors.append(self.expected)
            self.epoch = epoch
        if self.checkpointed and self.disagreement is None:
            self._compare_epoch(base, position, last, epoch)
        self.expected = last + 1
        report.batches += 1

    def _blame_or(self, here: Cut) -> None:
        """The offsets of two batches contradict each other. If a hole precedes the earlier one, that one is wrong."""
        if self.before_last is None:
            self._cut(here)
        else:
            self._cut(self.before_last)
            self.before_last = self.hole = None

    def _cut(self, cut: Cut) -> None:
        if self.report.cut is None or cut < self.report.cut:
            self.report.cut = cut

    def _report_hole(self) -> None:
        """The batch after the last one matches it, so the hole before the last batch is real."""
        hole, self.hole, self.before_last = self.hole, None, None
        if hole is None or self.known.dense is False:
            return
        name, position, start, end = hole
        text = f"offsets {start} to {end - 1} are missing before position {position}"
        if self.known.dense:
            self.replay_is_complete = False
            self.report.add(Kind.GAP, name, text, position, start)
        else:
            self.report.notes.append(f"{name}: {text}, as in a compacted topic")

    def _blame_the_last(self) -> None:
        """The last batch has a hole before it and goes past the recovery point of a clean shutdown: it is wrong."""
        point = self.known.recovery_point
        if self.known.clean and point is not None and point < self.expected and self.before_last is not None:
            cut = self.before_last
            name = file_name(cut.segment, LOG_SUFFIX)
            text = f"the last batch, at position {cut.position}, ends at offset {self.expected - 1}, past {point}"
            self.report.add(Kind.OVERLAP, name, text, cut.position, cut.offset)
            self._blame_or(cut)

    def _break(self, base: int, name: str, file: File, position: int) -> int:
        """Report bytes that are not a valid batch. Returns the position at which to continue."""
        report = self.report
        self._cut(Cut(base, position, self.expected, report.batches))
        self.after_break = True
        header = self._plausible(file.pread(HEADER_SIZE, position), 0, base, file.size - position)
        if header is not None:
            first, last, after = header[0], header[0] + header[6], position + header[1] + LENGTH_OVERHEAD
            text = f"the batch at position {position}, offsets {first} to {last}, does not match its CRC"
            report.add(Kind.CRC, name, text, position, first)
            next_head = file.pread(HEADER_SIZE, after)
            if after == file.size or self._plausible(next_head, 0, base, file.size - after) is not None:
                return after
        after = self._next_valid(base, file, position + 1)
        if header is None:
            text = f"{after - position} bytes at position {position} are not a batch"
            if not self.known.clean and after == file.size and self.expected >= (self.known.recovery_point or 0):
                text += ": an append that a crash cut short; the next start removes it"
            report.add(Kind.TORN, name, text, position, self.expected)
        return after

    def _plausible(self, data: bytes, at: int, base: int, bytes_left: int) -> Header | None:
        """The header at data[at:], if it could be a batch of this segment that fits into `bytes_left`."""
        if len(data) - at < HEADER_SIZE:
            return None
        header: Header = HEADER.unpack_from(data, at)
        first, length, delta, count = header[0], header[1], header[6], header[12]
        if header[3] != MAGIC or delta < 0 or count < 0 or not HEADER_SIZE <= length + LENGTH_OVERHEAD <= bytes_left:
            return None
        return header if max(base, self.expected) <= first <= base + MAX_RELATIVE else None

    def _next_valid(self, base: int, file: File, position: int) -> int:
        """The position of the next valid batch at or after `position`; the end of the file if there is none."""
        while file.size - position >= HEADER_SIZE:
            chunk = file.pread(min(READ_BYTES, file.size - position), position)
            found = chunk.find(_MAGIC_BYTE, MAGIC_AT)
            while 0 <= found <= len(chunk) - (HEADER_SIZE - MAGIC_AT):
                at = position + found - MAGIC_AT
                if self._plausible(chunk, found - MAGIC_AT, base, file.size - at) is not None:
                    if next(headers(file, at, True), None) is not None:
                        return at
                found = chunk.find(_MAGIC_BYTE, found + 1)
            position += max(len(chunk) - HEADER_SIZE + 1, 1)
        return file.size

    # --- Leader epochs ------------------------------------------------------------------------------------------------

    def _compare_epoch(self, base: int, position: int, last: int, epoch: int) -> None:
        """Remember the first batch whose epoch differs from what the checkpoint has for its last offset."""
        entries, number = self.checkpointed, self._entry
        while number + 1 < len(entries) and entries[number + 1][1] <= last:
            number += 1
        self._entry = number
        if epoch == entries[number][0] or entries[number][1] > last:
            return
        if self.known.clean or last < (self.known.recovery_point or 0):
            self.disagreement = Cut(base, position, self.expected, self.report.batches)
            self._mismatch = f"it has epoch {entries[number][0]} for offset {last}, but the batch there has {epoch}"

    def _compare_with_checkpoints(self) -> None:
        """Compare a log that is sound in itself with the data directory's checkpoints."""
        report, known, end = self.report, self.known, self.report.log_end_offset
        if self.disagreement is not None and not report.has(Kind.EPOCH):
            report.add(Kind.EPOCH, EPOCH_CHECKPOINT, self._mismatch, offset=self.disagreement.offset)
        if not report.has(Kind.EPOCH) and EPOCH_CHECKPOINT not in unread(report.problems):
            is_there = self.files.exists(self.epochs_path)
            if wrong := complaint(self.checkpointed if is_there else None, self.floors, report, known):
                report.add(Kind.EPOCH, EPOCH_CHECKPOINT, wrong)
        point = known.recovery_point
        if point is not None and (point > end or (known.clean and point != end)):
            text = f"the recovery point is {point}, but the log ends at {end}"
            if point > end:
                text += f": offsets {end} to {point - 1} are gone"
            report.add(Kind.CHECKPOINT, RECOVERY_POINT_CHECKPOINT, text, offset=point)
        if known.log_start_offset is not None and known.log_start_offset > end:
            text = f"the log starts at {known.log_start_offset}, but ends at {end}"
            report.add(Kind.CHECKPOINT, LOG_START_CHECKPOINT, text, offset=known.log_start_offset)
        if known.clean:
            for what, name, offset in (
                ("the high watermark", HIGH_WATERMARK_CHECKPOINT, known.high_watermark),
                ("the first offset to compact", CLEANER_CHECKPOINT, known.first_dirty_offset),
            ):
                if offset is not None and offset > end:
                    report.add(Kind.CHECKPOINT, name, f"{what} is {offset}, but the log ends at {end}", offset=offset)

    # --- Producers and transactions -----------------------------------------------------------------------------------

    def _begin_replay(self, bases: list[int]) -> None:
        if not bases or not bases[0]:
            return
        path = f"{self.directory}/{file_name(bases[0], SNAPSHOT_SUFFIX)}"
        if self.files.exists(path):
            try:
                self.states = ProducerStates.decode(self.files.read(path), path)
                return
            except (SnapshotError, OSError):
                pass  # reported by _check_snapshots
        self.replay_is_complete = False

    def _follow(
        self, file: File, position: int, header: Header, aborted: list[AbortedTransaction], markers: dict[int, None]
    ) -> None:
        base, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        batch = b""
        if attributes & CONTROL:
            batch = file.pread(length + LENGTH_OVERHEAD, position)
            markers[base + delta] = None
        ended = follow(
            self.states, base, base + delta, attributes, producer_id, epoch, sequence, max_timestamp, max_timestamp,
            batch,
        )  # fmt: skip
        if ended is not None:
            aborted.append(ended)

    def _check_transaction_index(self, base: int, aborted: list[AbortedTransaction], markers: dict[int, None]) -> None:
        name = file_name(base, TRANSACTION_INDEX_SUFFIX)
        path = f"{self.directory}/{name}"
        data = self.files.read(path) if self.files.exists(path) else b""
        if data == b"".join(map(encode_aborted, aborted)):
            return
        if len(data) % ABORTED_ENTRY.size == 0 and not self.replay_is_complete:
            # The log may no longer have the beginning of a transaction; it has the end.
            listed = decode_aborted(data)
            ends = {each.last_offset: each.producer_id for each in listed}
            if all(ends.get(each.last_offset) == each.producer_id for each in aborted):
                if all(each.last_offset in markers and each.first_offset <= each.last_offset for each in listed):
                    return
        text = f"it does not list the {len(aborted)} aborted transactions of its segment"
        self._bad_file(Kind.INDEX, name, text if aborted else "it lists an aborted transaction that its segment lacks")

    def _check_snapshots(self) -> None:
        for offset in snapshots(self.files, self.directory):
            name = file_name(offset, SNAPSHOT_SUFFIX)
            path = f"{self.directory}/{name}"
            try:
                ProducerStates.decode(self.files.read(path), path)
            except SnapshotError as error:
                self._bad_file(Kind.SNAPSHOT, name, str(error).partition(": ")[2])
                continue
            except OSError as error:
                self._refused(name, error)
                continue
            if offset > self.report.log_end_offset and self.report.cut is None and not self._lacks_batches:
                if self.known.clean:
                    text = f"its offset is past the end of the log, {self.report.log_end_offset}"
                    self._bad_file(Kind.SNAPSHOT, name, text)
                else:
                    self.report.notes.append(f"{name} is past the end of the log; the next start removes it")
