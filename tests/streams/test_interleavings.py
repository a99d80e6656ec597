"""Runs of one task that write into one changelog in any order, while it is compacted by Kafka's rules at any point.

Workers are the product's own; each record that one writes reaches the log, and each read that one makes is answered,
when the test says so. So a worker that is left alone hangs, and a worker that goes on after another one began is a
zombie. What must be restored is told by a model that knows of begin and end markers alone: the state at the last
checkpoint whose end marker was appended before any other run began.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from isthmus.client import Client, FetchedBatches, RecordMetadata, TopicPartition
from isthmus.protocol import records
from isthmus.runtime import Runtime
from isthmus.streams import App
from isthmus.streams.engine import places
from isthmus.streams.runtime import loading
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.runtime.worker import StreamWorker

TP = TopicPartition("app-changelog", 0)
INPUT = TopicPartition("in", 0)
KEYS = "abc"
ALL = 1_000_000
State = tuple[dict[str, int], int]  # rows of the table, position in the input topic


@dataclass
class Stored:
    """A record in the log. doomed_at: when compaction first kept it as a tombstone, which may go later."""

    offset: int
    key: bytes
    value: bytes | None
    data: bytes
    doomed_at: int | None = None


class Log:
    """One partition that is compacted."""

    def __init__(self) -> None:
        self.stored: list[Stored] = []
        self.end = 0
        self.rounds = 0
        self.readers: dict[Reader, int] = {}  # that are under way -> round in which they began

    def append(self, key: bytes, value: bytes | None, headers: Any) -> int:
        data = records.build_batch([(0, key, value, headers)], base_offset=self.end)
        self.stored.append(Stored(self.end, key, value, data))
        self.end += 1
        return self.end - 1

    def compact(self, closed: int, cleaned: int) -> None:
        """One round. closed: segments below this offset are closed; cleaned: how far the round got before it was broken
        off, as each segment's new file takes the old one's place by itself.

        A tombstone goes in a round after the one that met it first, and not while somebody reads who may have read
        what it deletes: delete.retention.ms is longer than a restart takes.
        """
        self.rounds += 1
        newest = {each.key: each.offset for each in self.stored if each.offset < closed}
        oldest_reader = min(self.readers.values(), default=self.rounds)
        kept = []
        for each in self.stored:
            if each.offset < min(cleaned, closed):
                if newest[each.key] != each.offset:
                    continue
                if each.value is None:
                    if each.doomed_at is not None and each.doomed_at < oldest_reader:
                        continue
                    each.doomed_at = each.doomed_at or self.rounds
            kept.append(each)
        self.stored = kept


class Reader:
    """Stands for a Consumer and an Admin of the log. turn: waits until one of its reads may be answered."""

    def __init__(self, log: Log, turn: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        self.log = log
        self.turn = turn
        self.at = 0
        log.readers[self] = log.rounds

    def assign(self, _: Any) -> None: ...

    def position(self, _: TopicPartition) -> int:
        return self.at

    async def poll_batches(self, _: float) -> list[FetchedBatches]:
        many = ALL
        if self.turn is not None:
            await self.turn()
            many = 2
        some = [each for each in self.log.stored if each.offset >= self.at][:many]
        begin, self.at = self.at, some[-1].offset + 1 if some else self.log.end
        data = b"".join(each.data for each in some)
        return [FetchedBatches(TP, memoryview(data), begin, self.at, self.log.end, self.log.end)]

    async def close(self) -> None:
        del self.log.readers[self]


class Worker:
    """A worker of the product that has the task, or thinks so, until it finds out."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.waiting: deque[Callable[[], None]] = deque()  # appends and reads that the test has not let through
        self.state: State | None = None  # at its last checkpoint
        self.found: State | None = None  # committed when it began
        app = App("app")
        app.Table("t")

        @app.agent(app.topic("in"))
        async def idle(stream: Any) -> None:
            async for _ in stream:
                pass

        client = Client("127.0.0.1:1")
        client.topics["app-changelog"] = type("Known", (), {"leaders": {0: 1}, "topic_id": bytes(16)})()
        world.readers[id(client)] = self.turn
        self.product = StreamWorker(app, client, Runtime(random.Random(number), lambda: 0, lambda: 0))
        self.product.producer = self  # type: ignore[assignment]
        self.product.consumer = mock.AsyncMock(seek=mock.Mock())
        self.running = asyncio.get_running_loop().create_task(self.begin())

    @property
    def idle(self) -> bool:
        return self.running.done() and 0 in self.product.running

    async def begin(self) -> None:
        await self.product._assigned([INPUT])
        if self.world.current is self:
            assert self.held() == self.found, "a run went on from something else than what was committed"

    def held(self) -> State:
        task = self.product.running[0].task
        return dict(task.tables["t"].rows), task.position("in")

    def write_checkpoint(self, changes: list[tuple[str, int | None]]) -> None:
        task = self.product.running[0].task
        table = task.tables["t"]
        for key, value in changes:
            if value is not None:
                table.set(key, value)
            elif key in table.rows:
                table.delete(key)
        task.mark_processed("in", task.position("in") + 1)
        self.state = self.held()
        self.running = asyncio.get_running_loop().create_task(self.checkpoint())

    async def checkpoint(self) -> None:
        run = self.product.running[0]
        if await self.product._checkpoint(run.task) is False:
            del self.product.running[0]
            await run.stop()

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        for run in self.product.running.values():
            await run.stop()

    async def turn(self) -> None:
        let_through: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.append(lambda: let_through.done() or let_through.set_result(None))
        await let_through

    # --- As a producer

    has_space = True

    def send(
        self, topic: str, value: bytes | None, key: bytes, *, headers: Any, **_: Any
    ) -> asyncio.Future[RecordMetadata]:
        acknowledged: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()

        def append() -> None:
            offset = self.world.log.append(key, value, headers)
            self.world.appended(self, value)
            if not acknowledged.done():
                acknowledged.set_result(RecordMetadata(topic, 0, offset, 0))

        self.waiting.append(append)
        return acknowledged


class World:
    """The log, all workers that ever began, and what the model says of both."""

    def __init__(self, stack: ExitStack) -> None:
        self.log = Log()
        self.workers: list[Worker] = []
        self.begun: dict[Worker, None] = {}
        self.current: Worker | None = None
        self.committed: State = ({}, 0)
        self.readers: dict[int, Any] = {}
        stack.enter_context(mock.patch.object(places, "RUNS_MAX", 1))
        for module in (loading, worker_module):
            stack.enter_context(mock.patch.object(module, "Admin", lambda client: self))
        stack.enter_context(
            mock.patch.object(loading, "Consumer", lambda client, **_: Reader(self.log, self.readers.get(id(client))))
        )

    async def list_offsets(self, wanted: dict[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
        """As an Admin."""
        return {tp: (self.log.end if tp == TP else 0, -1) for tp in wanted}

    def appended(self, worker: Worker, value: bytes | None) -> None:
        """The model: a run's first record is its begin marker, an end marker is what has positions."""
        if worker not in self.begun:
            self.begun[worker] = None
            self.current, worker.found = worker, self.committed
        elif self.current is worker and isinstance(said := json.loads(value or b"0"), dict) and "positions" in said:
            assert worker.state is not None
            self.committed = worker.state

    async def restored(self) -> State:
        found = await loading.load_partition(None, "app", "app-changelog", 0)  # type: ignore[arg-type]
        rows = {json.loads(key.partition(b"\0")[2]): json.loads(value) for key, value in found.rows.items()}
        return rows, found.positions.get("in", {}).get(0, 0)

    async def settle(self) -> None:
        for _ in range(8):
            await asyncio.sleep(0)
        for worker in self.workers:
            if worker.running.done() and not worker.running.cancelled():
                worker.running.result()

    async def act(self, kind: str, which: int, many: int, changes: list[tuple[str, int | None]]) -> None:
        """which: 0 is the worker that began last; for compaction, records before the last in the open segment."""
        if kind == "begin":
            self.workers.append(Worker(self, len(self.workers)))
            which = 0
        elif kind == "compact":
            closed = max(0, self.log.end - 1 - which)  # the newest record's segment never is
            self.log.compact(closed, closed - many if many < ALL else closed)
            return
        if self.workers:
            worker = self.workers[-1 - which % len(self.workers)]
            if kind == "checkpoint" and worker.idle:
                worker.write_checkpoint(changes)
            await self.go(worker, many)

    async def go(self, worker: Worker, most: int) -> None:
        """Let through what a worker waits for, until it waits for nothing."""
        await self.settle()
        while worker.waiting and most:
            worker.waiting.popleft()()
            most -= 1
            await self.settle()

    async def act_all(self, actions: list[Any]) -> None:
        for kind, which, many, changes in actions:
            await self.act(kind, which, many, changes)
            assert await self.restored() == self.committed
        await self.finish()

    async def finish(self) -> None:
        """One more run writes every row twice and nobody disturbs it: what the others left goes in the end."""
        last = Worker(self, len(self.workers))
        self.workers.append(last)
        await self.run(last)
        for value in range(2):
            last.write_checkpoint([(key, value) for key in KEYS])
            await self.run(last)
        for _ in range(2):
            self.log.compact(self.log.end, self.log.end)
        assert await self.restored() == self.committed == (dict.fromkeys(KEYS, 1), last.held()[1])
        rows = [each for each in self.log.stored if each.value is not None]
        assert len(rows) <= 2 * len(KEYS) + 3, "a begin marker, two end markers and two values of each row are enough"

    async def run(self, worker: Worker) -> None:
        await self.go(worker, ALL)
        assert worker.idle, "nobody else wrote, so it goes on"

    async def close(self) -> None:
        for worker in self.workers:
            await worker.close()


CHANGES = st.lists(st.tuples(st.sampled_from(KEYS), st.one_of(st.none(), st.integers(2, 99))), max_size=3)
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(("begin", "go", "checkpoint", "checkpoint", "checkpoint", "compact")),
        st.integers(0, 3),
        st.sampled_from((ALL, ALL, ALL, 1, 2, 3, 4, 6)),
        CHANGES,
    ),
    min_size=12,
    max_size=50,
)


# A run that had begun, and not yet read, when another one began.
BEGAN_TOO_EARLY = [
    ("begin", 0, ALL, []),
    ("checkpoint", 0, ALL, [("a", 2)]),
    ("begin", 0, 1, []),
    ("begin", 0, ALL, []),
    ("checkpoint", 1, ALL, []),
    ("checkpoint", 1, ALL, [("a", 5)]),
    ("compact", 0, ALL, []),
]
# A row was deleted; what says so is compacted away while a new run reads, after it has read the row's value.
COMPACTED_WHILE_READ = [
    ("begin", 0, ALL, []),
    ("checkpoint", 0, ALL, [("a", 2), ("b", 2)]),
    ("checkpoint", 0, 2, [("a", None)]),
    ("begin", 0, 2, []),
    ("go", 1, ALL, []),
    ("checkpoint", 1, ALL, [("c", 5)]),
    ("compact", 0, ALL, []),
    ("go", 0, ALL, []),
]
# Rows of more earlier runs are needed than may be.
THREE_RUNS = [
    ("begin", 0, ALL, []),
    ("checkpoint", 0, ALL, [("a", 2)]),
    ("begin", 0, ALL, []),
    ("checkpoint", 0, ALL, [("b", 2)]),
    ("begin", 0, ALL, []),
    ("checkpoint", 0, ALL, [("c", 2)]),
]


@settings(max_examples=150, deadline=None)
@example(BEGAN_TOO_EARLY)
@example(COMPACTED_WHILE_READ)
@example(THREE_RUNS)
@given(ACTIONS)
def test_what_is_restored_is_what_the_runs_committed_that_nobody_had_overtaken(actions: list[Any]) -> None:
    async def scenario() -> None:
        with ExitStack() as stack:
            world = World(stack)
            try:
                await world.act_all(actions)
            finally:
                await world.close()

    asyncio.run(scenario())
