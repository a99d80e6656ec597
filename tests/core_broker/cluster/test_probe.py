"""Whether a broker's process is gone, as simulated machines tell."""

from __future__ import annotations

import asyncio
import functools

import pytest

from isthmus.core_broker.cluster.controller.probe import is_gone
from isthmus.core_broker.cluster.image import BrokerInfo, Endpoint
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

PORT = 9092
BROKER = BrokerInfo(2, 7, bytes(16), {"PLAINTEXT": Endpoint("b", PORT)})


async def listen() -> None:
    await asyncio.get_running_loop().create_server(asyncio.Protocol, "b", PORT)


@pytest.mark.parametrize("what", ["serves", "was killed", "has no power", "hangs", "has no such listener"])
@run_by(run_checked)
async def test_only_a_machine_that_refuses_proves_it(sim: Simulation, /, what: str) -> None:
    machine = sim.machine("b")
    process = machine.start()
    await process.outcome(listen())
    if what == "hangs":
        machine.hang(100)
    elif what != "serves":
        machine.kill(power=what == "has no power")
    listener = "OTHER" if what == "has no such listener" else "PLAINTEXT"
    asked = sim.machine("a").start().outcome(is_gone(listener, BROKER))
    assert await asked == (what == "was killed")
    assert sim.loop.time() < 1.1


@run_by(run_checked)
async def test_a_process_that_ends_while_it_is_asked_is_found_gone(sim: Simulation, /) -> None:
    machine = sim.machine("b")
    await machine.start().outcome(listen())
    sim.loop.kernel.after(0.04, functools.partial(machine.kill, power=False))
    assert await sim.machine("a").start().outcome(is_gone("PLAINTEXT", BROKER))
