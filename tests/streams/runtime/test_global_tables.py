"""How a worker reads its global tables: all of each topic, once, and what of it counts as read."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams import App
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.runtime import global_tables as global_tables_module
from isthmus.streams.runtime import turns as turns_module
from isthmus.streams.runtime.global_tables import GlobalTables
from isthmus.streams.runtime.turns import PIECE_ROWS, Turns
from tests.running import in_loop, run_by

from .fakes import turns

TP, MORE = TopicPartition("users", 0), TopicPartition("users", 1)


class World:
    """Stands for the cluster and for the consumer that reads it. given: what it was assigned, at last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions = [0]
        self.options: dict[str, Any] = {}
        self.given: dict[TopicPartition, int | None] = {}
        self.fetched: asyncio.Queue[list[FetchedBatches]] = asyncio.Queue()
        self.ends: dict[TopicPartition, int] = {}
        self.app = App("app")
        monkeypatch.setattr(global_tables_module, "Consumer", self._consumer)
        monkeypatch.setattr(global_tables_module, "Admin", lambda client: self)

        async def nothing(*_: Any) -> None: ...

        monkeypatch.setattr(global_tables_module, "create", nothing)
        self.client: Any = SimpleNamespace(partitions=lambda topic: self.partitions, refresh_metadata=nothing)

    def _consumer(self, client: Any, **options: Any) -> Any:
        self.options = options
        return self

    async def list_offsets(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (self.ends.get(tp, 0), -1) for tp in wanted}

    def assignment(self) -> Sequence[TopicPartition]:
        return list(self.given)

    def assign(self, given: dict[TopicPartition, int | None]) -> None:
        self.given = given

    def position(self, tp: TopicPartition) -> int:
        return self.ends.get(tp, 0)

    def lag(self, tp: TopicPartition) -> int:
        return 0 if self.fetched.empty() else 1

    def progress(self) -> dict[TopicPartition, Any]:
        return {}

    async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
        return await self.fetched.get()

    async def close(self) -> None: ...

    def give(self, begin: int, count: int, tp: TopicPartition = TP) -> None:
        """Records whose key is their offset, of which the poll that returns them is behind."""
        rows: Any = [(0, b"%d" % n, b"%d" % n, ()) for n in range(begin, begin + count)]
        data = memoryview(bytes(records.build_batch(rows, base_offset=begin)))
        self.ends[tp] = end = begin + count
        self.fetched.put_nowait([FetchedBatches(tp, data, begin, end, end, end)])


@run_by(in_loop)
async def test_of_tables_of_one_topic_each_takes_what_it_does_not_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on disk may be further than another one: what it has must not become older again."""
    world = World(monkeypatch)
    for name in ("ahead", "behind"):
        world.app.GlobalTable(name, topic=world.app.topic("users"), store="disk")
    opened: dict[str, MemoryStore] = {}

    def open_store(spec: Any, topic: str, partition: int) -> Any:
        opened[spec.name] = store = MemoryStore(spec)
        store.restore([(b"0", b"10")], 11 if spec.name == "ahead" else 0)
        return store

    tables = GlobalTables(world.app, world.client, open_store)
    await tables.start()
    assert world.options["isolation"] == "read_committed" and world.given == {TP: None}
    world.give(0, 5)
    await turns()
    assert (opened["ahead"].rows[0], opened["ahead"].changelog_offset) == (10, 11)
    assert (opened["behind"].rows[0], opened["behind"].changelog_offset) == (0, 5)
    await tables.close()


@run_by(in_loop)
async def test_what_was_polled_counts_as_read_once_all_of_it_is_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    world, gate = World(monkeypatch), asyncio.Event()

    async def give(turns: Turns) -> None:
        await gate.wait()

    monkeypatch.setattr(Turns, "give", give)
    users = world.app.GlobalTable("users", default=int)
    changelog = TopicPartition(world.app.changelog_topic("users"), 0)
    tables = GlobalTables(world.app, world.client, lambda *_: pytest.fail("it is in memory"))
    await tables.start()
    world.app.global_stores = tables.stores
    world.give(0, 2 * PIECE_ROWS, changelog)
    await turns()
    waiting = asyncio.ensure_future(tables.caught_up())
    await turns()
    assert not waiting.done() and len(users) == PIECE_ROWS
    gate.set()
    await waiting
    assert len(users) == 2 * PIECE_ROWS
    await tables.close()


@run_by(in_loop)
async def test_a_view_of_a_topic_that_grows_reads_the_new_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    view = world.app.GlobalTable("view", topic=world.app.topic("users"))
    tables = GlobalTables(world.app, world.client, lambda *_: pytest.fail("it is in memory"))
    await tables.start()
    world.app.global_stores = tables.stores
    world.partitions = [0, 1]
    world.give(0, 1)
    await turns()
    assert set(world.given) == {TP, MORE}
    world.give(5, 1, MORE)
    await turns()
    assert dict(view) == {b"0": 0, b"5": 5}
    await tables.close()


@pytest.mark.parametrize("moves_on", [False, True])  # while it is read
@pytest.mark.parametrize("restored", [0, 2 * PIECE_ROWS])  # by a worker that was killed before it had counted
@run_by(in_loop)
async def test_rows_on_disk_are_counted_before_tasks_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, restored: int, moves_on: bool
) -> None:
    if moves_on:
        monkeypatch.setattr(World, "lag", lambda *_: 1)
    monkeypatch.setattr(turns_module, "TURN_S", 0.0)
    world, stores, count = World(monkeypatch), Stores("app", tmp_path, lambda: 0), 2 * PIECE_ROWS
    world.app.GlobalTable("all", store="disk")
    changelog = TopicPartition(world.app.changelog_topic("all"), 0)
    left = stores.open(world.app.global_tables["all"], 0, "id")
    left.restore([(b"%d" % n, b"%d" % n) for n in range(restored)], restored)
    left.close()
    world.ends[changelog] = count
    read = GlobalTables(world.app, world.client, lambda spec, topic, partition: stores.open(spec, partition, "id"))
    await read.start()
    waiting = asyncio.ensure_future(read.caught_up())
    await turns()
    world.give(restored, count - restored, changelog) if restored < count else world.fetched.put_nowait([])
    await waiting
    assert len(read.stores["all"].rows) == count and list(read.stores["all"].count()) == []
    await read.close()
