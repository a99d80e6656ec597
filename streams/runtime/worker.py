"""The stream worker: gets partitions from the group, restores their tasks, feeds agents, commits.

A task is restored beside the others, which go on; its partitions are paused until then. A commit that is refused,
because the group has removed this worker or the cluster has aborted the transaction, counts for nothing: all tasks go
back to their last checkpoint.

Its parts: what there is to be read, and how the app is laid out over it (`topics.py`); tasks that are restored
(`restoring.py`), that have failed (`failed.py`), that run (`task_run.py`); which of these have their next events
(`rounds.py`); what is written (`commits.py`); copies of tables of others' tasks (`copies.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from ...client import Client, TopicPartition
from ...client.consumer import FetchedBatches
from ...client.errors import ClientError, LogTruncated, NoOffset
from ...client.joining import CONSUMER
from ...client.operation import CLOSE_TIMEOUT_MS
from ...protocol.errors import KafkaError
from ...protocol.records import iter_records
from ...runtime import Runtime, system
from ..api.app import App
from ..api.topics import Topic
from ..api.union import HasRows
from ..engine.origin import current_origins
from ..engine.partitioning import LOOK_KEYS, Places
from ..engine.stores.store import Store
from ..engine.task import Task, TaskId
from ..engine.topic_names import BETWEEN, kind_of
from ..errors import ChangeRefused, CommitRefused, RecordError, StreamsError
from .agents import NEVER
from .assignor import Here, TaskAssignor, Told, to_end
from .backlog import Backlog
from .channels import ChannelAgents
from .commits import UNNAMED, Commits
from .copies import Copies, Copy
from .datacenters import Datacenters
from .dead_letters import write_dead_letter
from .failed import Failed, FailedTasks
from .global_tables import GlobalTables
from .group import MEMBER, Split, name_of, new_consumer, refusal, tell_what_is_not_there, writers_named_by
from .lane import BATCH_S, Lane, LeftOut
from .layout import Layout
from .purging import Purge
from .replies import ReplyReader
from .restoring import Restoring
from .rounds import Rounds
from .services import tell, tell_recovered
from .state import State, partition_for_ever
from .task_run import TaskRun
from .topics import AppTopics

log = logging.getLogger("isthmus.streams")

POLL_MS = 100
TICK_S = 0.5  # between ticks of operators
OVERDUE_S = 1.0  # a commit that has waited for so long is put before new events
BETWEEN_S = 1.0  # at most, between a commit that took long and the next one
ABANDON_MS = 2_000  # what a worker that has failed may take for leaving its group, and again for closing its producers


class StreamWorker:
    """Runs one app on one client until `stop`. Several workers of an app share its tasks through the group. name:
    unique among the app's workers at a time, and the same after a restart; None: consumer_group_instance_id, else a
    random one."""

    def __init__(self, app: App, client: Client, runtime: Runtime | None = None, name: str | None = None) -> None:
        self.app = app
        self.client = client
        self.runtime = runtime or system()
        self._given_name = name
        self._state: State | None = None  # from the start on
        self.topics = AppTopics(app, client)
        self._specs = app.all_tables()
        self.running: dict[TaskId, TaskRun] = {}
        self._assignor = TaskAssignor(self.layout.topology, app.standby_replicas, self._here, self._is_told)
        self.consumer = new_consumer(app, client, self.layout.topology, self._assignor)
        self.name = name or app.conf.consumer_group_instance_id or name_of(self.consumer) or self.runtime.uuid().hex()
        self._split = Split(app.id)
        self.datacenters = Datacenters(app.id)
        self.global_tables: GlobalTables | None = None  # from `start` on, if the app has any
        self.copies = Copies(client, app.changelog_topic, self._new_stores, self._caught_up)
        self.told = Told()
        self.url = ""  # of the web server
        self._purge = Purge(
            app.id, client, lambda topic: kind_of(app.id, topic) in BETWEEN, app.conf.repartition_purge_interval
        )
        self.commits = Commits(
            app, client, self.consumer, self.name, self.runtime, self.topics.check_growth, self._purge.committed
        )
        self._left_out_by: RecordError | None = None  # the last of them
        self.left_out_total = 0
        self._failed = FailedTasks()
        self.processed_total = 0
        self._restoring = Restoring(app, client, self.consumer, self.topics, self.copies, self._new_store)
        self._rounds = Rounds(self._writers)
        self._is_blocked = False
        self._behind: dict[TopicPartition, TaskRun] = {}  # paused, until their tasks have processed what they have
        self._look_at = 0.0  # loop time from which to see what has arrived, though there is something to process
        self._tick_at = 0.0
        self._commit: asyncio.Task[None] | None = None
        self._commit_began = self._commit_at = NEVER
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
        await self.topics.check_changes()
        await self._lay_out()
        await self._start_global_tables()
        await self.commits.start(
            bool(self._specs) or self.app.is_exactly_once or any(topic.is_internal for topic in self.inputs.values())
        )
        self.channels = ChannelAgents(self.app.id, self.app.agents)
        await self._join()

    async def _join(self) -> None:
        topics = self.layout.topology.topics
        await self.consumer.subscribe(topics, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost)

    async def _start_global_tables(self) -> None:
        if not self.app.global_tables:
            return
        assert self._state is not None
        self.global_tables = GlobalTables(self.app, self.client, self._state.open)
        await self.global_tables.start()
        self._restoring.global_tables = self.global_tables
        self.app.global_stores = self.commits.global_stores = self.global_tables.stores

    async def _lay_out(self) -> None:
        await self.topics.lay_out()
        self._assignor.topology = self.layout.topology
        self._assignor.digests = self.topics.digests()
        self._assignor.fitting = self.topics.fitting()

    async def _lay_out_again(self) -> None:
        """Input topics have grown: commit, end all tasks, and join with what there is to be read now."""
        self.topics.has_grown = False
        await self._finish([*self.running, *self._restoring.tasks])
        before = self.layout
        await self._lay_out()
        self._keep_copies(self.copies.stores)
        if self.layout.topology.topics != before.topology.topics:
            await self._join()
        self._begin_held()

    async def run(self) -> None:
        """Process until `stop`; raises the errors of agents and commits."""
        loop = asyncio.get_running_loop()
        if self.app.needs_origins:
            current_origins.set(self.topics.origins)  # for this and for the agents' tasks, which begin here
        self._commit_at = loop.time() + self.app.commit_interval_s
        while not self._stopping.is_set():
            may_go_on = self._may_go_on()
            if self.consumer.must_poll or self._looks(may_go_on):
                for batches in await self._poll(may_go_on):
                    self._take_in(batches)
            if self.topics.has_grown:
                await self._lay_out_again()
            if self.global_tables is not None:
                self.global_tables.check()
            self._retry_failed(loop.time())
            self._begin_restored()
            await self._tell_settled()
            try:
                await self._process_round()
                await self._commit_when_due(loop.time())
            except CommitRefused as error:
                await self._go_back(error)
        await self._rounds.finish(self.running.values, self._leave_s)

    def _may_go_on(self, leaving: Collection[TaskId] = ()) -> bool:
        """Whether there is something to process now."""
        return not self._is_blocked and any(True for _ in self._ready(leaving))

    def _looks(self, may_go_on: bool) -> bool:
        """Whether to see what has arrived: where there is nothing to process now, and else some times a second, since
        what was fetched of one task may last for minutes, while others have nothing."""
        return not may_go_on or asyncio.get_running_loop().time() >= self._look_at

    def _look_ends(self, may_go_on: bool, *pending: asyncio.Future[Any]) -> list[asyncio.Future[Any]]:
        """What ends a look at what has arrived, besides an arrival: at once where there is something to process now."""
        loop = asyncio.get_running_loop()
        self._look_at = loop.time() + POLL_MS / 1000
        self._hold_back()
        ends = [*pending, *self._rounds.futures]
        if may_go_on:
            ends.append(loop.create_future())
            ends[-1].set_result(None)
        return ends

    async def _poll(self, may_go_on: bool) -> list[FetchedBatches]:
        """What has arrived, or arrives before something else is to be done."""
        unless = self._look_ends(may_go_on, *([] if self._commit is None else [self._commit]))
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
            for task in list(self._restoring.tasks):
                await self._end(task)
            await self._purge.close()
            await self.copies.close()
            if self.global_tables is not None:
                await self.global_tables.close()
            await self.channels.close()
            await self.replies.close()
            await self.topics.close()
            await self.consumer.close()
            await self.commits.close()
            self._close_state()

    async def abandon(self) -> None:
        """After an error: release everything quickly, commit nothing. The next run continues at the last checkpoint."""
        if self._commit is not None:
            self._commit.cancel()
            await asyncio.gather(self._commit, return_exceptions=True)
            self._commit = None
        for task in [*self.running, *self._restoring.tasks]:
            await self._end(task)
        await self._purge.close()
        await self.copies.close()
        if self.global_tables is not None:
            with contextlib.suppress(KafkaError, ClientError):
                await self.global_tables.close()
        await self.channels.close()
        await self.replies.close()
        with contextlib.suppress(KafkaError, ClientError):
            await self.topics.close()
        for closing in (self.consumer.close, self.commits.close):
            with contextlib.suppress(KafkaError, ClientError):
                await closing(ABANDON_MS)
        self._close_state()

    def _close_state(self) -> None:
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
            self.running[id].task.stores[table]
            for id in sorted(self.running)
            if table in self.layout.subtopology(id).tables
        ]

    @property
    def inputs(self) -> Mapping[str, Topic]:
        """Declarations of what the app's code reads, by name."""
        return self.topics.inputs

    @property
    def layout(self) -> Layout:
        return self.topics.layout

    @property
    def places(self) -> Mapping[str, Places]:
        return self.topics.places

    @property
    def failed(self) -> Mapping[TaskId, Failed]:
        """Tasks that are tried again, and have not got on yet."""
        return self._failed.tasks

    @property
    def unheard_ms(self) -> int:
        """For how long the group has not answered this worker, once others may have its tasks; else 0."""
        return round(self.consumer.unheard_s * 1000)

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
        return self._restoring.copy(id) or self.copies.copy(id)

    def global_table_whole_at(self, table: str) -> float | None:
        """As `Copy.whole_at`; None for a table that is not global, and before it was read once."""
        is_global = self.global_tables is not None and table in self.global_tables.stores
        return self.global_tables.whole_at(table) if is_global and self.global_tables is not None else None

    @property
    def restoring(self) -> list[TaskId]:
        """Tasks that wait for their tables."""
        return sorted(self._restoring.tasks)

    def restored_percent(self, id: TaskId) -> int | None:
        """How much of a task's tables is here, of one that waits for them; None: it is not known."""
        return self._restoring.percent(id)

    @property
    def reading(self) -> list[str]:
        """Global tables that were never read to their end yet."""
        return [] if self.global_tables is None else self.global_tables.reading

    async def _tell_settled(self) -> None:
        """After a rebalance, when all tasks are restored."""
        if self._is_rebalancing and self._has_joined and not self._restoring.tasks and not self.reading:
            self._is_rebalancing = False
            await tell_recovered(self.app)
            await tell(self.app.on_rebalance_complete)
            self.settled.set()

    # --- Records ------------------------------------------------------------------------------------

    def _take_in(self, batches: FetchedBatches) -> None:
        run = self.running.get(self.layout.task_of(batches.tp)) if self.layout.knows(batches.tp) else None
        if run is None:
            return  # revoked during the fetch, or not read any more
        topic = self.layout.topics[batches.tp.topic]
        places = self.places.get(batches.tp.topic)
        if places is not None and places.is_due():
            with contextlib.suppress(KafkaError):  # what cannot be read is said where it is its turn
                keys = [record.key for record in islice(iter_records(batches.records), LOOK_KEYS)]
                if (told := places.look(keys, batches.tp.partition, self.topics.counts[batches.tp.topic])) is not None:
                    log.warning("%s", told)
        run.add(Backlog(batches, topic, batches.from_offset))

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
        is_overdue = self._commit is None and self.commits.has_outputs and overdue_s > OVERDUE_S
        # It waits for agents that have taken events. One event more may be what they wait for; other tasks wait, else
        # they would have taken some when these are done. Or they wait for a time to be over, and must not have taken
        # the next event by then: so there are pauses, each as long as all before it.
        is_behind = is_overdue and any(run.is_behind for run in self.running.values())
        must_wait = is_overdue and all(run.is_whole for run in self.running.values())
        must_wait = must_wait or (is_behind and int(math.log2(overdue_s / OVERDUE_S)) % 2 == 1)
        until = now + BATCH_S if now >= self._commit_at else min(now + BATCH_S, self._commit_at)
        self._tick(now, leaving)
        for run, lane in list(self._ready(leaving)):
            may_begin = run.is_behind if is_behind else self._rounds.may_begin(run, lane, is_due)
            if must_wait or not may_begin:
                continue
            most = 1 if is_behind else lane.most
            self._rounds.begin(run, lane, lane.process(most, until, self.runtime.wall_ms()))
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
        """Tell operators the time, some times a second. Each lane has its own turn, before its next events: one that
        is always busy would never be told."""
        if now >= self._tick_at:
            self._tick_at = now + TICK_S
            self._purge.look(now)
            self._split.seen(now, self._missing())
            self.datacenters.look(self.running.values())
        for id, run in self.running.items():
            for lane in run.lanes if id not in leaving else ():
                if lane.chained and now >= lane.tick_at and not self._rounds.is_busy(lane):
                    lane.tick_at = now + TICK_S
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
        self._failed.add(id, problem, (problem.at[0], problem.at[2]) if problem.at is not None else None)
        await self._committed_or_back()
        wrote = run.task in self._writers()
        await self._end(id)
        if wrote:  # what must not be committed
            await self._go_back(
                CommitRefused(f"app {self.app.id}: what task {id} wrote since the last commit is undone")
            )

    def _retry_failed(self, now: float) -> None:
        held = dict.fromkeys(self.consumer.assignment())
        known = self.layout.topology.subtopologies

        def is_here(id: TaskId) -> bool:
            return id.subtopology in known and all(tp in held for tp in self.layout.partitions([id]))

        for id in self._failed.due(now, is_here):
            if id not in self._restoring.tasks and id not in self.running:
                self._restoring.begin([id])

    # --- Commits ------------------------------------------------------------------------------------

    async def _commit_when_due(self, now: float) -> None:
        """Begin a commit of all tasks that have changed, one at a time. Raises what the last one has raised."""
        if self._commit is not None and self._commit.done():
            await self._committed()
            self._failed.committed(self.running)
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
            self._commit_began = asyncio.get_running_loop().time()
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
        """Wait for the commit under way, if any. So do agents that write to a transaction: the next one is not due
        before they had as much time for events as this one has taken, else it would be of one event each."""
        commit, self._commit = self._commit, None
        if commit is None:
            return
        try:
            await commit
        finally:
            now = asyncio.get_running_loop().time()
            self._commit_at = max(self._commit_at, now + min(now - self._commit_began, BETWEEN_S))

    async def _go_back(self, error: CommitRefused, leaving: Collection[TaskId] = ()) -> None:
        """Nothing since the last commit counts: restore all tasks as they were then, but for those that leave."""
        log.warning("%s", error)
        with contextlib.suppress(CommitRefused):
            await self._committed()  # which may be the last one
        for id in [*self.running, *self._restoring.tasks]:
            await self._end(id)
        await self.commits.roll_back()  # last, since agents may write until they end
        self._begin_held(leaving)

    # --- Assignment ---------------------------------------------------------------------------------

    def _begin_restored(self) -> None:
        """Let tasks run that are restored. Raises what their restoration has raised."""
        for task, parts in self._restoring.ended():
            if isinstance(parts, ChangeRefused):
                self._cannot_run(task, parts)
                continue
            self.running[task.id] = TaskRun(
                task,
                parts,
                self._leave_out,
                self.commits,
                self._has_more,
                self._failed.careful_at(task.id),
                self.topics.origins,
            )
            self._assignor.fitting |= {task.id.subtopology}
            log.info("task %s goes on after checkpoint %d", task.id, task.checkpoint_number)
            for tp in self.layout.partitions([task.id]):
                at = task.positions[tp.topic]
                self.consumer.seek(tp, at.offset, at.leader_epoch)
                self.consumer.resume([tp])

    def _cannot_run(self, task: Task, problem: ChangeRefused) -> None:
        """Its state was written by other code, since this worker has started: that code may have it back."""
        task.close()
        self._failed.add(task.id, problem, None)
        if task.id.subtopology in self._assignor.fitting:
            self._assignor.fitting -= {task.id.subtopology}
            if self.app.conf.group_protocol != CONSUMER:  # else the cluster assigns, which knows nothing of code
                self.consumer.request_rejoin()

    def _has_more(self, topic: str, partition: int) -> bool:
        """Whether more of a partition is known to come."""
        return self.consumer.lag(TopicPartition(topic, partition)) != 0

    def _new_stores(self, id: TaskId) -> dict[str, Store]:
        return {name: self._new_store(id, name) for name in self.layout.subtopology(id).tables}

    def _new_store(self, id: TaskId, table: str) -> Store:
        assert self._state is not None
        return self._state.open(self._specs[table], self.app.changelog_topic(table), id.partition)

    async def _assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self._has_joined = self._is_rebalancing = True
        self.topics.look()  # `run` lays the app out again if they have grown
        self._begin_held()
        self._keep_copies(self.told.copies)
        if partitions and self.app.conf.group_protocol == CONSUMER:
            self.commits.end_unnamed(MEMBER + UNNAMED, partial(writers_named_by, self.client, self.app.id))
        await tell(self.app.on_partitions_assigned, set(partitions))

    def _begin_held(self, leaving: Collection[TaskId] = ()) -> None:
        """Begin the tasks whose partitions are all held, and that do not run. Others, and those of topics that are not
        read any more, wait."""
        held = dict.fromkeys(self.consumer.assignment())
        busy = {*self.running, *self._restoring.tasks, *self.failed, *leaving}
        waiting = [tp for tp in held if not self.layout.knows(tp) or self.layout.task_of(tp) not in busy]
        self.consumer.pause(waiting)
        for tp in waiting:
            self.consumer.seek(tp, 0)  # somewhere, else the consumer looks for a place of its own
        ids = dict.fromkeys(self.layout.task_of(tp) for tp in waiting if self.layout.knows(tp))
        self._restoring.begin(
            [id for id in ids if id not in busy and all(tp in held for tp in self.layout.partitions([id]))]
        )

    def _missing(self) -> dict[TaskId, list[TopicPartition]]:
        """What is elsewhere of the tasks of which a part is here."""
        held = dict.fromkeys(self.consumer.assignment())
        ids = dict.fromkeys(self.layout.task_of(tp) for tp in held if self.layout.knows(tp))
        return {id: gone for id in ids if (gone := [tp for tp in self.layout.partitions([id]) if tp not in held])}

    async def _revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self._is_rebalancing = True
        await self._finish([self.layout.task_of(tp) for tp in partitions if self.layout.knows(tp)])
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
        is_first = not self.told.writers and min(told.writers, default="") == self.commits.transactional_id
        self.told = told
        if is_first:  # perhaps all that were there before were killed
            self.commits.end_unnamed(UNNAMED, self._told_writers)
        if not told.is_current:
            self.consumer.request_rejoin()

    async def _told_writers(self) -> Collection[str]:
        return self.told.writers

    def _keep_copies(self, wanted: Iterable[TaskId]) -> None:
        """Have copies of these tasks, but not of those that run here, nor of what the present layout does not have: a
        bridge has the name of the task whose tables are behind it."""
        mine = {*self.running, *self._restoring.tasks}
        known = self.layout.topology.subtopologies
        here = self.copies.stores
        self.copies.keep(
            [
                id
                for id in wanted
                if id not in mine
                and id.subtopology in known
                and (id not in here or here[id].keys() == self.layout.tables_of(id))
            ],
            self.told.moving,
        )

    def _caught_up(self, id: TaskId) -> None:
        if id in self.told.moving:
            log.info("the tables of task %s are here: it can move", id)
            self.consumer.request_rejoin()

    async def _lost(self, partitions: Sequence[TopicPartition]) -> None:
        """The group has removed this worker, and others may have its tasks: they end, and what is open is aborted."""
        log.warning("app %s: the group has removed this worker: its tasks end, and go on elsewhere", self.app.id)
        with contextlib.suppress(CommitRefused):
            await self._committed()
        for id in dict.fromkeys(self.layout.task_of(tp) for tp in partitions if self.layout.knows(tp)):
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
        committed = 0
        for id in ids:
            is_clean = refused is None and id in self.running and self.running[id].is_committed()
            committed += is_clean
            await self._end(id, is_clean)
        wrote = any(run.task in self.commits.writers for run in leaving)
        if refused is None and (wrote or (self._is_shared_changed and committed < len(leaving))):
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
            may_go_on = self._may_go_on(leaving)
            if self._looks(may_go_on):
                unless = self._look_ends(may_go_on, *pending)
                for batches in await self.consumer.take_arrived(min(POLL_MS, left * 1000), unless):
                    self._take_in(batches)
            await self._process_round(leaving)

    async def _end(self, id: TaskId, is_clean: bool = False) -> None:
        """Stop a task that runs or is being restored. is_clean: its tables had nothing that is not committed."""
        await self._restoring.end(id)
        if (run := self.running.pop(id, None)) is not None:
            run.task.is_over = True
            self._behind = {tp: each for tp, each in self._behind.items() if each is not run}
            await self._rounds.drop(run)
            have_ended = await run.stop()
            # Since then agents may have gone on with events that they had taken, or have changed rows as they ended.
            if is_clean and have_ended and not any(store.has_changes for store in run.task.stores.values()):
                self.copies.leave(id, run.task.stores)
            else:
                run.task.close()
