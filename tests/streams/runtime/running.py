"""A task with agents, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams import App
from isthmus.streams.api.topics import Topic
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.runtime.backlog import Backlog
from isthmus.streams.runtime.lane import LeftOut
from isthmus.streams.runtime.layout import Layout
from isthmus.streams.runtime.task_run import TaskRun


def fetched(count: int, base: int = 0, partition: int = 0, topic: str = "in") -> FetchedBatches:
    """Records whose value is their offset."""
    rows = [(n, b"k%d" % n, b"%d" % n, ()) for n in range(base, base + count)]
    data = memoryview(bytes(records.build_batch(rows, base_offset=base)))  # type: ignore[arg-type]
    end = base + count
    return FetchedBatches(TopicPartition(topic, partition), data, base, end, end, end)


class Ran:
    """The task of an app, whose agents read `in`. left_out: what its agents were to leave out."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.left_out: list[LeftOut] = []
        layout = Layout.of(app, dict.fromkeys(app.input_topics(), 1), {})
        [part] = layout.topology.subtopologies.values()
        stores = {name: MemoryStore(app.all_tables()[name]) for name in part.tables}
        self.task = Task(app.id, TaskId(part.name, 0), stores)
        self.task.set_start("in", Position(0))
        self.run = TaskRun(self.task, layout.parts(self.task), self._leave_out, self)
        self._ends: dict[str, int] = {}

    @classmethod
    def of(cls, *functions: Any, **options: Any) -> Ran:
        """Agents with these functions, and options."""
        app = App("app")
        topic = app.topic("in")
        for function in functions:
            app.agent(topic, name=function.__name__, **options)(function)
        return cls(app)

    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        raise AssertionError("there are no operators")

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        return 0

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        raise AssertionError("there are no operators")

    async def _leave_out(self, task: Task, left_out: LeftOut) -> None:
        self.left_out.append(left_out)

    def give(self, count: int, topic: str = "in") -> None:
        """So many more records."""
        base = self._ends.get(topic, 0)
        self.run.add(Backlog(fetched(count, base, topic=topic), self.app.input_topics()[topic], base))
        self._ends[topic] = base + count

    async def drain(self, count: int, most: int = 1_000) -> None:
        """Have so many more records processed."""
        self.give(count)
        while self.run.is_ready:
            await self.run.process(most)

    @property
    def position(self) -> int:
        return self.task.positions["in"].offset


class Clock:
    """The running loop's time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: self.now)
