"""The life of tasks in a worker: restored, fed, committed, taken away; with group, changelogs and producers replaced.

Transactions are those of `fakes.py`; a task is restored from what they committed.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.client import Client, FetchedBatches, TopicPartition
from isthmus.client.errors import TransactionAborted
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.primitives import ZERO_UUID
from isthmus.streams import App, AppError, ChangeRefused, RecordError, StreamsError
from isthmus.streams.engine.changes import Written
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, as_read
from isthmus.streams.engine.partitioning import Places
from isthmus.streams.engine.stores.global_store import GlobalStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.task import Task
from isthmus.streams.runtime import agents as agents_module
from isthmus.streams.runtime import declaring as declaring_module
from isthmus.streams.runtime import group as group_module
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .fakes import PLAIN, TRANSACTIONAL, Journal, turns
from .running import Clock, fetched

ALO, EOS = "at_least_once", "exactly_once"
CHANGELOG = "app-seen-changelog"
ONE, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)
GONE = KafkaError.of(ErrorCode.ILLEGAL_GENERATION, "app")


class Group:
    """Stands for the consumer: its partitions change, and have records, as the test says."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.positions: dict[TopicPartition, int | None] = {}
        self.paused: set[TopicPartition] = set()
        self.ends: dict[TopicPartition, int] = {}
        self.offsets: dict[TopicPartition, int] = {}
        self.coming: list[Callable[[], Any]] = []  # rebalances, each in a poll
        self.must_poll = False
        self.rejoins = 0

    async def subscribe(self, topics: Sequence[str], *, on_assigned: Any, on_revoked: Any, on_lost: Any) -> None:
        self.callbacks = {"assign": on_assigned, "revoke": on_revoked, "lose": on_lost}

    def rebalance(self, what: str, *tps: TopicPartition) -> None:
        async def happen() -> None:
            if what == "assign":
                self.positions |= dict.fromkeys(tps)
            await self.callbacks[what](list(tps))
            if what != "assign":
                for tp in tps:
                    del self.positions[tp]
                    self.paused.discard(tp)
            self.journal.done.append((what, *tps))

        self.coming.append(happen)

    async def poll_batches(self, timeout_ms: float, unless: Sequence[Any] = ()) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        if self.coming:
            await self.coming.pop(0)()
        return self._arrived()

    async def take_arrived(self, timeout_ms: float, unless: Sequence[Any] = ()) -> list[FetchedBatches]:
        await asyncio.sleep(0)
        return self._arrived()

    def _arrived(self) -> list[FetchedBatches]:
        found = []
        for tp, position in self.positions.items():
            end = self.ends.get(tp, 0)
            if tp in self.paused or position is None or position >= end:
                continue
            found.append(fetched(end - position, position, tp.partition))
            self.positions[tp] = end
        return found

    def assignment(self) -> list[TopicPartition]:
        return list(self.positions)

    def pause(self, tps: Sequence[TopicPartition]) -> None:
        self.paused.update(tps)

    def resume(self, tps: Sequence[TopicPartition]) -> None:
        self.paused.difference_update(tps)

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int = -1) -> None:
        assert tp in self.positions
        self.positions[tp] = offset

    async def committed(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        self.journal.done.append(("committed",))
        return {tp: self.offsets[tp] for tp in tps if tp in self.offsets}

    def group_metadata(self) -> str:
        return "group"

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets |= offsets

    def request_rejoin(self) -> None:
        self.rejoins += 1

    async def close(self, timeout_ms: float = 0) -> None: ...


class World:
    """A worker of an app with a table `seen`, which counts what it reads by key."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *agents: Any,
        guarantee: str = ALO,
        has_table: bool = True,
        **options: Any,
    ) -> None:
        self.journal = Journal(monkeypatch)
        self.app = app = App("app", processing_guarantee=guarantee, broker_commit_interval=0.0)
        self.seen = seen = app.Table("seen", default=int) if has_table else {}
        self.out = app.topic("out")
        self.created: list[str] = []
        self.policy = "compact"
        self.gates: dict[int, asyncio.Event] = {}  # restorations of these partitions wait

        async def count(stream: Any) -> None:
            async for event in stream.events():
                seen[event.offset % 3] = seen.get(event.offset % 3, 0) + 1
                if guarantee == EOS:
                    await self.out.send(key=None, value=event.offset)

        for agent in agents or (count,):
            app.agent(app.topic("in"), tables=[seen] if has_table else (), **options)(agent)
        client = Client("127.0.0.1:1")
        self.topic_id: bytes | None = None
        known = SimpleNamespace(leaders={0: 1, 1: 1}, topic_id=ZERO_UUID)
        client.topics.update({"in": known, CHANGELOG: known})  # type: ignore[dict-item]

        async def refresh_metadata(*_: Any, **__: Any) -> None: ...

        monkeypatch.setattr(client, "refresh_metadata", refresh_metadata)
        monkeypatch.setattr(client, "topic_id", lambda _: self.topic_id)
        monkeypatch.setattr(worker_module, "load", self._load)
        self.written = Written()
        monkeypatch.setattr(worker_module, "written", self._written)
        for module in (worker_module, declaring_module):
            monkeypatch.setattr(module, "Admin", lambda client: self)
        self.group = Group(self.journal)
        monkeypatch.setattr(group_module, "Consumer", lambda *_, **__: self.group)
        self.client = client
        self.worker = StreamWorker(app, client, name="me")
        self.running: asyncio.Task[None] | None = None

    async def list_offsets(self, wanted: Mapping[TopicPartition, str]) -> dict[TopicPartition, tuple[int, int]]:
        return dict.fromkeys(wanted, (0, -1))

    async def describe_configs(self, topics: Sequence[str]) -> dict[str, list[Any]]:
        return {topic: [SimpleNamespace(name="cleanup.policy", value=self.policy)] for topic in topics}

    async def create_topics(self, topics: Sequence[Any]) -> None:
        self.created += [topic.name for topic in topics]

    async def _written(self, client: Client, app_id: str, read: Any) -> Written:
        return self.written

    async def _load(self, client: Client, tasks: Sequence[Task], changelog: Any, loaded: Any) -> None:
        self.journal.done.append(("load",))
        for task in tasks:
            if task.partition in self.gates:
                await self.gates[task.partition].wait()
            for table, store in task.stores.items():
                committed = self.journal.committed(changelog(table), task.partition)
                rows, marker = as_read([key for key, _ in committed], [value for _, value in committed], table)
                store.restore(rows, len(committed), marker)

    async def start(self, *tps: TopicPartition) -> None:
        await self.worker.start()
        self.running = asyncio.ensure_future(self.worker.run())
        if tps:
            self.group.rebalance("assign", *tps)

    async def until(self, what: Callable[[], Any]) -> None:
        for _ in range(2_000):
            if what():
                return
            if self.running is not None and self.running.done():
                self.running.result()
            await asyncio.sleep(0)
        raise AssertionError("it does not come to that")

    def table(self, partition: int = 0) -> dict[int, int]:
        """What is committed."""
        committed = self.journal.committed(CHANGELOG, partition)
        return {int(key): int(value) for key, value in committed if key != MARKER and value}  # type: ignore[arg-type]

    def position(self, partition: int = 0) -> int:
        """What is committed."""
        decided = 0
        pending = 0
        for each in self.journal.done:
            if each[0] == "offsets":
                pending = each[1].get(TopicPartition("in", partition), pending)
            elif each[0] == "commit":
                decided = pending
            elif each[0] == "abort":
                pending = decided
        return decided

    def processed(self, partition: int) -> int:
        """Up to where a task has processed its topic."""
        [run] = [run for id, run in self.worker.running.items() if id.partition == partition]
        return run.task.positions["in"].offset

    async def end(self) -> None:
        if self.running is not None:
            self.running.cancel()
            await asyncio.gather(self.running, return_exceptions=True)
        await self.worker.abandon()


def counted(end: int) -> dict[int, int]:
    """The table after so many records."""
    return {n: len(range(n, end, 3)) for n in range(3) if n < end}


@run_by(in_loop)
async def test_tables_and_positions_are_committed_together(monkeypatch):
    world = World(monkeypatch)
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 10, OTHER: 4}
    await world.until(lambda: (world.position(0), world.position(1)) == (10, 4))
    assert (world.table(0), world.table(1)) == (counted(10), counted(4))
    await world.end()


@run_by(in_loop)
async def test_offsets_of_the_group_are_asked_for_before_changelogs_are_read(monkeypatch):
    """That waits for the last owner's transactions, whose rows may be committed yet."""
    world = World(monkeypatch)
    await world.start(ONE)
    await world.until(lambda: world.worker.running)
    assert world.journal.steps == ["start", "assign", "committed", "load"]
    await world.end()


@pytest.mark.parametrize(("has_table", "begins_at"), [(True, 10), (False, 7)])
@run_by(in_loop)
async def test_a_task_goes_on_from_its_marker_or_without_tables_from_the_group(monkeypatch, has_table, begins_at):
    given: list[int] = []

    async def see(stream: Any) -> None:
        async for event in stream.events():
            given.append(event.offset)

    world = World(monkeypatch, see, has_table=has_table)
    await world.start(ONE)
    world.group.ends = {ONE: 10}
    await world.until(lambda: 10 in (world.position(), world.group.offsets.get(ONE)))
    world.group.offsets = {ONE: 7}  # as a tool may set them
    world.group.rebalance("revoke", ONE)
    world.group.rebalance("assign", ONE)
    world.group.ends = {ONE: 11}
    await world.until(lambda: given[-1] == 10)
    assert given == [*range(10), *range(begins_at, 11)]
    await world.end()


@run_by(in_loop)
async def test_a_task_is_restored_beside_those_that_go_on(monkeypatch):
    world = World(monkeypatch)
    world.gates[1] = asyncio.Event()
    await world.start(ONE)
    world.group.rebalance("assign", OTHER)
    world.group.ends = {ONE: 5, OTHER: 5}
    await world.until(lambda: world.position(0) == 5)
    assert [task.partition for task in world.worker.running] == [0] and OTHER in world.group.paused
    world.group.ends[ONE] = 9
    await world.until(lambda: world.position(0) == 9)
    world.gates[1].set()
    await world.until(lambda: world.position(1) == 5)
    assert not world.group.paused
    await world.end()


def left_by(version: int, offset: int = 3) -> Marker:
    """A marker that code with this version of the table has written."""
    return Marker("app", 1, ("seen",), {"in": Position(offset)}, table={"version": version})


@run_by(in_loop)
async def test_state_of_other_code_keeps_a_worker_from_starting(monkeypatch):
    world = World(monkeypatch)
    world.written = Written({"seen": {0: left_by(1), 1: left_by(2)}}, {"seen": 2})
    with pytest.raises(ChangeRefused, match="table seen has rows of version 2"):
        await world.start()
    assert world.journal.done == [] and world.created == []
    await world.end()


@run_by(in_loop)
async def test_a_changelog_whose_rows_would_be_deleted_is_refused(monkeypatch):
    for policy in ("delete", "compact,delete"):
        world = World(monkeypatch)
        world.policy = policy
        with pytest.raises(AppError, match=rf"app-seen-changelog has cleanup.policy={policy}.*topic alter"):
            await world.start()
        await world.end()


@run_by(in_loop)
async def test_a_task_with_state_of_later_code_waits_alone_and_the_group_is_told(monkeypatch):
    world = World(monkeypatch)
    await world.start()
    for partition, version in ((0, 1), (1, 2)):
        world.journal.done.append(("send", PLAIN, CHANGELOG, MARKER, left_by(version).encode(), partition))
    world.group.rebalance("assign", ONE, OTHER)
    await world.until(lambda: world.worker.failed and world.worker.running)
    assert [id.partition for id in world.worker.running] == [0]
    [(id, failed)] = world.worker.failed.items()
    assert id.partition == 1 and "rows of version 2, and the code has version 1" in str(failed.problem)
    assert world.group.rejoins == 1
    await world.end()


@run_by(in_loop)
async def test_a_task_that_is_taken_away_while_it_is_restored_does_not_begin(monkeypatch):
    world = World(monkeypatch)
    world.gates[0] = asyncio.Event()
    await world.start(ONE)
    await world.until(lambda: "load" in world.journal.steps)
    world.group.rebalance("revoke", ONE)
    await world.until(lambda: "revoke" in world.journal.steps)
    world.gates[0].set()
    await turns()
    assert not world.worker.running and not world.running.done()
    await world.end()


@run_by(in_loop)
async def test_state_of_a_topic_that_was_made_anew_is_not_gone_on_from(monkeypatch):
    """Its offset is another record's in the new topic, which may have grown past it."""
    one, another = b"\1" * 16, b"\2" * 16
    unknown = None  # to a cluster without ids
    for before, after, goes_on in ((one, one, True), (unknown, one, True), (one, unknown, True), (one, another, False)):
        world = World(monkeypatch)
        await world.start(ONE)
        world.topic_id = before
        world.group.ends = {ONE: 7}
        await world.until(lambda world=world: world.position() == 7)
        world.topic_id = after
        world.group.rebalance("revoke", ONE)
        world.group.rebalance("assign", ONE)
        world.group.ends = {ONE: 8}
        is_read = world.until(lambda world=world: world.position() == 8)
        if goes_on:
            await is_read
        else:
            with pytest.raises(StreamsError, match=r"topic in was deleted and created again, .* up to offset 7"):
                await is_read
        await world.end()


@run_by(in_loop)
async def test_a_batch_that_an_agent_takes_whole_is_smaller_where_it_is_slow(monkeypatch):
    sizes: list[int] = []

    async def slow(stream: Any) -> None:
        async for batch in stream.batches():
            sizes.append(len(batch))
            clock.now += len(batch) / 500  # 500 events a second

    world, clock = World(monkeypatch, slow), Clock(monkeypatch)
    world.app.conf.broker_commit_interval = 1e9
    await world.start(ONE)
    world.group.ends = {ONE: 3_000}
    await world.until(lambda: world.worker.processed_total == 3_000)
    assert sum(sizes) == 3_000 and sizes[0] == 1 and max(sizes) <= 64
    await world.end()


# --- Checkpoints ------------------------------------------------------------------------------------


@run_by(in_loop)
async def test_a_checkpoint_is_of_what_stands_when_it_is_due(monkeypatch):
    """And not of when its transaction has begun."""
    world = World(monkeypatch)
    world.journal.gates["start"] = asyncio.Event()
    await world.start(ONE)
    world.group.ends = {ONE: 1}
    await world.until(lambda: world.worker.commits.is_busy)
    world.group.ends = {ONE: 4}
    await world.until(lambda: world.worker.processed_total == 4)
    world.journal.gates["start"].set()
    await world.until(lambda: "commit" in world.journal.steps)
    assert (world.table(), world.position()) == (counted(1), 1)
    await world.until(lambda: world.position() == 4)
    assert world.table() == counted(4)
    await world.end()


class Stuck:
    """An agent that stays in the middle of an event of the first partition, after it has changed its table and sent
    something."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.is_reached = False
        self.go_on = asyncio.Event()

    def of(self, world: World) -> Any:
        async def count(stream: Any) -> None:
            async for event in stream.events():
                world.seen[event.offset % 3] = world.seen.get(event.offset % 3, 0) + 1
                await world.out.send(key=None, value=f"{event.partition}-{event.offset}")
                if event.partition == 0 and event.offset == self.at:
                    self.is_reached = True
                    await self.go_on.wait()

        return count


def stuck_world(monkeypatch: pytest.MonkeyPatch, guarantee: str, at: int = 2, **options: Any) -> tuple[World, Stuck]:
    stuck = Stuck(at)
    world = World(monkeypatch, lambda stream: stuck.of(world)(stream), guarantee=guarantee, **options)
    return world, stuck


async def until_stuck(world: World, stuck: Stuck) -> None:
    """Two tasks, of which the first stays within an event, and the other has more than is committed."""
    world.worker.app.conf.broker_rebalance_timeout = 0.0
    await world.start(ONE, OTHER)
    world.group.ends = {OTHER: 2}
    await world.until(lambda: world.position(1) == 2)
    world.worker._commit_at = 1e18
    world.group.ends = {ONE: 5, OTHER: 10}
    await world.until(lambda: stuck.is_reached and world.processed(1) == 10)


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_task_that_leaves_within_an_event_is_not_committed(monkeypatch, guarantee):
    """With exactly_once nothing is, since all outputs are in one transaction: the others do their work again."""
    world, stuck = stuck_world(monkeypatch, guarantee)
    await until_stuck(world, stuck)
    before = world.position(0)
    assert before <= 2
    await world.worker._revoked([ONE])
    assert (world.position(0), world.table(0)) == (before, counted(before))
    tasks = world.worker._loading if guarantee == EOS else world.worker.running
    assert [task.partition for task in tasks] == [1]
    assert (world.journal.steps[-1] == "abort") == (guarantee == EOS)
    await world.end()


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_an_event_in_hand_holds_up_the_commits_of_all_tasks_whose_outputs_are_with_its_own(
    monkeypatch, guarantee
):
    """The other task goes on; with exactly_once its commit waits for the event, and has that, too."""
    world, stuck = stuck_world(monkeypatch, guarantee)
    clock = Clock(monkeypatch)
    await until_stuck(world, stuck)
    clock.now, world.worker._commit_at = 100.0, 50.0
    world.group.ends[OTHER] = 12
    await world.until(lambda: world.processed(1) == 12)
    await turns(100)
    before = world.position(0)
    assert before < 3 and world.position(1) == (2 if guarantee == EOS else 12)
    world.group.ends[OTHER] = 14
    await world.until(lambda: world.processed(1) == 14)
    assert (world.position(0), world.table(0)) == (before, counted(before))
    stuck.go_on.set()
    await world.until(lambda: (world.position(0), world.position(1)) == (5, 14))
    assert (world.table(0), world.table(1)) == (counted(5), counted(14))
    assert "abort" not in world.journal.steps
    await world.end()


@run_by(in_loop)
async def test_a_batch_that_cannot_be_read_holds_its_task_alone(monkeypatch):
    """Also where its keys are looked at, since they must be where they belong."""
    world = World(monkeypatch)
    arrived = world.group._arrived

    def broken() -> list[FetchedBatches]:
        found = {each.tp: each for each in arrived()}
        if ONE in found:
            found[ONE] = dataclasses.replace(found[ONE], records=memoryview(bytes(found[ONE].records[:-1]) + b"\xff"))
        return list(found.values())

    monkeypatch.setattr(world.group, "_arrived", broken)
    await world.start(ONE, OTHER)
    world.worker.places["in"] = Places("app", "in", "murmur2_random")
    world.group.ends = {ONE: 1, OTHER: 2}
    await world.until(lambda: world.worker.failed and world.position(1) == 2)
    assert [id.partition for id in world.worker.failed] == [0]
    await world.end()


@run_by(in_loop)
async def test_what_an_agent_sends_while_its_task_leaves_is_not_committed(monkeypatch):
    """Its event is not: it is done again by the next owner, and sent again."""

    async def take(stream: Any) -> None:
        async for events in stream.take_events(2, 5.0):
            for event in events:
                await world.out.send(key=None, value=f"{event.partition}-{event.offset}")

    world = World(monkeypatch, take, guarantee=EOS, has_table=False)
    clock = Clock(monkeypatch)
    world.journal.gates["commit"] = asyncio.Event()
    world.app.conf.broker_commit_interval = 1e18
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 1, OTHER: 2}
    await world.until(lambda: len(world.journal.values("out")) == 2)
    world.group.rebalance("revoke", OTHER, ONE)
    await world.until(lambda: "offsets" in world.journal.steps)
    clock.now += 6.0  # the agent of the first goes on with what it has, and its output waits for the commit
    await turns()
    world.journal.gates["commit"].set()
    await world.until(lambda: "revoke" in world.journal.steps)
    assert world.journal.values("out")[2:] == [b'"0-0"'] and world.journal.steps[-2:] == ["abort", "revoke"]
    assert not world.worker.commits.has_outputs
    await world.end()


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_task_that_stays_goes_on_while_another_leaves(monkeypatch, guarantee):
    """While an event of that one ends, and while it is committed; with exactly_once outputs wait for the commit."""
    world, stuck = stuck_world(monkeypatch, guarantee)
    await until_stuck(world, stuck)
    world.worker.app.conf.broker_rebalance_timeout = 60.0
    world.group.rebalance("revoke", ONE)
    await turns()
    world.group.ends[OTHER] = 12
    await world.until(lambda: world.processed(1) == 12)
    world.journal.gates["commit"] = asyncio.Event()
    stuck.go_on.set()
    done = world.journal.steps.count("offsets")
    await world.until(lambda: world.journal.steps.count("offsets") > done)
    world.group.ends[OTHER] = 14
    if guarantee == ALO:
        await world.until(lambda: world.processed(1) == 14)
    assert "revoke" not in world.journal.steps
    world.journal.gates["commit"].set()
    await world.until(lambda: world.processed(1) == 14 and "revoke" in world.journal.steps)
    assert (world.position(0), world.table(0)) == (3, counted(3))
    assert "abort" not in world.journal.steps
    await world.end()


@run_by(in_loop)
async def test_the_commit_of_a_task_that_leaves_waits_for_events_with_outputs_of_others(monkeypatch):
    world, stuck = stuck_world(monkeypatch, EOS)
    await until_stuck(world, stuck)
    world.worker.app.conf.broker_rebalance_timeout = 60.0
    world.group.rebalance("revoke", OTHER)
    await turns(100)
    stuck.go_on.set()
    await world.until(lambda: "revoke" in world.journal.steps)
    assert world.position(1) == 10 and "abort" not in world.journal.steps
    await world.end()


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_task_that_leaves_is_committed_first(monkeypatch, guarantee):
    world = World(monkeypatch, guarantee=guarantee)
    world.app.conf.broker_commit_interval = 1e9
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 5, OTHER: 4}
    await world.until(lambda: world.worker.processed_total == 9)
    world.group.rebalance("revoke", ONE)
    await world.until(lambda: "revoke" in world.journal.steps)
    assert (world.position(0), world.table(0)) == (5, counted(5))
    assert [task.partition for task in world.worker.running] == [1]
    assert world.group.positions == {OTHER: 4}
    await world.end()


@pytest.mark.parametrize("under_way", [False, True])
@run_by(in_loop)
async def test_tasks_that_were_lost_end_without_a_last_checkpoint(monkeypatch, under_way):
    """Others may have them: what was done after the last checkpoint is theirs to do again."""
    world = World(monkeypatch, guarantee=ALO if under_way else EOS)
    await world.start(ONE)
    world.group.ends = {ONE: 3}
    await world.until(lambda: world.position() == 3)
    world.journal.fails["offsets"] = [GONE, GONE]
    if under_way:
        world.journal.gates["offsets"] = asyncio.Event()
    else:
        world.worker._commit_at = 1e18
    world.group.ends = {ONE: 7}
    await world.until(lambda: world.worker.processed_total == 7)
    world.group.rebalance("lose", ONE)
    await turns(50)
    if under_way:
        world.journal.gates["offsets"].set()
    await world.until(lambda: "lose" in world.journal.steps)
    assert not world.worker.running and not world.worker._loading and not world.worker.commits.is_busy
    assert (world.position(), world.table()) == (3, counted(3))
    assert "abort" in world.journal.steps and len(world.journal.committed("out")) == (0 if under_way else 3)
    await world.end()


@pytest.mark.parametrize("step", ["offsets", "commit"])
@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_after_a_refused_commit_all_tasks_do_their_work_again(monkeypatch, step, guarantee):
    world = World(monkeypatch, guarantee=guarantee)
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 3, OTHER: 2}
    await world.until(lambda: (world.position(0), world.position(1)) == (3, 2))
    world.journal.fails[step] = [TransactionAborted("by its timeout")]
    world.group.ends = {ONE: 8, OTHER: 9}
    await world.until(lambda: "abort" in world.journal.steps)
    assert (world.position(0), world.position(1)) == (3, 2)
    await world.until(lambda: (world.position(0), world.position(1)) == (8, 9))
    assert (world.table(0), world.table(1)) == (counted(8), counted(9))
    if guarantee == EOS:
        assert sorted(int(value) for _, value in world.journal.committed("out")) == sorted([*range(8), *range(9)])
    await world.end()


# --- Records that fail ------------------------------------------------------------------------------


def failing_world(monkeypatch: pytest.MonkeyPatch, guarantee: str, **options: Any) -> tuple[World, list[int]]:
    """Offset 4 of the first partition fails until it is taken out of the list."""
    bad = [4]

    async def count(stream: Any) -> None:
        async for event in stream.events():
            world.seen[event.offset % 3] = world.seen.get(event.offset % 3, 0) + 1
            await world.out.send(key=None, value=f"{event.partition}-{event.offset}")
            if event.partition == 0 and event.offset in bad:
                raise ValueError("bad")

    world = World(monkeypatch, count, guarantee=guarantee, **options)
    return world, bad


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_record_that_fails_stops_its_task_alone_until_it_does_not(monkeypatch, guarantee):
    world, bad = failing_world(monkeypatch, guarantee)
    clock = Clock(monkeypatch)
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 8, OTHER: 4}
    await world.until(lambda: world.worker.failed and world.position(1) == 4)
    for _ in range(3):
        world.group.ends[OTHER] += 1
        clock.now += 100.0  # longer than any pause
        await world.until(lambda: world.position(1) == world.group.ends[OTHER])
        await turns(100)
        assert world.position(0) <= 4
    assert world.position(0) == 4  # what is before it is committed
    bad.clear()
    clock.now += 100.0
    await world.until(lambda: world.position(0) == 8)
    assert (world.table(0), world.table(1)) == (counted(8), counted(7))
    await world.until(lambda: not world.worker.failed)
    if guarantee == EOS:
        values = sorted(value for _, value in world.journal.committed("out"))
        assert values == sorted(b'"%d-%d"' % (n, at) for n, end in ((0, 8), (1, 7)) for at in range(end))
    await world.end()


@run_by(in_loop)
async def test_a_record_that_fails_while_a_commit_is_under_way_does_not_break_it(monkeypatch):
    bad = [4]

    async def count(stream: Any) -> None:
        async for event in stream.events():
            world.seen[event.offset % 3] = world.seen.get(event.offset % 3, 0) + 1
            if event.offset == 0:
                await world.out.send(key=None, value="first")
            if event.offset in bad:
                raise ValueError("bad")

    world = World(monkeypatch, count, guarantee=EOS)
    clock = Clock(monkeypatch)
    world.journal.gates["commit"] = asyncio.Event()
    await world.start(ONE)
    world.group.ends = {ONE: 8}
    await world.until(lambda: world.worker.failed)
    assert world.journal.steps[-1] == "offsets"
    world.journal.gates["commit"].set()
    bad.clear()
    await world.until(lambda: world.position() == 1)
    clock.now += 100.0
    await world.until(lambda: world.position() == 8)
    assert world.table() == counted(8) and len(world.journal.committed("out")) == 1
    assert "abort" not in world.journal.steps
    await world.end()


@run_by(in_loop)
async def test_a_failed_task_that_moves_away_is_not_tried_again_here(monkeypatch):
    world, _ = failing_world(monkeypatch, ALO)
    clock = Clock(monkeypatch)
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 5, OTHER: 1}
    await world.until(lambda: world.worker.failed)
    world.group.rebalance("revoke", ONE)
    await world.until(lambda: "revoke" in world.journal.steps)
    clock.now += 100.0
    world.group.ends[OTHER] = 2
    await world.until(lambda: world.position(1) == 2)
    assert [task.partition for task in world.worker.running] == [1] and not world.worker.failed
    await world.end()


@run_by(in_loop)
async def test_the_stop_policy_ends_the_worker(monkeypatch):
    world, _ = failing_world(monkeypatch, ALO, on_error="stop")
    await world.start(ONE)
    world.group.ends = {ONE: 5}
    with pytest.raises(
        RecordError, match=r"agent tests.streams.runtime.test_worker.count raised ValueError: bad .* at in-0 offset 4"
    ):
        await world.until(lambda: world.position() == 5)
    await world.end()


@pytest.mark.parametrize("guarantee", [ALO, EOS])
@run_by(in_loop)
async def test_a_dead_letter_is_in_the_transaction_that_passes_its_record(monkeypatch, guarantee):
    world, _ = failing_world(monkeypatch, guarantee, on_error="dead_letter")
    await world.start(ONE)
    world.group.ends = {ONE: 6}
    await world.until(lambda: world.position() == 6)
    assert world.journal.committed("app-dead-letters") == [(b"k4", b"4")]
    [kind] = {each[1] for each in world.journal.done if each[0] == "send" and each[2] == "app-dead-letters"}
    assert (kind, world.created) == (TRANSACTIONAL, ["app-dead-letters"])
    await world.end()


@run_by(in_loop)
async def test_an_agent_that_cannot_be_cancelled_does_not_hold_up_its_worker(monkeypatch):
    """A rebalance that waited for it would never end."""
    over = False

    async def stubborn(stream: Any) -> None:
        while not over:
            with contextlib.suppress(BaseException):
                async for _ in stream:
                    pass

    monkeypatch.setattr(agents_module, "STOP_S", 0.0)
    world = World(monkeypatch, stubborn)
    await world.start(ONE)
    world.group.ends = {ONE: 3}
    await world.until(lambda: world.position() == 3)
    [run] = world.worker.running.values()
    world.group.rebalance("revoke", ONE)
    await world.until(lambda: "revoke" in world.journal.steps)
    assert not world.worker.running
    over = True
    await run.stop()
    await world.end()


@run_by(in_loop)
async def test_a_task_begins_when_the_global_tables_have_what_was_committed_by_then(monkeypatch):
    """Also after a commit that was refused: what it had changed in them is undone, and done again."""
    asked: list[asyncio.Event] = []

    class Tables:
        topics: Mapping[str, str] = {}
        reading: Sequence[str] = ()

        def __init__(self, app: App, *_: Any) -> None:
            spec = app.global_tables["all"]
            self.stores = {"all": GlobalStore(spec, [MemoryStore(spec)], lambda key: 0)}

        async def start(self) -> None: ...

        def check(self) -> None: ...

        async def caught_up(self) -> None:
            world.journal.done.append(("caught up",))
            asked.append(asyncio.Event())
            await asked[-1].wait()
            committed = world.journal.committed("app-all-changelog")
            rows, _ = as_read([key for key, _ in committed], [value for _, value in committed], "all")
            self.stores["all"].follow(0, rows, len(committed) + 40)

        async def close(self) -> None: ...

    async def count(stream: Any) -> None:
        async for _ in stream:
            everything["n"] += 1

    monkeypatch.setattr(worker_module, "GlobalTables", Tables)
    world = World(monkeypatch, count, has_table=False)
    everything = world.app.GlobalTable("all", default=int)
    await world.start(ONE)
    await world.until(lambda: asked)
    assert world.journal.steps == ["assign", "committed", "load", "caught up"] and not world.worker.running
    world.journal.fails["commit"] = [TransactionAborted("by its timeout")]
    world.group.ends = {ONE: 4}
    asked[0].set()
    await world.until(lambda: len(asked) == 2)
    assert dict(everything) == {}
    asked[1].set()
    await world.until(lambda: world.position() == 4)
    assert world.journal.committed("app-all-changelog")[-2] == (b'"n"', b"4")
    await world.end()


@pytest.mark.parametrize(("most", "within_s"), [(1_000, 1.0), (7, None)])
@run_by(in_virtual_time)
async def test_agents_that_hold_events_back_do_not_put_commits_off_for_ever(loop, /, monkeypatch, most, within_s):
    """Each task is whole for a moment only, and not when the other one is: when the commit is overdue, what is whole
    gets no more events until the others are."""

    async def send(stream: Any) -> None:
        async for event in stream.events():
            await world.out.send(key=None, value=event.offset)
            await asyncio.sleep(0.1)

    async def hold(stream: Any) -> None:
        async for _ in stream.take_events(most, within_s):
            pass

    world = World(monkeypatch, send, hold, guarantee=EOS, has_table=False)
    poll = world.group.poll_batches

    async def poll_batches(timeout_ms: float, unless: Sequence[Any] = ()) -> list[FetchedBatches]:
        found = await poll(timeout_ms)
        if not found:
            passed = loop.create_future()
            loop.call_later(timeout_ms / 1000, passed.set_result, None)
            await asyncio.wait([passed, *unless], return_when=asyncio.FIRST_COMPLETED)
        return found

    monkeypatch.setattr(world.group, "poll_batches", poll_batches)
    world.group.ends = {ONE: 1_000, OTHER: 1_000}
    await world.start(ONE)
    await asyncio.sleep(0.55)
    world.group.rebalance("assign", OTHER)
    await asyncio.sleep(40.0)
    try:
        assert world.position(0) > 20 and world.position(1) > 20
    finally:
        await world.end()
