"""Topics that are read together: by time, and those with nothing to read do not keep the windows of others open."""

import asyncio
from collections.abc import Sequence
from typing import Any

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams import App
from isthmus.streams.api.topics import IDLE_AFTER_MS, Topic
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.runtime.backlog import Backlog
from isthmus.streams.runtime.lane import LeftOut
from isthmus.streams.runtime.layout import Layout
from isthmus.streams.runtime.task_run import TaskRun


class Windows:
    """A task that counts orders, joined with users, in windows of a second. more: topics of which more is to come."""

    def __init__(self, users_idle_after: float | None = None) -> None:
        self.app = App("app")
        users = self.app.stream(self.app.topic("users", idle_after=users_idle_after)).table("users-now")
        orders = self.app.stream("orders").left_join(users, value=lambda order, user: order)
        orders.tumbling(1).count(name="n").final().map(lambda result: result.value).to("out")
        layout = Layout.of(self.app, {"orders": 1, "users": 1}, {})
        [part] = layout.topology.subtopologies.values()
        tables = self.app.all_tables()
        self.task = Task("app", TaskId(part.name, 0), {name: MemoryStore(tables[name]) for name in part.tables})
        for topic in ("orders", "users"):
            self.task.set_start(topic, Position(0))
        self.more: set[str] = set()
        self.sent: list[Any] = []
        self.run = TaskRun(
            self.task, layout.parts(self.task), self._leave_out, self, lambda topic, partition: topic in self.more
        )

    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        self.sent.append(event.value)

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        return 0

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        raise AssertionError("no tasks read what it writes")

    async def _leave_out(self, task: Task, left_out: LeftOut) -> None:
        raise AssertionError("nothing fails")

    async def orders(self, *times_ms: int) -> None:
        self.give("orders", *times_ms)
        while self.run.is_ready:
            await self.run.process(1_000)

    def give(self, topic: str, *times_ms: int) -> None:
        base = self.task.positions[topic].offset
        rows = [(at, b"k", b"1", ()) for at in times_ms]
        data = memoryview(bytes(records.build_batch(rows, base_offset=base)))  # type: ignore[arg-type]
        end = base + len(rows)
        fetched = FetchedBatches(TopicPartition(topic, 0), data, base, end, end, end)
        self.run.add(Backlog(fetched, self.app.input_topics()[topic], base))


def test_windows_close_though_another_topic_has_nothing_to_read() -> None:
    async def scenario() -> None:
        task = Windows()
        await task.orders(1, 1_001)
        await task.run.tick(10_000)
        await task.run.tick(10_000 + IDLE_AFTER_MS - 1)
        assert task.sent == []
        task.task.checkpoint()
        await task.run.tick(10_000 + IDLE_AFTER_MS)
        assert task.sent == [1] and task.task.changed

    asyncio.run(scenario())


def test_windows_wait_for_a_topic_that_has_more() -> None:
    async def scenario() -> None:
        task = Windows()
        await task.orders(1, 1_001)
        await task.run.tick(10_000)
        task.more = {"users"}
        await task.run.tick(10_000 + IDLE_AFTER_MS)
        task.more = set()
        await task.run.tick(10_000 + 2 * IDLE_AFTER_MS - 1)  # it had more since
        assert task.sent == []

    asyncio.run(scenario())


def test_each_topic_has_an_idle_time_of_its_own() -> None:
    async def scenario() -> None:
        for idle_after, is_closed in ((20.0, False), (1.0, True), (float("inf"), False)):
            task = Windows(users_idle_after=idle_after)
            await task.orders(1, 1_001)
            await task.run.tick(10_000)
            await task.run.tick(10_000 + IDLE_AFTER_MS)
            assert task.sent == ([1] if is_closed else [])

    asyncio.run(scenario())


def test_records_of_several_topics_come_in_the_order_of_time() -> None:
    async def scenario() -> None:
        task = Windows()
        task.more = {"users"}
        task.give("orders", 5, 15)
        assert not task.run.is_ready, "one of the users may be earlier"
        task.more = set()
        task.give("users", 10, 20)
        reached = []
        while task.run.is_ready:
            await task.run.process(1_000)
            reached.append(tuple(task.task.positions[topic].offset for topic in ("orders", "users")))
        assert reached == [(1, 0), (1, 1), (2, 1), (2, 2)]

    asyncio.run(scenario())
