"""The product on simulated machines: brokers that are started again after each kill, and what their disks hold.

What a disk holds is read from the machine's files directly, so that no product code stands between a check and the
truth.
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Mapping
from typing import Any

from isthmus.core_broker.broker import Broker
from isthmus.core_broker.config import BrokerConfig

from .history import Batch, batches_of
from .hosts import Machine, ProcessKilled
from .observer import FrameObserver
from .runner import Simulation

PORT = 9092
DATA = "/data"
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class BrokerHost:
    """A machine that runs one broker, one life after the other."""

    def __init__(self, sim: Simulation, name: str, options: Mapping[str, str] | None = None) -> None:
        self.sim = sim
        self.name = name
        self.machine: Machine = sim.machine(name)
        self.options = {"listeners": f"PLAINTEXT://{name}:{PORT}", "log.dirs": DATA, **QUICK, **(options or {})}
        self.broker: Broker | None = None
        self.lives = 0
        if sim.network.observer is None:
            sim.network.observer = FrameObserver()

    @property
    def address(self) -> str:
        return f"{self.name}:{PORT}"

    async def start(self, *, crash_after: int = 0, power: bool = True) -> None:
        """One new life; ProcessKilled when it ended before it served. crash_after: disk operations until it ends."""
        process = self.machine.start()
        self.lives += 1
        if crash_after:
            self.machine.kill_at_disk_operation(crash_after, power=power)
        broker = process.context.copy().run(Broker, BrokerConfig(self.options), process.runtime, process.files)
        await process.outcome(broker.start())
        self.broker = broker

    async def up(self, *, crash_chance: float = 0.0, power: bool = True) -> None:
        """Start; by that chance the start itself is killed first, at a random disk operation."""
        chance = self.sim.random
        while True:
            try:
                crash_after = chance.randint(1, 40) if chance.random() < crash_chance else 0
                await self.start(crash_after=crash_after, power=power and chance.random() < 0.7)
                self.machine.disk.crash_countdown = 0
                return
            except ProcessKilled:
                self.sim.counters["kills_at_start"] += 1
                await asyncio.sleep(chance.uniform(0.05, 0.5))

    def kill(self, *, power: bool = False) -> None:
        self.broker = None
        self.machine.kill(power=power)

    @property
    def alive(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive

    # -- what the disk holds

    def partition(self, topic: str, index: int = 0, *, durable: bool = False) -> list[Batch]:
        """The batches of a partition as the page cache has them, or as only the disk has them."""
        disk = self.machine.disk
        directory = f"{DATA}/{topic}-{index}"
        names = disk.durable_files(directory) if durable else disk.names
        batches: list[Batch] = []
        for path in _segments(names, directory):
            data = names[path].durable() if durable else bytes(names[path].data)
            found = batches_of(data)
            if batches and found and found[0].base_offset != batches[-1].last_offset + 1:
                break
            batches += found
            if sum(len(batch.data) for batch in found) < len(data):
                break
        return batches

    def end(self, topic: str, index: int = 0) -> int:
        """Where a partition's log ends, as the page cache has it; 0 without one."""
        batches = self.partition(topic, index)
        if batches:
            return batches[-1].last_offset + 1
        paths = _segments(self.machine.disk.names, f"{DATA}/{topic}-{index}")
        return int(posixpath.basename(paths[-1]).removesuffix(".log")) if paths else 0

    def partition_bytes(self, topic: str, index: int = 0) -> bytes:
        """All of a partition's segments, as the page cache has them, unexamined."""
        names = self.machine.disk.names
        return b"".join(names[path].data for path in _segments(names, f"{DATA}/{topic}-{index}"))


def _segments(names: Mapping[str, Any], directory: str) -> list[str]:
    return sorted(p for p in names if p.endswith(".log") and posixpath.dirname(p) == directory)


async def retried(what: Any, *, attempts: int = 200, pause_s: float = 0.3) -> Any:
    """Await what() until it goes through, for set-up requests on a cluster that is being disturbed."""
    last: Exception | None = None
    for _ in range(attempts):
        try:
            return await what()
        except Exception as error:
            last = error
            await asyncio.sleep(pause_s)
    raise AssertionError(f"never went through: {last!r}")
