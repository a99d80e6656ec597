"""A broker comes up from every state that a crash may leave its directory in."""

from __future__ import annotations

import asyncio

from ..product import BrokerHost
from ..runner import Simulation


async def broker_start(sim: Simulation) -> None:
    host = BrokerHost(sim, "broker", {"metadata.log.max.record.bytes.between.snapshots": "300"})
    for _ in range(5):
        await host.up(crash_chance=0.7)
        await asyncio.sleep(sim.random.uniform(0.0, 3.0))
        if sim.random.random() < 0.3:
            assert host.broker is not None and host.machine.process is not None
            await host.machine.process.outcome(host.broker.stop())
        host.kill(power=sim.random.random() < 0.6)
        await asyncio.sleep(sim.random.uniform(0.0, 1.0))
    await host.up()
