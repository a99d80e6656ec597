"""Which steps a commit waits for, and which lanes wait for a commit."""

import asyncio
from typing import Any

import pytest

from isthmus.streams.runtime.rounds import HOLD_S, LONG_S, REPLY_S, SLOW_HOLD_S, Rounds
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .fakes import turns
from .running import Clock


class Lane:
    def __init__(self, topic: str) -> None:
        self.topics = frozenset({topic})
        self.asked: frozenset[str] = frozenset()


class Run:
    """A task with one lane."""

    def __init__(self, name: str) -> None:
        self.task: Any = type("Task", (), {"id": name})()
        self.lanes = [Lane(name)]
        self.is_whole = False
        self.go_on = asyncio.Event()


class World:
    """Two tasks that have written to one transaction."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = Clock(monkeypatch)
        self.one, self.other = Run("one"), Run("other")
        self.rounds = Rounds(lambda: [self.one.task, self.other.task])

    def begin(self, run: Any) -> None:
        async def step() -> None:
            await run.go_on.wait()

        self.rounds.begin(run, run.lanes[0], step())

    def may_begin(self, run: Any, is_due: bool = True) -> bool:
        return self.rounds.may_begin(run, run.lanes[0], is_due)

    def missed(self, *runs: Any) -> None:
        self.rounds.missed(runs)


@run_by(in_loop)
async def test_a_commit_waits_for_steps_that_are_about_to_end(monkeypatch):
    world = World(monkeypatch)
    one: Any = world.one
    world.begin(one)
    assert world.rounds.must_wait() and not world.may_begin(world.other)
    one.lanes[0].asked = frozenset({"questions"})
    assert not world.rounds.must_wait(), "it waits for replies, perhaps of a task that waits for the commit"
    one.lanes[0].asked = frozenset()
    world.clock.now = LONG_S
    assert not world.rounds.must_wait() and world.may_begin(world.other)
    await world.rounds.drop(one)


@run_by(in_loop)
async def test_a_task_that_was_left_out_of_a_commit_is_owed_one_when_its_step_ends(monkeypatch):
    world = World(monkeypatch)
    one: Any = world.one
    world.begin(one)
    world.clock.now = LONG_S
    world.missed(one)
    assert not world.rounds.is_owed
    one.is_whole = True
    assert world.rounds.is_owed
    await world.rounds.drop(one)
    assert not world.rounds.is_owed


@pytest.mark.parametrize(("is_slow", "hold_s"), [(False, HOLD_S), (True, SLOW_HOLD_S)])
@run_by(in_loop)
async def test_lanes_with_outputs_in_one_transaction_wait_for_each_other_but_not_for_ever(monkeypatch, is_slow, hold_s):
    """One that was found in a long step itself waits for longer, so that the moment comes when all are between."""
    world = World(monkeypatch)
    one: Any = world.one
    other: Any = world.other
    world.begin(one)
    if is_slow:
        world.begin(other)
    world.clock.now = LONG_S
    world.missed(one, other)
    if is_slow:
        other.go_on.set()
        await turns()
        assert [step.run for step in world.rounds.ended()] == [other]
    world.clock.now = hold_s - 0.01
    assert not world.may_begin(other, is_due=False)
    world.clock.now = hold_s
    assert world.may_begin(other, is_due=False)
    world.rounds.committed([one, other])
    world.clock.now = 0.0
    assert world.may_begin(other, is_due=False)
    await world.rounds.drop(one)


@run_by(in_virtual_time)
async def test_steps_that_wait_for_replies_of_this_worker_are_not_waited_for_long(loop, /):
    """Nothing is processed meanwhile, so that none comes."""
    rounds, run = Rounds(lambda: ()), Run("one")
    one: Any = run
    rounds.begin(one, one.lanes[0], one.go_on.wait())
    one.lanes[0].asked = frozenset({"questions"})
    began = loop.time()
    await rounds.finish(lambda: [one], 60.0)
    assert loop.time() - began == pytest.approx(REPLY_S)
    await rounds.drop(one)
