"""Mirror workers under test, each on a machine of its own, started again when they end, and their targets compared."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.client import Client
from isthmus.mirror.link import MirrorLink
from isthmus.mirror.worker import MirrorWorker

from .history import Batch, check_prefix
from .hosts import Process, ProcessKilled
from .product import BrokerHost
from .runner import Simulation

LINK = MirrorLink("src-dst", "src", ["events"])
RESTART_S = (0.1, 2.0)


class WorkerHost:
    """A machine that runs one mirror worker, one life after the other, as a supervisor would."""

    def __init__(
        self, sim: Simulation, name: str, source: BrokerHost, target: BrokerHost, link: MirrorLink = LINK
    ) -> None:
        self.sim = sim
        self.link = link
        self.machine = sim.machine(name)
        self.source = source
        self.target = target
        self.worker: MirrorWorker | None = None
        self.enabled = True
        self.keeper = sim.loop.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            if self.enabled:
                process = self.machine.start()
                try:
                    await process.outcome(self._run(process))
                except ProcessKilled:
                    pass
                except Exception as error:
                    self.sim.counters["worker_exits"] += 1
                    self.sim.notes.append(f"{self.sim.loop.time():.3f} {process.name}: {error!r}")
                    self.machine.kill()
                self.worker = None
            await asyncio.sleep(self.sim.random.uniform(*RESTART_S))

    async def _run(self, process: Process) -> None:
        source = Client(self.source.address, client_id="mirror", runtime=process.runtime)
        target = Client(self.target.address, client_id="mirror", runtime=process.runtime)
        worker = MirrorWorker(self.link, source, target, process.runtime)
        await source.start()
        await target.start()
        await worker.start()
        self.worker = worker
        await asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        self.worker = None
        self.machine.kill()

    def status(self, index: int) -> dict[str, Any]:
        if self.worker is None:
            return {}
        for each in self.worker.status():
            if each["partition"] == index:
                return each
        return {}


def mirrored(target: BrokerHost, topic: str, index: int) -> list[Batch]:
    return target.partition(LINK.target_name(topic), index)


def check_mirrors(source: BrokerHost, target: BrokerHost, topic: str, partitions: int) -> None:
    """The target is a byte-identical prefix of the source, partition by partition."""
    for index in range(partitions):
        check_prefix(mirrored(target, topic, index), source.partition(topic, index), f"{topic}-{index} in the target")


def same(source: BrokerHost, target: BrokerHost, topic: str, partitions: int) -> bool:
    copy = LINK.target_name(topic)
    return all(target.partition_bytes(copy, i) == source.partition_bytes(topic, i) for i in range(partitions))
