"""(m1) A mirror under every kill there is, its source on `flush.messages=1`.

Workers die, run twice, lose their connections; the target loses its power and with it what it had not synced; the
source loses its power, too. At every look the target is a byte-identical prefix of the source, and in the end equal.
"""

from __future__ import annotations

import asyncio

from ..application import produce
from ..mirroring import WorkerHost, check_mirrors, same
from ..network import Link
from ..product import BrokerHost
from ..runner import Simulation
from ..workload import Workload, check_acked, check_stored, values_in
from .producers import create_topic

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 600.0


async def mirror(sim: Simulation) -> None:
    chance = sim.random
    source = BrokerHost(sim, "src", {"log.flush.interval.messages": "1"})
    target = BrokerHost(sim, "dst", {"durability": chance.choice(("page_cache", "fsync"))})
    await asyncio.gather(source.up(), target.up())
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, source.address, TOPIC, PARTITIONS))
    workers = [WorkerHost(sim, "worker1", source, target)]
    if chance.random() < 0.3:
        sim.network.links["worker1", "dst"] = Link(latency_s=(0.05, 1.0))  # its appends arrive late
    workload = Workload("w", TOPIC)
    machine = sim.machine("app")
    work = produce(
        sim, machine, workload, source.address, count=chance.randint(30, 80), partitions=PARTITIONS, linger_ms=5,
        delivery_timeout_ms=120_000, compression=chance.choice(("none", "zstd")),
    )  # fmt: skip
    running = machine.start().outcome(work)
    for _ in range(chance.randint(2, 5)):
        await asyncio.sleep(chance.uniform(0.1, 2.5))
        await disturb(sim, source, target, workers)
        check_mirrors(source, target, TOPIC, PARTITIONS)
    await asyncio.wait_for(running, SETTLE_S)
    await catch_up(sim, source, target, workers)
    check_mirrors(source, target, TOPIC, PARTITIONS)
    stored = [each for i in range(PARTITIONS) for each in values_in(target.partition(f"src.{TOPIC}", i), i)]
    check_stored([workload], stored)
    check_acked([workload], stored)
    sim.counters["mirrored_batches"] += sum(len(target.partition(f"src.{TOPIC}", i)) for i in range(PARTITIONS))


async def catch_up(sim: Simulation, source: BrokerHost, target: BrokerHost, workers: list[WorkerHost]) -> None:
    try:
        await sim.until(lambda: same(source, target, TOPIC, PARTITIONS), "the target equals the source", SETTLE_S)
    except AssertionError as error:
        for index in range(PARTITIONS):
            there = [
                (batch.base_offset, batch.last_offset, batch.leader_epoch)
                for host, topic in ((source, TOPIC), (target, f"src.{TOPIC}"))
                for batch in host.partition(topic, index)[-2:]
            ]
            error.add_note(f"partition {index}: {there}, {[worker.status(index) for worker in workers]}")
        raise
    for worker in workers:
        for index in range(PARTITIONS):
            state = worker.status(index).get("state")
            assert state in (None, "MIRRORING", "CATCHING_UP", "SOURCE_UNAVAILABLE"), worker.status(index)


async def disturb(sim: Simulation, source: BrokerHost, target: BrokerHost, workers: list[WorkerHost]) -> None:
    """One fault, over when this returns (a second worker stays)."""
    chance = sim.random
    fault = chance.choice(("worker", "double", "target", "target", "source", "cut"))
    sim.counters[f"fault_{fault}"] += 1
    if fault == "worker":
        chance.choice(workers).kill()
    elif fault == "double" and len(workers) < 2:
        workers.append(WorkerHost(sim, "worker2", source, target))
    elif fault in ("target", "source"):
        host = target if fault == "target" else source
        power = chance.random() < 0.6
        if chance.random() < 0.5:
            host.machine.kill_at_disk_operation(chance.randint(1, 40), power=power)
            await asyncio.sleep(chance.uniform(0.1, 1.5))
            host.machine.disk.crash_countdown = 0
        host.kill(power=power)
        check_mirrors(source, target, TOPIC, PARTITIONS)
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        await host.up(crash_chance=0.2)
    elif fault == "cut":
        sim.network.cut()
