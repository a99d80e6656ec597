"""Copies of tables take what was fetched of a changelog in pieces, between which a task may take them over."""

import asyncio
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.task import TaskId
from isthmus.streams.runtime import turns
from isthmus.streams.runtime.copies import Copies
from tests.running import in_loop, run_by

ID = TaskId("in", 0)
TP = TopicPartition("app-t-changelog", 0)
COUNT = 2 * turns.PIECE_ROWS


def fetched(begin: int, count: int, key: bytes = b"%d") -> FetchedBatches:
    rows = [(0, key % n if b"%" in key else key, b"%d" % n, ()) for n in range(begin, begin + count)]
    data: Any = records.build_batch(rows, base_offset=begin)  # type: ignore[arg-type]
    return FetchedBatches(TP, memoryview(bytes(data)), begin, begin + count, begin + count, begin + count)


def copies() -> tuple[Copies, MemoryStore]:
    client: Any = None
    made, store = Copies(client, "app-{}-changelog".format, lambda id: {}, lambda id: None), MemoryStore(TableSpec("t"))
    made.stores[ID] = {"t": store}
    return made, store


@run_by(in_loop)
async def test_what_is_fetched_again_makes_no_row_older() -> None:
    made, store = copies()
    await made._take(fetched(0, COUNT, b'"k"'), ID, "t", turns.Turns())
    assert (store.rows, store.changelog_offset) == ({"k": COUNT - 1}, COUNT)
    await made._take(fetched(0, turns.PIECE_ROWS, b'"k"'), ID, "t", turns.Turns())
    assert (store.rows, store.changelog_offset) == ({"k": COUNT - 1}, COUNT)


@run_by(in_loop)
async def test_a_task_that_takes_a_copy_over_is_alone_in_filling_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "TURN_S", 0.0)
    made, store = copies()
    asyncio.get_running_loop().call_soon(made.stores.clear)
    await made._take(fetched(0, COUNT), ID, "t", turns.Turns())
    assert store.changelog_offset == turns.PIECE_ROWS
