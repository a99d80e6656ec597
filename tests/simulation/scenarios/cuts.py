"""Connections are cut at random bytes, and the network is partitioned, both ways or one way; nobody is killed.

Idempotent producers lose nothing, double nothing and are told no error; the mirror ends equal to its source.
"""

from __future__ import annotations

import asyncio

from ..application import produce
from ..mirroring import WorkerHost, check_mirrors, same
from ..product import BrokerHost
from ..runner import Simulation
from ..workload import Workload, check_acked, check_stored, short, values_in
from .producers import create_topic

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 900.0


async def cuts(sim: Simulation) -> None:
    chance = sim.random
    source = BrokerHost(sim, "src")
    target = BrokerHost(sim, "dst")
    await asyncio.gather(source.up(), target.up())
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, source.address, TOPIC, PARTITIONS))
    WorkerHost(sim, "worker1", source, target)
    sim.network.default.small_piece_chance = chance.choice((0.02, 0.3))
    workload = Workload("w", TOPIC)
    machine = sim.machine("app")
    work = produce(
        sim, machine, workload, source.address, count=chance.randint(30, 80), partitions=PARTITIONS, linger_ms=5,
        delivery_timeout_ms=600_000, compression=chance.choice(("none", "gzip")),
    )  # fmt: skip
    running = machine.start().outcome(work)
    for _ in range(chance.randint(3, 8)):
        await asyncio.sleep(chance.uniform(0.05, 0.8))
        if chance.random() < 0.7:
            sim.network.cut(chance.choice((None, "src", "dst")))
        else:
            one, other = chance.choice((("app", "src"), ("worker1", "src"), ("worker1", "dst")))
            sim.network.partition([one], [other], both_ways=chance.random() < 0.5)
            await asyncio.sleep(chance.choice((0.2, 5.0, 40.0)))
            sim.network.heal()
        check_mirrors(source, target, TOPIC, PARTITIONS)
    await asyncio.wait_for(running, SETTLE_S)
    stored = [each for i in range(PARTITIONS) for each in values_in(source.partition(TOPIC, i), i)]
    check_stored([workload], stored)
    check_acked([workload], stored)
    failed = workload.failed
    assert not failed, f"{short(failed[0].value)}: {failed[0].error!r}"
    assert {each.value for each in stored} == set(workload.sent)
    await sim.until(lambda: same(source, target, TOPIC, PARTITIONS), "the target equals the source", SETTLE_S)
