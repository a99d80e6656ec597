"""Named deadlines on one heap, on simulated time."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.core_broker.coordinators.timers import Timers
from tests.running import in_loop, run_by
from tests.simulation.runner import Simulation, run_checked

WAIT_S = 20


@run_by(run_checked)
async def test_names_fire_in_order_of_their_deadlines_once(sim: Simulation, /) -> None:
    fired: list[tuple[object, int]] = []
    timers = Timers(lambda name: fired.append((name, round(sim.loop.time() * 1000))))
    start = round(sim.loop.time() * 1000)
    timers.schedule("b", 200)
    timers.schedule("a", 100)
    timers.schedule("c", 200)
    timers.cancel("c")
    await asyncio.sleep(1)
    assert fired == [("a", start + 100), ("b", start + 200)] and len(timers) == 0


@run_by(run_checked)
async def test_a_deadline_can_move_both_ways(sim: Simulation, /) -> None:
    fired: list[object] = []
    timers = Timers(fired.append)
    timers.schedule("later", 100)
    timers.schedule("later", 500)
    timers.schedule("sooner", 500)
    timers.schedule("sooner", 100)
    timers.schedule("again", 100)
    timers.cancel("again")
    timers.schedule("again", 300)
    await asyncio.sleep(0.2)
    assert fired == ["sooner"]
    await asyncio.sleep(0.2)
    assert fired == ["sooner", "again"]
    await asyncio.sleep(0.2)
    assert fired == ["sooner", "again", "later"]


@run_by(run_checked)
async def test_heartbeats_do_not_make_the_heap_grow(sim: Simulation, /) -> None:
    timers = Timers(lambda name: None)
    for _ in range(1000):
        for name in range(10):
            timers.schedule(name, 10_000)
        await asyncio.sleep(0.01)
    assert len(timers) == 10 and len(timers._heap) <= 10


@run_by(run_checked)
async def test_what_fires_may_schedule_again(sim: Simulation, /) -> None:
    fired: list[float] = []

    def fire(name: object) -> None:
        fired.append(sim.loop.time())
        if len(fired) < 5:
            timers.schedule(name, 100)

    timers = Timers(fire)
    timers.schedule("x", 100)
    await asyncio.sleep(2)
    assert len(fired) == 5
    timers.schedule("y", 100)
    timers.close()
    await asyncio.sleep(1)
    assert len(fired) == 5


class PausedLoop(asyncio.SelectorEventLoop):
    """Its clock jumps by `pause_s`, as after SIGSTOP and SIGCONT, or where a virtual machine was frozen."""

    pause_s = 0.0

    def time(self) -> float:
        return super().time() + self.pause_s


@pytest.mark.parametrize(("pause_s", "is_put_off"), [(9.0, True), (0.3, False)])
def test_what_is_due_after_a_pause_waits_for_what_was_sent_meanwhile(pause_s: float, is_put_off: bool):
    loop = PausedLoop()
    fired: list[object] = []

    async def main() -> None:
        timers = Timers(fired.append)
        timers.schedule("heard of", 100)
        timers.schedule("silent", 100)
        # As the bytes of a socket are seen in the turn after the timers'.
        handle = loop.call_at(loop.time() + 0.1, lambda: loop.call_soon(timers.schedule, "heard of", 60_000))
        loop.pause_s = pause_s
        while "silent" not in fired:
            await asyncio.sleep(0)
        assert fired == (["silent"] if is_put_off else ["heard of", "silent"])
        handle.cancel()
        timers.schedule("next", 1)  # and only once
        while "next" not in fired:
            await asyncio.sleep(0)
        timers.close()

    loop.run_until_complete(main())
    loop.close()


@run_by(in_loop)
async def test_one_that_fails_does_not_hold_up_the_others() -> None:
    failed: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failed.append(str(context["exception"])))
    others_time = asyncio.Event()

    def fire(name: object) -> None:
        if name == "bad":
            raise RuntimeError("a bad one")
        others_time.set()

    timers = Timers(fire)
    timers.schedule("good", 20)
    timers.schedule("bad", 0)
    await asyncio.wait_for(others_time.wait(), WAIT_S)
    assert failed == ["a bad one"]
