"""Records that fail: they end their task alone, which is tried again, or they are left out, or end the worker."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from isthmus.streams import RecordError
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.task import TaskId
from isthmus.streams.runtime.failed import FailedTasks
from tests.running import in_loop, run_by

from .fakes import TRANSACTIONAL, turns
from .running import Clock
from .world import ALO, EOS, ONE, OTHER, World, counted


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
    await turns(50)
    assert world.journal.steps[-1] == "offsets" and world.worker.running, "it has not ended before it is committed"
    world.journal.gates["commit"].set()
    bad.clear()
    await world.until(lambda: world.position() == 1)
    clock.now += 100.0
    await world.until(lambda: world.position() == 8)
    assert world.table() == counted(8) and len(world.journal.committed("out")) == 1
    assert "abort" not in world.journal.steps
    await world.end()


@run_by(in_loop)
async def test_what_is_before_a_record_that_failed_is_committed_before_it_is_tried_again(monkeypatch):
    world, _ = failing_world(monkeypatch, ALO, interval_s=50.0)
    clock = Clock(monkeypatch)
    await world.start(ONE)
    world.group.ends = {ONE: 8}
    await world.until(lambda: world.worker.failed)
    assert world.position() == 0
    clock.now += 1.0
    await world.until(lambda: world.worker.running and world.processed(0) == 4)
    await turns(50)
    clock.now += 50.0
    await world.until(lambda: world.position() == 4)
    assert world.table() == counted(4)
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
        RecordError, match=r"agent tests.streams.runtime.test_failed.count raised ValueError: bad .* at in-0 offset 4"
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
async def test_pauses_grow_until_what_the_task_had_failed_at_is_committed(monkeypatch):
    """A commit of what is before it is no success."""
    clock, failed, id = Clock(monkeypatch), FailedTasks(), TaskId("in", 0)

    def committed(offset: int) -> bool:
        run: Any = SimpleNamespace(task=SimpleNamespace(positions={"in": Position(offset)}))
        failed.committed({id: run})
        return id not in failed.tasks

    for pause_s in (1, 2, 4, 8, 16, 32, 60, 60):
        failed.add(id, RecordError("no"), ("in", 4))
        assert failed.due(clock.now + pause_s - 0.1, lambda _: True) == []
        clock.now += pause_s
        assert failed.due(clock.now, lambda _: True) == [id]
        assert not committed(4)
    assert committed(5)
