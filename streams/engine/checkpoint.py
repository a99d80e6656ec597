"""The changelog: how a task's state and input positions are written down together, and read back.

One partition of one changelog topic holds all tables of a task. A checkpoint is the rows that changed, each with the
run's id and the checkpoint's number in its header, and then, once they are acknowledged, a marker that closes it:
their count and digest, and the input positions that the state reflects. A run begins with a marker of its own, written
before it reads: whatever another run appends after it does not count. Reading back applies only what a marker of the
same run closes: rows after the last marker, and what a dead or fenced-off run left, never happened. Rows whose newest
record never happened are written again by the next run, so that compaction cannot keep the wrong one.
Markers are keyed by run, so that compaction keeps where each run began and what it closed last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from ...protocol.crc import crc32c
from ..errors import ChangelogError
from .tables import SEPARATOR

MARKER_PREFIX = SEPARATOR + b"marker" + SEPARATOR
RUN_HEADER = "r"
FORMAT = 1

Positions = dict[str, dict[int, int]]  # topic -> partition -> next offset


class Row(NamedTuple):
    """A changelog record of a table; value None: the row was deleted."""

    key: bytes
    value: bytes | None


def marker_key(run: bytes, begin: bool) -> bytes:
    return MARKER_PREFIX + (b"begin" if begin else b"end") + run


def row_header(run: bytes, number: int) -> bytes:
    """What the header of a row says: by which run, for which of its checkpoints it was written."""
    return run + number.to_bytes(4, "big")


def begin_marker(app: str, run: bytes) -> bytes:
    return orjson.dumps({"format": FORMAT, "kind": "begin", "app": app, "run": run.hex()})


def end_marker(
    app: str, run: bytes, number: int, rows: list[Row], positions: Positions, topic_ids: Mapping[str, str]
) -> bytes:
    """The marker that closes checkpoint `number` of a run. topic_ids: of the topics that the positions are of, as far
    as the cluster has any."""
    return orjson.dumps(
        {
            "format": FORMAT,
            "kind": "checkpoint",
            "app": app,
            "run": run.hex(),
            "number": number,
            "count": len(rows),
            "digest": digest(rows),
            "positions": {topic: {str(p): offset for p, offset in each.items()} for topic, each in positions.items()},
            "topic_ids": topic_ids,
        }
    )


def digest(rows: Iterable[Row]) -> int:
    """CRC32C over keys and values in order."""
    crc = 0
    for row in rows:
        crc = crc32c(row.key, crc)
        crc = crc32c(b"-" if row.value is None else b"=" + row.value, crc)
    return crc


@dataclass
class Restored:
    """What a changelog partition says. rows: changelog key -> value. repair: keys to be written again."""

    rows: dict[bytes, bytes] = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    number: int = 0
    repair: dict[bytes, None] = field(default_factory=dict)


class Restorer:
    """Folds the records of one changelog partition, in order, into a `Restored`."""

    def __init__(self, app: str, where: str) -> None:
        self.app = app
        self.where = where  # for errors
        self.restored = Restored()
        self._run: str | None = None
        self._open: list[tuple[int, int, Row]] = []  # of the current run since its last marker: when, checkpoint, row
        self._fed = 0  # records; tells which of two of a key is newer
        self._leftovers: dict[bytes, int] = {}  # key -> when its newest record that does not count was fed

    def feed(self, key: bytes | None, value: bytes | None, run: bytes | None) -> None:
        """One record: its key, value and the content of its row header."""
        self._fed += 1
        if key is None:
            raise ChangelogError(f"{self.where} holds a record without a key: it is not a changelog of {self.app}")
        if key.startswith(MARKER_PREFIX):
            self._marker(orjson.loads(value or b"{}"))
        elif run is not None and run[:-4].hex() == self._run:
            self._open.append((self._fed, int.from_bytes(run[-4:], "big"), Row(key, value)))
        else:
            self._leftovers[key] = self._fed

    def _marker(self, said: Mapping[str, Any]) -> None:
        if said.get("app") != self.app or said.get("format") != FORMAT:
            raise ChangelogError(
                f"{self.where} has a marker of app {said.get('app')}, format {said.get('format')}; this is app "
                f"{self.app}, format {FORMAT}: give the app another id, or delete the topic to begin anew"
            )
        if said["kind"] == "begin":
            self._leave_open()
            self._run = said["run"]
        elif said["run"] == self._run:
            self._close(said)

    def _close(self, said: Mapping[str, Any]) -> None:
        """A checkpoint is complete. Compaction may have removed rows that were written again, and markers of a run
        before its last: a row of an older number was closed by such a one, and only a full count has its digest."""
        number, opened = said["number"], self._open
        self._open = [each for each in opened if each[1] > number]
        rows = [row for _, of, row in opened if of == number]
        if len(rows) > said["count"] or (len(rows) == said["count"] and digest(rows) != said["digest"]):
            raise ChangelogError(
                f"{self.where}: checkpoint {number} closes {said['count']} rows with digest {said['digest']}, but "
                f"{len(rows)} rows with digest {digest(rows)} stand there"
            )
        for at, of, row in opened:
            if of > number:
                continue
            if self._leftovers.get(row.key, at) < at:
                del self._leftovers[row.key]
            if row.value is None:
                self.restored.rows.pop(row.key, None)
            else:
                self.restored.rows[row.key] = row.value
        self.restored.number = number
        self.restored.positions = {
            topic: {int(p): offset for p, offset in each.items()} for topic, each in said["positions"].items()
        }
        self.restored.topic_ids = dict(said.get("topic_ids", {}))  # earlier releases wrote none

    def _leave_open(self) -> None:
        for at, _, row in self._open:
            self._leftovers[row.key] = at
        self._open = []

    def end(self) -> Restored:
        """What was committed, once all records were fed."""
        self._leave_open()
        self.restored.repair = dict.fromkeys(self._leftovers)
        return self.restored
