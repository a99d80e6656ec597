"""Where a worker has its tables: in memory, and on disk in a directory that is its own for as long as it runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from ...client import Client
from ...protocol.primitives import uuid_to_str
from ...runtime import Runtime
from ..engine.stores.layout import Lock, clean, set_aside
from ..engine.stores.opening import Stores
from ..engine.stores.store import Store
from ..engine.tables import DISK, TableSpec
from ..errors import OtherChangelog, StoreError

log = logging.getLogger("isthmus.streams")

# What was away for longer is read anew: tombstones that it has missed may be gone from the changelog by then. Kafka's
# delete.retention.ms is a day.
CLEANUP_DELAY_MS = 12 * 3_600_000
SLOTS_MAX = 1_000  # workers without a name that share a folder


class State:
    """folder: of the app; name: of the worker, if it has one: then its directory is always the same. changelog: names
    a topic's partition for ever."""

    def __init__(
        self,
        app: str,
        folder: Path,
        name: str | None,
        specs: Iterable[TableSpec],
        runtime: Runtime,
        changelog: Callable[[str, int], str],
    ) -> None:
        self._changelog = changelog
        self._lock: Lock | None = None
        directory: Path | None = None
        if any(spec.store == DISK for spec in specs):
            self._lock = _taken(folder, name)
            directory = self._lock.directory
            clean(directory, app, (), runtime.wall_ms(), CLEANUP_DELAY_MS)
        self._stores = Stores(app, directory, runtime.wall_ms)

    def open(self, spec: TableSpec, topic: str, partition: int) -> Store:
        """topic: that the rows are from. What is on disk of a topic that was deleted since, or made anew, as by a
        restore, is set aside: nobody can tell whether that was meant. Raises StoreError where what is on disk cannot be
        used."""
        changelog = self._changelog(topic, partition)
        try:
            return self._stores.open(spec, partition, changelog)
        except OtherChangelog as error:
            aside = set_aside(self._stores.directory_of(spec.name, partition))
            log.warning(
                "%s. So the rows that count are those of %s; what was here is in %s: delete it, unless its topic was "
                "deleted by mistake",
                error,
                topic,
                aside,
            )
        return self._stores.open(spec, partition, changelog)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()


def partition_for_ever(client: Client, topic: str, partition: int) -> str:
    """Names a partition for ever: a topic that was made anew has another id."""
    topic_id = client.topic_id(topic)
    return f"{topic if topic_id is None else uuid_to_str(topic_id)}-{partition}"


def _taken(folder: Path, name: str | None) -> Lock:
    """The directory of this worker: that of its name, else the first that no other one uses."""
    if name is not None:
        return Lock(folder / name)
    for number in range(SLOTS_MAX):
        try:
            return Lock(folder / f"worker-{number}")
        except StoreError:
            continue
    raise StoreError(f"{folder}: more than {SLOTS_MAX} workers use it: give each a folder of its own, by --datadir")
