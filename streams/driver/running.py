"""An app between two restarts of the driver, as a worker runs it: its tasks, what runs beside them, what it writes.

The runs of tasks, the layout, services and channel agents are the worker's own. In place of its client there are topics
in memory, and one asyncio task, `_work`, which gives every task what there is to read until there is nothing more.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Sequence
from random import Random
from typing import Any, Generic, TypeVar

from ...client import RecordMetadata, TopicPartition
from ...runtime import Runtime
from ..api.app import App
from ..api.outgoing import Destination, Outgoing
from ..api.topics import Topic
from ..api.union import HasRows
from ..engine.checkpoint import Position, as_read
from ..engine.event import Event
from ..engine.failures import is_written
from ..engine.graph import Kind
from ..engine.heartbeats import Heartbeat
from ..engine.origin import Origins, carrying, current_origins
from ..engine.stores.store import Store
from ..engine.tables import DISK, TableSpec
from ..engine.task import Task, TaskId
from ..engine.versions import prepare
from ..errors import AppError, RecordError, StreamsError
from ..runtime.agents import BATCH_EVENTS_MAX, NEVER
from ..runtime.backlog import Backlog
from ..runtime.channels import ChannelAgents
from ..runtime.dead_letters import write_dead_letter
from ..runtime.lane import Lane, LeftOut
from ..runtime.layout import Layout, partitions_of, reset_of
from ..runtime.process import start_beside
from ..runtime.services import Services, tell
from ..runtime.task_run import TaskRun
from .global_rows import GlobalRows
from .topics import MemoryTopics, Sent, metadata_of

T = TypeVar("T")
WRITING = (Kind.SINK, Kind.REPARTITION)  # kinds of nodes that write to topics
OpenStore = Callable[[TableSpec, int], Store]


class Done(Generic[T]):
    """What was waited for, and is there: `await` gives it at once, on any loop."""

    def __init__(self, value: T) -> None:
        self._value = value

    def __await__(self) -> Generator[None, None, T]:
        yield from ()
        return self._value

    def result(self) -> T:
        return self._value


class Running:
    """Is the app's outbox, the reader of its replies, and its host. written: told of each record that the app writes;
    fed: called when there is more to read, and no work goes on. chance: draws whose turn it is; None: the tasks take
    turns in the order of their ids."""

    def __init__(
        self,
        app: App,
        topics: MemoryTopics,
        runtime: Runtime,
        origins: Origins,
        open_store: OpenStore,
        written: Callable[[Destination, Sent], None],
        fed: Callable[[], None],
        chance: Random | None = None,
    ) -> None:
        self.app = app
        self.topics = topics
        self.runtime = runtime
        self.origins = origins
        self.left_out: list[LeftOut] = []
        self.inputs = app.input_topics() if app.reads else {}
        self.layout: Layout | None = None
        self.runs: dict[TaskId, TaskRun] = {}
        self.problem: Exception | None = None  # the first that was not told yet
        self.is_over = False
        self._open_store = open_store
        self._written = written
        self._fed = fed
        self._chance = chance
        self._read: dict[TopicPartition, int] = {}  # up to where tasks were given records
        self._held: dict[TaskId, RecordError] = {}  # tasks that a record has stopped
        self._last: TaskId | None = None  # whose turn it was
        self._busy: dict[Lane, None] = {}  # lanes whose agents have a batch in hand
        self._arrived: asyncio.Future[None] | None = None  # done when the app has written something
        self.global_rows = GlobalRows(app, topics)
        self._work: asyncio.Task[None] | None = None
        self._reply_topics: dict[str, None] = {}
        self._ids = 0
        self._services: Services | None = None
        self._beside: asyncio.Task[None] | None = None
        self._channels = ChannelAgents(app.id, ())

    # --- Beginning and end ----------------------------------------------------------------------------

    async def start(self) -> None:
        """Lay the app out over the topics, restore its tables, and begin what runs beside its agents."""
        self.global_rows.follow()
        self.take()
        if self.app.reads:
            self._lay_out()
            for id in self._task_ids():
                self._begin(id)
            await self._of_each(lambda id, run: run.fill())
        self._channels = ChannelAgents(self.app.id, self.app.agents)
        await tell(self.app.on_partitions_assigned, set(self._read))
        await tell(self.app.on_rebalance_complete)
        self._services = Services(self.app, self.runtime)
        settled = asyncio.Event()
        settled.set()
        self._beside = asyncio.get_running_loop().create_task(start_beside(settled, self._services))

    def take(self) -> None:
        """The app sends, asks and looks at its tables here."""
        self.app.outbox, self.app.worker, self.app.replies.reader = self, self, self
        self.app.global_stores = self.global_rows.stores

    def leave(self) -> None:
        if self.app.worker is self:
            self.app.outbox, self.app.worker, self.app.global_stores = None, None, {}
            self.app.replies.end()

    async def stop(self) -> None:
        """As a worker that is told to: what is done is committed, unless an agent is in the middle of an event."""
        await tell(self.app.on_before_shutdown)
        await self._end_beside()
        if self.is_whole:
            self.commit()
        await self.end()

    async def _end_beside(self) -> None:
        if self._beside is not None:
            self._beside.cancel()
            await asyncio.gather(self._beside, return_exceptions=True)
        if self._services is not None:
            await self._services.stop()

    async def crash(self) -> None:
        """As kill -9: nothing more is written, whatever the app's code does as it ends."""
        await self.end()
        self.topics.abort()

    async def end(self) -> None:
        """Let the app's code end, and release what it has. What it sends meanwhile is refused."""
        if self.is_over:
            return
        self.is_over = True
        for run in self.runs.values():
            run.task.is_over = True
        await _cancel_others()
        await self._channels.close()
        for run in self.runs.values():
            await run.stop()
            for store in run.task.stores.values():
                if store.spec.store == DISK:  # those in memory can still be looked at
                    store.close()
        self.leave()

    # --- Layout and tables ----------------------------------------------------------------------------

    def _lay_out(self) -> None:
        topics, app = self.topics, self.app
        for name, topic in self.inputs.items():
            if not topic.is_internal:
                topics.create(name, topic.partitions or topics.default)
        for name, topic in self.inputs.items():
            if topic.is_internal:
                topics.create(name, partitions_of(topic, app, self.inputs, topics.count, topics.default))
        policies = [each.on_error for each in app.all_agents()] + [each.on_error for each in self.inputs.values()]
        if any(map(is_written, policies)):
            topics.create(app.dead_letters.get_topic_name(), 1)
        counts = {name: topics.count(name) for name in self.inputs}
        have = {
            table: count
            for table, spec in app.all_tables().items()
            if not spec.is_global and (count := topics.count(app.changelog_topic(table)))
        }
        self.layout = Layout.of(app, counts, have, self.origins)
        for name, count in self.layout.bridges.items():
            topics.create(name, count)
        for table, count in self.layout.tables.items():
            topics.create(app.changelog_topic(table), count)

    def _task_ids(self) -> list[TaskId]:
        assert self.layout is not None
        return [
            TaskId(name, partition)
            for name, each in self.layout.topology.subtopologies.items()
            for partition in range(max(self.topics.count(topic) for topic in each.topics))
        ]

    def _begin(self, id: TaskId) -> None:
        assert self.layout is not None
        sub = self.layout.topology.subtopologies[id.subtopology]
        specs = self.app.all_tables()
        stores = {table: self._restored(specs[table], id.partition) for table in sub.tables}
        task = Task(self.app.id, id, stores, self.layout.described(id.subtopology))
        task.restored()
        task.keep_topics(sub.topics, self.layout.topology.topics)
        for _ in prepare(task):
            ...
        for topic in sub.topics:
            tp = TopicPartition(topic, id.partition)
            if tp.partition >= self.topics.count(topic):
                continue
            if topic not in task.positions:
                task.set_start(topic, Position(self._start_of(tp)))
            self._read[tp] = task.positions[topic].offset
        with self._with_origins():  # which the agents' own asyncio tasks take over
            self.runs[id] = TaskRun(
                task, self.layout.parts(task), self._leave_out, self, self._has_more, origins=self.origins
            )

    def _start_of(self, tp: TopicPartition) -> int:
        """Where a task reads that no table says it of."""
        committed = self.topics.committed.get((self.app.id, tp))
        if committed is not None:
            return committed
        return self.topics.end(tp) if reset_of(self.app, tp.topic) == "latest" else 0

    def _restored(self, spec: TableSpec, partition: int) -> Store:
        store, changelog = self._open_store(spec, partition), self.app.changelog_topic(spec.name)
        written = self.topics.records(changelog, partition, store.changelog_offset)
        rows, marker = as_read([each.key for each in written], [each.value for each in written], spec.name)
        store.restore(rows, self.topics.end(TopicPartition(changelog, partition)), marker)
        return store

    def stores(self, table: str) -> list[HasRows]:
        """Of a table, from all tasks, in the order of their partitions. Raises AppError for one that is not there."""
        if table in self.global_rows.stores:
            return [self.global_rows.stores[table]]
        tasks = [self.runs[id].task for id in sorted(self.runs)]
        found: list[HasRows] = [task.stores[table] for task in tasks if table in task.stores]
        if not found:
            raise AppError(f"app {self.app.id} has no table {table}; it has {', '.join(self.app.all_tables())}")
        return found

    @property
    def is_leader(self) -> bool:
        return True

    @property
    def is_rebalancing(self) -> bool:
        return False

    # --- Work -----------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Give the tasks what there is to read, until there is nothing more."""
        if self._work is None or self._work.done():
            self._work = asyncio.get_running_loop().create_task(self._process())
        await self._work

    def raise_problem(self) -> None:
        """What went wrong since it was asked last."""
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        self._channels.check()
        if self._services is not None:
            self._services.check()

    async def _process(self) -> None:
        try:
            while self._ready():
                while (id := self._next()) is not None:
                    self.global_rows.follow()
                    await self._turn(id)
                await self._step_beside(self._channels.settle())
            await self._step_beside(self._channels.settle())
            self.global_rows.follow()
            for id, run in self.runs.items():
                if id not in self._held:
                    run.check()
        except Exception as error:
            self.problem = self.problem or error

    def _ready(self) -> list[TaskId]:
        """Tasks that have something to read."""
        return [
            id
            for id, run in self.runs.items()
            if id not in self._held and (run.is_ready or any(self._has_more(*tp) for tp in self._inputs(id)))
        ]

    def _next(self) -> TaskId | None:
        """Whose turn it is."""
        ready = self._ready()
        if not ready:
            return None
        if self._chance is not None:
            return self._chance.choice(ready)
        last = self._last
        self._last = next((id for id in ready if last is None or id > last), ready[0])
        return self._last

    async def _turn(self, id: TaskId) -> None:
        run = self.runs[id]
        for lane in run.lanes:
            if lane not in self._busy:
                await self._step(id, lane)

    async def _step(self, id: TaskId, lane: Lane) -> None:
        """What there is to read for a lane."""
        for tp in self._inputs(id):
            if tp.topic in lane.topics and self._has_more(*tp):
                self._fetch(self.runs[id], tp)
        try:
            while lane.is_ready:
                done = await self._step_beside(lane.process(BATCH_EVENTS_MAX, NEVER, self.runtime.wall_ms()), lane)
                if not done and lane.is_ready:  # the next record fails, and what is before it is committed first
                    self.commit()
            await lane.send_heartbeats()
        except RecordError as error:
            self._held[id] = error
            if error.must_stop:
                raise
            self.problem = self.problem or error

    async def _step_beside(self, step: Coroutine[Any, Any, T], lane: Lane | None = None) -> T:
        """A step of a lane, or one outside of the tasks, to its end. What its agents ask others is processed beside
        it."""
        with self._with_origins():
            stepping = asyncio.get_running_loop().create_task(step)
        if lane is not None:
            self._busy[lane] = None
        try:
            while not stepping.done():
                if (asked := self._asked()) is not None:
                    await self._step(*asked)
                    continue
                self._arrived = asyncio.get_running_loop().create_future()
                either: list[asyncio.Future[Any]] = [stepping, self._arrived]
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            return stepping.result()
        finally:
            stepping.cancel()
            if lane is not None:
                del self._busy[lane]

    def _asked(self) -> tuple[TaskId, Lane] | None:
        """A lane that has something to read, for which agents that have something in hand may wait."""
        for id, run in self.runs.items():
            for lane in run.lanes:
                if id in self._held or lane in self._busy:
                    continue
                if self._busy and all(lane.topics.isdisjoint(busy.asked) for busy in self._busy):
                    continue
                if lane.is_ready or any(self._has_more(*tp) for tp in self._inputs(id) if tp.topic in lane.topics):
                    return id, lane
        return None

    def _fetch(self, run: TaskRun, tp: TopicPartition) -> None:
        assert self.layout is not None
        begin, most = self._read[tp], BATCH_EVENTS_MAX
        if self._chance is not None:
            most = self._chance.randint(1, self.topics.end(tp) - begin)
        fetched = self.topics.fetch(tp, begin, most)
        self._read[tp] = fetched.next_offset
        run.add(Backlog(fetched, self.layout.topics[tp.topic], begin))

    def _inputs(self, id: TaskId) -> list[TopicPartition]:
        assert self.layout is not None
        topics = self.layout.topology.subtopologies[id.subtopology].topics
        return [tp for topic in topics if (tp := TopicPartition(topic, id.partition)) in self._read]

    def _has_more(self, topic: str, partition: int) -> bool:
        tp = TopicPartition(topic, partition)
        return tp in self._read and self._read[tp] < self.topics.end(tp)

    def held(self, topic: str) -> RecordError | None:
        """What has stopped a task that reads a topic."""
        return next((error for id, error in self._held.items() if topic in self.runs[id].task.positions), None)

    async def tick(self) -> None:
        """Tell operators the time on the clock."""
        await self._of_each(lambda id, run: run.tick(self.runtime.wall_ms()))

    async def complete(self, until_ms: int) -> None:
        """All topics are complete up to this event time, exclusive: each after those that its own records come from."""
        for topic in self._by_flow():
            await self._of_each(lambda id, run, topic=topic: run.complete(topic, until_ms))  # type: ignore[misc]
            await self.work()

    async def _of_each(self, call: Callable[[TaskId, TaskRun], Coroutine[Any, Any, None]]) -> None:
        for id, run in self.runs.items():
            if id in self._held:
                continue
            try:
                with self._with_origins():
                    await call(id, run)
                await run.send_heartbeats()
            except RecordError as error:
                self._held[id] = error
                self.problem = self.problem or error

    def _by_flow(self) -> list[str]:
        """The topics, each behind those of whose records its own are made by pipelines."""
        if self.layout is None:
            return []
        parts = self.layout.chains
        written = [{topic for each in part if each.kind in WRITING for topic in each.topics} for part in parts]
        read = [{topic: None for each in part if each.kind is Kind.TOPIC for topic in each.topics} for part in parts]
        found: dict[str, None] = {}
        visited: set[str] = set()

        def visit(topic: str) -> None:
            if topic in visited:
                return
            visited.add(topic)
            for reads, writes in zip(read, written, strict=True):
                if topic in writes:
                    for source in reads:
                        visit(source)
            found[topic] = None

        for topic in self.layout.topics:
            visit(topic)
        return list(found)

    @contextlib.contextmanager
    def _with_origins(self) -> Iterator[None]:
        token = current_origins.set(self.origins if self.app.needs_origins else None)
        try:
            yield
        finally:
            current_origins.reset(token)

    async def _leave_out(self, task: Task, left_out: LeftOut) -> None:
        self.left_out.append(left_out)
        await write_dead_letter(self, self.app.dead_letters, task, left_out)

    # --- Commits --------------------------------------------------------------------------------------

    @property
    def is_whole(self) -> bool:
        """Whether no agent is in the middle of an event, or has failed."""
        return all(run.is_whole for run in self.runs.values())

    def commit(self) -> None:
        """Write what changed to the changelogs, with the positions, and end the transaction."""
        if not self.is_whole:
            raise AppError(f"app {self.app.id}: no checkpoint can be written during an event, or after an agent failed")
        for run in self.runs.values():
            run.before_checkpoint()
            if not run.task.changed:
                continue
            checkpoint = run.task.checkpoint()
            partition, ends = run.task.partition, {}
            for table, rows in checkpoint.rows.items():
                changelog, now_ms = self.app.changelog_topic(table), self.runtime.wall_ms()
                for row in rows:
                    written = self.topics.append(changelog, partition, row.key, row.value, now_ms)
                    ends[table] = written.offset + 1
            for topic, at in checkpoint.positions.items():
                self.topics.committed[self.app.id, TopicPartition(topic, partition)] = at.offset
            run.task.confirm(checkpoint, ends)
        self.global_rows.commit(self.runtime.wall_ms())
        self.topics.commit()

    # --- What the app writes --------------------------------------------------------------------------

    async def send(self, task: Task | None, record: Outgoing) -> Done[RecordMetadata]:
        return self.send_soon(task, record)

    def put(self, *_: object) -> None:
        """Each record is given to `send`."""

    def send_soon(self, task: Task | None, record: Outgoing) -> Done[RecordMetadata]:
        """Raises StreamsError for what ends with the app."""
        if self.is_over:
            raise StreamsError(f"app {self.app.id} has ended: its code must not send any more")
        topic, key, value, partition, timestamp_ms, headers, by = record
        name = topic.get_topic_name()
        at_ms = self.runtime.wall_ms() if timestamp_ms is None else timestamp_ms
        is_open = task is not None and (self.app.is_exactly_once or topic.is_internal)
        if task is not None:
            task.changed = True
        rule = by or self.app.conf.producer_partitioner
        written = self.topics.append(name, partition, key, value, at_ms, headers, is_open=is_open, by=rule)
        self._written(topic, written)
        if name in self._reply_topics:
            self.app.replies.take(value)
        self.feed()
        return Done(metadata_of(written))

    def feed(self) -> None:
        """There may be more to read."""
        if self._arrived is not None and not self._arrived.done():
            self._arrived.set_result(None)
        if self._work is None or self._work.done():
            self._fed()

    async def declare(self, topic: Topic) -> None:
        for name in topic.names:
            self.topics.create(name, topic.partitions or self.topics.default)

    async def send_event(self, task: Task, topic: Topic, event: Event) -> None:
        """What an operator gives to a topic."""
        key, value = topic.encode_key(event.key), topic.encode_value(event.value)
        headers = carrying(event) if self.app.carries_origins else event.raw_headers
        place = topic.place
        partition = None if place is None else place(event, self.topics.count(topic.get_topic_name()))
        self.send_soon(task, Outgoing(topic, key, value, partition, event.timestamp_ms, headers, topic.partitioner))

    def put_events(self, task: Task, topic: Topic, events: Sequence[Event]) -> int:
        return 0

    async def send_heartbeat(self, task: Task, topic: Topic, beat: Heartbeat) -> None:
        """Of a task, to those that read what it writes, behind what it has written. It is not among `sent`."""
        name, task.changed = topic.get_topic_name(), True
        for partition in range(self.topics.count(name)):
            self.topics.append(name, partition, None, None, beat.timestamp_ms, beat.headers, is_open=True)
        self.feed()

    # --- Replies --------------------------------------------------------------------------------------

    async def read(self, topic: str) -> None:
        """Replies in this topic are for what the app has asked."""
        self._reply_topics[topic] = None

    def new_id(self) -> str:
        self._ids += 1
        return str(self._ids)


async def _cancel_others() -> None:
    """Cancel all that runs on the loop but this."""
    own = asyncio.current_task()
    rest = [each for each in asyncio.all_tasks() if each is not own]
    for each in rest:
        each.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


def positions(runs: Iterable[TaskRun]) -> dict[TopicPartition, int]:
    """Up to where the tasks have processed."""
    return {
        TopicPartition(topic, run.task.partition): at.offset for run in runs for topic, at in run.task.positions.items()
    }


def decoded(app: App, topic: Topic | None, each: Sent) -> tuple[Any, Any]:
    """Key and value of a record that was written, by the declaration of its topic; bytes without one."""
    if topic is None:
        return each.key, each.value
    return topic.serialization.read(app, each)
