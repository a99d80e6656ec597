"""A data directory of a few partitions, made, written to, deleted and made again; its broker is stopped, killed and cut
from its power again and again, until a last start.

A clean stop leaves nothing to be looked through, and a power cut after it takes nothing, whether the volume was synced
at once or file by file. A partition whose deletion was told never comes back, a later one of its name holds nothing of
it, and in the end its files are gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.records import build_batch

from ..history import Batch, batches_of, check_prefix, log_bytes
from ..hosts import Process, ProcessKilled
from ..runner import Simulation
from .log import check_producers, sequence_of

DATA = "/data"
PARTITIONS = 5
LIVES = 5
PRODUCER = 7
CONFIG = LogConfig(segment_bytes=4000, index_interval_bytes=300, retention_ms=-1)

Key = tuple[str, int]


@dataclass(slots=True)
class Part:
    """What must be true of one partition."""

    topic_id: bytes
    written: list[Batch] = field(default_factory=list)
    synced_end: int = 0  # offsets below survive a power cut
    start: int = 0

    @property
    def end(self) -> int:
        return self.written[-1].last_offset + 1 if self.written else self.start

    @property
    def next_sequence(self) -> int:
        return sequence_of(self.written[-1])[1] if self.written else 0


class World:
    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.machine = sim.machine("disk")
        self.alive: dict[Key, Part] = {}
        self.deleting: dict[Key, None] = {}  # the cluster knows them no more, but nobody was told that they are gone
        self.ids = 0
        self.life = 0
        self.was_clean = False
        self.power = False

    def new_part(self) -> Part:
        self.ids += 1
        return Part(self.ids.to_bytes(16, "big"))

    # --- a life -------------------------------------------------------------------------------------------------------

    async def start(self, process: Process) -> LogManager:
        chance = self.sim.random
        self.life += 1
        config = ManagerConfig(
            volume_logs_min=2, file_delete_delay_ms=chance.choice((0, 5, 60_000)), checkpoint_interval_ms=20
        )
        manager = LogManager(process.files, DATA, process.runtime, config)
        await manager.open(1)
        back = [key for key in manager.found() if key not in self.alive and key not in self.deleting]
        assert not back, f"{back} were deleted and are here again"
        opened: dict[Key, Log] = {}

        def take(each: LogToOpen, log: Log | KafkaError) -> None:
            assert isinstance(log, Log), f"{each.topic}-{each.partition}: {log}"
            opened[each.topic, each.partition] = log

        wanted = [LogToOpen(*key, part.topic_id, CONFIG) for key, part in self.alive.items()]
        await manager.open_logs(wanted, take)
        for key, log in opened.items():
            self.check(log, self.alive[key])
        await manager.set_aside(lambda topic, index: (topic, index) not in self.alive)
        manager.start()
        return manager

    def check(self, log: Log, part: Part) -> None:
        found = batches_of(log_bytes(log))
        start = log.log_start_offset
        if self.power and not part.synced_end:
            part.start = start  # a power cut may take the name of the first segment alone, see `startup/recovery.py`
        assert start == part.start, f"{log.name} begins at {start}, not at {part.start}"
        check_prefix(found, [each for each in part.written if each.last_offset >= start], f"{log.name} after a start")
        end = found[-1].last_offset + 1 if found else start
        assert log.log_end_offset == end, f"{log.name} says it ends at {log.log_end_offset}, its batches at {end}"
        assert end >= part.synced_end, f"{log.name} ends at {end}, but {part.synced_end} was synced"
        if self.was_clean:
            assert end == part.end, f"{log.name} ends at {end}, a clean stop left {part.end}"
            assert not log.recovery_notes, f"a clean stop was not enough: {log.recovery_notes}"
            self.sim.counters["checked_clean"] += 1
        elif not self.power and part.written:
            assert end >= part.written[-1].base_offset, f"a kill lost {log.name} from {end} on"
        check_producers(log, found)
        for batch in found:
            epoch, after = log.end_offset_for_epoch(batch.leader_epoch)
            assert epoch == batch.leader_epoch and after > batch.last_offset, f"{log.name}: epoch {epoch} at {after}"
        part.written = found
        part.synced_end = end if self.power else min(part.synced_end, end)  # what a power cut left is on the disk

    async def live(self, manager: LogManager, process: Process) -> None:
        chance = self.sim.random
        for _ in range(chance.randint(10, 40)):
            action = chance.random()
            keys = list(self.alive)
            if action < 0.2 or not keys:
                await self.create(manager)
            elif action < 0.3:
                await self.delete(manager, chance.sample(keys, chance.randint(1, len(keys))))
            elif action < 0.4:
                await self.sync(manager, chance.choice(keys))
            elif action < 0.9:
                self.append(manager.logs[chance.choice(keys)], process)
            else:
                await asyncio.sleep(chance.uniform(0.0, 0.03))
        await manager.close()
        assert process.files.exists(f"{DATA}/.kafka_cleanshutdown")
        for part in self.alive.values():
            part.synced_end = part.end
        self.sim.counters["clean_stops"] += 1

    def append(self, log: Log, process: Process) -> None:
        chance, part = self.sim.random, self.alive["t", int(log.name.rpartition("-")[2])]
        count, before = chance.randint(1, 5), log.log_end_offset
        now = process.runtime.wall_ms()
        rows = [(now, b"k", chance.randbytes(chance.randint(0, 400)), ()) for _ in range(count)]
        data = build_batch(rows, producer_id=PRODUCER, producer_epoch=0, base_sequence=part.next_sequence)
        kept = bytearray(data)  # a crash within the append may keep it
        kept[0:8] = before.to_bytes(8, "big")
        kept[12:16] = self.life.to_bytes(4, "big", signed=True)
        part.written.append(Batch(before, before + count - 1, self.life, bytes(kept)))
        log.append(data, Origin.CLIENT, self.life, now)

    async def sync(self, manager: LogManager, key: Key) -> None:
        log, part = manager.logs[key], self.alive[key]
        end = log.log_end_offset
        await log.sync()
        part.synced_end = end

    async def create(self, manager: LogManager) -> None:
        free = [key for index in range(PARTITIONS) if (key := ("t", index)) not in self.alive]
        if free:
            key = self.sim.random.choice(free)
            part = self.alive[key] = self.new_part()
            log = await manager.create(*key, part.topic_id, CONFIG)
            assert log.log_end_offset == log.recovery_point == 0, f"{log.name} is new and ends at {log.log_end_offset}"
            self.sim.counters["created"] += 1

    async def delete(self, manager: LogManager, keys: Sequence[Key]) -> None:
        for key in keys:
            del self.alive[key]
            self.deleting[key] = None
        await manager.delete_logs(keys)
        for key in keys:
            del self.deleting[key]
        self.sim.counters["deleted"] += len(keys)


def left(process: Process) -> list[str]:
    return [name for name in process.files.listdir(DATA) if name.endswith("-delete")]


async def data_directory(sim: Simulation) -> None:
    world, machine, chance = World(sim), sim.machine("disk"), sim.random
    for _ in range(LIVES):
        process = machine.start()
        try:
            manager = await process.outcome(world.start(process))
            world.was_clean = world.power = False
            if chance.random() < 0.6:
                machine.kill_at_disk_operation(chance.randint(1, 150), power=chance.random() < 0.7)
            await process.outcome(world.live(manager, process))
            machine.disk.crash_countdown = 0
            world.was_clean = True
            machine.kill(power=chance.random() < 0.5)  # a clean stop stands a power cut
        except ProcessKilled:
            world.was_clean, world.power = False, not machine.powered
    process = machine.start()
    manager = await process.outcome(world.start(process))
    sim.counters["left_by_deletions"] += len(left(process))
    manager.removals.delay_ms = 0
    await sim.until(lambda: not left(process), "the files of deleted partitions are gone")
