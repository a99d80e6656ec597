"""Reads an app's global tables: all partitions of each, in each worker, up to what is committed.

A table of its own is read to the end that its changelog has, past transactions that are open there, before a task
begins: what the task's last owner has written is in it. A view of another topic is read to what is committed there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from ...client import Admin, Client, Consumer, TopicPartition
from ...client.errors import ClientError
from ...client.partitioner import partition_for_key
from ...protocol.errors import KafkaError
from ..api.app import App
from ..engine.checkpoint import as_read
from ..engine.failures import FAIL, STOP, decided
from ..engine.stores.global_store import GlobalStore
from ..engine.stores.memory import MemoryStore
from ..engine.stores.store import Change, Store
from ..engine.tables import DISK, TableSpec
from ..errors import ChangelogError, StreamsError
from .declaring import CHANGELOG_OPTIONS, create, declare
from .freshness import Freshness
from .turns import Piece, Turns, in_pieces

log = logging.getLogger("isthmus.streams")

POLL_MS = 500
TOPICS_WAIT_S = 1.0  # between looks for topics that are not there yet
STUCK_S = 120.0  # without progress: longer than any transaction of a worker is open


class GlobalTables:
    """Those of one app in one worker. open_store: of a table on disk, for a partition of a topic."""

    def __init__(self, app: App, client: Client, open_store: Callable[[TableSpec, str, int], Store]) -> None:
        self._app = app
        self._client = client
        self._open_store = open_store
        self._specs = app.global_tables
        self.stores: dict[str, GlobalStore] = {}
        self._tables: dict[str, list[str]] = {}  # by topic
        self._counts: dict[str, int] = {}  # partitions by topic
        self._consumer = Consumer(client, auto_offset_reset="earliest", isolation="read_committed")
        self._freshness = Freshness()
        self._polled = asyncio.Event()  # replaced at each poll
        self._in_hand: frozenset[TopicPartition] = frozenset()  # polled, and not all of it in the stores yet
        self._ends: dict[TopicPartition, int] = {}  # that somebody waits for
        self._uncounted = dict.fromkeys(self._specs)  # not read to the end since they have these partitions
        self._following: asyncio.Task[None] | None = None

    @property
    def topics(self) -> dict[str, str]:
        """By table."""
        return {name: spec.source or self._app.changelog_topic(name) for name, spec in self._specs.items()}

    async def start(self) -> None:
        """Create the changelogs, wait for the topics of others, and begin to read. Raises AppError where the app may
        create none."""
        await self._prepare_topics()
        for name, topic in self.topics.items():
            spec, count = self._specs[name], len(self._client.partitions(topic))
            self._tables.setdefault(topic, []).append(name)
            self._counts[topic] = count
            committed = self._opened(spec, topic, range(count)) if spec.store == DISK else [MemoryStore(spec)]
            partition_of = None if spec.source is not None else partial(_partition_of, count)
            self.stores[name] = GlobalStore(spec, committed, partition_of)
        self._assign()
        name = f"{self._app.id} reads global tables"
        self._following = asyncio.get_running_loop().create_task(self._follow(), name=name)

    async def _prepare_topics(self) -> None:
        own = {
            self._app.changelog_topic(name): (spec.partitions or 1, CHANGELOG_OPTIONS | dict(spec.changelog_options))
            for name, spec in self._specs.items()
            if spec.source is None
        }
        await create(self._client, self._app.conf, own)
        views = {spec.source: self._app.declaration(spec.source) for spec in self._specs.values() if spec.source}
        for topic in views.values():
            if topic.is_internal:
                await declare(self._client, self._app.conf, topic)
        await self._client.refresh_metadata(list(self.topics.values()))
        told = False
        while missing := [topic for topic in self.topics.values() if not self._client.partitions(topic)]:
            if not told:
                log.warning("app %s waits for topics of global tables: %s", self._app.id, ", ".join(missing))
                told = True
            await asyncio.sleep(TOPICS_WAIT_S)
            await self._client.refresh_metadata(missing)

    def _opened(self, spec: TableSpec, topic: str, partitions: range) -> list[Store]:
        return [self._open_store(spec, topic, partition) for partition in partitions]

    def _assign(self) -> None:
        """Read each partition from where the table that is least far is."""
        assigned = self._consumer.assignment()
        self._consumer.assign({tp: None if tp in assigned else self._start(tp) for tp in self._places()})

    def _start(self, tp: TopicPartition) -> int | None:
        return min(self.stores[name].start(tp.partition) for name in self._tables[tp.topic]) or None

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic, count in self._counts.items() for number in range(count)]

    async def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)
        await self._consumer.close()
        for store in self.stores.values():
            store.close()

    def tell_failure(self, told: Callable[[Exception], object]) -> None:
        """Call this with what ends the reading, for who does not `check`."""

        def ended(following: asyncio.Task[None]) -> None:
            if not following.cancelled() and isinstance(error := following.exception(), Exception):
                told(error)

        assert self._following is not None
        self._following.add_done_callback(ended)

    # --- How far it is ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise what has ended the reading, if anything."""
        if self._following is not None and self._following.done() and not self._following.cancelled():
            self._following.result()

    @property
    def reading(self) -> list[str]:
        """Tables that have never been read to their end yet."""
        return [name for name in self._specs if self.whole_at(name) is None]

    def whole_at(self, table: str) -> float | None:
        """Loop time at which the rows here were those of the cluster the last time; None: never yet."""
        topic = self.topics[table]
        return self._freshness.whole_at(TopicPartition(topic, n) for n in range(self._counts.get(topic, 1)))

    def lag(self, table: str) -> int | None:
        """Records that are still to be read, as far as is known."""
        topic = self.topics[table]
        lags = [self._consumer.lag(TopicPartition(topic, n)) for n in range(self._counts.get(topic, 1))]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    def _is_read(self, table: str) -> bool:
        """To its end, or as far as somebody waits for: to one that moves on all the time the reader may never come."""
        topic = self.topics[table]
        places = [TopicPartition(topic, number) for number in range(self._counts[topic])]
        return self.lag(table) == 0 or all(
            tp in self._ends and (self._consumer.position(tp) or 0) >= self._ends[tp] for tp in places
        )

    async def caught_up(self) -> None:
        """Wait until everything that is committed by now is here. Raises ChangelogError where an end does not come."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        own = {tp: "latest" for tp in self._places() if tp.topic not in self._sources()}
        found = await Admin(self._client).list_offsets(own) if own else {}
        self._ends = ends = {tp: offset for tp, (offset, *_) in found.items()}
        waiting, stuck_at = self._waiting(ends, asked_at), loop.time() + STUCK_S
        while waiting:
            self.check()
            await self._polled.wait()
            before, waiting = waiting, self._waiting(ends, asked_at)
            if waiting != before:
                stuck_at = loop.time() + STUCK_S
            elif loop.time() > stuck_at:
                tp, position = next(iter(waiting.items()))
                raise ChangelogError(
                    f"app {self._app.id}: {tp.topic}-{tp.partition}, of global table "
                    f"{', '.join(self._tables[tp.topic])}, was read up to offset {position} of "
                    f"{ends.get(tp, 'what is committed')}, and for {STUCK_S:.0f} s no further: a transaction is open "
                    "there that does not end (see `isthmus transaction list`), the partition has no leader, or its "
                    "broker hangs"
                )

    def _sources(self) -> set[str]:
        return {spec.source for spec in self._specs.values() if spec.source is not None}

    def _waiting(self, ends: Mapping[TopicPartition, int], asked_at: float) -> dict[TopicPartition, int | None]:
        """Partitions that are not at these ends, or were not at their own since then; with their positions."""
        found = {}
        for tp in self._places():
            position = self._consumer.position(tp)
            if tp in ends:
                is_there = (position or 0) >= ends[tp]
            else:
                is_there = (self._freshness.whole_at([tp]) or -1.0) >= asked_at
            if not is_there or tp in self._in_hand or not self._uncounted.keys().isdisjoint(self._tables[tp.topic]):
                found[tp] = position
        return found

    # --- Reading ----------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        problem, turns = "", Turns()
        while True:
            try:
                polled = await self._consumer.poll_batches(POLL_MS)
                self._in_hand = frozenset(batches.tp for batches in polled)
                for batches in polled:
                    for piece in in_pieces(batches):
                        self._take(batches.tp, piece)
                        await turns.give()
                for name in [each for each in self._uncounted if self._is_read(each)]:
                    for _ in self.stores[name].count():
                        await turns.give()
                    del self._uncounted[name]
                problem = ""
            except (KafkaError, ClientError) as error:
                if str(error) != problem:
                    problem = str(error)
                    log.warning("app %s cannot read its global tables for now: %s", self._app.id, problem)
                await asyncio.sleep(POLL_MS / 1000)
            finally:
                self._in_hand = frozenset()
                self._freshness.look(self._consumer)
                seen, self._polled = self._polled, asyncio.Event()
                seen.set()
            self._notice_growth()

    def _take(self, tp: TopicPartition, piece: Piece) -> None:
        topic, partition = tp
        keys, values, next_offset = piece
        is_source = topic in self._sources()
        if is_source:
            rows = [(key, value) for key, value in zip(keys, values, strict=True) if key is not None]
        else:
            rows, _ = as_read(keys, values, f"{topic}-{partition}")
        for name in self._tables[topic]:
            store = self.stores[name]
            if next_offset <= store.start(partition):
                continue  # another table of the topic is not so far yet
            try:
                store.follow(partition, rows, next_offset)
            except StreamsError as error:
                if not is_source:
                    raise
                self._take_what_can_be_read(store, tp, rows, next_offset, error)

    def _take_what_can_be_read(
        self, store: GlobalStore, tp: TopicPartition, rows: list[Change], next_offset: int, error: StreamsError
    ) -> None:
        """By the policy of the topic, leave out records that are not what it was declared to have."""
        policy = self._app.declaration(tp.topic).on_error
        good: list[Change] = []
        for row in rows:
            try:
                store.spec.decode_key(row[0])
                if row[1] is not None:
                    store.spec.decode_value(row[1])
                good.append(row)
            except StreamsError as refused:
                if decided(policy, tp.topic, tp.partition, -1, refused) in (FAIL, STOP):
                    raise StreamsError(
                        f"app {self._app.id}: global table {store.spec.name} cannot read {tp.topic}-{tp.partition} "
                        f"before offset {next_offset}: {refused}. Declare the topic with on_error='skip' to leave out "
                        "such records"
                    ) from refused
                log.warning(
                    "global table %s leaves out a record of %s-%d: %s", store.spec.name, tp.topic, tp.partition, refused
                )
        store.follow(tp.partition, good, next_offset)

    def _notice_growth(self) -> None:
        """Topics that a table is a view of may grow."""
        grown = False
        for topic in self._sources():
            before, now = self._counts[topic], len(self._client.partitions(topic))
            if now <= before:
                continue
            grown, self._counts[topic] = True, now
            for name in self._tables[topic]:
                if self._specs[name].store == DISK:
                    self.stores[name].grow(self._opened(self._specs[name], topic, range(before, now)))
                    self._uncounted[name] = None
        if grown:
            self._assign()


def _partition_of(count: int, key: bytes) -> int:
    return partition_for_key(key, count)
