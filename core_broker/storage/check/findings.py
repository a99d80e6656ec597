"""What a check of a partition's directory finds, and what other files and the metadata say about the partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """What can be wrong. The comments say what a repair does about it."""

    CRC = "crc"  # a batch's bytes do not match its checksum: the log is cut before it
    TORN = "torn"  # bytes that are not a batch: the log is cut before them
    OVERLAP = "overlap"  # a batch begins before the previous one ends: the log is cut before it
    GAP = "gap"  # offsets are missing where the topic has no holes: left as it is, since readers skip it
    EPOCH = "epoch"  # leader epochs decrease (the log is cut), or differ from their checkpoint (it is rebuilt)
    INDEX = "index"  # .index, .timeindex, .txnindex: rebuilt
    SNAPSHOT = "snapshot"  # a producer snapshot: removed, since it can be derived from the log
    ORPHAN = "orphan"  # a file that belongs to no segment: removed
    CHECKPOINT = "checkpoint"  # a checkpoint of the data directory: corrected to match the log
    IDENTITY = "identity"  # partition.metadata is missing or damaged: rewritten if the topic's id is known
    FOREIGN = "foreign"  # partition.metadata names another topic: left; the next start sets the directory aside
    MISSING = "missing"  # a partition without a directory: left; the next start creates it, empty
    STRAY = "stray"  # a directory that belongs to no topic: left; the next start sets it aside
    METADATA = "metadata"  # the cluster's metadata cannot be decoded, though its log is sound: left
    UNREADABLE = "unreadable"  # the operating system refuses to read the file: left


STAYS = (Kind.GAP, Kind.FOREIGN, Kind.MISSING, Kind.STRAY, Kind.METADATA, Kind.UNREADABLE)  # what no repair can mend


@dataclass(slots=True)
class Finding:
    """One problem. file: relative to the partition's directory, or to the data directory. -1: not known."""

    kind: Kind
    file: str
    text: str
    position: int = -1
    offset: int = -1


@dataclass(slots=True, order=True)
class Cut:
    """Where a repair cuts the log, and what is lost by that. The log will end at `offset`."""

    segment: int  # base offset of the segment that is cut
    position: int  # bytes of it that are kept
    offset: int
    batches_kept: int
    bytes_lost: int = 0
    batches_lost: int = 0  # valid batches in the lost bytes
    last_offset_lost: int = -1  # the last offset in these batches; -1 if there are none

    def __str__(self) -> str:
        rest = "none of it a valid batch"
        if self.batches_lost:
            rest = f"in it {self.batches_lost} valid batches up to offset {self.last_offset_lost}"
        return f"all from offset {self.offset} on, {self.bytes_lost} bytes, {rest}"


def unreadable(file: str, error: OSError) -> Finding:
    """A finding for a file that the operating system refuses to read."""
    return Finding(Kind.UNREADABLE, file, f"it cannot be read: {error.strerror or error}")


def file_of(error: OSError, directory: str) -> str:
    """The name of the file that caused an error, or of the directory if the error names no file."""
    return str(error.filename or directory).rpartition("/")[2]


def unread(problems: Iterable[Finding]) -> list[str]:
    """The names of the files that the operating system refuses to read."""
    return [each.file for each in problems if each.kind is Kind.UNREADABLE]


@dataclass(slots=True, kw_only=True)
class Known:
    """What the data directory and the cluster's metadata say about a partition. None: they say nothing."""

    clean: bool = False  # after a clean shutdown, when all files must agree
    recovery_point: int | None = None
    log_start_offset: int | None = None
    high_watermark: int | None = None
    first_dirty_offset: int | None = None
    dense: bool | None = None  # offsets have no holes: the topic is neither compacted nor mirrored
    compacted: bool | None = None  # compaction may have removed records
    topic_id: bytes | None = None
    leader_epoch: int | None = None  # None for a mirrored topic too: its batches have the source's epochs


@dataclass(slots=True)
class PartitionReport:
    """The result for one partition's directory. `notes`: what the next start repairs by itself."""

    name: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    segments: int = 0
    batches: int = 0  # valid ones
    size_bytes: int = 0
    problems: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: Cut | None = None
    epochs: list[tuple[int, int]] = field(default_factory=list)  # (epoch, first offset) from the batches
    bad_files: dict[str, None] = field(default_factory=dict)  # indexes and snapshots to rebuild, orphans

    def add(self, kind: Kind, file: str, text: str, position: int = -1, offset: int = -1) -> None:
        self.problems.append(Finding(kind, file, text, position, offset))

    def refused(self, file: str, error: OSError) -> None:
        """The system refuses to read a file."""
        self.problems.append(unreadable(file, error))

    def has(self, *kinds: Kind) -> bool:
        return any(problem.kind in kinds for problem in self.problems)
