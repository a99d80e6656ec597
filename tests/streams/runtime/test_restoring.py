"""Tasks are restored: where they go on, what they wait for, and which of them cannot run."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from isthmus.client import TopicPartition
from isthmus.client.errors import NoOffset, TransactionAborted
from isthmus.streams import App, ChangelogError, StreamsError
from isthmus.streams.engine import topic_names
from isthmus.streams.engine.checkpoint import MARKER, Marker, Position, as_read
from isthmus.streams.engine.stores.global_store import GlobalStore
from isthmus.streams.engine.stores.memory import MemoryStore
from isthmus.streams.runtime import changelogs as changelogs_module
from isthmus.streams.runtime import turns as turns_module
from isthmus.streams.runtime import worker as worker_module
from isthmus.streams.savepoints import fence
from tests.running import in_loop, run_by

from .fakes import PLAIN, turns
from .world import CHANGELOG, ONE, OTHER, World, left_by


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
async def test_a_task_goes_on_in_the_epoch_of_its_marker(monkeypatch):
    """So a log that has lost what its tables have is noticed, though it may have grown past the offset since."""
    world = World(monkeypatch)
    marker = Marker("app", 1, ("seen",), {"in": Position(3, leader_epoch=7)})
    world.journal.done.append(("send", PLAIN, CHANGELOG, MARKER, marker.encode(), 0))
    await world.start(ONE)
    await world.until(lambda: world.worker.running)
    assert (world.group.positions[ONE], world.group.epochs[ONE]) == (3, 7)
    await world.end()


@run_by(in_loop)
async def test_a_position_that_the_topic_does_not_have_ends_the_worker(monkeypatch):
    world = World(monkeypatch)
    await world.start(ONE)
    await world.until(lambda: world.worker.running)

    async def out_of_range(*_: Any) -> None:
        raise NoOffset("in-0: offset 3 is out of range")

    monkeypatch.setattr(world.group, "poll_batches", out_of_range)
    with pytest.raises(StreamsError, match=r"in-0: offset 3 is out of range: .* Nothing is skipped"):
        await world.until(lambda: False)
    await world.end()


@pytest.mark.parametrize("is_member", [False, True])
@run_by(in_loop)
async def test_state_that_is_being_replaced_keeps_a_task_from_beginning(monkeypatch, is_member):
    """It is looked for again by a member of the group: who replaces it looks for members once the fence is up."""
    world = World(monkeypatch)

    async def read(client: Any, app_id: str) -> fence.Change:
        return fence.Change(fence.RESTORE, "/saved")

    monkeypatch.setattr(fence, "read", read)
    if is_member:
        await world.start()
    world.client.topics[topic_names.fence("app")] = world.client.topics["in"]
    with pytest.raises(StreamsError, match="app app: a restore of /saved is under way"):
        if not is_member:
            await world.start()
        world.group.rebalance("assign", ONE)
        await world.until(lambda: world.worker.running)
    assert ("assign" in world.journal.steps) == is_member and "load" not in world.journal.steps
    await world.end()


@run_by(in_loop)
async def test_a_position_of_a_topic_that_another_task_reads_now_is_not_kept(monkeypatch):
    """That one goes on from it, or from what the group has; this one would come back to what was done since."""

    async def beside(stream: Any) -> None:
        async for _ in stream:
            pass

    def reads(app: App) -> Any:
        app.agent(app.topic("more"), name="beside")(beside)
        return app.topic("in")

    world = World(monkeypatch, reads=reads)
    world.client.topics["more"] = world.client.topics["in"]
    marker = Marker("app", 1, ("seen",), {name: Position(3) for name in ("in", "more", "gone")})
    world.journal.done.append(("send", PLAIN, CHANGELOG, MARKER, marker.encode(), 0))
    await world.start(ONE)
    await world.until(lambda: world.worker.running)
    [run] = world.worker.running.values()
    assert (run.task.positions, run.task.left) == ({"in": Position(3)}, {"gone": Position(3)})
    await world.end()


@run_by(in_loop)
async def test_a_task_begins_once_all_of_its_partitions_are_here(monkeypatch):
    world = World(monkeypatch, reads=lambda app: app.topic("in", "more"))
    world.client.topics["more"] = world.client.topics["in"]
    await world.start(ONE)
    await world.until(lambda: "assign" in world.journal.steps)
    await turns()
    assert not world.worker.running and not world.worker.restoring and world.group.paused == {ONE}
    world.group.rebalance("assign", TopicPartition("more", 0))
    await world.until(lambda: world.worker.running)
    assert not world.group.paused
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
async def test_one_that_is_taken_away_does_not_keep_those_that_are_restored_with_it(monkeypatch):
    world = World(monkeypatch)
    world.gates[0] = asyncio.Event()
    await world.start(ONE, OTHER)
    await world.until(lambda: "load" in world.journal.steps)
    world.group.rebalance("revoke", ONE)
    await world.until(lambda: "revoke" in world.journal.steps)
    world.gates[0].set()
    world.group.ends = {OTHER: 2}
    await world.until(lambda: world.position(1) == 2)
    assert [id.partition for id in world.worker.running] == [1]
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


@pytest.mark.parametrize("how", ["made anew", "not there"])
@run_by(in_loop)
async def test_a_task_is_not_restored_from_a_changelog_that_is_another_one_now(monkeypatch, how):
    monkeypatch.setattr(changelogs_module, "MISSING_S", 0)
    world = World(monkeypatch)
    world.changelog_id = b"1" * 16
    await world.start(ONE)
    world.group.ends = {ONE: 5}
    await world.until(lambda: world.position(0) == 5)
    if how == "made anew":
        world.changelog_id = b"2" * 16
    else:
        del world.client.topics[CHANGELOG]
    world.group.rebalance("revoke", ONE)
    world.group.rebalance("assign", ONE)
    with pytest.raises(ChangelogError, match=f"changelog {CHANGELOG} .*{how}.* streams reset app"):
        await world.until(lambda: world.journal.steps.count("load") == 2)
    await world.end()


@run_by(in_loop)
async def test_stores_are_opened_beside_what_else_goes_on(monkeypatch):
    """Hundreds on disk take seconds: the group hears of the worker meanwhile."""
    world = World(monkeypatch)
    opened, turns_before = [], []
    real = world.worker._restoring._new_store
    monkeypatch.setattr(turns_module, "TURN_S", 0.0)
    turned = 0

    def open_store(id: Any, table: str) -> Any:
        opened.append(id)
        turns_before.append(turned)
        return real(id, table)

    async def others() -> None:
        nonlocal turned
        while True:
            turned += 1
            await asyncio.sleep(0)

    beside = asyncio.ensure_future(others())
    monkeypatch.setattr(world.worker._restoring, "_new_store", open_store)
    await world.start(ONE, OTHER)
    await world.until(lambda: len(world.worker.running) == 2)
    beside.cancel()
    assert len(opened) == 2 and turns_before[0] < turns_before[1]
    await world.end()
