"""What puts a log's files on disk, and what is left for the next start where that fails. All of it blocks: it runs in
the pool, by `Files.run`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from ..disk.errors import StorageError
from ..disk.files import Files
from ..disk.small_files import PARTITION_METADATA
from .segment import Segment

logger = logging.getLogger(__name__)

SYNC_FAILED = "sync-failed"


def noted(files: Files, directory: str, work: Callable[..., None], *arguments: Any) -> None:
    """In the pool: `work`, which syncs; where it fails, a note of that for the next start. Raises OSError.

    The system may take what it could not write for written: then the page cache shows what the disk will never have,
    and further syncs say that all is well. A process that starts again would believe it (see recovery.py). The note is
    written at once, since the process may be killed, and into the page cache: it lasts as long as what it warns of.
    """
    try:
        work(*arguments)
    except OSError as error:
        failure = StorageError(error, directory, "cannot sync")
        try:
            note(files, directory, failure.message)
        except OSError as second:
            logger.error(
                "%s; %s; unless the machine is started again, a broker that is may serve what the disk does not have",
                failure.message,
                StorageError(second, f"{directory}/{SYNC_FAILED}", "cannot write").message,
            )
        raise


def note(files: Files, directory: str, reason: str) -> None:
    """In the pool: have whoever opens the log next put a copy on disk of what the disk may not have. Raises OSError."""
    file = files.open(f"{directory}/{SYNC_FAILED}")
    try:
        file.truncate(0)
        file.append([reason.encode()])
    finally:
        file.close()


def sync_files(
    files: Files, waiting: list[tuple[Segment, bool]], named: str | None = None, listed: str | None = None
) -> None:
    """Segments, from the last on, and with them which topic the directory `named` is of, and what is in `listed`."""
    if named is not None:
        sync_name(files, named)
    for segment, is_closed in reversed(waiting):
        segment.sync(files, is_closed)
    if listed is not None:
        files.sync_directory(listed)


def sync_name(files: Files, directory: str) -> None:
    """Put on disk which topic a directory is of. Raises OSError."""
    sync_file(files, f"{directory}/{PARTITION_METADATA}")


def sync_file(files: Files, path: str) -> None:
    """Put a file on disk, but not its name. Raises OSError."""
    file = files.open(path)
    try:
        file.sync()
    finally:
        file.close()
