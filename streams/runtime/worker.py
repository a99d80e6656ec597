"""The stream worker: gets partitions from the group, restores their tasks, feeds agents, commits.

Where a task goes on is decided by the markers in its changelogs (`engine/checkpoint.py`); of a task without tables by
the group's offsets. A task is restored beside the others, which go on; its partitions are paused until then. A commit
that is refused, because the group has removed this worker or the cluster has aborted the transaction, counts for
nothing: all tasks go back to their last checkpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ...client import Admin, Client, TopicPartition
from ...client.consumer import FetchedBatches
from ...client.errors import ClientError, LogTruncated, NoOffset
from ...client.joining import CONSUMER
from ...client.operation import CLOSE_TIMEOUT_MS
from ...protocol.errors import KafkaError
from ...protocol.primitives import uuid_to_str
from ...protocol.records import iter_records
from ...runtime import Runtime, system
from ..api.app import App
from ..api.topics import Topic
from ..api.union import HasRows
from ..engine.changes import LEFT, Written, compare
from ..engine.changes import refusal as refused_by
from ..engine.checkpoint import Position
from ..engine.failures import is_written
from ..engine.origin import Origins, current_origins
from ..engine.partitioning import LOOK_KEYS, PAGE, Places
from ..engine.stores.store import Store
from ..engine.task import Task, TaskId
from ..engine.topic_names import BETWEEN, kind_of
from ..engine.topology import SubTopology
from ..engine.versions import prepare
from ..errors import ChangeRefused, CommitRefused, RecordError, StreamsError
from ..savepoints import fence
from .agents import NEVER
from .assignor import Here, TaskAssignor, Told, to_end
from .backlog import Backlog
from .channels import ChannelAgents
from .commits import Commits
from .copies import Copies
from .dead_letters import write_dead_letter
from .declaring import CHANGELOG_OPTIONS, create
from .global_tables import GlobalTables
from .group import Split, new_consumer, refusal, tell_what_is_not_there
from .growth import Growth
from .lane import BATCH_S, Lane, LeftOut
from .layout import Layout, between_options, partitions_of
from .loading import load
from .origins import OriginsFollower
from .purging import Purge
from .replies import ReplyReader
from .rounds import Rounds
from .services import tell, tell_recovered
from .state import State, partition_for_ever
from .task_run import TaskRun
from .written import code_of, written

log = logging.getLogger("isthmus.streams")

POLL_MS = 100
TICK_S = 0.5  # between ticks of operators
OVERDUE_S = 1.0  # a commit that has waited for so long is put before new events
PROGRESS_S = 5.0  # between words on a restoration
RETRY_S, RETRY_MAX_S = 1.0, 60.0  # pauses before a task that failed is tried again
TOPICS_WAIT_S = 1.0  # between looks for input topics that are not there yet
ABANDON_MS = 2_000  # what a worker that has failed may take for leaving its group, and again for closing its producers


class Failed(NamedTuple):
    """A task that a record has stopped, or that has state of other code. failures: in a row; retry_at:
    loop time; careful_at: see `TaskRun`."""

    problem: StreamsError
    failures: int
    retry_at: float
    careful_at: tuple[str, int] | None


class Copy(NamedTuple):
    """The tables of a task. whole_at: loop time at which they had all that was committed the last time."""

    stores: Mapping[str, Store]
    whole_at: float


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


class StreamWorker:
    """Runs one app on one client until `stop`. Several workers of an app share its tasks through the group. name:
    unique among the app's workers at a time, and the same after a restart; None: consumer_group_instance_id, else a
    random one."""

    def __init__(self, app: App, client: Client, runtime: Runtime | None = None, name: str | None = None) -> None:
        self.app = app
        self.client = client
        self.runtime = runtime or system()
        self._given_name = name
        self.name = name or app.conf.consumer_group_instance_id or self.runtime.uuid().hex()
        self._state: State | None = None  # from the start on
        self.inputs = app.input_topics()
        self._specs = app.all_tables()
        self.origins = Origins(app.datacenter)
        self._follower = OriginsFollower(app.id, client, self.origins) if app.needs_origins else None
        ones = dict.fromkeys(self.inputs, 1), dict.fromkeys(app.tables, 1)
        self.layout = Layout.of(app, *ones, self.origins)  # until the counts are known
        self.places: dict[str, Places] = {}  # of topics whose records must be where their keys belong
        self.running: dict[TaskId, TaskRun] = {}
        self._assignor = TaskAssignor(self.layout.topology, app.standby_replicas, self._here, self._is_told)
        self.consumer = new_consumer(app, client, self.layout.topology, self._assignor)
        self._split = Split(app.id)
        self.global_tables: GlobalTables | None = None  # from `start` on, if the app has any
        self.copies = Copies(client, app.changelog_topic, self._new_stores, self._caught_up)
        self.told = Told()
        self.url = ""  # of the web server
        self._purge = Purge(
            app.id, client, lambda topic: kind_of(app.id, topic) in BETWEEN, app.conf.repartition_purge_interval
        )
        self.commits = Commits(
            app, client, self.consumer, self.name, self.runtime, self._check_growth, self._purge.committed
        )
        self._left_out_by: RecordError | None = None  # the last of them
        self.left_out_total = 0
        self.failed: dict[TaskId, Failed] = {}  # tasks that a record has stopped
        self.processed_total = 0
        self._counts: dict[str, int] = {}  # partitions of input topics
        self._growth = Growth(client)
        self._has_grown = False  # one of them, since
        self._loading: dict[TaskId, Task] = {}
        self._copied_at: dict[TaskId, float] = {}  # of those that began with a copy: when it was whole
        self._written = Written()  # what was found at the start
        self._refused: dict[TaskId, ChangeRefused] = {}  # tasks among these that cannot run
        self._ended: dict[TaskId, dict[str, Store]] = {}  # stores of tasks that have left, until copies are chosen
        self._restorations: dict[asyncio.Task[None], Sequence[Task]] = {}
        self._rounds = Rounds(self._writers)
        self._is_blocked = False
        self._behind: dict[TopicPartition, TaskRun] = {}  # paused, until their tasks have processed what they have
        self._tick_at = 0.0
        self._commit: asyncio.Task[None] | None = None
        self._commit_at = NEVER
        self._stopping = asyncio.Event()
        self.settled = asyncio.Event()  # set when the tasks of the first assignment are restored
        self._is_rebalancing = True
        self._has_joined = False
        self.channels = ChannelAgents(app.id, ())  # until `start`
        self.replies = ReplyReader(client, self.runtime, app.replies, app.conf.reply_expires)
        app.outbox, app.worker, app.replies.reader = self.commits, self, self.replies

    async def start(self) -> None:
        """Wait for the input topics, create the app's own, join the group."""
        tell_what_is_not_there(self.app)
        folder = self.app.conf.tables_path
        self._state = State(
            self.app.id,
            folder,
            self._given_name,
            self._specs.values(),
            self.runtime,
            partial(partition_for_ever, self.client),
        )
        await self._check_changes()
        await self._lay_out()
        await self._start_global_tables()
        await self.commits.start(
            bool(self._specs) or self.app.is_exactly_once or any(topic.is_internal for topic in self.inputs.values())
        )
        self.channels = ChannelAgents(self.app.id, self.app.agents)
        await self._join()

    async def _check_changes(self) -> None:
        """Compare the code with what its state was written by. Raises ChangeRefused where they do not go together."""
        code = code_of(self.app)
        found = await written(self.client, self.app.id, code.topics)
        changes = compare(code, found)
        if shifting := self.app.pipeline.shifting:
            log.warning(
                "app %s: steps %s have state and no name=: their names are made of what they read, and with a new name "
                "they would begin empty",
                self.app.id,
                ", ".join(shifting),
            )
        error = refused_by(self.app.id, changes)
        if error is not None:
            raise error
        for change in changes:
            log.log(logging.WARNING if change.effect == LEFT else logging.INFO, "app %s: %s", self.app.id, change)
        self._written = found

    async def _join(self) -> None:
        topics = self.layout.topology.topics
        await self.consumer.subscribe(topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost)

    # --- Topics -------------------------------------------------------------------------------------

    async def _lay_out(self) -> None:
        """Find out how the app runs with the partitions that there are, and make the topics of its own."""
        await fence.check(self.client, self.app.id)
        await self._until_there([name for name, topic in self.inputs.items() if not topic.is_internal])
        changelogs = {name: self.app.changelog_topic(name) for name, spec in self._specs.items() if not spec.is_global}
        await self.client.refresh_metadata(list(changelogs.values()))
        own = {name: topic for name, topic in self.inputs.items() if topic.is_internal}
        policies = [each.on_error for each in self.app.all_agents()] + [each.on_error for each in self.inputs.values()]
        if any(map(is_written, policies)):
            own |= dict.fromkeys(self.app.dead_letters.names, self.app.dead_letters)
        await create(
            self.client,
            self.app.conf,
            {name: (self._partitions_of(topic), self._options(name, topic)) for name, topic in own.items()},
        )
        await self._until_there(list(self.inputs))
        self._counts = self._counted()
        await self.client.refresh_metadata([*self.inputs, *changelogs.values()])
        have = {table: count for table, name in changelogs.items() if (count := len(self.client.partitions(name)))}
        if self._follower is not None:
            await self._follower.learn([name for name, topic in self.inputs.items() if not topic.is_internal])
            if self.app.watermarks is not None:
                self._follower.follow()
        self.layout = Layout.of(self.app, self._counts, have, self.origins)
        self._assignor.topology = self.layout.topology
        self._assignor.digests = digests = {
            name: self.layout.described(name)["digest"] for name in self.layout.topology.subtopologies
        }
        before = {table: self._digests_of(table) for table in self._specs}
        self._assignor.fitting = frozenset(
            name
            for name, digest in digests.items()
            if all(before[table] == {digest} for table in self.layout.topology.subtopologies[name].tables)
        )
        await create(
            self.client,
            self.app.conf,
            {name: (count, self._options(name)) for name, count in self.layout.bridges.items()}
            | {
                changelogs[table]: (count, CHANGELOG_OPTIONS | dict(self._specs[table].changelog_options))
                for table, count in self.layout.tables.items()
            },
        )
        self.places = self.layout.places()
        for topics in self.layout.apart:
            log.warning(
                "app %s: topics are read together that are partitioned by different rules, so that records of one key "
                "do not meet: %s. See %s",
                self.app.id,
                topics,
                PAGE,
            )
        for name, count in self.layout.bridges.items():
            log.info(
                "app %s: a topic has another number of partitions than what it belongs with: its records go through "
                "%s, "
                "with %d",
                self.app.id,
                name,
                count,
            )

    async def _start_global_tables(self) -> None:
        if not self.app.global_tables:
            return
        assert self._state is not None
        self.global_tables = GlobalTables(self.app, self.client, self._state.open)
        await self.global_tables.start()
        self.app.global_stores = self.commits.global_stores = self.global_tables.stores

    def _digests_of(self, table: str) -> set[str]:
        """Of the sub-topology that a table was in when this worker has started, as its markers say."""
        return {marker.topology.get("digest", "") for marker in self._written.markers.get(table, {}).values()}

    async def _check_growth(self) -> None:
        """Raises CommitRefused where a topic that a table belongs to has grown: records that were read since the last
        commit may be in another partition than the rows of their keys."""
        tied = [name for name in self.inputs if name in self.layout.direct]
        if not tied:
            return
        for name, count in (await self._growth.counts(tied)).items():
            if count != self._counts[name]:
                self._has_grown = True
                raise CommitRefused(
                    f"app {self.app.id}: topic {name} has grown; what was read of it since is read again"
                )

    def _counted(self) -> dict[str, int]:
        return {name: self._count(name) for name in self.inputs}

    def _count(self, topic: str) -> int:
        return len(self.client.partitions(topic))

    async def _lay_out_again(self) -> None:
        """Input topics have grown: commit, end all tasks, and join with what there is to be read now."""
        self._has_grown = False
        await self._finish([*self.running, *self._loading])
        before = self.layout
        await self._lay_out()
        # A bridge has the name of the task whose tables are behind it from now on.
        fitting = [id for id, stores in self.copies.stores.items() if stores.keys() == self._tables_of(id)]
        self.copies.keep(fitting, self._ended)
        self._ended = {}
        if self.layout.topology.topics != before.topology.topics:
            await self._join()
        self._begin_held()

    async def _until_there(self, topics: list[str]) -> None:
        told = False
        while True:
            await self.client.refresh_metadata(topics)
            missing = [name for name in topics if not self.client.partitions(name)]
            if not missing:
                return
            if not told:
                log.warning(
                    "app %s waits for missing topics: %s (mirrors bring copies; make others by `isthmus topic create`, "
                    "or `topics` in a topology file)",
                    self.app.id,
                    ", ".join(missing),
                )
                told = True
            await asyncio.sleep(TOPICS_WAIT_S)

    def _partitions_of(self, topic: Topic) -> int:
        """How many partitions a topic of the app gets."""
        return partitions_of(topic, self.app, self.inputs, self._count, self.app.topic_partitions)

    def _options(self, name: str, topic: Topic | None = None) -> Mapping[str, Any]:
        """Of a topic of the app."""
        return {**between_options(self.app, name), **({} if topic is None else topic.config)}

    async def run(self) -> None:
        """Process until `stop`; raises the errors of agents and commits."""
        loop = asyncio.get_running_loop()
        if self._follower is not None:
            current_origins.set(self.origins)  # for this and for the agents' tasks, which begin here
        self._commit_at = loop.time() + self.app.commit_interval_s
        while not self._stopping.is_set():
            may_go_on = not self._is_blocked and any(True for _ in self._ready())
            if self.consumer.must_poll or not may_go_on:
                for batches in await self._poll(may_go_on):
                    self._take_in(batches)
            if self._has_grown:
                await self._lay_out_again()
            if self.global_tables is not None:
                self.global_tables.check()
            self._retry_failed(loop.time())
            await self._begin_loaded()
            await self._tell_settled()
            try:
                await self._process_round()
                await self._commit_when_due(loop.time())
            except CommitRefused as error:
                await self._go_back(error)
        await self._rounds.finish(self.running.values, self._leave_s)

    async def _poll(self, may_go_on: bool) -> list[FetchedBatches]:
        """What has arrived, or arrives before something else is to be done. may_go_on: there is something now."""
        self._hold_back()
        unless = self._rounds.futures
        if self._commit is not None:
            unless.append(self._commit)
        if may_go_on:
            unless.append(asyncio.get_running_loop().create_future())
            unless[-1].set_result(None)
        try:
            return await self.consumer.poll_batches(POLL_MS, unless)
        except (NoOffset, LogTruncated) as error:
            raise StreamsError(
                f"app {self.app.id}: {error}: the app's state goes up to an offset that the topic does not have any "
                "more, "
                "or not yet (retention deleted it, the topic was created again, or a broker lost records). Nothing is "
                "skipped automatically: restore the records, or give the app another id to start over"
            ) from error
        except KafkaError as error:
            if (refused := refusal(self.app, error)) is None:
                raise
            raise refused from error

    async def stop(self) -> None:
        """Let `run` return after the current event; `close` then commits and leaves the group."""
        self._stopping.set()

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """After `run` returned or was cancelled: commit what has no half-processed event, and release everything. All
        within the time: raises ClientError or KafkaError when it is over, and `abandon` releases the rest."""
        async with self.client.operation(f"close of app {self.app.id}", timeout_ms):
            await self._finish(list(self.running))
            for task in list(self._loading):
                await self._end(task)
            await self._purge.close()
            await self.copies.close()
            if self.global_tables is not None:
                await self.global_tables.close()
            await self.channels.close()
            await self.replies.close()
            if self._follower is not None:
                await self._follower.close()
            await self.consumer.close()
            await self.commits.close()
            self._close_state()

    async def abandon(self) -> None:
        """After an error: release everything quickly, commit nothing. The next run continues at the last checkpoint."""
        if self._commit is not None:
            self._commit.cancel()
            await asyncio.gather(self._commit, return_exceptions=True)
            self._commit = None
        for task in [*self.running, *self._loading]:
            await self._end(task)
        await self._purge.close()
        await self.copies.close()
        if self.global_tables is not None:
            with contextlib.suppress(KafkaError, ClientError):
                await self.global_tables.close()
        await self.channels.close()
        await self.replies.close()
        if self._follower is not None:
            with contextlib.suppress(KafkaError, ClientError):
                await self._follower.close()
        for closing in (self.consumer.close, self.commits.close):
            with contextlib.suppress(KafkaError, ClientError):
                await closing(ABANDON_MS)
        self._close_state()

    def _close_state(self) -> None:
        for stores in self._ended.values():
            for store in stores.values():
                store.close()
        self._ended = {}
        if self._state is not None:
            self._state.close()

    # --- What the app's own code asks it -------------------------------------------------------------

    @property
    def _leave_s(self) -> float:
        """How long a task that leaves waits for an agent that is in the middle of an event."""
        return self.app.conf.broker_rebalance_timeout / 2

    def stores(self, table: str) -> Sequence[HasRows]:
        """Of a table, from all tasks that run here, in the order of their partitions; of a global one, all."""
        if table in self.app.global_stores:
            return [self.app.global_stores[table]]
        return [
            self.running[id].task.stores[table] for id in sorted(self.running) if table in self._subtopology(id).tables
        ]

    @property
    def is_leader(self) -> bool:
        """Whether partition 0 of the first topic, by name, is here."""
        tp = TopicPartition(self.layout.topology.topics[0], 0)
        return tp in self.consumer.assignment()

    @property
    def is_rebalancing(self) -> bool:
        return self._is_rebalancing

    def copy(self, id: TaskId) -> Copy | None:
        """What is here of the tables of a task that does not run here; of one that is being restored, too."""
        if id in self._loading and id in self._copied_at:
            return Copy(self._loading[id].stores, self._copied_at[id])
        at = self.copies.whole_at(id)
        return None if at is None else Copy(self.copies.stores[id], at)

    def global_table_whole_at(self, table: str) -> float | None:
        """As `Copy.whole_at`; None for a table that is not global, and before it was read once."""
        is_global = self.global_tables is not None and table in self.global_tables.stores
        return self.global_tables.whole_at(table) if is_global and self.global_tables is not None else None

    @property
    def restoring(self) -> list[TaskId]:
        """Tasks that wait for their tables."""
        return sorted(self._loading)

    @property
    def reading(self) -> list[str]:
        """Global tables that were never read to their end yet."""
        return [] if self.global_tables is None else self.global_tables.reading

    async def _tell_settled(self) -> None:
        """After a rebalance, when all tasks are restored."""
        if self._is_rebalancing and self._has_joined and not self._loading and not self.reading:
            self._is_rebalancing = False
            await tell_recovered(self.app)
            await tell(self.app.on_rebalance_complete)
            self.settled.set()

    # --- Records ------------------------------------------------------------------------------------

    def _take_in(self, batches: FetchedBatches) -> None:
        run = self.running.get(self._task_of(batches.tp)) if self._knows(batches.tp) else None
        if run is None:
            return  # revoked during the fetch, or not read any more
        topic = self.layout.topics[batches.tp.topic]
        places = self.places.get(batches.tp.topic)
        if places is not None and places.is_due():
            with contextlib.suppress(KafkaError):  # what cannot be read is said where it is its turn
                keys = [record.key for record in islice(iter_records(batches.records), LOOK_KEYS)]
                if (told := places.look(keys, batches.tp.partition, self._counts[batches.tp.topic])) is not None:
                    log.warning("%s", told)
        from_offset = max(batches.from_offset, run.task.positions[batches.tp.topic].offset)
        run.add(Backlog(batches, topic, from_offset))

    def _hold_back(self) -> None:
        """Fetch nothing of partitions of which there is something to process, so that it stays bounded."""
        for tp, run in list(self._behind.items()):
            if tp.topic not in run.lane_of(tp.topic).backlogs:
                del self._behind[tp]
                self.consumer.resume([tp])
        for run in self.running.values():
            for lane in run.lanes:
                for topic in lane.backlogs:
                    tp = TopicPartition(topic, run.task.partition)
                    if tp not in self._behind:
                        self._behind[tp] = run
                        self.consumer.pause([tp])

    def _ready(self, leaving: Collection[TaskId] = ()) -> Iterator[tuple[TaskRun, Lane]]:
        """Lanes that have something to process, and are not at it, but for those of tasks that leave."""
        for id, run in self.running.items():
            for lane in run.lanes if id not in leaving else ():
                if lane.is_ready and not self._rounds.is_busy(lane):
                    yield run, lane

    @property
    def _is_due(self) -> bool:
        """Whether a commit is to begin as soon as can be."""
        if self._commit is not None:
            return False
        return asyncio.get_running_loop().time() >= self._commit_at or self._rounds.is_owed

    async def _process_round(self, leaving: Collection[TaskId] = ()) -> None:
        """Give all lanes that may have them their next events, but for those of tasks that leave. An agent that waits
        for something holds up no agent of another lane meanwhile."""
        now = asyncio.get_running_loop().time()
        is_due = self._is_due
        overdue_s = now - self._commit_at
        is_overdue = self.commits.has_outputs and overdue_s > OVERDUE_S
        # It waits for agents that have taken events. One event more may be what they wait for; other tasks wait, else
        # they would have taken some when these are done. Or they wait for a time to be over, and must not have taken
        # the next event by then: so there are pauses, each as long as all before it.
        is_behind = is_overdue and any(run.is_behind for run in self.running.values())
        must_wait = is_overdue and all(run.is_whole for run in self.running.values())
        must_wait = must_wait or (is_behind and int(math.log2(overdue_s / OVERDUE_S)) % 2 == 1)
        until = now + BATCH_S if now >= self._commit_at else min(now + BATCH_S, self._commit_at)
        for run, lane in list(self._ready(leaving)):
            may_begin = run.is_behind if is_behind else self._rounds.may_begin(run, lane, is_due)
            if must_wait or not may_begin:
                continue
            most = 1 if is_behind else lane.most
            self._rounds.begin(run, lane, lane.process(most, until, self.runtime.wall_ms()))
        self._tick(now, leaving)
        await self._rounds.turn()
        await self._see_ended()

    async def _see_ended(self) -> None:
        """Steps that have ended. Raises what they have raised, but for what a record has failed at."""
        ended = self._rounds.ended()
        for run, lane, begun, step in ended:
            try:
                done = step.result()
            except RecordError as error:
                if error.must_stop:
                    raise
                if self.running.get(run.task.id) is run:
                    await self._hold(run, error)
                continue
            if done is not None:
                self.processed_total += done
                lane.took(done, asyncio.get_running_loop().time() - begun)
        # A step may have had to let a commit come first; and lanes may wait for one.
        self._is_blocked = not any(step.running.result() for step in ended if not step.running.exception())

    def _tick(self, now: float, leaving: Collection[TaskId]) -> None:
        """Tell operators the time, some times a second."""
        if now < self._tick_at:
            return
        self._tick_at = now + TICK_S
        self._purge.look(now)
        self._split.seen(now, self._missing())
        for id, run in self.running.items():
            for lane in run.lanes if id not in leaving else ():
                if lane.chained and not self._rounds.is_busy(lane):
                    self._rounds.begin(run, lane, lane.tick(self.runtime.wall_ms()))

    async def _leave_out(self, task: Task, left_out: LeftOut) -> None:
        """Log a record that is left out, and write it as a dead letter if that is the policy. Of records that an agent
        had taken together, each is its own dead letter; only the first is logged with the traceback."""
        self.left_out_total += 1
        problem = left_out.problem
        cause = problem.__cause__ if left_out.by is not None and problem is not self._left_out_by else None
        self._left_out_by = problem
        log.warning("left out (%s, %d so far): %s", left_out.policy, self.left_out_total, problem, exc_info=cause)
        await write_dead_letter(self.commits, self.app.dead_letters, task, left_out)

    # --- Tasks that failed --------------------------------------------------------------------------

    async def _hold(self, run: TaskRun, problem: RecordError) -> None:
        """A record has failed: end its task, and try it again after a pause that grows. Other tasks go on."""
        id = run.task.id
        self._fail(id, problem, (problem.at[0], problem.at[2]) if problem.at is not None else None)
        await self._committed_or_back()
        wrote = run.task in self._writers()
        await self._end(id)
        if wrote:  # what must not be committed
            await self._go_back(
                CommitRefused(f"app {self.app.id}: what task {id} wrote since the last commit is undone")
            )

    def _fail(self, id: TaskId, problem: StreamsError, careful_at: tuple[str, int] | None) -> None:
        failures = self.failed[id].failures + 1 if id in self.failed else 1
        pause_s = min(RETRY_S * 2 ** (failures - 1), RETRY_MAX_S)
        self.failed[id] = Failed(problem, failures, asyncio.get_running_loop().time() + pause_s, careful_at)
        log.error("task %s ends, and is tried again in %.0f s: %s", id, pause_s, problem, exc_info=problem.__cause__)

    def _forget_overcome(self) -> None:
        """Tasks that have committed what they had failed at have not failed any more."""
        for id, (_, _, _, careful_at) in list(self.failed.items()):
            run = self.running.get(id)
            if run is None:
                continue
            at = run.task.positions.get(careful_at[0]) if careful_at is not None else None
            if careful_at is None or at is None or at.offset > careful_at[1]:
                log.info("task %s goes on after what it had failed at", id)
                del self.failed[id]

    def _retry_failed(self, now: float) -> None:
        held = dict.fromkeys(self.consumer.assignment())
        for id, each in list(self.failed.items()):
            known = id.subtopology in self.layout.topology.subtopologies
            if not known or not all(tp in held for tp in self._partitions([id])):
                del self.failed[id]  # it is elsewhere
            elif each.retry_at <= now and id not in self._loading and id not in self.running:
                self._begin([id])

    # --- Commits ------------------------------------------------------------------------------------

    async def _commit_when_due(self, now: float) -> None:
        """Begin a commit of all tasks that have changed, one at a time. Raises what the last one has raised."""
        if self._commit is not None and self._commit.done():
            commit, self._commit = self._commit, None
            commit.result()
            self._forget_overcome()
        if self._commit is not None or not (now >= self._commit_at or self._rounds.is_owed):
            return
        if self._rounds.must_wait():
            return
        await self._check_agents()
        for run in list(self.running.values()):
            await run.send_heartbeats()
        if self._begin_commit(list(self.running.values())):
            self._commit_at = now + self.app.commit_interval_s

    async def _check_agents(self) -> None:
        """Notice agents that ended between two batches, such as by a time limit of their own."""
        self.channels.check()
        for run in list(self.running.values()):
            try:
                run.check()
            except RecordError as error:
                if error.must_stop:
                    raise
                await self._hold(run, error)

    def _begin_commit(self, runs: Sequence[TaskRun]) -> bool:
        """Begin a commit of those of these tasks that are between events. False: it must wait for an agent. The outputs
        of all tasks are in one transaction, so that none that has written to it may be in the middle of an event."""
        whole = [run for run in runs if run.is_whole]
        partial = [run for run in runs if not run.is_whole]
        self._rounds.missed(run for run in partial if not run.is_behind)
        writers = self._writers()
        if any(run.task in writers for run in partial):
            self._rounds.missed(run for run in whole if run.task in writers)
            return False
        for run in whole:
            run.before_checkpoint()
        self._rounds.committed(whole)
        checkpoints = [run.task.checkpoint() for run in whole if run.task.changed]
        if checkpoints:
            self._commit = self.commits.begin_commit(checkpoints)
        return True

    def _writers(self) -> Collection[Task]:
        """Tasks that may have written what the next commit has: which one has changed a global table is not known."""
        if self._is_shared_changed:
            return [run.task for run in self.running.values()]
        return self.commits.writers

    @property
    def _is_shared_changed(self) -> bool:
        return any(store.has_changes for store in self.commits.global_stores.values())

    async def _committed_or_back(self) -> None:
        """Wait for the commit under way; if it is refused, all tasks go back."""
        try:
            await self._committed()
        except CommitRefused as error:
            await self._go_back(error)

    async def _committed(self) -> None:
        """Wait for the commit under way, if any."""
        commit, self._commit = self._commit, None
        if commit is not None:
            await commit

    async def _go_back(self, error: CommitRefused, leaving: Collection[TaskId] = ()) -> None:
        """Nothing since the last commit counts: restore all tasks as they were then, but for those that leave."""
        log.warning("%s", error)
        with contextlib.suppress(CommitRefused):
            await self._committed()  # which may be the last one
        for id in [*self.running, *self._loading]:
            await self._end(id)
        await self.commits.roll_back()  # last, since agents may write until they end
        self._begin_held(leaving)

    # --- Assignment ---------------------------------------------------------------------------------

    def _begin(self, ids: Sequence[TaskId]) -> None:
        """Restore tasks, beside whatever else goes on. `_begin_loaded` lets them run."""
        if not ids:
            return
        self._copied_at |= {id: at for id in ids if (at := self.copies.whole_at(id)) is not None}
        tasks = [
            Task(
                self.app.id,
                id,
                self.copies.take(id) or self._ended.pop(id, None) or self._new_stores(id),
                self.layout.described(id.subtopology),
            )
            for id in ids
        ]
        for task in tasks:
            self._loading[task.id] = task
        restoring = asyncio.get_running_loop().create_task(self._restore(tasks), name=f"restore of {self.app.id}")
        self._restorations[restoring] = tasks

    async def _restore(self, tasks: Sequence[Task]) -> None:
        """Fill the tasks' stores, and set where they go on."""
        await fence.check(self.client, self.app.id)  # again, as a member of the group
        tps = self._partitions([task.id for task in tasks])
        # First, since it waits for transactions of the partitions' last owner, which may still be committed.
        committed = await self.consumer.committed(tps)
        rows = _Rows(self.app.id, len(tasks))
        await load(self.client, tasks, self.app.changelog_topic, rows.loaded)
        if self.global_tables is not None:
            await self.global_tables.caught_up()  # what the last owner has written there is here
        rows.told()
        fit: list[Task] = []
        for task in tasks:
            try:
                task.restored()
                rewritten = prepare(task)
            except ChangeRefused as error:
                self._refused[task.id] = error
                continue
            fit.append(task)
            for table, count in rewritten.items():
                log.info(
                    "task %s: table %s is of version %d now: %d rows were rewritten, and are committed with its "
                    "first checkpoint",
                    task.id,
                    table,
                    self._specs[table].version,
                    count,
                )
        fresh: dict[TopicPartition, Task] = {}
        for task in fit:
            # Topics that are read by another task now go on from the group's offsets there.
            task.keep_topics(self._subtopology(task.id).topics, self.layout.topology.topics)
            for topic in self._subtopology(task.id).topics:
                tp = TopicPartition(topic, task.partition)
                topic_id = self.client.topic_id(topic)
                if topic_id is not None and not task.bind_topic_id(topic, uuid_to_str(topic_id)):
                    raise StreamsError(
                        f"app {self.app.id}: topic {topic} was deleted and created again, but the tables of task "
                        f"{task.id} include the old one up to offset {task.positions[topic].offset}. Nothing is "
                        "skipped "
                        "automatically: give the app another id to start over"
                    )
                if topic in task.positions:
                    continue
                if tp in committed:
                    task.set_start(topic, Position(committed[tp]))
                else:
                    fresh[tp] = task
        if fresh:
            begins = await Admin(self.client).list_offsets(
                dict.fromkeys(fresh, self.app.conf.consumer_auto_offset_reset)
            )
            for tp, task in fresh.items():
                task.set_start(tp.topic, Position(begins[tp][0]))

    async def _begin_loaded(self) -> None:
        """Let tasks run that are restored. Raises what their restoration has raised."""
        for restoring in [each for each in self._restorations if each.done()]:
            tasks = self._restorations.pop(restoring)
            restoring.result()
            for task in tasks:
                if self._loading.get(task.id) is not task:
                    continue  # it was taken away meanwhile
                del self._loading[task.id]
                self._copied_at.pop(task.id, None)
                if (refused := self._refused.pop(task.id, None)) is not None:
                    self._cannot_run(task, refused)
                    continue
                careful_at = self.failed[task.id].careful_at if task.id in self.failed else None
                self.running[task.id] = TaskRun(
                    task,
                    self.layout.parts(task),
                    self._leave_out,
                    self.commits,
                    self._has_more,
                    careful_at,
                    self.origins,
                )
                self._assignor.fitting |= {task.id.subtopology}
                log.info("task %s goes on after checkpoint %d", task.id, task.checkpoint_number)
                for tp in self._partitions([task.id]):
                    at = task.positions[tp.topic]
                    self.consumer.seek(tp, at.offset, at.leader_epoch)
                    self.consumer.resume([tp])

    def _cannot_run(self, task: Task, problem: ChangeRefused) -> None:
        """Its state was written by other code, since this worker has started: that code may have it back."""
        task.close()
        self._fail(task.id, problem, None)
        if task.id.subtopology in self._assignor.fitting:
            self._assignor.fitting -= {task.id.subtopology}
            if self.app.conf.group_protocol != CONSUMER:  # else the cluster assigns, which knows nothing of code
                self.consumer.request_rejoin()

    def _has_more(self, topic: str, partition: int) -> bool:
        """Whether more of a partition is known to come."""
        return self.consumer.lag(TopicPartition(topic, partition)) != 0

    def _subtopology(self, id: TaskId) -> SubTopology:
        return self.layout.topology.subtopologies[id.subtopology]

    def _partitions(self, ids: Sequence[TaskId]) -> list[TopicPartition]:
        return [TopicPartition(topic, id.partition) for id in ids for topic in self._subtopology(id).topics]

    def _tables_of(self, id: TaskId) -> Collection[str]:
        """Without any where the present layout has no such task."""
        found = self.layout.topology.subtopologies.get(id.subtopology)
        return frozenset(() if found is None else found.tables)

    def _new_stores(self, id: TaskId) -> dict[str, Store]:
        assert self._state is not None
        return {
            name: self._state.open(self._specs[name], self.app.changelog_topic(name), id.partition)
            for name in self._subtopology(id).tables
        }

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._has_joined = self._is_rebalancing = True
        if any(self._counts[topic] != count for topic, count in self._counted().items()):
            self._has_grown = True  # `run` lays the app out again
        self._begin_held()
        self._keep_copies()
        await tell(self.app.on_partitions_assigned, set(partitions))

    def _begin_held(self, leaving: Collection[TaskId] = ()) -> None:
        """Begin the tasks whose partitions are all held, and that do not run. Others, and those of topics that are not
        read any more, wait."""
        held = dict.fromkeys(self.consumer.assignment())
        busy = {*self.running, *self._loading, *self.failed, *leaving}
        waiting = [tp for tp in held if not self._knows(tp) or self._task_of(tp) not in busy]
        self.consumer.pause(waiting)
        for tp in waiting:
            self.consumer.seek(tp, 0)  # somewhere, else the consumer looks for a place of its own
        ids = dict.fromkeys(self._task_of(tp) for tp in waiting if self._knows(tp))
        self._begin([id for id in ids if id not in busy and all(tp in held for tp in self._partitions([id]))])

    def _missing(self) -> dict[TaskId, list[TopicPartition]]:
        """What is elsewhere of the tasks of which a part is here."""
        held = dict.fromkeys(self.consumer.assignment())
        ids = dict.fromkeys(self._task_of(tp) for tp in held if self._knows(tp))
        return {id: gone for id in ids if (gone := [tp for tp in self._partitions([id]) if tp not in held])}

    def _knows(self, tp: TopicPartition) -> bool:
        """Whether it belongs to a task in the present layout."""
        if tp.topic not in self.layout.topics:
            return False
        tables = self.layout.topology.of_topic(tp.topic).tables
        return not tables or tp.partition < self.layout.tables[tables[0]]

    def _task_of(self, tp: TopicPartition) -> TaskId:
        return self.layout.topology.task_of(*tp)

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._is_rebalancing = True
        await self._finish([self._task_of(tp) for tp in partitions if self._knows(tp)])
        await tell(self.app.on_partitions_revoked, set(partitions))

    def _here(self) -> Here:
        """What the leader of the group shall know."""
        return Here(tuple(self.running), self.copies.lags(), self.url, self.commits.transactional_id)

    def _is_told(self, told: Told) -> None:
        for name in told.waiting:
            if name not in self.told.waiting:
                log.warning(
                    "app %s: %s is run by workers with other code, and not shared with them: this worker waits until "
                    "the last of them has left",
                    self.app.id,
                    name,
                )
        self.commits.end_others(to_end(self.told, told, self.commits.transactional_id))
        self.told = told
        if not told.is_current:
            self.consumer.request_rejoin()

    def _keep_copies(self) -> None:
        """Have the copies that the leader wants here, but not of tasks that still run here."""
        mine = {*self.running, *self._loading}
        known = self.layout.topology.subtopologies
        self.copies.keep([id for id in self.told.copies if id not in mine and id.subtopology in known], self._ended)
        self._ended = {}

    def _caught_up(self, id: TaskId) -> None:
        if id in self.told.moving:
            log.info("the tables of task %s are here: it can move", id)
            self.consumer.request_rejoin()

    async def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group has removed this worker, and others may have its tasks: they end, and what is open is aborted."""
        log.warning("app %s: the group has removed this worker: its tasks end, and go on elsewhere", self.app.id)
        with contextlib.suppress(CommitRefused):
            await self._committed()
        for id in dict.fromkeys(self._task_of(tp) for tp in partitions if self._knows(tp)):
            await self._end(id)
        await self.commits.removed()
        await tell(self.app.on_partitions_revoked, set(partitions))

    async def _finish(self, ending: Sequence[TaskId]) -> None:
        """Commit, and end tasks that leave. Those that stay go on meanwhile, but for a moment: in the commit, whoever
        has written to its transaction must be between events."""
        loop = asyncio.get_running_loop()
        began, until = loop.time(), loop.time() + self._leave_s
        ids = dict.fromkeys(ending)
        leaving: list[TaskRun] = []
        refused: CommitRefused | None = None
        try:
            await self._go_on_until_committed(ids)
            await self._go_on_while(lambda: self._rounds.worth_waiting_for(self._runs(ids), began), ids, until)
            await self._rounds.finish(lambda: self._needed(ids), until - loop.time())
            leaving = self._runs(ids)
            if not self._begin_commit(list(self.running.values()) if self.commits.has_outputs else leaving):
                refused = CommitRefused(
                    f"app {self.app.id}: an agent is in the middle of an event while its task leaves"
                )
            await self._go_on_until_committed(ids)
        except CommitRefused as error:
            refused = error
        for id in [run.task.id for run in leaving if not run.is_whole]:
            log.warning("task %s ends during an event, or failed: it goes on from its last checkpoint", id)
        whole = [run.task.id for run in leaving if refused is None and run.is_whole and not run.task.changed]
        for id in ids:
            await self._end(id, is_clean=id in whole)
        wrote = any(run.task in self.commits.writers for run in leaving)
        if refused is None and (wrote or (self._is_shared_changed and len(whole) < len(leaving))):
            refused = CommitRefused(f"app {self.app.id}: what tasks wrote as they left is undone")
        if refused is not None:
            await self._go_back(refused, ids)

    def _runs(self, ids: Collection[TaskId]) -> list[TaskRun]:
        return [self.running[id] for id in ids if id in self.running]

    def _needed(self, leaving: Collection[TaskId]) -> list[TaskRun]:
        """Which tasks must be between events for a commit of those that leave."""
        writers = self._writers()
        return [run for id, run in self.running.items() if id in leaving or run.task in writers]

    async def _go_on_until_committed(self, leaving: Collection[TaskId]) -> None:
        """Wait for the commit under way, if any, while tasks that stay go on."""
        await self._go_on_while(lambda: [] if self._commit is None else [self._commit], leaving)
        await self._committed()

    async def _go_on_while(
        self,
        waits: Callable[[], Sequence[asyncio.Future[Any]]],
        leaving: Collection[TaskId],
        until: float = NEVER,
    ) -> None:
        """While one of these is not done, but not beyond a loop time, tasks that stay go on: this may be in a poll, for
        which `run` waits. Raises what their steps raise."""
        loop = asyncio.get_running_loop()
        while any(id not in leaving for id in self.running) and (left := until - loop.time()) > 0:
            pending = waits()
            if all(each.done() for each in pending):
                return
            if self._is_blocked or not any(True for _ in self._ready(leaving)):
                self._hold_back()
                unless = [*pending, *self._rounds.futures]
                for batches in await self.consumer.take_arrived(min(POLL_MS, left * 1000), unless):
                    self._take_in(batches)
            await self._process_round(leaving)

    async def _end(self, id: TaskId, is_clean: bool = False) -> None:
        """Stop a task that runs or is being restored. is_clean: its tables have nothing that is not committed."""
        self._copied_at.pop(id, None)
        if (loading := self._loading.pop(id, None)) is not None:
            for restoring, tasks in list(self._restorations.items()):
                if loading in tasks and not any(self._loading.get(each.id) is each for each in tasks):
                    restoring.cancel()
                    await asyncio.gather(restoring, return_exceptions=True)
                    del self._restorations[restoring]
            loading.close()
        if (run := self.running.pop(id, None)) is not None:
            run.task.is_over = True
            self._behind = {tp: each for tp, each in self._behind.items() if each is not run}
            await self._rounds.drop(run)
            await run.stop()
            if is_clean:
                self._ended[id] = run.task.stores  # for a copy, if there is to be one here
            else:
                run.task.close()
