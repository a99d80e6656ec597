"""(p) A broker is killed at random points under idempotent producers.

What was acknowledged and synced is never lost, nothing is there twice or out of order, and offsets are those told.
A kill alone loses nothing that was acknowledged; a power cut loses at most what was not synced, and then a producer
that goes on is told so by a named error.
"""

from __future__ import annotations

import asyncio

from isthmus.client import Admin, Client
from isthmus.client.admin import NewTopic

from ..application import produce
from ..hosts import Process
from ..ledger import Ledger
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..workload import Workload

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 400.0


async def create_topic(process: Process, bootstrap: str, name: str, partitions: int, **configs: str) -> None:
    """Make the topic, on whatever life of the broker answers."""
    client = Client(bootstrap, client_id="admin", runtime=process.runtime)
    await retried(client.start)

    async def create() -> None:
        options = {key.replace("_", "."): value for key, value in configs.items()}
        await Admin(client).create_topics([NewTopic(name, partitions, 1, options)])

    await retried(create)
    await client.close()


async def producers(sim: Simulation) -> None:
    chance = sim.random
    fsync = chance.random() < 0.5
    options = {"durability": "fsync" if fsync else "page_cache", "log.roll.ms": chance.choice(("200", "604800000"))}
    if not fsync and chance.random() < 0.5:
        options["log.flush.interval.messages"] = str(chance.choice((1, 10)))
    host = BrokerHost(sim, "broker", options)
    await host.up()
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, host.address, TOPIC, PARTITIONS))
    workloads = [Workload(f"w{number}", TOPIC) for number in range(2)]
    running = []
    for workload in workloads:
        machine = sim.machine(workload.name)
        work = produce(
            sim,
            machine,
            workload,
            host.address,
            count=chance.randint(20, 60),
            partitions=PARTITIONS,
            linger_ms=chance.choice((0, 5, 20)),
            compression=chance.choice(("none", "lz4")),
            delivery_timeout_ms=120_000,
        )
        running.append(machine.start().outcome(work))
    ledger = Ledger(sim, host, TOPIC, PARTITIONS, workloads)
    for _ in range(chance.randint(1, 3)):
        await ledger.crash()
    await asyncio.wait_for(asyncio.gather(*running), SETTLE_S)
    if chance.random() < 0.5:
        await ledger.crash(power=True)  # nothing is under way any more: what was acknowledged last stands as well
    ledger.check_end()
