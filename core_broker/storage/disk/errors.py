"""Errors of the disk: what a call on a file or directory was refused for."""

from __future__ import annotations

import errno

from ....protocol.errors import ErrorCode, KafkaError

SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
GONE = frozenset((errno.ENOENT, errno.ESTALE))  # a truncation or retention has removed the file


def is_passing(error: OSError | StorageError) -> bool:
    """Whether the same file call may succeed later: disk space, descriptors or memory were short, or the file was
    removed. Nothing is broken."""
    return error.errno in SHORTAGES or error.errno in GONE


class TornWrite(OSError):
    """An append failed half-way, and the bytes it wrote could not be cut off: the file's end is not valid."""


class StorageError(KafkaError):
    """A file call failed. `errno` is the operating system's."""

    def __init__(self, error: OSError, path: str, doing: str) -> None:
        reason = error.strerror or str(error) or type(error).__name__
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} {error.filename or path}: {reason}")
        self.errno = error.errno


def fresh_copy(failure: KafkaError) -> KafkaError:
    """A copy of a stored error, to be raised in its place.

    A raised error refers to the frames that it passed, and so to a request and its memory. Therefore a stored error is
    never raised itself.
    """
    copy = type(failure).__new__(type(failure), *failure.args)
    copy.__dict__.update(failure.__dict__)
    return copy


def is_shortage(error: KafkaError) -> bool:
    """Whether a file call failed for lack of disk space, descriptors or memory: it may succeed when there is some."""
    return isinstance(error, StorageError) and error.errno in SHORTAGES
