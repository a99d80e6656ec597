"""Errors of the disk: what a call on a file or directory was refused for."""

from __future__ import annotations

import errno

from ....protocol.errors import ErrorCode, KafkaError

SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
GONE = frozenset((errno.ENOENT, errno.ESTALE))  # a truncation or retention has taken the file away meanwhile


def is_passing(error: OSError | StorageError) -> bool:
    """Whether the same file call may succeed later: it was refused for want of disk space, descriptors or memory, or
    because its file was removed. Nothing is broken."""
    return error.errno in SHORTAGES or error.errno in GONE


class TornWrite(OSError):
    """An append failed half-way and what it left could not be cut off: the file's end is not to be trusted."""


class StorageError(KafkaError):
    """A file call failed. `errno` is the system's."""

    def __init__(self, error: OSError, path: str, doing: str) -> None:
        reason = error.strerror or str(error) or type(error).__name__
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} {error.filename or path}: {reason}")
        self.errno = error.errno


def fresh_copy(failure: KafkaError) -> KafkaError:
    """A copy of an error that is kept, to be raised in its place.

    An error that was raised refers to the frames that it went through, and so to a request and its memory. Whoever
    keeps an error keeps one that is never raised.
    """
    copy = type(failure).__new__(type(failure), *failure.args)
    copy.__dict__.update(failure.__dict__)
    return copy


def is_shortage(error: KafkaError) -> bool:
    """Whether a file call was refused for want of disk space, descriptors or memory: it succeeds once there is some."""
    return isinstance(error, StorageError) and error.errno in SHORTAGES
