"""The names of a log's files: as in Kafka, the first offset and a suffix."""

from __future__ import annotations

from ....protocol.records import OFFSET_MAX

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
TRANSACTION_INDEX_SUFFIX = ".txnindex"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
SNAPSHOT_SUFFIX = ".snapshot"


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """The offset in the name of a segment's or snapshot's file; None for other names."""
    stem = name.partition(".")[0]
    if len(stem) != 20 or not stem.isascii() or not stem.isdigit():
        return None
    offset = int(stem)
    return offset if offset <= OFFSET_MAX else None
