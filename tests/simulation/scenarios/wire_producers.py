"""(p) without our client: a broker is killed at random points under idempotent producers that keep to the protocol.

The checks are those of `producers`.
"""

from __future__ import annotations

import asyncio

from ..ledger import Ledger
from ..product import BrokerHost
from ..runner import Simulation
from ..wire import make_topic, produce_by_wire
from ..workload import Workload

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 400.0


def broker_options(sim: Simulation) -> dict[str, str]:
    """One of the durabilities, and segments that roll often or never."""
    chance = sim.random
    fsync = chance.random() < 0.5
    options = {"durability": "fsync" if fsync else "page_cache", "log.roll.ms": chance.choice(("20", "604800000"))}
    if not fsync and chance.random() < 0.5:
        options["log.flush.interval.messages"] = str(chance.choice((1, 10)))
    return options


async def wire_producers(sim: Simulation) -> None:
    chance = sim.random
    host = BrokerHost(sim, "broker", broker_options(sim))
    await host.up()
    admin = sim.machine("admin").start()
    await admin.outcome(make_topic(host.address, TOPIC, PARTITIONS))
    workloads = []
    running = []
    for number in range(3):
        workloads.append(Workload(f"w{number}", TOPIC))
        machine = sim.machine(f"w{number}")
        work = produce_by_wire(
            sim,
            machine,
            workloads[-1],
            host.address,
            count=chance.randint(30, 90),
            partition=number % PARTITIONS,
            pause_s=chance.choice((0.005, 0.05)),
        )
        running.append(machine.start().outcome(work))
    ledger = Ledger(sim, host, TOPIC, PARTITIONS, workloads)
    for _ in range(chance.randint(1, 3)):
        await ledger.crash()
    await asyncio.wait_for(asyncio.gather(*running), SETTLE_S)
    if chance.random() < 0.5:
        await ledger.crash(power=True)  # nothing is under way any more: what was acknowledged last stands as well
    ledger.check_end()
