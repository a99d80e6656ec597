"""Which topics of a task are processed beside each other, and that the task is whole only between all their events."""

import asyncio
from typing import Any

from isthmus.streams import App
from isthmus.streams.engine.checkpoint import Position
from isthmus.streams.engine.steps import STEP_ROWS
from tests.running import in_loop, run_by

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
