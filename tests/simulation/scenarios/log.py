"""One partition's log alone, opened, filled, cut, closed, killed and cut from its power again and again.

After a kill nothing is missing. After a power cut the log is a prefix of what was written that holds at least what
was synced; producers, leader epochs and searches agree with the batches that are there.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.status import LogHooks
from isthmus.core_broker.storage.startup import opening
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import build_batch

from ..history import Batch, batches_of, check_prefix, log_bytes
from ..hosts import Process, ProcessKilled
from ..runner import Simulation

DIRECTORY = "/data/t-0"
CHECKPOINT = "/data/checkpoint"
LIVES = 4
CODECS = ("none", "none", "none", "gzip", "lz4", "zstd", "snappy")


class LogModel:
    """What must be true of the log, kept outside of it."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.written: list[Batch] = []  # what the log held last, oldest first
        self.synced_end = 0  # offsets below must survive a power cut
        self.named_end = 0  # and if the log began below it, that is where it begins: truncations leave its first name
        self.kept_end: int | None = None  # offsets below must survive a kill; None: all that was written
        self.start = 0
        self.cut: list[list[Batch]] = []  # what truncations took since the last sync: a power cut may bring it back
        self.epoch = 0
        self.sequences: dict[int, int] = {}  # producer id -> next sequence
        self.timestamp_ms = sim.wall_start_ms

    @property
    def end(self) -> int:
        return self.written[-1].last_offset + 1 if self.written else self.start

    def remember_sequences(self) -> None:
        """Of those whose batches were deleted, too: the log may remember them, or not."""
        self.sequences.clear()
        for batch in self.written:
            producer, following = sequence_of(batch)
            if producer >= 0:
                self.sequences[producer] = following


def sequence_of(batch: Batch) -> tuple[int, int]:
    """A batch's producer id and the sequence that follows it."""
    producer = int.from_bytes(batch.data[43:51], "big", signed=True)
    first = int.from_bytes(batch.data[53:57], "big", signed=True)
    return producer, first + batch.last_offset - batch.base_offset + 1


async def log(sim: Simulation) -> None:
    machine = sim.machine("disk")
    model = LogModel(sim)
    clean = lost_power = False
    for _ in range(LIVES):
        process = machine.start()
        process.files.makedirs("/data")
        opened = process.outcome(open_log(process, clean))
        try:
            log = await opened
            check(sim, model, log, power=lost_power, was_clean=clean)
            if sim.random.random() < 0.8:
                machine.kill_at_disk_operation(sim.random.randint(1, 60), power=sim.random.random() < 0.7)
            clean = await process.outcome(live(sim, model, log, process))
            lost_power = False
            if clean and sim.random.random() < 0.5:
                machine.kill(power=True)  # a clean shutdown stands even a power cut
            machine.kill()
        except ProcessKilled:
            clean = False
            lost_power = not machine.powered
    process = machine.start()
    check(sim, model, await process.outcome(open_log(process, clean)), power=lost_power, was_clean=clean)


async def open_log(process: Process, clean: bool) -> Log:
    saved = {"recovery_point": 0, "log_start_offset": 0}
    if process.files.exists(CHECKPOINT):
        saved = json.loads(process.files.read(CHECKPOINT))
    config = LogConfig(segment_bytes=6000, index_interval_bytes=300, segment_index_bytes=400)
    wall_ms = process.runtime.wall_ms()
    return await opening.open_log(process.files, DIRECTORY, config, wall_ms=wall_ms, clean=clean, **saved)


def save_checkpoint(process: Process, log: Log) -> None:
    saved = {"recovery_point": log.recovery_point, "log_start_offset": log.log_start_offset}
    process.files.write_atomic(CHECKPOINT, json.dumps(saved).encode())


async def live(sim: Simulation, model: LogModel, log: Log, process: Process) -> bool:
    """One life of the log's owner; True when it ended in a clean shutdown."""
    chance = sim.random

    async def save() -> None:
        await process.files.run(save_checkpoint, process, log)

    log.status.hooks = LogHooks(save_points=save)
    model.epoch += 1
    syncing: list[asyncio.Task[None]] = []
    for _ in range(chance.randint(10, 40)):
        action = chance.random()
        if action < 0.72:
            append(model, log, process)
        elif action < 0.82:
            syncing.append(asyncio.ensure_future(sync(model, log)))
            if chance.random() < 0.5:
                await syncing[-1]
        elif action < 0.87:
            await save()
        elif action < 0.90 and not any(not task.done() for task in syncing):
            await truncate(model, log)
        elif action < 0.93:
            await retain(model, log, save)
        else:
            await asyncio.sleep(chance.uniform(0.0, 0.01))
    for task in syncing:
        await task
    await log.close()
    await save()
    model.synced_end = model.end
    model.named_end = max(model.named_end, model.end)
    sim.counters["clean_closes"] += 1
    return True


def append(model: LogModel, log: Log, process: Process) -> None:
    chance = model.sim.random
    model.timestamp_ms += chance.randint(-5, 50)
    producer = chance.choice((-1, 7, 8))
    count = chance.randint(1, 8)
    rows = [(model.timestamp_ms + n, b"k%d" % n, chance.randbytes(chance.randint(0, 600)), ()) for n in range(count)]
    base = model.sequences.get(producer, 0) if producer >= 0 else -1
    data = build_batch(
        rows,
        chance.choice(CODECS),
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        base_sequence=base,
    )
    before = log.log_end_offset
    # The model knows the batch before the log writes: a crash in between may keep it.
    kept = bytearray(data)
    kept[0:8] = before.to_bytes(8, "big")
    kept[12:16] = model.epoch.to_bytes(4, "big", signed=True)
    model.written.append(Batch(before, before + count - 1, model.epoch, bytes(kept)))
    if producer >= 0:
        model.sequences[producer] = base + count
    info = log.append(data, Origin.CLIENT, model.epoch, process.runtime.wall_ms())
    assert (info.first_offset, info.next_offset) == (before, before + count)
    if producer >= 0 and chance.random() < 0.2:
        again = log.append(data, Origin.CLIENT, model.epoch, process.runtime.wall_ms())
        assert again.duplicate and again.first_offset == before


async def sync(model: LogModel, log: Log) -> None:
    end, cuts = log.log_end_offset, len(model.cut)
    await log.sync()
    del model.cut[:cuts]
    model.synced_end = max(model.synced_end, min(end, log.log_end_offset))
    model.named_end = max(model.named_end, model.synced_end)


async def truncate(model: LogModel, log: Log) -> None:
    candidates = [batch for batch in model.written[-6:] if batch.base_offset >= log.log_start_offset]
    if not candidates:
        return
    offset = model.sim.random.choice(candidates).base_offset
    # From the call on either end may be found after a crash; nothing above it is promised.
    model.synced_end = min(model.synced_end, offset)
    model.kept_end = offset
    before = list(model.written)
    model.cut.append(before)
    await log.truncate_to(offset)
    model.written = [batch for batch in before if batch.last_offset < offset]
    model.kept_end = None
    model.remember_sequences()
    assert log.log_end_offset == model.end
    model.sim.counters["truncations"] += 1


async def retain(model: LogModel, log: Log, save: Any) -> None:
    if not model.written:
        return
    offset = model.sim.random.choice(model.written[:4]).base_offset
    if offset <= model.start:
        return
    model.start = offset
    log.advance_start(offset)
    await save()
    await log.enforce_retention(log.log_end_offset, model.timestamp_ms)
    model.sim.counters["retentions"] += 1


def check(sim: Simulation, model: LogModel, log: Log, *, power: bool, was_clean: bool) -> None:
    """The log as found on start, against what is known; then the model becomes what was found."""
    found = batches_of(log_bytes(log))
    check_history(model, found, log.log_start_offset, power and not was_clean)
    if power:
        model.cut.clear()  # what a power cut left is on the disk
    end = found[-1].last_offset + 1 if found else log.log_start_offset
    assert log.log_end_offset == end, f"the log says it ends at {log.log_end_offset}, its batches end at {end}"
    assert end >= model.synced_end, f"the log ends at {end}, but {model.synced_end} was synced"
    if not power and model.written:
        # The last append may have died before its write.
        kept = model.written[-1].base_offset if model.kept_end is None else model.kept_end
        assert end >= kept, f"a kill lost offsets from {end} on"
    if was_clean:
        assert not log.recovery_notes, f"a clean shutdown was not enough: {log.recovery_notes}"
    if not (power and model.named_end <= model.start):
        # Else a power cut may take the name of the first segment alone, see `startup/recovery.py`.
        assert log.log_start_offset <= model.start, f"the log starts at {log.log_start_offset}, not {model.start}"
    model.written = [batch for batch in model.written if batch.last_offset < log.log_start_offset] + found
    model.start = log.log_start_offset
    model.kept_end = None
    model.remember_sequences()
    check_searches(sim, log, found)
    check_producers(log, found)
    epochs = {batch.leader_epoch: None for batch in found}
    for epoch in epochs:
        last = [batch.last_offset for batch in found if batch.leader_epoch == epoch][-1]
        assert log.end_offset_for_epoch(epoch) == (epoch, last + 1), f"epoch {epoch}"
    model.synced_end = end if power else min(model.synced_end, end)  # what a power cut left is on the disk
    if power:
        model.named_end = end


def check_history(model: LogModel, found: list[Batch], start: int, power: bool) -> None:
    versions = [model.written, *(model.cut if power else model.cut[-1:] if model.kept_end is not None else ())]
    failure: AssertionError | None = None
    for version in versions:
        try:
            check_prefix(found, [batch for batch in version if batch.last_offset >= start], "the log after a restart")
            return
        except AssertionError as error:
            failure = failure or error
    assert failure is not None
    raise failure


def check_searches(sim: Simulation, log: Log, found: list[Batch]) -> None:
    for batch in sim.random.sample(found, min(8, len(found))):
        offset = sim.random.randint(batch.base_offset, batch.last_offset)
        if offset < log.log_start_offset:
            continue
        part = log.read(offset, 1)
        assert b"".join(piece.read() for piece in part.ranges) == batch.data, f"read at {offset}"
    try:
        log.read(log.log_end_offset + 1, 1)
    except KafkaError as error:
        assert error.code == ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        raise AssertionError("a read past the end went through")


def check_producers(log: Log, found: list[Batch]) -> None:
    """Whoever wrote something that is there is known by its last sequence."""
    for producer, following in {p: f for p, f in map(sequence_of, found) if p >= 0}.items():
        entry = log.producers.get(producer)
        assert entry is not None, f"producer {producer} is forgotten"
        assert entry.last_sequence == following - 1, (
            f"producer {producer}: last sequence {entry.last_sequence}, its batches end at {following - 1}"
        )
