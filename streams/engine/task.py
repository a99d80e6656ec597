"""A task: partition n of all input topics of an app, with its state. Pure: its methods are called with what happens.

The runtime gives it batches in order, and asks it for checkpoints between them. Agents change the task's tables and
outputs. `current` is the event that an agent processes; windows and errors use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ..errors import RecordError
from .changelog import ChangelogRecord, Positions, Restored, begin_marker, end_marker
from .codecs import Codec
from .places import Places
from .tables import TableSpec, TableState, split_key


class Event:
    """One record in an agent. timestamp_ms is the event time; topic and partition are the record's."""

    __slots__ = ("key", "offset", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self, key: bytes | None, value: Any, timestamp_ms: int, topic: str, partition: int, offset: int
    ) -> None:
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __repr__(self) -> str:
        return f"<Event {self.topic}-{self.partition} offset {self.offset} key {self.key!r}>"


class Checkpoint(NamedTuple):
    """What to write: first `rows` and, when they are acknowledged, `marker`. positions: those in the marker."""

    rows: list[ChangelogRecord]
    marker: ChangelogRecord
    positions: Positions


class Task:
    """The state of one partition number of an app, and what one run writes of it to the changelog."""

    def __init__(self, app: str, number: int, tables: Iterable[TableSpec], run: bytes) -> None:
        self.app = app
        self.number = number
        self.run = run
        self.tables = {spec.name: TableState(spec) for spec in tables}
        self.positions: Positions = {}
        self.topic_ids: dict[str, str] = {}  # topic ids of the positions, as text
        self.checkpoint_number = 0
        self.current: Event | None = None
        self.outputs: list[Any] = []  # sent by the runtime, to be acknowledged before the next marker
        self.changed = False  # something was processed since the last checkpoint
        self.next_offset = 0  # of the changelog: where this run's next record goes if no one else writes
        self._places = Places(run)

    def restore(self, restored: Restored) -> None:
        """Take over the state from a changelog. Rows of tables that the app does not have any more are ignored."""
        for data, value in restored.rows.items():
            name, key = split_key(data)
            if name in self.tables:
                self.tables[name].restore(key, value)
        self.positions = {topic: dict(each) for topic, each in restored.positions.items()}
        self.topic_ids = dict(restored.topic_ids)
        self.checkpoint_number = restored.number
        self.next_offset = restored.next_offset
        self._places.take_over(restored)

    def position(self, topic: str) -> int:
        """The next offset to read of a topic."""
        return self.positions.get(topic, {}).get(self.number, 0)

    def knows(self, topic: str) -> bool:
        """Whether the state includes records of the topic, so that reading must begin at `position`."""
        return self.number in self.positions.get(topic, {})

    def bind_topic_id(self, topic: str, topic_id: str) -> bool:
        """Remember which topic has this name; False, and no change, where the state reflects another of its name."""
        return self.topic_ids.setdefault(topic, topic_id) == topic_id

    def set_start(self, topic: str, offset: int) -> None:
        """Read a topic that the state knows nothing of from this offset on."""
        self.positions.setdefault(topic, {})[self.number] = offset

    def mark_processed(self, topic: str, next_offset: int) -> None:
        """All records of the topic below `next_offset` are in the state."""
        self.positions.setdefault(topic, {})[self.number] = next_offset
        self.changed = True

    def begin(self) -> ChangelogRecord:
        """The marker that begins this run."""
        return begin_marker(self.app, self.run)

    def checkpoint(self) -> Checkpoint:
        """The changed rows and the marker that closes them. Only between batches, when the previous one is valid."""
        changes = [change for table in self.tables.values() for change in table.take_changes()]
        self.checkpoint_number += 1
        self.changed = False
        rows = self._places.write(changes, self.checkpoint_number)
        positions = {topic: dict(each) for topic, each in self.positions.items()}
        marker = end_marker(
            self.app, self.run, self.checkpoint_number, rows, positions, self.topic_ids, self._places.earlier
        )
        return Checkpoint(rows, marker, positions)

    def advance_and_check(self, offsets: Sequence[int]) -> bool:
        """Count records that this run appended to the changelog, at these offsets. False when not all records since it
        was restored are its own, or when that is not known (offset -1): then nothing more may be written."""
        self.next_offset += len(offsets)
        return not offsets or offsets[-1] == self.next_offset - 1

    def confirm_checkpoint(self) -> tuple[list[ChangelogRecord], list[ChangelogRecord]]:
        """The last checkpoint counts. Gives tombstones for what it made superfluous: two parts, the second to be
        written once the first is acknowledged."""
        return self._places.confirm()


def events(
    topic: str,
    partition: int,
    columns: tuple[Sequence[int], Sequence[int], Sequence[bytes | None], Sequence[bytes | None]],
    codec: Codec,
    from_offset: int,
    skip: Callable[[RecordError], None] | None = None,
) -> list[Event]:
    """Events of decoded records (offsets, timestamps, keys, values), from `from_offset` on.

    A record that cannot be decoded goes to `skip`; if there is none, RecordError is raised.
    """
    decode = codec.decode
    found = []
    for offset, timestamp_ms, key, value in zip(*columns, strict=True):
        if offset < from_offset:
            continue
        try:
            body = None if value is None else decode(value)
        except ValueError as error:
            problem = RecordError(
                f"{topic}-{partition} offset {offset}: the value cannot be decoded: {error}; declare the topic with "
                "on_error='skip' to leave such records out"
            )
            if skip is None:
                raise problem from error
            skip(problem)
            continue
        found.append(Event(key, body, timestamp_ms, topic, partition, offset))
    return found
