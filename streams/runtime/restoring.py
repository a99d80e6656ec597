"""Tasks that are restored, beside those that run: their stores are filled, and it is set where they go on.

That is decided by the markers in a task's changelogs (`engine/checkpoint.py`); of a task without tables, and of topics
that are new to it, by the group's offsets, and where there are none by `consumer_auto_offset_reset`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial

from ...client import Admin, Client, Consumer, TopicPartition
from ...protocol.primitives import uuid_to_str
from ..api.app import App
from ..engine.checkpoint import Position
from ..engine.stores.store import Store
from ..engine.task import Task, TaskId
from ..engine.versions import prepare
from ..errors import ChangeRefused, StreamsError
from ..savepoints import fence
from .copies import Copies, Copy
from .global_tables import GlobalTables
from .lane import Parts
from .layout import reset_of
from .loading import load
from .topics import AppTopics
from .turns import in_turns

log = logging.getLogger("isthmus.streams")

PROGRESS_S = 5.0  # between words on a restoration


class _Rows:
    """Tells how the restoration of tasks gets on."""

    def __init__(self, app: str, tasks: int) -> None:
        self._what = f"app {app}: {tasks} task{'s' if tasks > 1 else ''}"
        self._rows = 0
        self._began_s = self._told_s = asyncio.get_running_loop().time()

    def loaded(self, rows: int) -> None:
        self._rows += rows
        now = asyncio.get_running_loop().time()
        if now - self._told_s >= PROGRESS_S:
            self._told_s = now
            log.info("%s: %d rows restored so far, in %.0f s", self._what, self._rows, now - self._began_s)

    def told(self) -> None:
        seconds = asyncio.get_running_loop().time() - self._began_s
        log.info("%s restored with %d rows in %.2f s", self._what, self._rows, seconds)


class Restoring:
    """Of one worker. tasks: those that do not run yet; new_store: makes that of a task's table; global_tables: set
    before the first task begins, if the app has any."""

    def __init__(
        self,
        app: App,
        client: Client,
        consumer: Consumer,
        topics: AppTopics,
        copies: Copies,
        new_store: Callable[[TaskId, str], Store],
    ) -> None:
        self._app = app
        self._client = client
        self._consumer = consumer
        self._topics = topics
        self._copies = copies
        self._new_store = new_store
        self.global_tables: GlobalTables | None = None
        self.tasks: dict[TaskId, Task] = {}
        self._copied_at: dict[TaskId, float] = {}  # of those that began with a copy: when it was whole
        self._refused: dict[TaskId, ChangeRefused] = {}  # those among them that cannot run
        self._parts: dict[TaskId, Parts] = {}  # of all others that are restored
        self._under_way: dict[asyncio.Task[None], Sequence[Task]] = {}
        self._ends: dict[TopicPartition, int] = {}  # of changelogs, when they began to be read

    def begin(self, ids: Sequence[TaskId]) -> None:
        """Restore tasks, beside whatever else goes on, each from what there is of its tables here."""
        if not ids:
            return
        self._copied_at |= {id: at for id in ids if (at := self._copies.whole_at(id)) is not None}
        layout = self._topics.layout
        tasks = [
            Task(self._app.id, id, self._copies.take(id) or {}, layout.described(id.subtopology))  # see `_opened`
            for id in ids
        ]
        for task in tasks:
            self.tasks[task.id] = task
        restoring = asyncio.get_running_loop().create_task(self._restore(tasks), name=f"restore of {self._app.id}")
        self._under_way[restoring] = tasks

    def ended(self) -> Iterator[tuple[Task, Parts | ChangeRefused]]:
        """Tasks that are restored, with what they run, or why one cannot run all the same. Raises what their
        restoration has raised."""
        for restoring in [each for each in self._under_way if each.done()]:
            tasks = self._under_way.pop(restoring)
            restoring.result()
            for task in tasks:
                if not self._is_here(task):
                    continue
                del self.tasks[task.id]
                self._copied_at.pop(task.id, None)
                refused = self._refused.pop(task.id, None)
                yield task, self._parts.pop(task.id) if refused is None else refused

    async def end(self, id: TaskId) -> None:
        """A task is taken away, if it is restored here."""
        self._copied_at.pop(id, None)
        self._parts.pop(id, None)
        if (taken := self.tasks.pop(id, None)) is None:
            return
        for restoring, tasks in list(self._under_way.items()):
            if taken in tasks and not any(map(self._is_here, tasks)):
                restoring.cancel()
                await asyncio.gather(restoring, return_exceptions=True)
                del self._under_way[restoring]
        taken.close()

    def copy(self, id: TaskId) -> Copy | None:
        """Of a task that began with one: what is here of its tables."""
        if id in self.tasks and id in self._copied_at:
            return Copy(self.tasks[id].stores, self._copied_at[id])
        return None

    def percent(self, id: TaskId) -> int | None:
        """How much of a task's changelogs is in its tables; None: it is not restored here, or that is not known yet."""
        task = self.tasks.get(id)
        stores = {} if task is None else task.stores
        at = {TopicPartition(self._app.changelog_topic(name), id.partition): each for name, each in stores.items()}
        if not at or any(tp not in self._ends for tp in at):
            return None
        there = sum(min(store.changelog_offset, self._ends[tp]) for tp, store in at.items())
        return 100 * there // max(1, sum(self._ends[tp] for tp in at))

    async def _restore(self, tasks: Sequence[Task]) -> None:
        """Fill the tasks' stores, and set where they go on."""
        await fence.check(self._client, self._app.id)  # again, as a member of the group
        tps = self._topics.layout.partitions([task.id for task in tasks])
        # First, since it waits for transactions of the partitions' last owner, which may still be committed.
        committed = await self._consumer.committed(tps)
        rows = _Rows(self._app.id, len(tasks))
        await in_turns(self._opened(tasks))
        topics = {self._app.changelog_topic(table): None for each in tasks for table in each.stores}
        await self._topics.changelogs.check(topics)
        await load(self._client, tasks, self._app.changelog_topic, rows.loaded, self._is_here, self._ends.update)
        if self.global_tables is not None:
            await self.global_tables.caught_up()  # what the last owner has written there is here
        rows.told()
        fit = [task for task in tasks if self._is_here(task) and await self._is_fit(task)]
        await self._set_starts(fit, committed)
        for task in fit:
            if self._is_here(task):
                parts = self._parts[task.id] = self._topics.layout.parts(task)
                await in_turns(parts.read(), partial(self._is_here, task))

    def _is_here(self, task: Task) -> bool:
        """False once it was taken away, and its stores are closed, while others are restored with it."""
        return self.tasks.get(task.id) is task

    def _opened(self, tasks: Sequence[Task]) -> Generator[None, None, None]:
        """Open the stores of tasks that have none yet, one at a time: on disk each takes up to 80 ms, and a worker that
        opens hundreds in one turn of the loop misses its heartbeats."""
        for task in tasks:
            tables = self._topics.layout.subtopology(task.id).tables if self._is_here(task) else ()
            for table in tables:
                if table not in task.stores and self._is_here(task):
                    task.stores[table] = self._new_store(task.id, table)
                    yield

    async def _is_fit(self, task: Task) -> bool:
        """Whether this code can go on from what its tables have; rows of an earlier version are rewritten."""
        try:
            task.restored()
            rewritten = await in_turns(prepare(task), partial(self._is_here, task))
        except ChangeRefused as error:
            self._refused[task.id] = error
            return False
        if rewritten is None:
            return False  # it was taken away, and its stores are closed
        for table, count in rewritten.items():
            log.info(
                "task %s: table %s is of version %d now: %d rows were rewritten, and are committed with its first "
                "checkpoint",
                task.id,
                table,
                self._app.all_tables()[table].version,
                count,
            )
        for table, steps in task.feeding.items():
            log.info(
                "task %s: the %d rows of table %s are given to what is new: %s. What comes of that is committed with "
                "its first checkpoint",
                task.id,
                len(task.stores[table].rows),
                table,
                ", ".join(steps),
            )
        return True

    async def _set_starts(self, tasks: Sequence[Task], committed: Mapping[TopicPartition, int]) -> None:
        layout = self._topics.layout
        fresh: dict[TopicPartition, Task] = {}
        for task in tasks:
            # Topics that are read by another task now go on from the group's offsets there.
            task.keep_topics(layout.subtopology(task.id).topics, layout.topology.topics)
            for tp in layout.partitions([task.id]):
                self._bind(task, tp.topic)
                if tp.topic in task.positions:
                    continue
                if tp in committed:
                    task.set_start(tp.topic, Position(committed[tp]))
                else:
                    fresh[tp] = task
        if fresh:
            begins = await Admin(self._client).list_offsets({tp: reset_of(self._app, tp.topic) for tp in fresh})
            for tp, task in fresh.items():
                task.set_start(tp.topic, Position(begins[tp][0]))

    def _bind(self, task: Task, topic: str) -> None:
        """Raises StreamsError where a task's tables are of another topic of this name."""
        topic_id = self._client.topic_id(topic)
        if topic_id is not None and not task.bind_topic_id(topic, uuid_to_str(topic_id)):
            raise StreamsError(
                f"app {self._app.id}: topic {topic} was deleted and created again, but the tables of task {task.id} "
                f"include the old one up to offset {task.positions[topic].offset}. Nothing is skipped automatically: "
                "give the app another id to start over"
            )
