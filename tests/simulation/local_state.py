"""Databases of tables on disk, on simulated machines: what was written is there after a kill, and the last batches,
each as a whole, are lost with the power."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from isthmus.runtime import Runtime
from isthmus.streams.engine.stores import disk
from isthmus.streams.engine.stores.layout import directory_of
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.tables import MEMORY, TableSpec
from isthmus.streams.runtime import worker

from .hosts import PROCESS, Process
from .runner import Simulation

UNSYNCED = 3  # batches that a power cut may take
CACHED_ROWS = 4  # so few that most reads are of the database

Rows = dict[bytes, bytes]


class LocalState:
    """The databases of all machines, by machine and path."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.databases: dict[tuple[str, Path], list[Rows]] = {}  # the last states of each, the newest at the end

    def cut_power(self, machine: str) -> None:
        for (name, _), states in self.databases.items():
            if name == machine:
                lost = self.sim.random.randint(0, len(states) - 1)
                del states[len(states) - lost :]
                self.sim.counters["disk_batches_lost"] += lost

    @contextlib.contextmanager
    def used(self) -> Iterator[None]:
        """Workers have their tables here."""
        with (
            mock.patch.object(disk, "Database", self._database),
            mock.patch.object(disk, "Lock", lambda directory: mock.Mock()),
            mock.patch.object(disk, "write_summary", lambda directory, summary: None),
            mock.patch.object(worker, "State", _State),
        ):
            yield

    def _database(self, path: Path, memory: Any) -> _Database:
        process = PROCESS.get()
        assert process is not None
        states = self.databases.setdefault((process.machine.name, path), [{}])
        self.sim.counters["disk_reopened"] += bool(states[-1])
        return _Database(process, states)


class _Database:
    """As `database.Database`."""

    def __init__(self, process: Process, states: list[Rows]) -> None:
        self._process = process
        self._states = states

    def get(self, key: bytes) -> bytes | None:
        return self._states[-1].get(key)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.get(key) for key in keys]

    def write(self, changes: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._process.check_alive()
        rows = dict(self._states[-1])
        for key, value in changes:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        self._states.append(rows)
        del self._states[: -UNSYNCED - 1]

    def items(self) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(self._states[-1].items()))

    def key_pages(self) -> Iterator[list[bytes]]:
        return iter([list(self._states[-1])])

    def about(self) -> int:
        return len(self._states[-1])

    def close(self) -> None:
        pass


class _Memory:
    """As `database.DiskMemory`."""

    cached_rows_each = CACHED_ROWS

    def join(self) -> None:
        pass

    def leave(self) -> None:
        pass


class _State:
    """As `state.State`, on the machine of the process that makes it."""

    def __init__(
        self,
        app: str,
        folder: Path,
        name: str | None,
        specs: Iterable[TableSpec],
        runtime: Runtime,
        changelog: Callable[[str, int], str],
    ) -> None:
        self._app = app
        self._runtime = runtime
        self._changelog = changelog

    def open(self, spec: TableSpec, topic: str, partition: int) -> Store:
        if spec.store == MEMORY:
            return MemoryStore(spec)
        directory = directory_of(Path("/state"), self._app, spec.name, partition)
        memory: Any = _Memory()
        return disk.DiskStore(spec, directory, self._changelog(topic, partition), memory, self._runtime.wall_ms)

    def close(self) -> None:
        pass
