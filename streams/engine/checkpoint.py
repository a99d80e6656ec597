"""What a checkpoint writes, and how a changelog is read: the format of `<app>-<table>-changelog`.

Each table has a changelog: a compacted topic whose partition *n* has the rows of the table's partition *n*, by their
keys, and tombstones for rows that were deleted. Beside the rows it has one record of its own kind, the *marker*: up to
which input positions the rows go. Rows, marker and the offsets of the group are written in one transaction (KIP-98,
KIP-447), and only committed records are read. So

* rows, markers and offsets of all tables of a task always go together;
* a worker that hung while another took over its tasks cannot commit: the group has another generation;
* of each row there is one value, and whoever reads the topic as a table needs nothing but read_committed.

`runtime/commits.py` writes, `runtime/loading.py` reads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from ..errors import ChangelogError

MARKER = b"\0marker"
FORMAT = 3
_ESCAPE = b"\0"  # a row's key that begins like a marker has one more of these in front


class Position(NamedTuple):
    """Where to read on in an input partition. leader_epoch: of the record before the offset; -1 if not known."""

    offset: int
    leader_epoch: int = -1


class Row(NamedTuple):
    """A record of a changelog. value None: a tombstone."""

    key: bytes
    value: bytes | None


@dataclass(frozen=True)
class Marker:
    """What a checkpoint includes. One without positions is of a global table, whose rows are of no task: a transaction
    ends there; its number is the time.

    tables: those that the task had. positions, by topic: of the input partition with the task's number. topic_ids: of
    these topics, as text, where the cluster has ids. times: of tables with windows, in ms (`engine/open_windows.py`).
    watermarks: by part of the pipelines, see `engine/time.py`. left: positions of topics that were read before, and
    that nobody reads now. topology: what the task's sub-topology was; table: what the table was that this marker is of
    (`engine/described.py`)."""

    app: str
    number: int
    tables: tuple[str, ...] = ()
    positions: Mapping[str, Position] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, int] = field(default_factory=dict)
    watermarks: Mapping[str, Mapping[str, Sequence[Any]]] = field(default_factory=dict)
    left: Mapping[str, Position] = field(default_factory=dict)
    topology: Mapping[str, Any] = field(default_factory=dict)
    table: Mapping[str, Any] = field(default_factory=dict)

    def reads(self, table: str) -> Collection[str]:
        """The topics of whose records this table has something."""
        found: Collection[str] = self.topology.get("reads", {}).get(table, self.positions)
        return found

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "format": FORMAT,
                "app": self.app,
                "number": self.number,
                "tables": self.tables,
                "positions": {topic: list(at) for topic, at in self.positions.items()},
                "topic_ids": dict(self.topic_ids),
                "times": dict(self.times),
                "watermarks": {part: dict(kept) for part, kept in self.watermarks.items()},
                "left": {topic: list(at) for topic, at in self.left.items()},
                "topology": dict(self.topology),
                "table": dict(self.table),
            }
        )

    @classmethod
    def decode(cls, data: bytes, app: str, where: str) -> Marker:
        """where: the changelog, for errors. Raises ChangelogError for what is not a marker of this app."""
        try:
            said = orjson.loads(data)
            if said["format"] != FORMAT or said["app"] != app:
                raise ChangelogError(
                    f"{where} has a marker of app {said['app']}, format {said['format']}; this is app {app}, format "
                    f"{FORMAT}: give the app another id, or stop its workers and delete the topic to start over"
                )
            positions, left = (
                {topic: Position(*at) for topic, at in said.get(where, {}).items()} for where in ("positions", "left")
            )
            return cls(
                app,
                said["number"],
                tuple(said["tables"]),
                positions,
                said["topic_ids"],
                said.get("times", {}),
                said.get("watermarks", {}),
                left,
                said.get("topology", {}),
                said.get("table", {}),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ChangelogError(
                f"{where} has a record with the key {MARKER!r} that is not a marker: it is no changelog of this "
                "release. "
                "Give the app another id, or stop its workers and delete the topic to start over"
            ) from error


def as_written(rows: Iterable[tuple[bytes, bytes | None]]) -> list[Row]:
    """Changed rows of a table as records of its changelog."""
    return [Row(_ESCAPE + key if key.startswith(_ESCAPE) else key, value) for key, value in rows]


def as_read(
    keys: Sequence[bytes | None], values: Sequence[bytes | None], where: str
) -> tuple[list[tuple[bytes, bytes | None]], bytes | None]:
    """The rows among records of a changelog, in order, and the last marker, encoded. Raises ChangelogError for a record
    without a key."""
    rows: list[Any] = list(zip(keys, values, strict=True))
    marker: bytes | None = None
    markers = 0
    # Few are no plain row: to look at each of a million in a loop would cost more than to decode them.
    for at in [at for at, key in enumerate(keys) if not key or key[0] == _ESCAPE[0]]:
        key, value = rows[at]
        if key is None:
            raise ChangelogError(
                f"{where} has a record without a key: it is not a changelog, or another program wrote it"
            )
        if key == MARKER:
            rows[at], marker, markers = None, value, markers + 1
        else:
            rows[at] = _row(key, value)
    return ([row for row in rows if row is not None] if markers else rows), marker


def _row(key: bytes, value: bytes | None) -> tuple[bytes, bytes | None]:
    return (key[1:], value) if key.startswith(_ESCAPE) else (key, value)
