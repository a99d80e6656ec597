"""Makes a table's store where its spec says: in memory, or on disk in the worker's state directory."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

from ...errors import AppError, StoreCorrupt
from ..tables import DISK, MEMORY, TableSpec
from .database import DiskMemory
from .disk import DiskStore
from .layout import directory_of, is_corrupt, remove
from .memory import MemoryStore
from .store import Store

log = logging.getLogger("isthmus.streams")


class Stores:
    """The stores of a worker. state_dir: None if no table is on disk. wall_ms: ms since the epoch.

    memory: what those on disk share, by default as `DiskMemory` has it. It needs `rocksdict`, and is made when the
    first of them is opened.
    """

    def __init__(
        self, app: str, state_dir: Path | None, wall_ms: Callable[[], int], memory: DiskMemory | None = None
    ) -> None:
        self._app = app
        self._state_dir = state_dir
        self._wall_ms = wall_ms
        self._memory = memory

    def open(self, spec: TableSpec, partition: int, changelog: str) -> Store:
        """changelog: names the partition that the rows are from for ever, such as `<topic id>-<partition>`.

        What is corrupt is deleted, and filled from the changelog as a new one. Raises AppError if the app cannot have
        such a table, StoreError if its directory cannot be used, OtherChangelog if it is of another one.
        """
        if spec.store == MEMORY:
            return MemoryStore(spec)
        if spec.store != DISK:
            raise AppError(f"table {spec.name}: store '{spec.store}' is not known; there are '{MEMORY}' and '{DISK}'")
        directory = self.directory_of(spec.name, partition)
        if self._memory is None:
            self._memory = DiskMemory()
        if is_corrupt(directory):
            _wipe(spec.name, directory, "a read has found that it is corrupt")
        try:
            return DiskStore(spec, directory, changelog, self._memory, self._wall_ms)
        except StoreCorrupt as error:
            _wipe(spec.name, directory, str(error))
            return DiskStore(spec, directory, changelog, self._memory, self._wall_ms)

    def directory_of(self, table: str, partition: int) -> Path:
        """Of a store on disk. Raises AppError where no directory is named."""
        if self._state_dir is None:
            raise AppError(f"table {table} is on disk: name the directory that state is in")
        return directory_of(self._state_dir, self._app, table, partition)


def _wipe(table: str, directory: Path, why: str) -> None:
    """As Kafka Streams does. Raises StoreError if another worker uses it."""
    log.warning("table %s: %s is deleted, and its rows are restored from the changelog: %s", table, directory, why)
    remove(directory)
