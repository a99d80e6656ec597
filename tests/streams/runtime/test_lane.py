"""Which topics of a task are processed beside each other, and that the task is whole only between all their events."""

import asyncio
from typing import Any

import pytest

from isthmus.streams import App, RecordError
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.steps import STEP_ROWS
from tests.running import in_loop, run_by
from tests.streams.virtual_time import in_virtual_time

from .fakes import turns
from .running import Ran


@run_by(in_loop)
async def test_topics_are_together_where_an_agent_reads_both_or_their_order_counts():
    app = App("app")
    table = app.Table("t", default=int)

    async def agent(stream: Any) -> None:
        async for _ in stream:
            table["n"] += 1

    for number, names in enumerate((["in"], ["a", "b"], ["b", "c"])):
        app.agent(app.topic(*names), name=f"agent{number}", tables=[table])(agent)
    ran = Ran(app)
    assert sorted(map(sorted, (lane.topics for lane in ran.run.lanes))) == [["a", "b", "c"], ["in"]]
    await ran.run.stop()
    app.stream("in").left_join(app.stream("d").table("d-now"), value=lambda left, right: left).to("out")
    ran = Ran(app)
    assert [sorted(lane.topics) for lane in ran.run.lanes] == [["a", "b", "c", "d", "in"]]
    await ran.run.stop()


@run_by(in_loop)
async def test_an_agent_that_waits_does_not_hold_up_another_of_its_task():
    app = App("app")
    table = app.Table("t", default=int)
    go_on = asyncio.Event()

    @app.agent(app.topic("in"), tables=[table])
    async def waiting(stream: Any) -> None:
        async for value in stream:
            table["waiting"] = value
            await go_on.wait()

    @app.agent(app.topic("other"), tables=[table])
    async def other(stream: Any) -> None:
        async for value in stream:
            table["other"] = value

    ran = Ran(app)
    ran.task.set_start("other", Position(0))
    ran.give(1)
    ran.give(3, "other")
    step = asyncio.ensure_future(ran.run.lane_of("in").process(100))
    await turns()
    assert await ran.run.lane_of("other").process(100) == 3
    assert dict(ran.task.stores["t"].rows) == {"waiting": 0, "other": 2}
    assert (ran.run.is_whole, ran.run.lane_of("other").is_whole, ran.position) == (False, True, 0)
    go_on.set()
    assert (await step, ran.run.is_whole, ran.position) == (1, True, 1)
    await ran.run.stop()


@run_by(in_loop)
async def test_a_task_is_not_whole_until_a_new_step_has_all_rows():
    app = App("app")
    rows, others = app.stream("in").table("rows"), app.stream("more").table("others")
    rows.left_join(others, value=lambda left, right: left, name="pairs")
    ran = Ran(app)
    for number in range(STEP_ROWS + 1):
        ran.task.stores["rows"].set(number, number)
    [lane] = ran.run.lanes
    lane._feeding = {"rows": ["pairs"]}
    assert not ran.run.is_whole
    step = asyncio.ensure_future(ran.run.tick(0))
    await turns(1)
    assert (len(ran.task.stores["pairs"].rows), ran.run.is_whole) == (STEP_ROWS, False)
    await step
    assert (ran.task.stores["pairs"].rows == ran.task.stores["rows"].rows, ran.run.is_whole) == (True, True)
    await ran.run.stop()


@run_by(in_loop)
async def test_a_task_is_not_whole_while_one_agent_holds_what_another_one_has_done():
    app = App("app")
    table = app.Table("t", default=int)

    @app.agent(app.topic("in"), tables=[table])
    async def hold(stream: Any) -> None:
        async for _ in stream.take_events(2, None):
            pass

    @app.agent(app.topic("in"), tables=[table])
    async def count(stream: Any) -> None:
        async for _ in stream:
            table["n"] += 1

    ran = Ran(app)
    await ran.drain(1)
    assert (table_of(ran), ran.run.is_behind, ran.run.is_whole) == ({"n": 1}, True, False)
    await ran.drain(1)
    ran.run.before_checkpoint()
    assert (table_of(ran), ran.run.is_behind, ran.run.is_whole, ran.position) == ({"n": 2}, False, True, 2)
    await ran.run.stop()


@run_by(in_virtual_time)
async def test_a_task_is_not_whole_while_an_agent_is_at_what_it_had_taken_before(loop, /):
    """By a time limit of its own it goes on between two batches."""
    app = App("app")
    table = app.Table("t", default=int)
    go_on = asyncio.Event()

    @app.agent(app.topic("in"), tables=[table])
    async def take(stream: Any) -> None:
        async for _ in stream.take_events(2, 1.0):
            table["n"] += 1
            await go_on.wait()

    ran = Ran(app)
    await ran.drain(1)
    assert ran.run.is_whole
    await asyncio.sleep(2.0)
    assert (table_of(ran), ran.run.is_whole) == ({"n": 1}, False)
    go_on.set()
    await turns()
    assert ran.run.is_whole
    await ran.run.stop()


def table_of(ran: Ran) -> dict[Any, Any]:
    return dict(ran.task.stores["t"].rows)


@run_by(in_loop)
async def test_a_task_stays_within_its_event_where_a_step_has_failed():
    """Whatever the clock does until it ends."""

    def fail(value: Any) -> Any:
        raise ValueError("no")

    app = App("app")
    app.stream("in").map(fail, name="failing").tumbling(1).count(name="n")
    ran = Ran(app)
    ran.give(1)
    with pytest.raises(RecordError, match="step failing raised ValueError"):
        await ran.run.process(100)
    await ran.run.tick(10_000)
    assert not ran.run.is_whole
    await ran.run.stop()


@run_by(in_loop)
async def test_a_window_is_closed_once_though_several_lanes_could():
    closed: list[Any] = []
    go_on = asyncio.Event()

    async def close(key: Any, value: Any) -> None:
        closed.append(key)
        await go_on.wait()

    app = App("app")
    table = app.Table("t", default=int, on_window_close=close).tumbling(0.01, expires=0.001)

    async def count(stream: Any) -> None:
        async for _ in stream:
            table["k"] += 1

    for topic in ("in", "other"):
        app.agent(app.topic(topic), name=topic, tables=[table])(count)
    ran = Ran(app)
    ran.task.set_start("other", Position(0))
    ran.give(15)
    ran.give(1, "other")
    steps = [asyncio.ensure_future(ran.run.lane_of(topic).process(100)) for topic in ("in", "other")]
    await turns()
    assert len(closed) == 1
    go_on.set()
    await asyncio.gather(*steps)
    assert len(closed) == 1
    await ran.run.stop()
