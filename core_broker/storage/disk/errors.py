"""Errors of the disk: what a call on a file or directory was refused for."""

from __future__ import annotations

import errno

from ....protocol.errors import ErrorCode, KafkaError

SHORTAGES = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM))
GONE = frozenset((errno.ENOENT, errno.ESTALE))  # a truncation or retention has taken the file away meanwhile


def is_passing(error: OSError | StorageError) -> bool:
    """Whether a file call was refused for want of room (on the disk, of descriptors, of memory), or because its file is
    gone: nothing is broken, and the same may go through later."""
    return error.errno in SHORTAGES or error.errno in GONE


class StorageError(KafkaError):
    """A file call failed. `errno` is the system's."""

    def __init__(self, error: OSError, path: str, doing: str) -> None:
        reason = error.strerror or str(error) or type(error).__name__
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{doing} {error.filename or path}: {reason}")
        self.errno = error.errno


def anew(failure: KafkaError) -> KafkaError:
    """Another error of the same reason, to be raised in its place: what is raised refers to the frames that it went
    through, and they to a request and its memory, which whoever keeps a failure would hold for ever."""
    twin = type(failure).__new__(type(failure), *failure.args)
    twin.__dict__.update(failure.__dict__)
    return twin


def wants_room(error: KafkaError) -> bool:
    """Whether a file call was refused for want of room: it goes through once there is some."""
    return isinstance(error, StorageError) and error.errno in SHORTAGES
