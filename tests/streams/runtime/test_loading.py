"""What is read of changelogs: all that is committed, in whole checkpoints."""

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.errors import ChangelogError
from isthmus.streams.runtime import loading, turns
from tests.running import in_loop, run_by

from .running import Clock

TP = TopicPartition("app-t-changelog", 1)


def marker(number: int) -> tuple[bytes, bytes]:
    return MARKER, Marker("app", number, ("t",), {"in": Position(10 * number)}).encode()


class Changelog:
    """Stands for a Consumer and an Admin: each poll gives what one look finds decided."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, end: int, looks: Sequence[Sequence[Any]]) -> None:
        self.end = end
        self.looks = list(looks)
        self.at = 0
        self.asked: dict[str, Any] = {}
        self.is_closed = False
        monkeypatch.setattr(loading, "Admin", lambda _: self)
        monkeypatch.setattr(loading, "Consumer", self._consumer)

    def _consumer(self, _: Any, **options: Any) -> Any:
        self.asked = options
        return self

    async def list_offsets(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
        assert wanted == {TP: "latest"}
        return {TP: (self.end, -1)}

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        self.at = positions[TP] or 0

    def position(self, tp: TopicPartition) -> int:
        return self.at

    async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        if not self.looks:
            return []
        rows = self.looks.pop(0)
        begin, self.at = self.at, self.at + len(rows)
        data = records.build_batch([(0, key, value, ()) for key, value in rows], base_offset=begin) if rows else b""
        return [FetchedBatches(TP, memoryview(bytes(data)), begin, self.at, self.at, self.at)]

    async def close(self) -> None:
        self.is_closed = True


async def loaded(from_offset: int = 0, store: MemoryStore | None = None) -> Task:
    store = store or MemoryStore(TableSpec("t"))
    store.changelog_offset = from_offset
    task = Task("app", TaskId("in", 1), {"t": store})
    await loading.load(None, [task], lambda table: f"app-{table}-changelog")  # type: ignore[arg-type]
    task.restored()
    return task


@run_by(in_loop)
async def test_others_get_on_while_many_rows_of_one_fetch_are_restored(monkeypatch):
    clock = Clock(monkeypatch)
    beats: list[int] = []

    class Slow(MemoryStore):
        def restore(self, changes: Any, changelog_offset: int, marker: bytes | None = None) -> None:
            super().restore(changes, changelog_offset, marker)
            clock.now += turns.TURN_S
            beats.append(-changelog_offset)

    async def beat() -> None:
        while True:
            beats.append(1)
            await asyncio.sleep(0)

    count = 3 * turns.PIECE_ROWS + 7
    Changelog(monkeypatch, count + 1, [[*((b"%d" % n, b"1") for n in range(count)), marker(1)]])
    beating = asyncio.get_running_loop().create_task(beat())
    task = await loaded(store=Slow(TableSpec("t")))
    beating.cancel()
    assert task.stores["t"].rows == dict.fromkeys(range(count), 1) and task.positions == {"in": Position(10)}
    pieces = [at for at, each in enumerate(beats) if each < 0]
    assert [-beats[at] for at in pieces] == [1_000, 2_000, 3_000, count + 1]
    assert all(after - before > 5 for before, after in itertools.pairwise(pieces))


@run_by(in_loop)
async def test_it_reads_to_the_end_also_what_is_decided_late(monkeypatch):
    changelog = Changelog(monkeypatch, 4, [[(b'"a"', b"1"), marker(1)], [], [], [(b'"a"', None), marker(2)]])
    task = await loaded()
    assert (task.stores["t"].rows, task.positions) == ({}, {"in": Position(20)})
    assert changelog.asked == {"auto_offset_reset": "earliest", "isolation": "read_committed"}
    assert changelog.is_closed and task.stores["t"].changelog_offset == 4


@run_by(in_loop)
async def test_of_a_checkpoint_that_comes_meanwhile_it_has_all_or_nothing(monkeypatch):
    """A fetch may end between the rows of a transaction and its marker."""
    Changelog(monkeypatch, 2, [[(b'"a"', b"1"), marker(1), (b'"a"', b"2")], [(b'"b"', b"2"), marker(2)]])
    task = await loaded()
    assert (task.stores["t"].rows, task.positions) == ({"a": 2, "b": 2}, {"in": Position(20)})


@run_by(in_loop)
async def test_what_a_store_has_already_is_not_read_again(monkeypatch):
    changelog = Changelog(monkeypatch, 4, [[(b'"a"', b"2"), marker(2)]])
    task = await loaded(from_offset=2)
    assert task.stores["t"].rows == {"a": 2} and changelog.at == 4
    changelog.asked = {}
    await loaded(from_offset=4)
    assert changelog.at == 4


@run_by(in_loop)
async def test_a_transaction_that_does_not_end_is_an_error_in_time(monkeypatch):
    changelog = Changelog(monkeypatch, 4, [[(b'"a"', b"1"), marker(1)]])
    clock = Clock(monkeypatch)
    loading_it = asyncio.ensure_future(loaded())
    for _ in range(50):
        await asyncio.sleep(0)
    assert not loading_it.done()
    clock.now += loading.STUCK_S + 1
    with pytest.raises(
        ChangelogError, match=r"app-t-changelog-1 was read up to offset 2 of 4, .* a transaction is open"
    ):
        await loading_it
    assert changelog.is_closed


@run_by(in_loop)
async def test_stores_of_a_task_that_was_taken_away_are_left_alone(monkeypatch):
    """They are closed, and one on disk takes no rows any more; other tasks are filled with it."""
    Changelog(monkeypatch, 2, [[(b'"k"', b"1"), marker(1)]])
    taken = MemoryStore(TableSpec("t"))
    task = Task("app", TaskId("in", 1), {"t": taken})
    name = "app-{}-changelog".format
    await loading.load(None, [task], name, is_here=lambda each: each is not task)  # type: ignore[arg-type]
    assert taken.changelog_offset == 0
