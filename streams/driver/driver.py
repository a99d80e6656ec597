"""`TestDriver`: what a test calls."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from ...client import TopicPartition
from ...runtime import seeded
from ..api.agents import Agent
from ..api.app import App
from ..api.outgoing import Destination
from ..api.settings import seconds
from ..api.topics import Topic
from ..api.union import HasRows
from ..engine.checkpoint import Row
from ..engine.event import Headers
from ..engine.heartbeats import is_heartbeat
from ..engine.origin import Beat, Copy, Origins
from ..engine.stores.opening import Stores
from ..engine.stores.store import Store
from ..engine.tables import DISK, TableSpec
from ..engine.task import Task, TaskId
from ..errors import AppError
from ..runtime.task_run import LeftOut
from .clock import Stuck, VirtualLoop
from .edges import Answer, Pages, run_command
from .running import Done, Running, decoded, positions
from .topics import MemoryTopics, Partitions, Sent, TestRecord

T = TypeVar("T")
TICK_S = 0.5  # between ticks of operators, as in a worker
TICKS_MAX = 10_000  # of one `advance`: they are further apart in a longer one
_NOTHING: Any = object()


class Rows(dict[Any, Any]):
    """The rows of a table, of all partitions, by key; of one with windows by (key, start of the window in ms)."""

    def __init__(self, spec: TableSpec, stores: list[HasRows]) -> None:
        super().__init__((key, store.rows[key]) for store in stores for key in store.rows)
        self._spec = spec

    def at(self, timestamp_ms: int) -> dict[Any, Any]:
        """By key, the values in the last window that has this time in it. Raises AppError for a table without
        windows."""
        windows = self._spec.windows
        if windows is None:
            raise AppError(f"table {self._spec.name} has no windows")
        start = windows.last(timestamp_ms)
        return {key: value for (key, begin), value in self.items() if begin == start}


class TestDriver:
    """Runs an app in a test: without a cluster, a network or a clock, and with the worker's own code for all that is
    between a record and what comes of it.

        def test_totals():
            with TestDriver(app) as driver:
                driver.send("orders", key="a", value={"total": 5})
                driver.advance(60)
                assert driver.table("totals")["a"] == 5
                [bill] = driver.read("bills")

    It is used without a loop, or inside of one that runs, which stands still meanwhile: the app always runs on the
    driver's own loop. What returns nothing may be awaited.

    app: may be run by one driver after another, one at a time. partitions: of all topics, or by name; a topic that is
    not named has one. topics: of another driver, such as one that ran an earlier version of the app. seed: of ids;
    with one, whose turn it is among tasks, and how much it is given at once, are drawn; without, tasks take turns.
    start_ms: wall clock at the beginning, ms since the epoch. copies: what topics are copies of, as mirrors say it.

    *Time*: `wall_ms` stands still but for `advance`, and where an agent or what is run waits for a time itself. Timers,
    crontabs, `app.sleep`, `take(…, within)`, commits and topics that are idle go by it; windows and joins go by
    timestamps of records. *Commits* are those of a worker: at the interval of the app as `advance` passes it, and by
    `commit`. What was written since the last one is to be read at once, and `crash` takes back what a cluster would.

    What it does not do: several workers, rebalances, standbys and the group's protocol; records, batches and state as
    large as they are; retention and compaction; outputs of `exactly_once` hidden until a commit; the pages of every
    worker, such as /metrics and /tables. Sockets and threads of the app's own code are real: an agent that waits for
    them holds the clock for some seconds at most. Raises AppError for what waits for ever.
    """

    __test__ = False  # pytest: not a test of its own

    def __init__(
        self,
        app: App,
        *,
        partitions: Partitions = 1,
        topics: MemoryTopics | None = None,
        seed: int | None = None,
        start_ms: int = 0,
        copies: Mapping[str, Copy] | None = None,
    ) -> None:
        self.app = app
        self.topics = MemoryTopics(partitions) if topics is None else topics
        self.sent: list[Sent] = []
        self._start_ms = start_ms
        clocks = (lambda: self.wall_ms), (lambda: round(self._loop.time() * 1e9))
        self._runtime = seeded(seed or 0, *clocks)
        self._chance = None if seed is None else seeded(seed, *clocks).random
        self._declared: dict[str, Topic] = {}  # topics that the app has written to
        self._seen: dict[TopicPartition, int] = {}  # by `read`
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._stores: Stores | None = None
        self._is_closed = False
        self._committed_s = 0.0
        app.finalize()
        self.origins = Origins(app.datacenter, copies)
        self._running = self._made()
        self._loop: VirtualLoop = VirtualLoop()
        try:
            self._do(self._running.start())
        except BaseException:
            self._release()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- Records --------------------------------------------------------------------------------------

    def send(
        self,
        topic: str | Topic | Agent,
        *records: TestRecord,
        key: Any = None,
        value: Any = _NOTHING,
        timestamp_ms: int | None = None,
        headers: Headers | Mapping[str, bytes | None] = (),
        partition: int | None = None,
    ) -> Done[None]:
        """Give the app one record, or several as one batch, and run it until all is processed that comes of them.

        Keys and values are written as the app's topic has them; bytes are sent as they are. Raises RecordError where a
        record fails by the app's policy, and AppError for a topic that the app does not read."""
        name = self._name_of(topic)
        if name not in self._running.inputs and not self._running.global_rows.is_read(name):
            raise AppError(f"app {self.app.id} reads no topic {name}; it reads {', '.join(self._running.inputs)}")
        declared = self._running.inputs.get(name) or self.app.declaration(name)
        given = records if value is _NOTHING else (TestRecord(value, key, timestamp_ms, headers, partition), *records)
        for each in given:
            self._append(declared, name, each)
        self._settle()
        held = self._running.held(name)
        if held is not None:
            raise held
        return Done(None)

    def _append(self, declared: Topic, name: str, record: TestRecord) -> None:
        key = record.key if isinstance(record.key, bytes) else declared.encode_key(record.key)
        value = record.value if isinstance(record.value, bytes) else declared.encode_value(record.value)
        at_ms = self.wall_ms if record.timestamp_ms is None else record.timestamp_ms
        headers = tuple(record.headers.items()) if isinstance(record.headers, Mapping) else record.headers
        by = self.app.partitioner_of(declared)
        self.topics.append(name, record.partition, key, value, at_ms, headers, by=by)

    def read(self, topic: str | Topic | Agent) -> list[TestRecord]:
        """What was written to a topic since it was read last, partition by partition, with keys and values as the app
        has them. Dead letters are in `app.dead_letters`."""
        name = self._name_of(topic)
        declared = topic if isinstance(topic, Topic) else self._declared.get(name, self._running.inputs.get(name))
        found = []
        for partition in range(self.topics.count(name)):
            tp = TopicPartition(name, partition)
            for each in self.topics.records(name, partition, self._seen.get(tp, 0)):
                if is_heartbeat(each.headers):
                    continue
                key, value = decoded(self.app, declared, each)
                found.append(TestRecord(value, key, each.timestamp_ms, each.headers, partition, each.offset))
            self._seen[tp] = self.topics.end(tp)
        return found

    @property
    def left_out(self) -> list[LeftOut]:
        """Records that were left out since the last restart, by on_error."""
        return self._running.left_out

    # --- Tables ---------------------------------------------------------------------------------------

    def table(self, name: str) -> Rows:
        """A copy of the rows of a table, or of a step of a pipeline. Raises AppError for one that is not there."""
        spec = self.app.all_tables().get(name)
        if spec is None:
            raise AppError(f"app {self.app.id} has no table {name}; it has {', '.join(self.app.tables)}")
        return Rows(spec, self._running.stores(name))

    @property
    def changelogs(self) -> dict[str, list[Row]]:
        """What commits have written of each table, with the markers of checkpoints, partition by partition."""
        found: dict[str, list[Row]] = {}
        for table in self.app.all_tables():
            name = self.app.changelog_topic(table)
            written = [each for n in range(self.topics.count(name)) for each in self.topics.records(name, n)]
            found[table] = [Row(each.key or b"", each.value) for each in written]
        return found

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """Up to which offset each partition is processed."""
        return positions(self._running.runs.values())

    @property
    def tasks(self) -> dict[TaskId, Task]:
        return {id: run.task for id, run in self._running.runs.items()}

    # --- Time -----------------------------------------------------------------------------------------

    @property
    def wall_ms(self) -> int:
        """The clock: ms since the epoch."""
        return self._start_ms + round(self._loop.time() * 1000)

    def advance(self, length: float | timedelta) -> Done[None]:
        """Move the clock on by seconds: timers and crontabs run, operators are told the time, and what is done is
        committed when it is due. Event time stays."""
        self._check()
        length_s = seconds(length)
        if length_s < 0:
            raise AppError(f"the clock cannot go back by {-length_s} s")
        until_s = self._loop.time() + length_s
        step_s = max(TICK_S, length_s / TICKS_MAX)
        while True:
            now_s = self._loop.time()
            self._run(min(until_s, now_s + step_s))
            self._do(self._ticked())
            if self._loop.time() >= until_s:
                return Done(None)

    async def _ticked(self) -> None:
        running = self._running
        await running.tick()
        await running.work()
        now_s = self._loop.time()
        if now_s - self._committed_s >= self.app.commit_interval_s and running.is_whole:
            running.commit()
            self._committed_s = now_s

    def advance_event_time(self, until_ms: int) -> Done[None]:
        """Say that all topics are complete up to this event time, exclusive: windows that end by then close, and
        timers on event time fire, though no event comes. The clock stays."""
        self._do(self._running.complete(until_ms))
        return Done(None)

    def heartbeat(self, topic: str, seen_ms: int, source_end: int, mirrored_to: int, partition: int = 0) -> None:
        """What a mirror says of the source of a topic; the next `advance` heeds it."""
        self.origins.beats[topic, partition] = Beat(seen_ms, source_end, mirrored_to, max(seen_ms, self.wall_ms))

    # --- Commits, and what ends a worker --------------------------------------------------------------

    def commit(self) -> Done[None]:
        """As a worker does when its interval is over. Raises AppError in the middle of an event, and after an agent has
        failed."""
        self._running.commit()
        self._committed_s = self._loop.time()
        return Done(None)

    def restart(self) -> Done[None]:
        """End the worker as SIGTERM does, with a last commit, and start it again: from the changelogs, with as many
        partitions as topics have now."""
        self._do(self._running.stop(), works=False)
        self._again()
        return Done(None)

    def crash(self) -> Done[None]:
        """End the worker as kill -9 does, and start it again. What it has done since the last commit is lost, and done
        again: outputs that are in no transaction are there twice then, as `at_least_once` says."""
        self._do(self._running.crash(), works=False)
        self._again()
        return Done(None)

    def _again(self) -> None:
        self._running = self._made()
        self._do(self._running.start())

    def grow(self, topic: str, partitions: int) -> Done[None]:
        """Give a topic more partitions, and restart, as a worker lays its app out again."""
        self.topics.grow(topic, partitions)
        return self.restart()

    def close(self) -> Done[None]:
        """End the app, and release what the driver has. Topics, and tables in memory, can still be looked at."""
        if self._is_closed:
            return Done(None)
        try:
            self._do(self._running.stop(), works=False)
        finally:
            self._release()
        return Done(None)

    def _release(self) -> None:
        self._is_closed = True
        with contextlib.suppress(Stuck):
            rest = self._loop.create_task(self._running.end())
            self._loop.run(self._loop.time(), lambda: not rest.done())
        self._loop.close()
        if self._folder is not None:
            self._folder.cleanup()

    # --- The app's own code ---------------------------------------------------------------------------

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something async of the app, such as `agent.ask(5)`, and what comes of it. The clock goes on where it
        waits for a time."""
        return self._do(coroutine)

    def page(
        self,
        path: str,
        method: str = "GET",
        *,
        json: Any = None,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer of a page of the app: status, headers, text, json(). path: with the query, such as `/count/?n=3`.
        json: the request's body."""
        from ..api.web import dumped

        sent = dict(headers or {})
        if json is not None:
            body, sent = dumped(json), {"Content-Type": "application/json", **sent}
        return self._do(Pages(self.app).answer(method, path, sent, body))

    def command(self, *arguments: str) -> str:
        """What a command of the app prints: `driver.command("say", "hello", "--times", "3")`."""
        return run_command(self.app, arguments, self.run)

    # --- How it runs ----------------------------------------------------------------------------------

    def _made(self) -> Running:
        return Running(
            self.app,
            self.topics,
            self._runtime,
            self.origins,
            self._open_store,
            self._written,
            self._fed,
            self._chance,
        )

    def _open_store(self, spec: TableSpec, partition: int) -> Store:
        if self._stores is None:
            directory = None
            if any(each.store == DISK for each in self.app.all_tables().values()):
                self._folder = tempfile.TemporaryDirectory(prefix="isthmus-")
                directory = Path(self._folder.name)
            self._stores = Stores(self.app.id, directory, lambda: self.wall_ms)
        return self._stores.open(spec, partition, f"{self.app.changelog_topic(spec.name)}-{partition}")

    def _written(self, topic: Destination, sent: Sent) -> None:
        if isinstance(topic, Topic):
            self._declared[sent.topic] = topic
        self.sent.append(sent)

    def _fed(self) -> None:
        """The app has written something that it may read itself."""
        if self._loop.is_running():
            self._loop.create_task(self._running.work())
        else:
            self._settle()  # by code outside of the app

    def _settle(self) -> None:
        self._do(self._running.work())

    def _do(self, coroutine: Coroutine[Any, Any, T], works: bool = True) -> T:
        """Run this. works: and whatever it causes at this time."""
        try:
            self._check()
        except AppError:
            coroutine.close()
            raise
        task = self._run_task(coroutine)
        if works:
            if not task.cancelled() and task.exception() is None:
                self._run_task(self._running.work())
            self._running.raise_problem()  # before what comes of it
        return task.result()

    def _check(self) -> None:
        """Raises AppError for a driver that is closed, or that the app's own code calls."""
        why = "it is closed" if self._is_closed else "the app that it runs calls it" if self._loop.is_running() else ""
        if why:
            raise AppError(f"the driver of app {self.app.id} cannot run: {why}")

    def _run_task(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = self._loop.create_task(coroutine)
        self._run(self._loop.time(), lambda: not task.done())
        return task

    def _run(self, until_s: float, is_busy: Callable[[], bool] = lambda: False) -> None:
        self._running.take()
        try:
            self._loop.run(until_s, is_busy)
        except Stuck:
            raise AppError(f"app {self.app.id}: {self._who_waits()} what does not come under the driver") from None

    def _who_waits(self) -> str:
        for id, run in self._running.runs.items():
            for readers in (each for lane in run.lanes for each in lane.all_readers):
                for each in readers.runs:
                    event = each.work.current
                    if not each.is_idle and event is not None:
                        return (
                            f"agent {each.agent.name} of task {id} waits at {event.topic}-{event.partition} offset "
                            f"{event.offset} for"
                        )
        return "what was run waits for"

    def _name_of(self, topic: str | Topic | Agent) -> str:
        if isinstance(topic, str):
            return topic
        if isinstance(topic, Agent):
            if topic.topic is None:
                raise AppError(f"agent {topic.name} reads no topic")
            topic = topic.topic
        return topic.get_topic_name()
