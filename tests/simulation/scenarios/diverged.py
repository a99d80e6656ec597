"""(m2) The source loses, by a power cut, records that were mirrored already.

Such a partition becomes DIVERGED, its status names offset and leader epoch, and nothing is appended to it any more,
however much the source goes on. Partitions that lost nothing that was mirrored are mirrored on, to the end.
"""

from __future__ import annotations

import asyncio

from ..application import produce
from ..history import Batch
from ..mirroring import WorkerHost, check_mirrors, mirrored
from ..product import BrokerHost
from ..runner import Simulation
from ..workload import Workload
from .producers import create_topic

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 600.0


async def diverged(sim: Simulation) -> None:
    chance = sim.random
    source = BrokerHost(sim, "src", {"log.flush.interval.messages": str(chance.choice((7, 1000)))})
    target = BrokerHost(sim, "dst", {"durability": "fsync"})
    await asyncio.gather(source.up(), target.up())
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, source.address, TOPIC, PARTITIONS))
    workers = [WorkerHost(sim, f"worker{n}", source, target) for n in range(1 + (chance.random() < 0.3))]
    workload = Workload("before", TOPIC)
    machine = sim.machine("app")
    work = produce(
        sim, machine, workload, source.address, count=chance.randint(20, 50), partitions=PARTITIONS, linger_ms=5,
        delivery_timeout_ms=20_000,
    )  # fmt: skip
    running = machine.start().outcome(work)
    await asyncio.sleep(chance.uniform(0.3, 2.5))
    source.kill(power=True)
    await asyncio.sleep(chance.uniform(0.0, 2.0))
    lost = [ahead(source, target, index) for index in range(PARTITIONS)]
    await source.up()
    await asyncio.wait_for(running, SETTLE_S)
    machine.kill()
    # What the worker had fetched before the crash may still have arrived.
    await asyncio.sleep(2.0)
    after = Workload("after", TOPIC)
    again = produce(
        sim, machine, after, source.address, count=60, partitions=PARTITIONS, linger_ms=5, delivery_timeout_ms=20_000
    )
    await asyncio.wait_for(machine.start().outcome(again), SETTLE_S)
    for index in range(PARTITIONS):
        await check_partition(sim, source, target, workers, index, lost[index])


def ahead(source: BrokerHost, target: BrokerHost, index: int) -> bool:
    """Whether the target holds what the source has lost."""
    return end_of(mirrored(target, TOPIC, index)) > end_of(source.partition(TOPIC, index))


def end_of(batches: list[Batch]) -> int:
    return batches[-1].last_offset + 1 if batches else 0


def is_prefix(shorter: list[Batch], longer: list[Batch]) -> bool:
    return shorter == longer[: len(shorter)]


async def check_partition(
    sim: Simulation, source: BrokerHost, target: BrokerHost, workers: list[WorkerHost], index: int, lost: bool
) -> None:
    held = mirrored(target, TOPIC, index)
    if is_prefix(held, source.partition(TOPIC, index)):
        assert not lost, f"partition {index}: the target was ahead of the source and is a prefix of it now"
        await sim.until(
            lambda: mirrored(target, TOPIC, index) == source.partition(TOPIC, index), "mirrored on", SETTLE_S
        )
        check_mirrors(source, target, TOPIC, 0)
        sim.counters["partitions_mirrored_on"] += 1
        return
    sim.counters["partitions_diverged"] += 1
    await sim.until(
        lambda: any(worker.status(index).get("state") == "DIVERGED" for worker in workers), "DIVERGED", SETTLE_S
    )
    status = next(s for s in (worker.status(index) for worker in workers) if s.get("state") == "DIVERGED")
    reason = str(status["reason"])
    # The last epoch that both know, and where it ended, or the ends of both logs.
    assert "offset" in reason and "epoch" in reason, reason
    assert str(end_of(held)) in reason.replace(",", " ").split(), f"{reason!r} does not name offset {end_of(held)}"
    assert str(held[-1].leader_epoch) in reason.replace(",", " ").split(), f"{reason!r} does not name the epoch"
    for worker in workers[:1]:
        worker.kill()  # a new worker finds the same
    await asyncio.sleep(30.0)
    assert mirrored(target, TOPIC, index) == held, f"partition {index}: appended to after it had diverged"
    states = [worker.status(index).get("state") for worker in workers]
    assert "DIVERGED" in states, f"partition {index}: a new worker says {states}"
