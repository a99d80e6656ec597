"""Copies of tables take what was fetched of a changelog in pieces, between which a task may take them over."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.stores.opening import Stores
from isthmus.streams.engine.stores.store import Store
from isthmus.streams.engine.tables import DISK, TableSpec
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
    store = MemoryStore(TableSpec("t"))
    return copies_of(store), store


def copies_of(store: Store, caught_up: Callable[[TaskId], Any] = lambda id: None) -> Copies:
    client: Any = None
    made = Copies(client, "app-{}-changelog".format, lambda id: {}, caught_up)
    made.stores[ID] = {"t": store}
    return made


class Once:
    """Stands for a Consumer whose first poll has all that there is."""

    async def poll_batches(self, timeout_ms: float) -> list[FetchedBatches]:
        return [fetched(0, COUNT)]

    def lag(self, tp: TopicPartition) -> int:
        return 0

    def progress(self) -> dict[TopicPartition, Any]:
        return {}


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


@run_by(in_loop)
async def test_rows_on_disk_are_counted_before_a_copy_is_said_to_be_whole(tmp_path: Path) -> None:
    uncounted: list[int] = []

    def caught_up(id: TaskId) -> None:
        uncounted.append(len(list(store.count())))
        made.stores.clear()

    store = Stores("app", tmp_path, lambda: 0).open(TableSpec("t", store=DISK), 0, "id")
    made, consumer = copies_of(store, caught_up), Once()
    made._consumer = consumer  # type: ignore[assignment]
    made._behind[ID] = None
    await made._run(consumer)  # type: ignore[arg-type]
    assert (uncounted, len(store.rows)) == ([0], COUNT)
    store.close()


class Counted(MemoryStore):
    """A store whose rows are counted in one turn, after which `counted` is called."""

    def __init__(self, counted: Callable[[], Any]) -> None:
        super().__init__(TableSpec("t"))
        self._counted = counted

    def count(self) -> Any:
        yield
        self._counted()


@run_by(in_loop)
async def test_a_copy_that_comes_anew_while_another_is_counted_is_not_whole_yet() -> None:
    other, whole, lags = TaskId("in", 1), list[TaskId](), {0: 0, 1: 0}

    def anew() -> None:  # the task of the second copy begins here, and leaves again
        made.stores[other], lags[1] = {"t": Counted(lambda: None)}, 5

    async def poll(timeout_ms: float) -> list[FetchedBatches]:
        if whole:
            made.stores.clear()
            made._behind.clear()
        return []

    made, consumer = copies_of(Counted(anew), whole.append), Once()
    made.stores[other] = {"t": Counted(lambda: None)}
    consumer.lag = lambda tp: lags[tp.partition]  # type: ignore[method-assign]
    consumer.poll_batches = poll  # type: ignore[method-assign]
    made._consumer = consumer  # type: ignore[assignment]
    made._behind = {ID: None, other: None}
    await made._run(consumer)  # type: ignore[arg-type]
    assert whole == [ID]


@run_by(in_loop)
async def test_who_assigns_hears_again_that_a_copy_which_shall_move_has_caught_up() -> None:
    """It may have asked while that was not known: when copies are kept anew, their lags are unknown for a moment."""
    heard: list[TaskId] = []

    async def poll(timeout_ms: float) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        if len(heard) == 1 and not made._behind:
            made.keep([ID], [ID])
        elif heard:
            made.stores.clear()
            made._behind.clear()
        return []

    made, consumer = copies_of(Counted(lambda: None), heard.append), Once()
    consumer.poll_batches = poll  # type: ignore[method-assign]
    consumer.assign = lambda given: None  # type: ignore[attr-defined]
    made._consumer, made._behind = consumer, {ID: None}  # type: ignore[assignment]
    made._following = asyncio.get_running_loop().create_task(made._run(consumer))  # type: ignore[arg-type]
    await asyncio.wait_for(made._following, 1)
    assert heard == [ID, ID]
