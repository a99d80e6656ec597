"""What a user is told when a broker cannot start, or could not write everything when it stopped: one line each."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from ..protocol.errors import KafkaError
from .cluster.image import InconsistentRecord
from .config import ConfigError
from .server.listener import ListenError
from .storage.disk.errors import StorageError

UNWRITTEN_NAMED = 3  # errors that a failed stop prints; the broker's log has all

_WAY_OUT = {
    errno.EACCES: "give this user write access or choose another directory with --data",
    errno.EROFS: "the file system is read-only: choose another directory with --data",
    errno.ENOSPC: "the disk is full: free some space or choose another directory with --data",
    errno.EDQUOT: "the quota is used up: free some space or choose another directory with --data",
    errno.ENOTDIR: "choose a directory with --data",
}


class StartError(Exception):
    """The broker cannot start. The message is one line that names the cause and the solution."""


def explain(error: BaseException) -> str | None:
    """One line for an error that a user can correct; None for a bug."""
    if isinstance(error, ConfigError):
        return None
    if isinstance(error, StorageError):
        return f"{error.message}; {_WAY_OUT.get(error.errno or 0, 'check the disk and the directory of --data')}"
    if isinstance(error, (KafkaError, ListenError, StartError, InconsistentRecord)):
        return KafkaError.reason(error)
    if isinstance(error, OSError):
        return f"{error.filename or 'the data directory'}: {error.strerror or error}"
    return None


def unwritten(failures: Sequence[KafkaError]) -> str:
    """What a stop could not write, and the consequence."""
    named = "; ".join(each.message for each in failures[:UNWRITTEN_NAMED])
    more = f"; and {len(failures) - UNWRITTEN_NAMED} more, see its log" if len(failures) > UNWRITTEN_NAMED else ""
    return (
        f"stopped, but could not write everything: {named}{more}; the next start reads each log past its recovery "
        "point and keeps the valid batches; a power cut before that may lose what is not on disk"
    )
