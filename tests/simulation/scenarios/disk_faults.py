"""A disk that fills up, refuses writes, tears an append or fails a sync, under idempotent producers; then power cuts.

After a failed sync the page cache lies: it shows records that the disk will never have, and further syncs say that all
is well, whether the machine or the broker alone is started anew. What was acknowledged stays all the same; what could
not be written is refused by name, and once the disk is well again everything goes on.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import Any

from isthmus.core_broker.pauses import RETRY_FIRST_S, RETRY_MOST_S

from ..ledger import Ledger
from ..product import BrokerHost
from ..runner import Simulation
from ..wire import make_topic, produce_by_wire
from ..workload import Workload

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 600.0
LOOK_S = 0.05


async def disk_faults(sim: Simulation) -> None:
    chance = sim.random
    host = BrokerHost(sim, "broker", {"durability": "fsync", "log.roll.ms": chance.choice(("20", "604800000"))})
    await host.up()
    admin = sim.machine("admin").start()
    await admin.outcome(make_topic(host.address, TOPIC, PARTITIONS))
    workloads = []
    running = []
    for number in range(2):
        workloads.append(Workload(f"w{number}", TOPIC))
        work = produce_by_wire(
            sim,
            sim.machine(f"w{number}"),
            workloads[-1],
            host.address,
            count=chance.randint(30, 90),
            partition=number % PARTITIONS,
            pause_s=0.02,
        )
        running.append(sim.machine(f"w{number}").start().outcome(work))
    ledger = Ledger(sim, host, TOPIC, PARTITIONS, workloads)
    for _ in range(chance.randint(1, 3)):
        await asyncio.sleep(chance.uniform(0.02, 0.5))
        fault, number = await trouble(sim, host)
        if fault == "sync" and number == errno.ENOSPC:
            await come_back(sim, host)
        elif fault == "sync":
            await ledger.crash(power=chance.random() < 0.4)
        elif chance.random() < 0.7:
            await ledger.crash()
    if not all(work.done() for work in running):
        await ledger.crash(power=chance.random() < 0.5)  # a partition that a fault took offline comes back
    await asyncio.wait_for(asyncio.gather(*running), SETTLE_S)
    await ledger.crash(power=True)
    ledger.check_end()


async def come_back(sim: Simulation, host: BrokerHost) -> None:
    """What found no room at a sync is served again, though nobody starts the broker.

    A try may meet a fault that was planned before, and then the next comes after twice the time; one that meets another
    error waits for a start.
    """
    ends_s = sim.loop.time() + 2 * RETRY_MOST_S
    while found := lack_room(host):
        assert sim.loop.time() < ends_s, f"there is room again, but not for {found}"
        await asyncio.sleep(RETRY_FIRST_S)


def lack_room(host: BrokerHost) -> dict[Any, str]:
    """The partitions that are offline since a sync found no room."""
    assert host.broker is not None and host.broker._replicas is not None
    reason = os.strerror(errno.ENOSPC)
    return {key: why for key, why in host.broker._replicas.offline().items() if reason in why}


async def trouble(sim: Simulation, host: BrokerHost) -> tuple[str, int]:
    """One fault of the disk: which one, and its error."""
    disk, chance = host.machine.disk, sim.random
    fault = chance.choice(("full", "sync", "append", "tear"))
    sim.counters[f"fault_{fault}"] += 1
    number = errno.ENOSPC
    if fault == "full":
        capacity, disk.capacity_bytes = disk.capacity_bytes, disk.used_bytes + chance.randint(0, 3000)
        await asyncio.sleep(chance.uniform(0.1, 1.5))
        disk.capacity_bytes = capacity
    else:
        number = chance.choice((errno.EIO, errno.ENOSPC))
        disk.fail(fault, number, containing=f"/{TOPIC}-", after=chance.randint(0, 4))
        ends_s = sim.loop.time() + chance.uniform(0.1, 1.0)
        found: dict[Any, str] = {}
        while sim.loop.time() < ends_s:
            await asyncio.sleep(LOOK_S)
            found |= lack_room(host)
        sim.counters["wanted_room_at_a_sync"] += len(found)
    return fault, number
