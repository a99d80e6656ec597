"""The format of the changelog: how a task's state and input positions are written down together, and read back.

`StreamWorker._write_checkpoint` in `runtime/worker.py` writes these records; `runtime/loading.py` reads them.

One partition of one changelog topic has all tables of a task. A *run* is one life of a task in one worker; its id is
random. A run writes a begin marker before it reads the changelog. A checkpoint consists of the rows that changed and,
after they are acknowledged, an end marker. The end marker has the checkpoint's number, the rows' count and digest, the
input positions that the state includes, and which earlier checkpoints are still valid. An end marker is valid if no
other run's begin marker lies between it and the begin marker of its own run. The last valid end marker defines the
state. Everything else in the log is ignored, such as the records of a zombie: a worker that hung past its session.

The topic is compacted: of each key the last record is kept, whoever wrote it. So no record may have the key of another
one that is still needed:

* A row's key has the run's id and a slot, 0 or 1. A run writes a row to the slot that does not have its last valid
  value. A marker's key has the run's id, an end marker's also the lowest bit of the checkpoint's number. So two runs
  never write to the same key, and a run's last write cannot remove what it wrote before.
* A run continues only when it knows that its checkpoint is valid. Offsets show that: after it has read the changelog to
  its end, each of its own records must follow the one before, up to the end marker. A gap is another run's record,
  perhaps a begin marker: the run then ends without another write, and the task begins a new run. So a zombie completes
  at most one checkpoint, which overwrites nothing valid.
* A tombstone is written only for a record that a checkpoint of the same run has replaced, after that checkpoint is
  known to be valid. This stays true for ever, so a tombstone of a zombie, or a late one, does no harm. `places.py`
  decides which records these are.

Reading back does not depend on what compaction has removed:

* Of each row, the value that counts and has the highest number is always there. No other one that counts has a higher
  number.
* The last end marker that counts is there, and so is its begin marker.
* A begin marker that is gone was removed by a later run. Without it, an end marker of an overtaken run may seem to
  count. It does no harm: the later run's end marker counts, and stands after it.

The log is read to its very end, since a record there may be the reason why compaction removed an earlier one.
docs/explanation/stream-state.md says more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from ...protocol.crc import crc32c
from ..errors import ChangelogError

# Table names have no null character, so no key of format 1 begins like these.
ROW, BEGIN, END = b"\0r", b"\0b", b"\0e"
RUN_BYTES = 8
ROW_HEADER = "r"
PUT, DELETE = b"+", b"-"
FORMAT = 2

Positions = dict[str, dict[int, int]]  # topic -> partition -> next offset


class ChangelogRecord(NamedTuple):
    """A record of the changelog. header: content of the header ROW_HEADER, for rows; value None: a tombstone."""

    key: bytes
    value: bytes | None = None
    header: bytes | None = None


def begin_key(run: bytes) -> bytes:
    return BEGIN + run


def end_key(run: bytes, number: int) -> bytes:
    return END + run + _slot(number & 1)


def place(run: bytes, slot: int) -> bytes:
    """The place of a row: the beginning of its record's key. slot: 0 or 1."""
    return ROW + run + _slot(slot)


def row_key(record_key: bytes) -> bytes:
    """The table and key of a row, from its record's key."""
    return record_key[PLACE_BYTES:]


def _slot(slot: int) -> bytes:
    return b"1" if slot else b"0"


PLACE_BYTES = len(place(bytes(RUN_BYTES), 0))


def row_record(where: bytes, key: bytes, value: bytes | None, number: int) -> ChangelogRecord:
    """A row of checkpoint `number`. value None: it was deleted; that needs a record of its own, because an older value
    may exist in another place."""
    header = number.to_bytes(4, "big") + (DELETE if value is None else PUT)
    return ChangelogRecord(where + key, value or b"", header)


def begin_marker(app: str, run: bytes) -> ChangelogRecord:
    said = {"format": FORMAT, "app": app, "run": run.hex()}
    return ChangelogRecord(begin_key(run), orjson.dumps(said))


def end_marker(
    app: str,
    run: bytes,
    number: int,
    rows: Iterable[ChangelogRecord],
    positions: Positions,
    topic_ids: Mapping[str, str],
    earlier: Mapping[bytes, int],
) -> ChangelogRecord:
    """The marker that closes checkpoint `number` of a run. topic_ids: of the topics in positions, if the cluster has
    ids. earlier: runs with rows that are still needed -> their last valid checkpoint."""
    count, digest = 0, 0
    for row in rows:
        if row.header is not None and row.header.endswith(PUT):
            count, digest = count + 1, add_to_digest(digest, row.key, row.value or b"")
    said = {
        "format": FORMAT,
        "app": app,
        "run": run.hex(),
        "number": number,
        "count": count,
        "digest": digest,
        "positions": {topic: {str(p): offset for p, offset in each.items()} for topic, each in positions.items()},
        "topic_ids": topic_ids,
        "runs": {**{each.hex(): last for each, last in earlier.items()}, run.hex(): number},
    }
    return ChangelogRecord(end_key(run, number), orjson.dumps(said))


def add_to_digest(digest: int, key: bytes, value: bytes) -> int:
    """CRC32C over the keys and values of rows in order, without deletions, which are removed soon."""
    return crc32c(value, crc32c(key, digest))


@dataclass
class Restored:
    """The contents of a changelog partition. rows: row key -> value.

    runs: run -> its last checkpoint that counts. newest: row key -> place of its value that counts, also where that
    value says that it was deleted. others: row key -> its further places. markers: their keys, in the log's order.
    begun: the run with the last begin marker. next_offset: up to there the log was read.
    """

    rows: dict[bytes, bytes] = field(default_factory=dict)
    positions: Positions = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    number: int = 0
    runs: dict[bytes, int] = field(default_factory=dict)
    newest: dict[bytes, bytes] = field(default_factory=dict)
    others: dict[bytes, tuple[bytes, ...]] = field(default_factory=dict)
    markers: list[bytes] = field(default_factory=list)
    begun: bytes | None = None
    next_offset: int = 0


@dataclass(slots=True)
class _Tally:
    """The rows of a run's latest checkpoint that were read."""

    number: int
    count: int = 0
    digest: int = 0


class Restorer:
    """Builds a `Restored` from the records of one changelog partition, in order."""

    def __init__(self, app: str, where: str) -> None:
        self.app = app
        self.where = where  # named in errors
        self._begun: bytes | None = None
        self._records: dict[bytes, tuple[int, bytes | None]] = {}  # record key -> checkpoint, value (None: deleted)
        self._tallies: dict[bytes, _Tally] = {}  # by run
        self._markers: dict[bytes, None] = {}
        self._end: dict[str, Any] | None = None  # the last valid end marker
        self._end_tally = _Tally(0)

    def feed(self, key: bytes | None, value: bytes | None, header: bytes | None) -> None:
        """Add a record: key, value and content of its row header. Raises ChangelogError for other records."""
        kind = b"" if key is None else key[: len(ROW)]
        if key is None or kind not in (ROW, BEGIN, END):
            raise ChangelogError(
                f"{self.where} has a record that is not of format {FORMAT}: it is not a changelog of app {self.app}, "
                "or an earlier release wrote it, which this release cannot read. Give the app another id, or stop all "
                "its workers and delete the topic; with either, it begins at the start of the input topics"
            )
        if value is None:
            self._records.pop(key, None)
            self._markers.pop(key, None)
        elif kind == ROW:
            self._row(key, value, header)
        else:
            self._marker(key, kind, orjson.loads(value))

    def _row(self, key: bytes, value: bytes, header: bytes | None) -> None:
        if header is None or len(header) != 5:
            raise ChangelogError(f"{self.where}: row {row_key(key)!r} has no header that names its checkpoint")
        number, run = int.from_bytes(header[:4], "big"), key[len(ROW) : len(ROW) + RUN_BYTES]
        tally = self._tallies.get(run)
        if tally is None or tally.number != number:
            tally = self._tallies[run] = _Tally(number)
        if header.endswith(PUT):
            tally.count += 1
            tally.digest = add_to_digest(tally.digest, key, value)
            self._records[key] = number, value
        else:
            self._records[key] = number, None

    def _marker(self, key: bytes, kind: bytes, said: dict[str, Any]) -> None:
        if said.get("app") != self.app or said.get("format") != FORMAT:
            raise ChangelogError(
                f"{self.where} has a marker of app {said.get('app')}, format {said.get('format')}; this is app "
                f"{self.app}, format {FORMAT}: give the app another id, or delete the topic to start over"
            )
        self._markers.pop(key, None)  # in the order of their last writes
        self._markers[key] = None
        run = bytes.fromhex(said["run"])
        if kind == BEGIN:
            self._begun = run
        elif run == self._begun:
            tally = self._tallies.get(run)
            self._end = said
            self._end_tally = tally if tally and tally.number == said["number"] else _Tally(said["number"])

    def end(self) -> Restored:
        """The result, after all records were added. Raises ChangelogError if rows of the last checkpoint are missing,
        duplicated or changed; neither compaction nor another run can cause that."""
        said, tally = self._end, self._end_tally
        restored = Restored(markers=list(self._markers), begun=self._begun)
        if said is not None:
            if (tally.count, tally.digest) != (said["count"], said["digest"]):
                raise ChangelogError(
                    f"{self.where}: checkpoint {said['number']} closes {said['count']} rows with digest "
                    f"{said['digest']}, but {tally.count} rows with digest {tally.digest} were found: the broker "
                    "lost or changed records that it had acknowledged; give the app another id to start over"
                )
            restored.number = said["number"]
            restored.positions = {
                topic: {int(p): offset for p, offset in each.items()} for topic, each in said["positions"].items()
            }
            restored.topic_ids = said["topic_ids"]
            restored.runs = {bytes.fromhex(run): last for run, last in said["runs"].items()}
        self._choose(restored)
        return restored

    def _choose(self, restored: Restored) -> None:
        """For each row, the valid value with the highest number."""
        places: dict[bytes, bytes] = {}  # shares one object per place; there are few places
        for record_key, (number, value) in self._records.items():
            key, where = record_key[PLACE_BYTES:], record_key[:PLACE_BYTES]
            where = places.setdefault(where, where)
            other: bytes | None = where
            if number <= restored.runs.get(where[len(ROW) : len(ROW) + RUN_BYTES], -1):
                chosen = restored.newest.get(key)
                if chosen is None or self._records[chosen + key][0] < number:
                    other = chosen
                    restored.newest[key] = where
                    if value is None:
                        restored.rows.pop(key, None)
                    else:
                        restored.rows[key] = value
            if other is not None:
                restored.others[key] = (*restored.others.get(key, ()), other)
