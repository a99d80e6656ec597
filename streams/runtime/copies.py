"""Copies of tables of tasks that run elsewhere: standbys, and those of tasks that are about to move here.

They follow the changelogs, up to what is committed. A task that begins here takes its copy over, and reads only what is
missing. A task that ends here leaves its tables for a copy, if there is to be one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...client import Client, Consumer, FetchedBatches, TopicPartition
from ...client.errors import ClientError
from ...protocol.errors import KafkaError
from ..engine.checkpoint import as_read
from ..engine.stores.store import Store
from ..engine.task import TaskId
from ..errors import StreamsError
from .freshness import Freshness
from .turns import Turns, in_pieces

log = logging.getLogger("isthmus.streams")

POLL_MS = 500


class Copy(NamedTuple):
    """The tables of a task. whole_at: loop time at which they had all that was committed the last time."""

    stores: Mapping[str, Store]
    whole_at: float


class Copies:
    """changelog: topic of a table; new_stores: makes the stores of a task, by table; caught_up: called when a task's
    copy has read everything that there was."""

    def __init__(
        self,
        client: Client,
        changelog: Callable[[str], str],
        new_stores: Callable[[TaskId], dict[str, Store]],
        caught_up: Callable[[TaskId], None],
    ) -> None:
        self._client = client
        self._changelog = changelog
        self._new_stores = new_stores
        self._caught_up = caught_up
        self.stores: dict[TaskId, dict[str, Store]] = {}
        self._left: dict[TaskId, dict[str, Store]] = {}  # by tasks that have ended, until it is chosen what to keep
        self._consumer: Consumer | None = None
        self._freshness = Freshness()
        self._following: asyncio.Task[None] | None = None
        self._behind: dict[TaskId, None] = {}  # not caught up yet

    def leave(self, id: TaskId, stores: dict[str, Store]) -> None:
        """Of a task that has just ended here, with nothing that is not committed."""
        self._left[id] = stores

    def keep(self, ids: Iterable[TaskId], moving: Iterable[TaskId] = ()) -> None:
        """Have copies of these tasks, and of no others. moving: those of which it is told again when they have caught
        up: whoever assigns may not have heard of it the last time."""
        wanted = dict.fromkeys(ids)
        for id in [id for id in self.stores if id not in wanted]:
            _close(self.stores.pop(id))
        left, self._left = self._left, {}
        for id in wanted:
            if id not in self.stores:
                self.stores[id] = left.pop(id) if id in left else self._new_stores(id)
                self._behind[id] = None
        for stores in left.values():
            _close(stores)
        self._behind |= dict.fromkeys(moving)
        self._follow()

    def take(self, id: TaskId) -> dict[str, Store] | None:
        """Give up the tables of a task that begins here."""
        return self._give_up(id) or self._left.pop(id, None)

    def _give_up(self, id: TaskId) -> dict[str, Store] | None:
        found = self.stores.pop(id, None)
        if found is not None:
            self._follow()
        return found

    def copy(self, id: TaskId) -> Copy | None:
        """What is here of the tables of a task; None until it was whole once."""
        at = self.whole_at(id)
        return None if at is None else Copy(self.stores[id], at)

    def whole_at(self, id: TaskId) -> float | None:
        """Loop time at which a copy had all that was committed the last time; None: never yet."""
        if id not in self.stores:
            return None
        return self._freshness.whole_at(TopicPartition(self._changelog(each), id.partition) for each in self.stores[id])

    def lags(self) -> dict[TaskId, int]:
        """Rows that each copy is behind, as far as is known."""
        return {id: lag for id in self.stores if (lag := self._lag(id)) is not None}

    async def close(self) -> None:
        self.keep(())
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        if self._consumer is not None:
            await self._consumer.close()

    def _places(self) -> dict[TopicPartition, tuple[TaskId, str]]:
        return {
            TopicPartition(self._changelog(table), id.partition): (id, table)
            for id, stores in self.stores.items()
            for table in stores
        }

    def _follow(self) -> None:
        self._behind = {id: None for id in self._behind if id in self.stores}
        places = self._places()
        self._freshness.forget(places)
        if self._consumer is None:
            if not places:
                return
            self._consumer = Consumer(self._client, auto_offset_reset="earliest", isolation="read_committed")
        self._consumer.assign({tp: self.stores[id][table].changelog_offset for tp, (id, table) in places.items()})
        if places and (self._following is None or self._following.done()):
            name = f"{self._client.client_id} follows changelogs"
            self._following = asyncio.get_running_loop().create_task(self._run(self._consumer), name=name)

    async def _run(self, consumer: Consumer) -> None:
        turns = Turns()
        while places := self._places():
            try:
                found = await consumer.poll_batches(POLL_MS)
            except (KafkaError, ClientError) as error:
                if not self._places():  # the last copy has ended meanwhile
                    return
                log.warning("copies of tables are not followed for now: %s", error)
                await asyncio.sleep(POLL_MS / 1000)
                continue
            places = self._places()
            for batches in found:
                if batches.tp not in places:
                    continue
                id, table = places[batches.tp]
                try:
                    await self._take(batches, id, table, turns)
                except (KafkaError, StreamsError) as error:
                    self._lose(id, error)
            self._freshness.look(consumer)
            for id in list(self._behind):
                if id not in self._behind or self._lag(id) != 0:  # while another was counted, it went, or came anew
                    continue
                try:
                    is_whole = await self._count(id, turns)
                except StreamsError as error:
                    self._lose(id, error)
                    continue
                if is_whole:
                    del self._behind[id]
                    self._caught_up(id)

    def _lose(self, id: TaskId, error: Exception) -> None:
        log.error("the copy of task %s is given up: %s", id, error)
        self._give_up(id)

    async def _take(self, batches: FetchedBatches, id: TaskId, table: str, turns: Turns) -> None:
        """Raises KafkaError, StreamsError."""
        stores = self.stores.get(id)
        for piece in in_pieces(batches):
            if stores is None or self.stores.get(id) is not stores:
                return  # its task began here meanwhile, or it is not wanted any more
            if piece.next_offset <= stores[table].changelog_offset:
                continue  # what a look at other copies had fetched again
            rows, marker = as_read(piece.keys, piece.values, f"{batches.tp.topic}-{batches.tp.partition}")
            stores[table].restore(rows, piece.next_offset, marker)
            await turns.give()

    async def _count(self, id: TaskId, turns: Turns) -> bool:
        """Rows are counted now, not when a task waits for it. False: it has gone elsewhere. Raises StreamsError."""
        stores = self.stores.get(id)
        for store in () if stores is None else stores.values():
            for _ in store.count():
                await turns.give()
                if self.stores.get(id) is not stores:
                    return False
        return stores is not None

    def _lag(self, id: TaskId) -> int | None:
        if self._consumer is None:
            return None
        lags = [self._consumer.lag(TopicPartition(self._changelog(table), id.partition)) for table in self.stores[id]]
        return None if None in lags else sum(lag for lag in lags if lag is not None)


def _close(stores: Mapping[str, Store]) -> None:
    for store in stores.values():
        store.close()
