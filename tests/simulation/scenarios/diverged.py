"""(m2) The source loses, by a power cut, records that were mirrored already.

Such a partition becomes DIVERGED, its status names offset and leader epoch, and nothing is appended to it any more,
however much the source goes on. Partitions that lost nothing that was mirrored are mirrored on, to the end.
"""

from __future__ import annotations

import asyncio
import itertools
import json

from isthmus.mirror.status import STATUS_TOPIC

from ..application import produce
from ..history import Batch
from ..mirroring import LINK, WorkerHost, mirrored
from ..network import Link
from ..product import BrokerHost
from ..runner import Simulation
from ..workload import Workload, values_in
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
    workers = [WorkerHost(sim, f"worker{n}", source, target) for n in range(1 + (chance.random() < 0.5))]
    if chance.random() < 0.5:
        # What a slow worker fetched before the crash arrives in the target after it, between another one's appends.
        sim.network.links["worker0", "dst"] = Link(latency_s=(0.05, chance.choice((0.3, 2.0))))
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
        sim, machine, after, source.address, count=30, partitions=PARTITIONS, linger_ms=5, delivery_timeout_ms=20_000
    )
    await asyncio.wait_for(machine.start().outcome(again), SETTLE_S)
    parted = [
        index
        for index in range(PARTITIONS)
        if not is_prefix(mirrored(target, TOPIC, index), source.partition(TOPIC, index))
    ]
    for index in range(PARTITIONS):
        assert index in parted or not lost[index], f"partition {index}: the target was ahead and is a prefix now"
    await check_mirrored_on(sim, source, target, [index for index in range(PARTITIONS) if index not in parted])
    if parted:
        await check_held(sim, target, workers, parted)
    sim.counters["partitions_diverged"] += len(parted)
    sim.counters["partitions_mirrored_on"] += PARTITIONS - len(parted)


def ahead(source: BrokerHost, target: BrokerHost, index: int) -> bool:
    """Whether the target holds what the source has lost."""
    return end_of(mirrored(target, TOPIC, index)) > end_of(source.partition(TOPIC, index))


def end_of(batches: list[Batch]) -> int:
    return batches[-1].last_offset + 1 if batches else 0


def is_prefix(shorter: list[Batch], longer: list[Batch]) -> bool:
    return shorter == longer[: len(shorter)]


async def check_mirrored_on(sim: Simulation, source: BrokerHost, target: BrokerHost, indexes: list[int]) -> None:
    def equal() -> bool:
        copy = LINK.target_name(TOPIC)
        return all(target.partition_bytes(copy, i) == source.partition_bytes(TOPIC, i) for i in indexes)

    await sim.until(equal, f"partitions {indexes} are mirrored on", SETTLE_S)


async def check_held(sim: Simulation, target: BrokerHost, workers: list[WorkerHost], indexes: list[int]) -> None:
    """These are DIVERGED and stay as they are, whichever worker looks at them."""
    held = {index: mirrored(target, TOPIC, index) for index in indexes}

    def states(worker: WorkerHost) -> list[object]:
        return [worker.status(index).get("state") for index in indexes]

    def all_diverged() -> bool:
        return all(set(states(worker)) == {"DIVERGED"} for worker in workers)

    for _ in range(2):
        await sim.until(all_diverged, f"partitions {indexes} are DIVERGED", SETTLE_S)
        for index in indexes:
            # A worker that saw it early may name an offset that another one's last append has passed since.
            reasons = [str(worker.status(index)["reason"]) for worker in workers]
            end, epoch = end_of(held[index]), held[index][-1].leader_epoch
            assert any(names(reason, "offset", end) and names(reason, "epoch", epoch) for reason in reasons), (
                f"partition {index} ends at {end} of epoch {epoch}, the status says: {reasons}"
            )
        await sim.until(
            lambda: all(told(target, index).get("state") == "DIVERGED" for index in indexes),
            f"the status topic says that partitions {indexes} are DIVERGED",
            SETTLE_S,
        )
        for index in indexes:
            assert "offset" in told(target, index)["reason"] and "epoch" in told(target, index)["reason"]
        workers[0].kill()  # a new worker finds the same
        await asyncio.sleep(8.0)
    for index in indexes:
        assert mirrored(target, TOPIC, index) == held[index], f"partition {index}: appended to after it had diverged"


def told(target: BrokerHost, index: int) -> dict[str, str]:
    """What the target's status topic says last of a partition."""
    last: dict[str, str] = {}
    for stored in values_in(target.partition(STATUS_TOPIC), 0):
        if stored.key == f"{LINK.name}/{TOPIC}/{index}":
            last = json.loads(stored.value)
    return last


def names(reason: str, what: str, number: int) -> bool:
    words = reason.replace(",", " ").replace(":", " ").split()
    return (what, str(number)) in itertools.pairwise(words)
