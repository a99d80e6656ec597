"""The life of tasks in a worker: fed, committed, taken away."""

import asyncio
import contextlib
import dataclasses
from typing import Any

import pytest

from isthmus.client import FetchedBatches
from isthmus.client.errors import TransactionAborted
from isthmus.streams.engine.event import Event
from isthmus.streams.engine.operators.processor import ProcessorContext
from isthmus.streams.engine.partitioning import Places
from isthmus.streams.engine.stores.global_store import GlobalStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.engine.tables import TableSpec
from isthmus.streams.engine.task import TaskId
from isthmus.streams.runtime import agents as agents_module
from isthmus.streams.runtime.assignor import Told
from isthmus.streams.runtime.worker import BETWEEN_S
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .fakes import turns
from .running import Clock
from .world import ALO, EOS, GONE, ONE, OTHER, World, counted


@run_by(in_loop)
async def test_tables_and_positions_are_committed_together(monkeypatch):
    world = World(monkeypatch)
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 10, OTHER: 4}
    await world.until(lambda: (world.position(0), world.position(1)) == (10, 4))
    assert (world.table(0), world.table(1)) == (counted(10), counted(4))
    await world.end()


@run_by(in_loop)
async def test_a_batch_that_an_agent_takes_whole_is_smaller_where_it_is_slow(monkeypatch):
    sizes: list[int] = []

    async def slow(stream: Any) -> None:
        async for batch in stream.batches():
            sizes.append(len(batch))
            clock.now += len(batch) / 500  # 500 events a second

    world, clock = World(monkeypatch, slow, interval_s=1e9), Clock(monkeypatch)
    await world.start(ONE)
    world.group.ends = {ONE: 3_000}
    await world.until(lambda: world.worker.processed_total == 3_000)
    assert sum(sizes) == 3_000 and sizes[0] == 1 and max(sizes) <= 64
    await world.end()


@run_by(in_loop)
async def test_a_task_that_always_has_something_to_do_is_told_the_time_all_the_same(monkeypatch):
    class Slow:
        def process(self, event: Event, context: ProcessorContext) -> None:
            clock.now += 0.1
            context.set_timer(1, wall_clock=True)

        def on_timer(self, timer: Any, context: ProcessorContext) -> None:
            fired.append(world.processed(0))

    async def nothing(stream: Any) -> None:
        async for _ in stream:
            ...

    fired: list[int] = []
    world = World(monkeypatch, nothing, has_table=False, reads=lambda app: app.stream("in").process(Slow, name="slow"))
    clock = Clock(monkeypatch)
    await world.start(ONE)
    world.group.ends = {ONE: 300}  # half a minute
    await world.until(lambda: world.worker.processed_total == 300)
    assert len(fired) >= 20
    await world.end()


@run_by(in_loop)
async def test_a_task_that_is_long_at_what_was_fetched_does_not_keep_another_from_its_events(monkeypatch):
    async def slow(stream: Any) -> None:
        async for event in stream.events():
            clock.now += 0.01 if event.partition == 0 else 0.0

    world, clock = World(monkeypatch, slow), Clock(monkeypatch)
    world.group.ends = {ONE: 3_000}
    await world.start(ONE, OTHER)
    await world.until(lambda: world.worker.processed_total > 10)
    world.group.ends[OTHER] = 1
    await world.until(lambda: world.processed(1) == 1)
    assert world.processed(0) < 100
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
    tasks = world.worker.restoring if guarantee == EOS else world.worker.running
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
async def test_what_an_agent_had_taken_is_committed_once_it_is_done_though_nothing_more_comes(monkeypatch):
    async def take(stream: Any) -> None:
        async for events in stream.take_events(2, 5.0):
            world.seen[0] = world.seen.get(0, 0) + len(events)

    world, clock = World(monkeypatch, take), Clock(monkeypatch)
    world.group.ends = {ONE: 1}
    await world.start(ONE)
    await world.until(lambda: world.worker.processed_total == 1)
    assert (world.position(), world.table()) == (0, {})
    clock.now += 6.0
    await world.until(lambda: world.position() == 1)
    assert world.table() == {0: 1}
    await world.end()


@run_by(in_loop)
async def test_a_change_of_a_global_table_is_not_committed_in_the_middle_of_its_event(monkeypatch):
    """Which task has changed it is not known, so that the commit waits for all."""
    world, stuck = stuck_world(monkeypatch, ALO)
    clock = Clock(monkeypatch)
    await until_stuck(world, stuck)
    spec = TableSpec("g", is_global=True)
    store = GlobalStore(spec, [MemoryStore(spec)], lambda key: 0)
    world.worker.commits.global_stores = {"g": store}
    store.set("k", 1)  # as the agent has that is stuck
    clock.now, world.worker._commit_at = 100.0, 50.0
    world.group.ends[OTHER] = 12
    await world.until(lambda: world.processed(1) == 12)
    await turns(100)
    assert world.journal.committed("app-g-changelog") == [] and world.position(1) == 2
    stuck.go_on.set()
    await world.until(lambda: (world.position(0), world.position(1)) == (5, 12))
    assert (b'"k"', b"1") in world.journal.committed("app-g-changelog")
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

    world = World(monkeypatch, take, guarantee=EOS, has_table=False, interval_s=1e18)
    clock = Clock(monkeypatch)
    world.journal.gates["commit"] = asyncio.Event()
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


@pytest.mark.parametrize("when", ["during the commit", "as it ends"])
@run_by(in_loop)
async def test_what_an_agent_changes_while_its_task_leaves_is_not_in_its_tables_when_it_comes_back(monkeypatch, when):
    """Its tables stay here for a copy, or for the task itself: with what is committed, and no more."""

    async def take(stream: Any) -> None:
        try:
            async for events in stream.take_events(2, 5.0):
                for event in events:
                    world.seen[event.offset % 3] = world.seen.get(event.offset % 3, 0) + 1
        finally:
            if when == "as it ends":
                world.seen[0] = world.seen.get(0, 0) + 1

    world = World(monkeypatch, take, interval_s=1e18)
    clock = Clock(monkeypatch)
    world.journal.gates["commit"] = asyncio.Event()
    await world.start(ONE, OTHER)
    world.group.ends = {ONE: 1, OTHER: 2}
    await world.until(lambda: world.worker.processed_total == 3)
    world.group.rebalance("revoke", OTHER, ONE)
    world.group.rebalance("assign", ONE)
    await world.until(lambda: "offsets" in world.journal.steps)
    if when == "during the commit":
        clock.now += 6.0  # the agent of the first goes on with what it has
        await turns()
    world.journal.gates["commit"].set()
    await world.until(lambda: world.journal.steps.count("assign") == 2 and world.worker.running)
    assert dict(world.worker.stores("seen")[0].rows) == {}
    await world.end()


@run_by(in_loop)
async def test_what_an_agent_changes_in_a_global_table_while_its_task_leaves_is_undone(monkeypatch):
    """Its event is not committed: it is done again by the next owner, and counted again."""

    async def take(stream: Any) -> None:
        async for events in stream.take_events(2, 5.0):
            table = store if events[0].partition == 0 else seen
            table.set("n", len(events))

    spec = TableSpec("g", is_global=True)
    store = GlobalStore(spec, [MemoryStore(spec)], lambda key: 0)
    world = World(monkeypatch, take, interval_s=1e18)
    clock = Clock(monkeypatch)
    world.journal.gates["commit"] = asyncio.Event()
    await world.start(ONE, OTHER)
    await world.until(lambda: len(world.worker.running) == 2)
    world.worker.commits.global_stores = {"g": store}
    [seen] = [run.task.stores["seen"] for id, run in world.worker.running.items() if id.partition == 1]
    world.group.ends = {ONE: 1, OTHER: 2}
    await world.until(lambda: world.worker.processed_total == 3)
    world.group.rebalance("revoke", OTHER, ONE)
    await world.until(lambda: "offsets" in world.journal.steps)
    clock.now += 6.0
    await turns()
    assert store.has_changes
    world.journal.gates["commit"].set()
    await world.until(lambda: "revoke" in world.journal.steps)
    assert (world.position(1), dict(store.rows)) == (2, {})
    await world.end()


@pytest.mark.parametrize("is_refused", [False, True])
@run_by(in_loop)
async def test_tables_of_a_task_stay_here_unless_its_last_commit_was_refused(monkeypatch, is_refused):
    world = World(monkeypatch, interval_s=1e18)
    await world.start(ONE)
    world.group.ends = {ONE: 2}
    await world.until(lambda: world.worker.processed_total == 2)
    [run] = world.worker.running.values()
    world.journal.fails["offsets"] = [TransactionAborted("by its timeout")] * is_refused
    world.group.rebalance("revoke", ONE)
    world.group.rebalance("assign", ONE)
    await world.until(lambda: world.journal.steps.count("assign") == 2 and world.worker.running)
    await world.until(lambda: world.processed(0) == 2)
    [store] = world.worker.stores("seen")
    assert dict(store.rows) == counted(2) and (store is run.task.stores["seen"]) != is_refused
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
    world = World(monkeypatch, guarantee=guarantee, interval_s=1e9)
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
    assert not world.worker.running and not world.worker.restoring and not world.worker.commits.is_busy
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


@run_by(in_loop)
async def test_what_an_agent_sends_while_another_one_ends_after_a_refused_commit_is_undone(monkeypatch):
    ends, sent = asyncio.Event(), []

    async def forward(stream: Any) -> None:
        try:
            async for event in stream.events():
                if event.partition == 1:
                    await ends.wait()
                await world.out.send(key=None, value=f"{event.partition}-{event.offset}")
                sent.append(event)
        finally:
            ends.set()
            await turns()

    world = World(monkeypatch, forward, guarantee=EOS, has_table=False)
    world.journal.fails["commit"] = [TransactionAborted("by its timeout")]
    world.group.ends = {ONE: 1, OTHER: 1}
    await world.start(ONE, OTHER)
    await world.until(lambda: (world.position(0), world.position(1)) == (1, 1))
    assert len(sent) == 4 and sorted(world.journal.committed("out")) == [(None, b'"0-0"'), (None, b'"1-0"')]
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
    world.group.rebalance("assign", ONE)
    await world.until(lambda: world.worker.running)
    [again] = world.worker.running.values()
    over = True
    await run.stop()
    await world.end()
    assert again.task.stores["seen"] is not run.task.stores["seen"], "it might still have changed those"


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
    world.group.waits = True
    world.group.ends = {ONE: 1_000, OTHER: 1_000}
    await world.start(ONE)
    await asyncio.sleep(0.55)
    world.group.rebalance("assign", OTHER)
    await asyncio.sleep(40.0)
    try:
        assert world.position(0) > 20 and world.position(1) > 20
    finally:
        await world.end()


@pytest.mark.parametrize(("guarantee", "lasts_s", "share"), [(EOS, 0.3, 0.4), (EOS, 5.0, 0.1), (ALO, 5.0, 0.9)])
@run_by(in_virtual_time)
async def test_commits_that_take_long_leave_time_for_events(loop, /, monkeypatch, guarantee, lasts_s, share):
    """An agent that writes to a transaction waits for the commit under way, and then has the event that it has taken.
    Were the next commit due at once, that would be all."""

    async def send(stream: Any) -> None:
        async for event in stream.events():
            await asyncio.sleep(0.01)
            await world.out.send(key=None, value=event.offset)

    world = World(monkeypatch, send, guarantee=guarantee, interval_s=0.1, between_s=BETWEEN_S)
    world.journal.lasts_s["commit"] = lasts_s
    world.group.waits = True
    world.group.ends = {ONE: 10_000, OTHER: 10_000}
    await world.start(ONE, OTHER)
    await asyncio.sleep(60.0)
    try:
        assert min(world.processed(0), world.processed(1)) > share * 60.0 / 0.01
    finally:
        await world.end()


@run_by(in_loop)
async def test_before_a_commit_a_task_tells_those_behind_it_how_far_it_is(monkeypatch):
    """They would wait for ever for one that has nothing to send them."""

    async def nothing(stream: Any) -> None:
        async for _ in stream:
            pass

    def reads(app: Any) -> Any:
        app.stream("in").filter(lambda value: False).group_by(lambda value: value, name="by-value").tumbling(1).count(
            name="n"
        )
        return app.topic("in")

    world = World(monkeypatch, nothing, has_table=False, reads=reads)
    [between] = [name for name, topic in world.worker.inputs.items() if topic.is_internal]
    world.client.topics[between] = world.client.topics["in"]
    await world.start(ONE)
    world.group.ends = {ONE: 2}
    await world.until(lambda: len(world.journal.committed(between)) == 2)
    assert world.journal.committed(between, 1) == [(None, None)], "a heartbeat to each partition"
    await world.end()


# --- What the leader of the group says ----------------------------------------------------------------


@run_by(in_loop)
async def test_what_a_worker_that_is_gone_has_open_is_ended_and_who_was_told_of_other_code_joins_again(monkeypatch):
    world = World(monkeypatch)
    await world.start(ONE)
    await world.until(lambda: world.worker.running)
    for writers in ({"app-me", "app-you"}, {"app-me"}):
        world.worker._is_told(Told(writers=frozenset(writers)))
    await world.until(lambda: "app-you" in world.journal.started)
    assert world.group.rejoins == 0
    world.worker._is_told(Told(is_current=False))
    assert world.group.rejoins == 1
    await world.end()


@run_by(in_loop)
async def test_a_task_that_runs_or_is_not_of_this_layout_has_no_copy_beside_it(monkeypatch):
    """On disk the copy would be in the task's own folder. And who waits for a copy joins when it has caught up."""
    world = World(monkeypatch)
    await world.start(ONE)
    await world.until(lambda: world.worker.running)
    [mine] = world.worker.running
    other, unknown = TaskId(mine.subtopology, 1), TaskId("before", 1)
    kept: list[list[TaskId]] = []
    monkeypatch.setattr(world.worker.copies, "keep", lambda ids, moving=(): kept.append(ids))
    world.worker._keep_copies([mine, other, unknown])
    assert kept == [[other]]
    world.worker.told = Told(copies=(other, unknown), moving=(other,))
    for id in (unknown, other):
        world.worker._caught_up(id)
    assert world.group.rejoins == 1
    await world.end()
