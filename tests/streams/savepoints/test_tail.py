"""Which checkpoint is saved: rows and marker of each table are exactly those of one checkpoint of the task, though the
app writes on, readers of its changelogs get on differently, and old segments are compacted all the time."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position
from isthmus.streams.errors import AppError, ChangelogError
from isthmus.streams.savepoints.format import Manifest, PartWriter, Savepoint, file_of
from isthmus.streams.savepoints.tail import Tail, common

TABLES = ("a", "b")


class Log:
    """A changelog partition. records: by offset, but for those that compaction has removed."""

    def __init__(self) -> None:
        self.records: dict[int, tuple[bytes, bytes | None]] = {}
        self.end = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self.records[self.end] = key, value
        self.end += 1

    def compact(self, below: int) -> None:
        """Closed segments, below this offset, keep the last record of each key alone."""
        newest = {key: offset for offset, (key, _) in self.records.items()}
        self.records = {
            offset: record for offset, record in self.records.items() if offset >= below or newest[record[0]] == offset
        }

    def fetch(self, table: str, position: int, most: int) -> FetchedBatches:
        stop = min(self.end, position + most)
        rows = [(offset, *self.records[offset]) for offset in range(position, stop) if offset in self.records]
        data = b"".join(records.build_batch([(7, key, value, ())], base_offset=offset) for offset, key, value in rows)
        return FetchedBatches(TopicPartition(table, 0), memoryview(data), position, stop, self.end, self.end)


class App:
    """Writes checkpoints. states: by number, the rows of both tables then."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.logs = {table: Log() for table in TABLES}
        self.states: dict[int, dict[str, dict[bytes, bytes]]] = {}
        self.rows: dict[str, dict[bytes, bytes]] = {table: {} for table in TABLES}

    def checkpoint(self) -> None:
        number = len(self.states) + 1
        marker = Marker("app", number, TABLES, {"in": Position(number)}).encode()
        for table in TABLES:
            for _ in range(self.random.randrange(4)):
                key = b"k%d" % self.random.randrange(5)
                value = None if self.random.random() < 0.2 else b"%d" % number
                self.logs[table].append(key, value)
                self.rows[table].pop(key, None)
                if value is not None:
                    self.rows[table][key] = value
            self.logs[table].append(MARKER, marker)
        self.states[number] = {table: dict(rows) for table, rows in self.rows.items()}


def ended(
    tails: dict[str, Tail], chosen: dict[str, int | None], folder: Path
) -> dict[str, tuple[int, dict[bytes, bytes]]]:
    """The number of the saved marker, and the saved rows."""
    found = {}
    for table, tail in tails.items():
        part = tail.close(chosen[table], runs=True)
        assert part.marker is not None
        saved: dict[bytes, bytes | None] = {}
        for columns in Savepoint(folder, Manifest("app", "", 0)).read(part):
            saved.update(zip(columns.keys, columns.values, strict=True))  # type: ignore[arg-type]
        rows = {key: value for key, value in saved.items() if value is not None}
        found[table] = Marker.decode(part.marker.encode(), "app", table).number, rows
    return found


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 1 << 30))
def test_all_tables_of_a_task_are_saved_at_one_checkpoint(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    random = Random(seed)
    folder = tmp_path_factory.mktemp("tail")
    app = App(random)
    for _ in range(random.randrange(1, 12)):
        app.checkpoint()
    begun = {table: log.end for table, log in app.logs.items()}
    tails = {
        table: Tail(
            "app", table, TopicPartition(table, 0), PartWriter(folder, file_of("tables", table, 0)), begun[table]
        )
        for table in TABLES
    }
    followed = False
    while (chosen := common(tails)) is None:
        if random.random() < 0.5:
            app.checkpoint()
        for table, log in app.logs.items():
            log.compact(begun[table])  # what is written since is in the open segment
            if random.random() < 0.6 and tails[table].position < log.end:
                tails[table].take(log.fetch(table, tails[table].position, random.randrange(1, 9)))
        if not followed and all(tail.is_read for tail in tails.values()):
            followed = True
            for table, tail in tails.items():
                tail.follow(app.logs[table].end)
        assert len(app.states) < 10_000, "the tables never have a checkpoint in common"
    found = ended(tails, chosen, folder)
    [number] = {number for number, _ in found.values()}
    assert {table: rows for table, (_, rows) in found.items()} == app.states[number]
    shutil.rmtree(folder)


def tails_of(folder: Path, **logs: list[tuple[int, tuple[str, ...]]]) -> dict[str, Tail]:
    """Tables whose changelogs end with these markers: number, tables of the task. All is read."""
    found = {}
    for table, markers in logs.items():
        log = Log()
        for number, names in markers:
            log.append(b"k", b"%d" % number)
            log.append(MARKER, Marker("app", number, names).encode())
        writer = PartWriter(folder, file_of("tables", table, 0))
        tail = found[table] = Tail("app", table, TopicPartition(table, 0), writer, log.end)
        if log.end:
            tail.take(log.fetch(table, 0, log.end))
        tail.follow(log.end)
    return found


def test_a_table_that_its_task_has_no_more_is_saved_at_its_own_last_checkpoint(tmp_path: Path) -> None:
    both = ("a", "old")
    assert common(tails_of(tmp_path, a=[(4, both), (9, ("a",))], old=[(4, both)])) == {"a": 9, "old": 4}


def test_tables_of_two_tasks_need_not_agree(tmp_path: Path) -> None:
    assert common(tails_of(tmp_path, a=[(4, ("a",))], b=[(9, ("b",))], new=[])) == {"a": 4, "b": 9, "new": None}


def test_a_table_without_the_last_checkpoint_is_waited_for(tmp_path: Path) -> None:
    assert common(tails_of(tmp_path, a=[(4, TABLES)], b=[(3, TABLES)])) is None
    assert common(tails_of(tmp_path, a=[(1, TABLES)], b=[])) is None


def test_a_table_whose_changelog_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ChangelogError, match="no changelog of table b, which checkpoint 4 of partition 0 has"):
        common(tails_of(tmp_path, a=[(4, TABLES)]))


def test_rows_without_a_marker_are_of_a_global_table_and_of_no_checkpoint(tmp_path: Path) -> None:
    log = Log()
    log.append(b"k", b"v")
    tail = Tail("app", "a", TopicPartition("a", 0), PartWriter(tmp_path, file_of("tables", "a", 0)), 1)
    tail.take(log.fetch("a", 0, 1))
    tail.follow(1)
    assert common({"a": tail}) == {"a": None}
    with pytest.raises(AppError, match=r"app app runs, and has a global table, a: .* Stop its workers first"):
        tail.close(None, runs=True)
    part = tail.close(None, runs=False)
    assert (part.records, part.marker) == (1, None)
