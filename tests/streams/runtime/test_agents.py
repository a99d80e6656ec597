"""How agents are given events, and when these are done."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.streams import App, AppError, RecordError
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.runtime import agents as agents_module
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .fakes import turns
from .running import Clock, Ran


async def breaking(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        async for event in stream.events():
            saw(event)
            break


async def catching(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        with contextlib.suppress(ValueError):
            async for event in stream.events():
                saw(event)
                raise ValueError


async def timing_out(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0):
                async for event in stream.events():
                    saw(event)
        await asyncio.sleep(0)


async def mixing(stream: Any, saw: Callable[[Any], None]) -> None:
    while True:
        async for event in stream.events():
            saw(event)
            break
        async for batch in stream.batches():
            for event in batch:
                saw(event)
            break


@pytest.mark.parametrize("agent", [breaking, catching, timing_out, mixing])
@run_by(in_loop)
async def test_an_iteration_begun_again_goes_on_with_the_next_event(agent):
    seen: list[int] = []
    ran = Ran.of(lambda stream: agent(stream, lambda each: seen.append(each.offset)))
    await ran.drain(40)
    assert seen == list(range(40)) and ran.position == 40
    await ran.run.stop()


@run_by(in_loop)
async def test_an_event_counts_as_done_when_the_next_is_asked_for():
    """And not when the iteration that gave it is left."""
    done = asyncio.Event()

    async def late(stream: Any) -> None:
        while True:
            async for _ in stream.events():
                break
            await done.wait()

    ran = Ran.of(late)
    draining = asyncio.ensure_future(ran.drain(1))
    await turns()
    assert ran.position == 0 and not ran.run.is_whole
    done.set()
    await draining
    assert ran.position == 1 and ran.run.is_whole
    await ran.run.stop()


@run_by(in_loop)
async def test_two_tasks_that_share_a_stream_are_an_error():
    async def forked(stream: Any) -> None:
        async def one() -> None:
            async for _ in stream.events():
                await asyncio.Event().wait()

        await asyncio.gather(one(), one())

    ran = Ran.of(forked)
    with pytest.raises(AppError, match="agent forked at in-0 offset 0: a stream is iterated over in two asyncio"):
        await ran.drain(3)
    assert ran.position == 0 and not ran.run.is_whole
    await ran.run.stop()


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("readers", "event_s", "until_s", "at_once"),
    [
        (1, 0.3, 0.1, 1),  # soon enough for a stop or a rebalance
        (1, 0.02, 0.05, 3),  # at the time of a checkpoint
        (1, 0.02, -1.0, 1),  # but not before the first event
        (2, 0.3, 0.1, 1),  # all agents of a topic have done the same events
        (2, 0.02, 0.05, 2),
        (2, 0.02, -1.0, 1),
    ],
)
@run_by(in_loop)
async def test_a_batch_ends_at_the_event_in_hand(monkeypatch, again, readers, event_s, until_s, at_once):
    """Agents that were fast turn slow here; again: each event is of an iteration of its own."""
    pause_s = 0.0
    done: list[list[int]] = [[] for _ in range(readers)]

    def agent(number: int) -> Any:
        async def slow(stream: Any) -> None:
            while True:
                async for event in stream.events():
                    clock.now += pause_s
                    await asyncio.sleep(0)
                    done[number].append(event.offset)
                    if again:
                        break

        return slow

    ran, clock = Ran.of(*map(agent, range(readers))), Clock(monkeypatch)
    await ran.drain(1)
    ran.give(400)
    pause_s = event_s
    for step in range(1, 4):
        assert await ran.run.process(1_000, clock.now + until_s) == at_once
        assert ran.position == 1 + step * at_once
        assert all(each == list(range(ran.position)) for each in done)
        assert ran.run.is_whole
    await ran.run.stop()


@run_by(in_virtual_time)
async def test_an_agent_whose_own_timeout_ends_its_wait_takes_nothing_more_of_the_batch(loop, /):
    """What is left of it is offered again: it would be done twice."""
    seen: list[int] = []

    async def impatient(stream: Any) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    async for [event] in stream.take_events(1, None):
                        seen.append(event.offset)

    ran = Ran.of(impatient)
    ran.give(3)
    assert await ran.run.process(100, loop.time()) == 1
    await asyncio.sleep(5.0)
    assert seen == [0]
    assert await ran.run.process(100) == 2 and seen == [0, 1, 2]
    await ran.run.stop()


@run_by(in_loop)
async def test_readers_of_one_agent_share_events_and_the_position_waits_for_all():
    """Whichever is done first: a position never passes an event that one of them has in hand (C3)."""
    doors = [asyncio.Event() for _ in range(6)]
    taken: list[int] = []
    ended: list[int] = []

    async def slow(stream: Any) -> None:
        async for event in stream.events():
            taken.append(event.offset)
            await doors[event.offset].wait()
            ended.append(event.offset)

    ran = Ran.of(slow, concurrency=3)
    draining = asyncio.ensure_future(ran.drain(6))
    await turns()
    assert taken == [0, 1, 2]
    for offset in (2, 1, 4, 5, 3):
        doors[offset].set()
        await turns()
        assert (ran.position, ran.run.is_whole) == (0, False)
    assert (taken, sorted(ended)) == (list(range(6)), [1, 2, 3, 4, 5])
    doors[0].set()
    await draining
    assert (ran.position, ran.run.is_whole) == (6, True)
    await ran.run.stop()


@pytest.mark.parametrize("fails", [True, False])
@run_by(in_loop)
async def test_what_failed_or_was_cancelled_within_an_event_is_not_whole(fails):
    """Tables include more than the positions say then."""

    async def agent(stream: Any) -> None:
        async for event in stream.events():
            if event.offset == 2:
                if fails:
                    raise ValueError("no")
                await asyncio.Event().wait()

    ran = Ran.of(agent)
    await ran.drain(1)
    draining = asyncio.ensure_future(ran.drain(5))
    await turns()
    assert not ran.run.is_whole
    draining.cancel()
    [error] = await asyncio.gather(draining, return_exceptions=True)
    assert isinstance(error, RecordError if fails else asyncio.CancelledError)
    assert not ran.run.is_whole and ran.position == 1
    await ran.run.stop()


@run_by(in_loop)
async def test_an_error_names_the_record_and_the_line():
    async def fail(stream: Any) -> None:
        async for value in stream:
            raise ValueError(value)

    ran = Ran.of(fail)
    with pytest.raises(
        RecordError, match=r"agent fail raised ValueError: 0 \(.*test_agents.py:\d+\) at in-0 offset 0"
    ) as caught:
        await ran.drain(2)
    assert (caught.value.at, caught.value.must_stop) == (("in", 0, 0), False)
    await ran.run.stop()


@run_by(in_loop)
async def test_an_agent_that_ends_between_events_is_noticed():
    async def impatient(stream: Any) -> None:
        async with asyncio.timeout(0):
            async for _ in stream:
                pass

    async def returning(stream: Any) -> None: ...

    for agent, said in ((impatient, "raised TimeoutError"), (returning, "returned, but an agent runs for ever")):
        ran = Ran.of(agent)
        ran.run.check()
        await turns()
        assert not ran.run.is_whole
        with pytest.raises(RecordError, match=f"agent {agent.__name__} {said}.* before any event"):
            ran.run.check()
        await ran.run.stop()


@pytest.mark.parametrize(("policy", "must_stop"), [("fail", False), ("stop", True), (lambda *_: "fail", False)])
@run_by(in_loop)
async def test_a_failing_event_stops_its_task(policy, must_stop):
    async def odd(stream: Any) -> None:
        async for value in stream:
            assert value != 1

    ran = Ran.of(odd, on_error=policy)
    with pytest.raises(RecordError, match="agent odd raised AssertionError") as caught:
        await ran.drain(3)
    assert caught.value.must_stop is must_stop and not ran.left_out
    await ran.run.stop()


@run_by(in_loop)
async def test_a_failing_event_is_left_out_by_policy_and_the_agent_begins_anew():
    begun = 0
    seen: list[int] = []

    async def odd(stream: Any) -> None:
        nonlocal begun
        begun += 1
        async for event in stream.events():
            assert event.value % 2 == 0
            seen.append(event.value)

    ran = Ran.of(odd, on_error=lambda topic, partition, offset, error: "skip" if offset == 1 else "dead_letter")
    await ran.drain(4)
    assert (seen, begun, ran.position) == ([0, 2], 3, 4) and ran.run.is_whole
    assert [(each.raw.offset, each.raw.value, each.policy, each.by) for each in ran.left_out] == [
        (1, b"1", "skip", "odd"),
        (3, b"3", "dead_letter", "odd"),
    ]
    await ran.run.stop()


@run_by(in_loop)
async def test_an_app_error_is_never_left_out():
    """The app is wrong, not the record."""
    app = App("app")
    table = app.Table("t", default=int)

    @app.agent(app.topic("in"), on_error="skip", tables=[table])
    async def store(stream: Any) -> None:
        async for _ in stream:
            table["k"] = object()

    ran = Ran(app)
    with pytest.raises(
        AppError, match=r"agent tests.streams.runtime.test_agents.store at in-0 offset 0: table t: .* cannot be stored"
    ):
        await ran.drain(1)
    await ran.run.stop()


@run_by(in_loop)
async def test_what_is_before_an_event_that_failed_is_committed_first():
    """Else trying it again would for ever do that again, too."""
    seen: list[int] = []

    async def see(stream: Any) -> None:
        async for event in stream.events():
            seen.append(event.offset)

    ran = Ran.of(see)
    ran.run.lane_of("in")._careful_at = ("in", 3)
    ran.give(6)
    assert (await ran.run.process(100), ran.position) == (3, 3)
    assert (await ran.run.process(100), seen) == (0, [0, 1, 2])
    ran.task.checkpoint()
    assert await ran.run.process(100) == 1
    assert await ran.run.process(100) == 2 and seen == list(range(6))
    await ran.run.stop()


@run_by(in_loop)
async def test_what_was_fetched_first_comes_first_and_topics_take_turns():
    """A worker may fetch more while it has not processed all, such as in a rebalance."""
    app = App("app")
    seen: list[tuple[str, int]] = []

    @app.agent(app.topic("in", "more"), tables=[app.Table("t")])
    async def see(stream: Any) -> None:
        async for event in stream.events():
            seen.append((event.topic, event.offset))

    ran = Ran(app)
    ran.task.set_start("more", Position(0))
    for topic, count in (("in", 3), ("in", 2), ("more", 2)):
        ran.give(count, topic)
    while ran.run.is_ready:
        await ran.run.process(2)
    for topic, count in (("in", 5), ("more", 2)):
        assert [offset for name, offset in seen if name == topic] == list(range(count))
    assert seen[2] == ("more", 0)
    await ran.run.stop()


@run_by(in_loop)
async def test_an_agent_that_cannot_be_cancelled_is_left_alone(monkeypatch, caplog):
    over = False

    async def stubborn(stream: Any) -> None:
        while not over:
            with contextlib.suppress(BaseException):
                async for _ in stream:
                    pass

    monkeypatch.setattr(agents_module, "STOP_S", 0.0)
    ran = Ran.of(stubborn)
    await ran.drain(1)
    await asyncio.wait_for(ran.run.stop(), 10)
    assert "agent stubborn of task in-0 runs on after it was cancelled" in caplog.text
    over = True
    await ran.run.stop()
