"""Errors of the log that need more than a code: what the disk refused, and an append that does not fit the end."""

from __future__ import annotations

from ...protocol.errors import ErrorCode, KafkaError


class OffsetMismatch(KafkaError):
    """An append that must begin at the log's end does not; `next_offset` is where the log ends."""

    def __init__(self, message: str, next_offset: int) -> None:
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, message)
        self.next_offset = next_offset


class StorageError(KafkaError):
    """A file call failed. `errno` is the system's."""

    def __init__(self, error: OSError, path: str, doing: str) -> None:
        reason = error.strerror or str(error) or type(error).__name__
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} {error.filename or path}: {reason}")
        self.errno = error.errno
