"""A task: partition n of a sub-topology's input topics, with its rows of the tables. Pure: it is told what happens.

The runtime gives it batches in order, and asks it for checkpoints between them. Agents change its tables. Where it goes
on is its positions, which its changelogs' markers have.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ..errors import ChangelogError, ChangeRefused
from .checkpoint import MARKER, Marker, Position, Row, as_written
from .described import WAITING
from .event import Event
from .feeding import UNFED
from .open_windows import BEFORE_ALL_MS, OpenWindows
from .stores.store import Store
from .time import OWN


class TaskId(NamedTuple):
    """subtopology: its name."""

    subtopology: str
    partition: int

    def __str__(self) -> str:
        return f"{self.subtopology}-{self.partition}"


class Checkpoint(NamedTuple):
    """What to write in one transaction. rows: table -> records of its changelog, the marker last. positions: to commit
    in the group, by topic. markers: by table."""

    task: Task
    rows: dict[str, list[Row]]
    positions: dict[str, Position]
    markers: dict[str, bytes]


class Task:
    """The state of one task in one worker. topology: what its sub-topology is."""

    def __init__(
        self, app: str, id: TaskId, stores: Mapping[str, Store], topology: Mapping[str, Any] | None = None
    ) -> None:
        self.app = app
        self.id = id
        self.topology = topology or {}
        self.stores = dict(stores)  # by table
        self.positions: dict[str, Position] = {}
        self.topic_ids: dict[str, str] = {}  # of the positions, as text
        self.left: dict[str, Position] = {}  # of topics that were read before, and that nobody reads now
        self.watermarks: dict[str, dict[str, Sequence[Any]]] = {}  # by part of the pipelines
        self.found: dict[str, Marker] = {}  # by table: what it was restored from
        self.feeding: dict[str, list[str]] = {}  # by table: steps that are to be given all its rows, before any event
        self.unfed: dict[str, dict[str, list[str]]] = {}  # by table: steps that have missed changes of it
        self.windows: dict[str, OpenWindows] = {}  # by table, once they were used
        self.times: dict[str, int] = {}  # of tables with windows, at the last checkpoint
        self.checkpoint_number = 0
        self.changed = False  # something was processed since the last checkpoint
        self.is_over = False  # it has ended in this worker

    @property
    def partition(self) -> int:
        return self.id.partition

    def restored(self) -> None:
        """Its stores have been filled from their changelogs.

        A table without a marker is new to the app. Tables whose markers are of different checkpoints were in different
        tasks before, which is no harm as long as these had read different topics. Raises ChangelogError where one has
        lost records, and ChangeRefused where one was out of the app while others went on.
        """
        self.found = found = {
            table: Marker.decode(store.marker, self.app, f"the changelog of table {table}, partition {self.partition},")
            for table, store in self.stores.items()
            if store.marker is not None
        }
        if not found:
            return
        newest = max(found.values(), key=lambda marker: marker.number)
        for table, marker in found.items():
            if marker.number != newest.number and table in newest.tables:
                raise ChangelogError(
                    f"task {self.id} of app {self.app}: the changelog of table {table} ends with checkpoint "
                    f"{marker.number}, another one with {newest.number}: a broker lost records that it had "
                    "acknowledged, or a topic was deleted. Give the app another id to start over"
                )
        for marker in sorted(found.values(), key=lambda marker: marker.number):
            self.checkpoint_number = marker.number
            self.left |= marker.left
            self.topic_ids |= marker.topic_ids
            self.times |= marker.times
        for topic in {topic: None for marker in found.values() for topic in marker.positions}:
            self.positions[topic] = self._agreed(topic, found)
            self.left.pop(topic, None)
        self.watermarks = watermarks_of(self.id, self.stores.values(), found)

    def _agreed(self, topic: str, found: Mapping[str, Marker]) -> Position:
        """The position of a topic, on which all tables agree that have something of its records."""
        all_at = {table: marker.positions[topic] for table, marker in found.items() if topic in marker.positions}
        at = {table: each for table, each in all_at.items() if topic in found[table].reads(table)} or all_at
        first, last = (choose(at, key=lambda table: at[table]) for choose in (min, max))
        if at[first].offset < at[last].offset:
            raise ChangeRefused(
                f"task {self.id} of app {self.app}: table {first} has the records of {topic} up to offset "
                f"{at[first].offset}, and table {last} up to {at[last].offset}: the app has run on without {first}, "
                f"which lacks what came since. Take {first} out of the code again, give it another name, or delete "
                f"its changelog while no worker runs (`isthmus streams forget {self.app} {first}`): then it begins anew"
            )
        return max(all_at.values())

    def open_windows(self) -> Iterator[None]:
        """Once its stores have been filled: find the windows of its tables, in steps of some rows."""
        for table, store in self.stores.items():
            if store.spec.windows is not None and table not in self.windows:
                opened = OpenWindows(store, store.spec.windows, self.times.get(table, BEFORE_ALL_MS))
                yield from opened.read()
                self.windows[table] = opened

    def windows_of(self, table: str) -> OpenWindows:
        """Of a table with windows. KeyError where the task does not have the table."""
        if table not in self.windows:
            for _ in self.open_windows():
                pass
        return self.windows[table]

    def keep_topics(self, topics: Iterable[str], others: Collection[str] = ()) -> None:
        """Forget the positions of all other topics, which the task does not read any more. Those that nobody reads are
        `left`: who reads them again goes on there. others: topics that other tasks read."""
        kept = frozenset(topics)
        self.left |= self.positions
        self.positions |= {
            topic: at for topic, at in self.left.items() if topic in kept and topic not in self.positions
        }
        self.left = {topic: at for topic, at in self.left.items() if topic not in kept and topic not in others}
        self.positions = {topic: at for topic, at in self.positions.items() if topic in kept}
        self.topic_ids = {topic: id for topic, id in self.topic_ids.items() if topic in kept or topic in self.left}

    def bind_topic_id(self, topic: str, topic_id: str) -> bool:
        """Remember which topic has this name; False, and no change, where the state reflects another of its name."""
        return self.topic_ids.setdefault(topic, topic_id) == topic_id

    def set_start(self, topic: str, position: Position) -> None:
        """Read a topic that the state knows nothing of from here on."""
        self.positions[topic] = position

    def mark_processed(self, topic: str, position: Position) -> None:
        """All records of the topic before this position are in the state."""
        self.positions[topic] = position
        self.changed = True

    def checkpoint(self) -> Checkpoint:
        """The state between two batches, when no other checkpoint of the task is under way."""
        self.checkpoint_number += 1
        self.changed = False
        positions = dict(self.positions)
        self.times |= {name: each.time_ms for name, each in self.windows.items() if each.time_ms > BEFORE_ALL_MS}
        marker = Marker(
            self.app,
            self.checkpoint_number,
            tuple(self.stores),
            positions,
            self.topic_ids,
            self.times,
            self.watermarks,
            self.left,
            self.topology,
        )
        markers = {name: replace(marker, table=self._described(name)).encode() for name in self.stores}
        rows = {
            name: [*as_written(store.take_changes()), Row(MARKER, markers[name])] for name, store in self.stores.items()
        }
        return Checkpoint(self, rows, positions, markers)

    def _described(self, table: str) -> dict[str, Any]:
        """What a table is, for its marker: who has missed changes of it, too, and how many events wait in it."""
        store, missed = self.stores[table], self.unfed.get(table)
        said = store.spec.description | ({UNFED: missed} if missed else {})
        return said | ({WAITING: len(store.rows)} if store.spec.given_by else {})

    def confirm(self, checkpoint: Checkpoint, changelog_offsets: Mapping[str, int]) -> None:
        """It was committed; its records end before these offsets of the changelogs, by table."""
        for name, offset in changelog_offsets.items():
            self.stores[name].confirm(offset, checkpoint.markers[name])

    def close(self) -> None:
        for store in self.stores.values():
            store.close()


def watermarks_of(
    id: TaskId, stores: Iterable[Store], found: Mapping[str, Marker]
) -> dict[str, dict[str, Sequence[Any]]]:
    """By part of the pipelines: what its steps' tables were kept with, though it may read more or fewer topics now.
    Raises ChangeRefused for a part that was several, whose windows have closed up to different times."""
    kept: dict[str, dict[str, Sequence[Any]]] = {}
    owner: dict[str, str] = {}  # part -> a table of it
    for store in stores:
        table, part = store.spec.name, store.spec.part
        marker = found.get(table)
        before = None if marker is None else marker.watermarks.get(marker.table.get("part", ""))
        if before is None:
            continue
        if part in kept and kept[part].get(OWN) != before.get(OWN):
            raise ChangeRefused(
                f"task {id}: steps {owner[part]} and {table} hang together now, and did not before: their event times "
                "are not the same, so what is late for one would not be for the other. Give one of them a new name="
            )
        owner.setdefault(part, table)
        kept.setdefault(part, {}).update(before)
    return kept


class Work:
    """What an agent has in hand: its task and the event. Tables and outputs find it by a context variable. is_beside:
    the agent belongs to no task that has checkpoints; what it sends is in none. asked: requests to other agents that
    have no reply yet, and the topics that they go through."""

    __slots__ = ("asked", "current", "outputs", "task")

    def __init__(self, task: Task, is_beside: bool = False) -> None:
        self.task = task
        self.outputs = None if is_beside else task  # whose outputs its are
        self.current: Event | None = None
        self.asked: dict[object, tuple[str, ...]] = {}
