"""What a check of a partition's directory finds, and what is known of it from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of what is wrong; beside each what a repair does."""

    CRC = "crc"  # a batch's bytes do not match its checksum: the log is cut before it
    TORN = "torn"  # bytes that are no batch: the same
    OVERLAP = "overlap"  # a batch's offsets begin before the end of the one before: the same
    GAP = "gap"  # offsets are missing where the topic has no holes: stays, since readers go past it
    EPOCH = "epoch"  # leader epochs that fall (the log is cut), or that differ from their checkpoint (rebuilt)
    INDEX = "index"  # .index, .timeindex, .txnindex: rebuilt
    SNAPSHOT = "snapshot"  # a producer snapshot: removed, the log says the same
    ORPHAN = "orphan"  # a file that belongs to no segment: removed
    CHECKPOINT = "checkpoint"  # a checkpoint of the data directory: made to fit the log
    IDENTITY = "identity"  # partition.metadata, missing or damaged: written again where the topic's id is known
    FOREIGN = "foreign"  # partition.metadata names another topic: stays, the next start sets the directory aside
    MISSING = "missing"  # a partition without directory: stays, the next start makes it empty
    STRAY = "stray"  # a directory that belongs to no topic: stays, the next start sets it aside
    METADATA = "metadata"  # the cluster's metadata cannot be read, though its log is sound: stays
    UNREADABLE = "unreadable"  # the system refuses to read: stays


STAYS = (Kind.GAP, Kind.FOREIGN, Kind.MISSING, Kind.STRAY, Kind.METADATA, Kind.UNREADABLE)  # what no repair can mend


@dataclass(slots=True)
class Finding:
    """One thing that is wrong. file: below the partition's directory, or the data directory. -1: not known."""

    kind: Kind
    file: str
    text: str
    position: int = -1
    offset: int = -1


@dataclass(slots=True, order=True)
class Cut:
    """Where a repair ends the log, and what goes with that. The log would end at `offset`."""

    segment: int  # base offset of the segment that is cut
    position: int  # bytes of it that stay
    offset: int
    batches_kept: int
    bytes_lost: int = 0
    batches_lost: int = 0  # of them whole and valid
    last_offset_lost: int = -1  # of those; -1 when there are none

    def __str__(self) -> str:
        rest = "none of it a valid batch"
        if self.batches_lost:
            rest = f"in it {self.batches_lost} valid batches up to offset {self.last_offset_lost}"
        return f"all from offset {self.offset} on, {self.bytes_lost} bytes, {rest}"


def unreadable(file: str, error: OSError) -> Finding:
    """The system refuses to read a file."""
    return Finding(Kind.UNREADABLE, file, f"it cannot be read: {error.strerror or error}")


def file_of(error: OSError, directory: str) -> str:
    """The name of the file that an error is of; of the directory where it names none."""
    return str(error.filename or directory).rpartition("/")[2]


def unread(problems: Iterable[Finding]) -> list[str]:
    """The files that the system refuses to read."""
    return [each.file for each in problems if each.kind is Kind.UNREADABLE]


@dataclass(slots=True, kw_only=True)
class Known:
    """What the data directory and the cluster's metadata say of a partition. None: nothing."""

    clean: bool = False  # the broker was stopped in a controlled way: everything must fit
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    first_dirty_offset: int | None = None
    dense: bool | None = None  # offsets have no holes: neither compacted nor mirrored
    compacted: bool | None = None  # records may be gone although the log goes on
    topic_id: bytes | None = None
    leader_epoch: int | None = None  # None also for a mirrored topic, whose epochs are its source's


@dataclass(slots=True)
class PartitionReport:
    """One partition's directory. `problems` are wrong; `notes` are what the next start sees to by itself."""

    name: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    batches: int = 0  # valid ones
    size_bytes: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: Cut | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset) as the batches have them
    bad_files: dict[str, None] = field(default_factory=dict)  # indexes and snapshots to be rebuilt, orphans

    def add(self, kind: Kind, file: str, text: str, position: int = -1, offset: int = -1) -> None:
        self.problems.append(Finding(kind, file, text, position, offset))

    def refused(self, file: str, error: OSError) -> None:
        """The system refuses to read a file."""
        self.problems.append(unreadable(file, error))

    def has(self, *kinds: Kind) -> bool:
        return any(problem.kind in kinds for problem in self.problems)
