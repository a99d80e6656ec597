"""How tasks wait between two turns: as long as they are to, or until they are woken or stopped."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.core_broker.pauses import RETRY_FIRST_S, RETRY_MOST_S, Pauses, RetryDelay
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

LONG_S = 1000.0
NOW_S = 0.01  # of simulated time: some turns of the loop


async def lengths_s(pauses: Pauses, seconds: float | None, count: int = 2) -> list[float]:
    """What pauses that begin together take."""
    loop = asyncio.get_running_loop()
    began = loop.time()

    async def pause() -> float:
        await pauses.pause(seconds)
        return loop.time() - began

    return await asyncio.gather(*(pause() for _ in range(count)))


@pytest.mark.parametrize("seconds", [0.0, 0.05, 15.0, LONG_S])
@run_by(run_checked)
async def test_a_pause_that_nobody_ends_takes_its_time(sim: Simulation, /, seconds: float) -> None:
    assert await lengths_s(Pauses(), seconds) == pytest.approx([seconds] * 2, abs=NOW_S)


@pytest.mark.parametrize("how", [Pauses.wake, Pauses.stop])
@pytest.mark.parametrize("after_s", [0.0, 3.0])
@pytest.mark.parametrize("seconds", [LONG_S, None])
@run_by(run_checked)
async def test_all_pauses_under_way_end_early(sim: Simulation, /, how, after_s: float, seconds: float | None) -> None:
    pauses = Pauses()
    asyncio.get_running_loop().call_later(after_s, how, pauses)
    assert await lengths_s(pauses, seconds) == pytest.approx([after_s] * 2, abs=NOW_S)


@run_by(run_checked)
async def test_who_is_woken_pauses_again_and_who_is_stopped_does_not(sim: Simulation, /) -> None:
    pauses = Pauses()
    pauses.wake()
    assert await lengths_s(pauses, LONG_S) == pytest.approx([LONG_S] * 2, abs=NOW_S)
    assert not pauses.is_stopping
    pauses.stop()
    pauses.wake()
    assert await lengths_s(pauses, LONG_S) == pytest.approx([0.0] * 2, abs=NOW_S)
    assert pauses.is_stopping


@run_by(run_checked)
async def test_a_wake_does_not_reach_the_pause_that_follows_it_at_once(sim: Simulation, /) -> None:
    """And is not lost on the one that has just begun."""
    pauses = Pauses()
    loop = asyncio.get_running_loop()
    began = loop.time()
    woken = asyncio.ensure_future(pauses.pause(LONG_S))
    await asyncio.sleep(0)  # it has begun, no more
    pauses.wake()
    later = asyncio.ensure_future(pauses.pause(5.0))
    await woken
    assert loop.time() - began == pytest.approx(0.0, abs=NOW_S)
    await later
    assert loop.time() - began == pytest.approx(5.0, abs=NOW_S)


def test_delays_between_tries_double_up_to_their_bound_and_begin_anew_after_a_success() -> None:
    delay = RetryDelay()
    assert [delay.next_s() for _ in range(8)] == [RETRY_FIRST_S * 2**n for n in range(5)] + [RETRY_MOST_S] * 3
    delay.reset()
    assert [delay.next_s() for _ in range(2)] == [RETRY_FIRST_S, 2 * RETRY_FIRST_S]
