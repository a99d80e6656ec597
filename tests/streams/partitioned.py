"""Runs an app over topics of several partitions in memory: all its tasks, each at its own pace.

What tasks write is there at once, in the order in which they write it. Chance says which task is next, how much it
reads, when it tells how far it is, and when it is restored from its changelogs in another place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from isthmus.client import FetchedBatches, TopicPartition
from isthmus.protocol import records
from isthmus.streams import App
from isthmus.streams.api.topics import Topic
from isthmus.streams.engine.checkpoint import Position, Row, as_read
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.heartbeats import Heartbeat, is_heartbeat
from isthmus.streams.engine.partitioning import partition_of
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task, TaskId
from isthmus.streams.runtime.backlog import Backlog
from isthmus.streams.runtime.layout import Layout
from isthmus.streams.runtime.task_run import LeftOut, TaskRun

END_MS = 1 << 42
Written = tuple[int, bytes | None, bytes | None, Any]  # timestamp, key, value, headers


class Partitioned:
    """counts: partitions of the topics that are read. restarts: how often of 100 steps a task is restored anew."""

    def __init__(self, app: App, counts: Mapping[str, int], seed: int, *, restarts: int = 0) -> None:
        self.app = app
        self.chance = Random(seed)
        self.restarts = restarts
        self.layout = Layout.of(app, {name: counts.get(name, 1) for name in app.input_topics()}, {})
        self.logs: dict[tuple[str, int], list[Written]] = defaultdict(list)
        self.changelogs: dict[tuple[str, int], list[Row]] = defaultdict(list)
        self.runs: dict[TaskId, TaskRun] = {}
        self._specs = app.all_tables()
        for subtopology in self.layout.topology.subtopologies.values():
            for partition in range(self.layout.counts[subtopology.topics[0]]):
                self._begin(TaskId(subtopology.name, partition))

    def _begin(self, id: TaskId) -> None:
        subtopology = self.layout.topology.subtopologies[id.subtopology]
        stores = {}
        for name in subtopology.tables:
            store, written = MemoryStore(self._specs[name]), self.changelogs[name, id.partition]
            rows, marker = as_read([row.key for row in written], [row.value for row in written], name)
            store.restore(rows, len(written), marker)
            stores[name] = store
        before = self.runs.get(id)
        task = Task(self.app.id, id, stores)
        task.restored()
        if not stores and before is not None:
            task.positions = dict(before.task.positions)  # the group has them
        for topic in subtopology.topics:
            task.positions.setdefault(topic, Position(0))
        self.runs[id] = TaskRun(task, self.layout.parts(task), self._leave_out, self)

    async def restart(self, id: TaskId) -> None:
        """A checkpoint, and the task somewhere else."""
        run = self.runs[id]
        run.before_checkpoint()
        checkpoint = run.task.checkpoint()
        for table, rows in checkpoint.rows.items():
            self.changelogs[table, id.partition] += rows
        await run.stop()
        self._begin(id)

    # --- What tasks write -----------------------------------------------------------------------------

    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        self._write(topic, event)

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        """As many of them as chance will have."""
        taken = self.chance.randint(0, len(events))
        for event in events[:taken]:
            self._write(topic, event)
        return taken

    def _write(self, topic: Topic, event: Event) -> None:
        name, key, value = topic.get_topic_name(), topic.encode_key(event.key), topic.encode_value(event.value)
        count = self.layout.counts.get(name, 1)
        partition = None if topic.place is None else topic.place(event, count)
        if partition is None:
            found = partition_of(key, count, self.app.partitioner_of(topic))
            partition = self.chance.randrange(count) if found is None else found
        self.logs[name, partition].append((event.timestamp_ms, key, value, event.raw_headers))

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        name = topic.get_topic_name()
        for partition in range(self.layout.counts[name]):
            self.logs[name, partition].append((beat.timestamp_ms, None, None, beat.headers))

    async def _leave_out(self, task: Task, left_out: LeftOut) -> None:
        raise AssertionError(f"nothing fails: {left_out.problem}")

    # --- What happens ---------------------------------------------------------------------------------

    def give(self, topic: str, partition: int, *written: tuple[int, bytes | None, bytes | None]) -> None:
        self.logs[topic, partition] += [(*each, ()) for each in written]

    def unread(self) -> list[tuple[TaskId, str]]:
        return [
            (id, topic)
            for id, run in self.runs.items()
            for topic, at in run.task.positions.items()
            if at.offset < len(self.logs[topic, id.partition])
        ]

    async def read(self, id: TaskId, topic: str, most: int) -> None:
        """Have a task process the next records of a topic."""
        run = self.runs[id]
        begin = run.task.positions[topic].offset
        written = self.logs[topic, id.partition][begin : begin + most]
        end = begin + len(written)
        data = memoryview(bytes(records.build_batch(written, base_offset=begin)))  # type: ignore[arg-type]
        fetched = FetchedBatches(TopicPartition(topic, id.partition), data, begin, end, end, end)
        run.add(Backlog(fetched, self.layout.topics[topic], begin))
        while run.is_ready:
            await run.process(self.chance.choice([1, 3, 100]))

    async def step(self) -> bool:
        """Something that may happen; False: there is nothing to read."""
        unread = self.unread()
        if not unread:
            return False
        id, topic = self.chance.choice(unread)
        await self.read(id, topic, self.chance.choice([1, 5, 50]))
        if self.chance.random() < 0.3:
            await self.runs[self.chance.choice(list(self.runs))].send_heartbeats()
        if self.chance.randrange(100) < self.restarts:
            await self.restart(self.chance.choice(list(self.runs)))
        return True

    async def drain(self) -> None:
        """Until there is nothing to read, and everybody has been told everything."""
        while True:
            while await self.step():
                pass
            for run in self.runs.values():
                await run.send_heartbeats()
            if not self.unread():
                return

    async def end(self) -> None:
        """The topics of others are complete."""
        await self.drain()
        for run in self.runs.values():
            for topic in list(run.task.positions):
                if not self.layout.topics[topic].is_internal:
                    await run.complete(topic, END_MS)
        await self.drain()
        for run in self.runs.values():
            await run.stop()

    def table(self, name: str) -> dict[Any, Any]:
        """The rows of all tasks, of which no two have the same."""
        found: dict[Any, Any] = {}
        for run in self.runs.values():
            rows = run.task.stores[name].rows if name in run.task.stores else {}
            assert not found.keys() & rows.keys(), (
                f"{name}: two tasks have rows of {sorted(found.keys() & rows.keys())}"
            )
            found |= rows
        return found

    def written(self, topic: str) -> list[Written]:
        """What there is in a topic, but for heartbeats."""
        return [
            each
            for (name, _), log in sorted(self.logs.items())
            if name == topic
            for each in log
            if not is_heartbeat(each[3])
        ]
