"""The directories of stores on disk: `<state_dir>/<app>/<table>/<partition>/`.

Each has a `lock`, which whoever uses the directory holds; `state.json`, a summary of what was committed some time ago;
and `rows/`, the database. The summary tells workers what a machine has without opening databases, as Kafka's
`.checkpoint` files do for KIP-441. It may be behind the database, never ahead of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from ...errors import StoreError

FORMAT = 1  # of a directory and of what the database has besides rows
UNCOUNTED = 2  # of a database whose rows are still to be counted, which releases before refuse to open
LOCK, SUMMARY, ROWS = "lock", "state.json", "rows"
_ASIDE = ".aside"  # what a directory's name ends with whose rows are of another changelog
_CORRUPT = "corrupt"  # is there when a read has found that the database is damaged
_REMOVED = ".removed"  # what a directory's name ends with while it is deleted


@dataclass(frozen=True, slots=True)
class Summary:
    """changelog: which partition of which topic the rows are from. changelog_offset: up to there they are. rows: how
    many; None: not counted yet. written_ms: when this was written, in ms since the epoch."""

    changelog: str
    changelog_offset: int
    rows: int | None
    written_ms: int
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Found:
    """A store's directory. summary: None if it is not there, cannot be read, or is of another format."""

    table: str
    partition: int
    directory: Path
    summary: Summary | None


def directory_of(state_dir: Path, app: str, table: str, partition: int) -> Path:
    return state_dir / app / table / str(partition)


def found(state_dir: Path, app: str) -> list[Found]:
    """What an app has in a state directory, sorted by table and partition."""
    here = []
    with contextlib.suppress(FileNotFoundError):
        for table in sorted(os.listdir(state_dir / app)):
            for directory in _partitions(state_dir / app / table):
                here.append(Found(table, int(directory.name), directory, read_summary(directory)))
    return here


def _partitions(table: Path) -> list[Path]:
    try:
        names = [name for name in os.listdir(table) if name.isascii() and name.isdigit()]
    except (NotADirectoryError, FileNotFoundError):
        return []
    return [table / name for name in sorted(names, key=int)]


def read_summary(directory: Path) -> Summary | None:
    try:
        summary = Summary(**orjson.loads((directory / SUMMARY).read_bytes()))
    except (OSError, ValueError, TypeError):  # one that a crash of the machine left half written, too
        return None
    return summary if summary.format == FORMAT else None


def write_summary(directory: Path, summary: Summary) -> None:
    """Replaced as a whole. It is not synced: a crash of the machine may lose it, and nothing else depends on it."""
    new = directory / f"{SUMMARY}.new"
    new.write_bytes(orjson.dumps(asdict(summary)))
    os.replace(new, directory / SUMMARY)


class Lock:
    """A directory that is this store's alone, until `release`. Raises StoreError if another one uses it.

    It is flock's: unlike RocksDB's own, which is fcntl's, it also keeps apart two users in one process.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        while True:
            directory.mkdir(parents=True, exist_ok=True)
            try:
                self._fd: int | None = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:
                continue  # it was removed in between: made anew
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self._is_current():
                    os.ftruncate(self._fd, 0)
                    os.pwrite(self._fd, str(os.getpid()).encode(), 0)
                    return
                self.release()
            except BlockingIOError:
                holder = os.pread(self._fd, 20, 0).decode(errors="replace") or "unknown"
                self.release()
                raise StoreError(
                    f"{directory} is used by another store (process {holder}): stop that worker, or give each worker "
                    "of this machine a state directory of its own"
                ) from None
            except BaseException:
                self.release()
                raise

    def _is_current(self) -> bool:
        """Whether the file that is locked is the one that others would open: not one that was removed meanwhile."""
        assert self._fd is not None
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(self._fd), os.stat(self.directory / LOCK))
        return False

    def release(self) -> None:
        if self._fd is not None:
            fd, self._fd = self._fd, None
            os.close(fd)


def mark_corrupt(directory: Path) -> None:
    """For whoever opens it next: what is damaged may not be read then."""
    with contextlib.suppress(OSError):
        (directory / _CORRUPT).touch()


def is_corrupt(directory: Path) -> bool:
    return (directory / _CORRUPT).exists()


def remove(directory: Path) -> None:
    """Delete a store's directory: its rows are restored from the changelog by whoever opens it next.

    Raises StoreError if it is in use.
    """
    if not directory.exists():
        return
    lock = Lock(directory)
    try:
        gone = directory.with_name(directory.name + _REMOVED)
        shutil.rmtree(gone, ignore_errors=True)
        os.replace(directory, gone)  # nobody finds half of it
        shutil.rmtree(gone)
    finally:
        lock.release()


def set_aside(directory: Path) -> Path:
    """Rename a store's directory, which is not used, in place of what was set aside before. Returns the new one. Raises
    StoreError if it is in use."""
    aside = directory.with_name(directory.name + _ASIDE)
    lock = Lock(directory)
    try:
        shutil.rmtree(aside, ignore_errors=True)
        os.replace(directory, aside)
    finally:
        lock.release()
    return aside


def clean(
    state_dir: Path, app: str, owned: Collection[tuple[str, int]], now_ms: int, cleanup_delay_ms: int
) -> list[Found]:
    """Delete what this worker has no more and nobody used for `cleanup_delay_ms`; gives what was deleted.

    owned: tables and partitions to keep, as is what another worker of this machine has open. now_ms: since the epoch.

    A worker calls it before it opens its stores, too, with nothing owned and a delay that is shorter than its
    changelogs' `delete.retention.ms`: a store that was away for longer may miss tombstones that compaction has removed,
    and would keep rows that were deleted.
    """
    gone = []
    for each in found(state_dir, app):
        if (each.table, each.partition) in owned or now_ms - _used_ms(each) < cleanup_delay_ms:
            continue
        with contextlib.suppress(StoreError):  # another worker of this machine uses it
            remove(each.directory)
            gone.append(each)
    for leftover in _leftovers(state_dir / app):
        shutil.rmtree(leftover, ignore_errors=True)
    return gone


def _used_ms(store: Found) -> int:
    """When a store was used last. Without a summary that can be read, as after a newer release, when it was locked."""
    if store.summary is not None:
        return store.summary.written_ms
    with contextlib.suppress(FileNotFoundError):
        return int((store.directory / LOCK).stat().st_mtime * 1000)
    return 0


def _leftovers(app: Path) -> Iterator[Path]:
    """What a `remove` that was killed has left."""
    with contextlib.suppress(FileNotFoundError):
        yield from sorted(app.glob(f"*/*{_REMOVED}"))
