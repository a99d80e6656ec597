"""Three to five whole brokers, their controller among them, under idempotent producers and faults.

Brokers are killed, with and without the power, cut off both ways or one way, and started again. What holds: nothing
that was acknowledged by all in-sync replicas is lost, nothing is there twice or out of order, all replicas end with the
same bytes, no offset ever had two committed values, and no leader epoch two leaders. When the faults end, everything is
in sync and served within a bound.
"""

from __future__ import annotations

import asyncio

from ..brokers import Cluster
from ..runner import Simulation
from ..workload import Workload, check_acked, check_stored

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 300.0
FAULTS = (2, 6)


async def cluster(sim: Simulation) -> None:
    chance = sim.random
    brokers = Cluster(sim, chance.choice((3, 3, 5)))
    await brokers.up()
    await brokers.make_topic(TOPIC, PARTITIONS, min_insync=2)
    brokers.watch()
    workloads = []
    running = []
    for number in range(3):
        workloads.append(Workload(f"w{number}", TOPIC))
        work = brokers.produce(workloads[-1], count=chance.randint(40, 120), partition=number % PARTITIONS)
        running.append(work)
    for _ in range(chance.randint(*FAULTS)):
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        await brokers.disturb()
    await brokers.heal()
    await asyncio.wait_for(brokers.unless_broken(asyncio.gather(*running)), SETTLE_S)
    await brokers.settled(TOPIC, PARTITIONS)
    brokers.check_committed()
    stored = brokers.stored(TOPIC, PARTITIONS)
    check_stored(workloads, stored)
    check_acked(workloads, stored)
