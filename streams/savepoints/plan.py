"""What a restore writes, and where: made before anything is changed. Pure.

`as_it_was` is the plan of a restore, under the same id or another one; `rescaling.py` makes those of other numbers of
partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ...client import TopicPartition
from ..engine.checkpoint import Marker, Position, as_written
from .format import Headers, Manifest, Part, Savepoint


class Put(NamedTuple):
    """Records for one partition, as columns. timestamps: in ms; None for now. headers: None where no record has any."""

    tp: TopicPartition
    timestamps: Sequence[int] | None
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers] | None = None

    @property
    def size_bytes(self) -> int:
        return sum(len(each) for column in (self.keys, self.values) for each in column if each is not None)


class NewTopic(NamedTuple):
    partitions: int
    options: Mapping[str, str]


@dataclass(frozen=True)
class Plan:
    """app: the id that the state is for. topics: the app's own, by name, to be made anew. puts: gives what is written
    to them before the markers, the records of a key in their order. markers: of changelog partitions; their positions
    are those that inputs have in the cluster. offsets: of the group."""

    app: str
    topics: Mapping[str, NewTopic]
    puts: Callable[[], Iterator[Put]]
    markers: Mapping[TopicPartition, Marker]
    offsets: Mapping[TopicPartition, int]


def renamed(app: str, to: str, topic: str) -> str:
    """The name of a topic of the app under another id."""
    return f"{to}{topic[len(app) :]}"


def own_names(saved: Manifest, app: str) -> dict[str, str]:
    """The app's own topics -> their names under this id."""
    return {topic.name: renamed(saved.app, app, topic.name) for topic in saved.topics}


def as_it_was(savepoint: Savepoint, positions: Mapping[TopicPartition, Position], app: str) -> Plan:
    """positions: of the inputs, as they are read on in the cluster; an input without one is begun as by a new app."""
    saved = savepoint.manifest
    names = own_names(saved, app)
    known = dict(positions)
    for topic in saved.between.values():  # what is left of it begins at 0
        known |= {TopicPartition(names[topic.name], p): Position(0) for p in range(topic.partitions)}
    markers = {
        TopicPartition(names[table.name], part.partition): _moved(marker_of(saved, part), app, names, part, known)
        for table in saved.tables.values()
        for part in table.parts
        if part.marker is not None
    }

    def puts() -> Iterator[Put]:
        for table in saved.tables.values():
            for part in table.parts:
                yield from rows(savepoint, part, TopicPartition(names[table.name], part.partition))
        for topic in saved.between.values():
            for part in topic.parts:
                yield from records_of(savepoint, part, TopicPartition(names[topic.name], part.partition))

    return Plan(
        app,
        {names[topic.name]: NewTopic(topic.partitions, topic.options) for topic in saved.topics},
        puts,
        markers,
        {tp: at.offset for tp, at in known.items()},
    )


def marker_of(saved: Manifest, part: Part) -> Marker:
    assert part.marker is not None
    return Marker.decode(part.marker.encode(), saved.app, part.file)


def rows(savepoint: Savepoint, part: Part, to: TopicPartition) -> Iterator[Put]:
    """A table's rows, as its changelog has them."""
    for columns in savepoint.read(part):
        written = as_written(zip(columns.keys, columns.values, strict=True))  # type: ignore[arg-type]  # rows have keys
        yield Put(to, None, [row.key for row in written], [row.value for row in written])


def records_of(savepoint: Savepoint, part: Part, to: TopicPartition) -> Iterator[Put]:
    """What is left of a topic between two steps."""
    for found in savepoint.read(part):
        yield Put(to, found.timestamps, found.keys, found.values, found.headers)


def _moved(
    marker: Marker,
    app: str,
    names: Mapping[str, str],
    part: Part,
    positions: Mapping[TopicPartition, Position],
) -> Marker:
    found = {}
    for topic in marker.positions:
        name = names.get(topic, topic)
        if (at := positions.get(TopicPartition(name, part.partition))) is not None:
            found[name] = at
    parts = {part: "+".join(sorted(names.get(each, each) for each in part.split("+"))) for part in marker.watermarks}
    watermarks = {
        parts[part]: {names.get(source, source): at for source, at in kept.items()}
        for part, kept in marker.watermarks.items()
    }
    table = dict(marker.table)
    if "part" in table:
        table["part"] = parts.get(table["part"], table["part"])
    return Marker(app, marker.number, marker.tables, found, {}, marker.times, watermarks, table=table)
