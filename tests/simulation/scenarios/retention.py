"""A data directory whose log grows old while it is written, cut short at its front, closed, killed and loses its power.

Only what is past the bounds of retention, or was deleted on request, is ever gone, and only whole batches below the
high watermark; the front never comes back once a start was told of it; what is left is the log as it was written. In
the end, when nothing disturbs, nothing is left that is past the bounds.
"""

from __future__ import annotations

import asyncio
from functools import partial

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.protocol.records import build_batch

from ..history import Batch, batches_of, check_prefix, log_bytes
from ..hosts import Process
from ..runner import Simulation
from .lives import lives
from .log import sequence_of

RETENTION_INTERVAL_MS = 20


class Model:
    """What must be true of the log, kept outside of it."""

    def __init__(self, sim: Simulation) -> None:
        chance = sim.random
        self.sim = sim
        self.written: list[Batch] = []
        self.newest_ms: dict[int, int] = {}  # largest timestamp of a batch, by its first offset
        self.synced_end = 0
        self.high_watermark = 0
        self.start = 0  # where the log was last seen to begin
        self.removed_end = 0  # offsets below are not on the disk any more, as far as a process can tell
        self.asked = 0  # offsets below were deleted on request
        self.told = 0  # and for so many of them it was told that they are
        self.sequence = 0
        self.config = LogConfig(
            segment_bytes=chance.choice((1100, 2500)),
            segment_ms=chance.choice((25, 60_000)),
            index_interval_bytes=200,
            retention_ms=chance.choice((-1, 40, 150)),
            retention_bytes=chance.choice((-1, 1000, 4000)),
        )
        self.options = ManagerConfig(
            checkpoint_interval_ms=chance.choice((20, 60_000)),
            log_start_interval_ms=chance.choice((20, 60_000)),
            high_watermark_interval_ms=50,
            retention_interval_ms=RETENTION_INTERVAL_MS,
        )

    @property
    def end(self) -> int:
        return self.written[-1].last_offset + 1 if self.written else self.start


async def retention(sim: Simulation) -> None:
    machine = sim.machine("disk")
    model = Model(sim)

    def doom(power: bool) -> None:
        if sim.random.random() < 0.8:
            machine.kill_at_disk_operation(sim.random.randint(1, 120), power=power)

    await lives(
        sim, machine, model.options, model.config, lambda: model.high_watermark, check=partial(check, model), doom=doom,
        live=partial(live, model), last=partial(grow_old, model),
    )  # fmt: skip


async def live(model: Model, logs: LogManager, log: Log, process: Process) -> None:
    chance = model.sim.random
    logs.start()
    for _ in range(chance.randint(10, 50)):
        action = chance.random()
        if action < 0.6:
            append(model, log, process)
        elif action < 0.7:
            end = log.log_end_offset
            await log.sync()
            model.synced_end = max(model.synced_end, end)
        elif action < 0.85:
            model.high_watermark = chance.randint(model.high_watermark, log.log_end_offset)
        elif action < 0.92:
            await delete_records(model, logs, log)
        look(model, log, process)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            look(model, log, process)
    await logs.close()
    look(model, log, process)
    model.synced_end = model.end
    model.told = model.start
    model.sim.counters["clean_closes"] += 1


def append(model: Model, log: Log, process: Process) -> None:
    chance = model.sim.random
    now = process.runtime.wall_ms()
    rows = [(now - chance.choice((0, 0, 100)), None, bytes(chance.randint(0, 300)), ()) for _ in range(3)]
    base = log.log_end_offset
    data = bytearray(build_batch(rows, producer_id=7, producer_epoch=0, base_sequence=model.sequence))
    model.sequence += len(rows)
    kept = bytearray(data)
    kept[0:8] = base.to_bytes(8, "big")
    kept[12:16] = (0).to_bytes(4, "big")
    model.written.append(Batch(base, base + len(rows) - 1, 0, bytes(kept)))
    model.newest_ms[base] = max(row[0] for row in rows)
    log.append(bytes(data), Origin.CLIENT, 0, now)


async def delete_records(model: Model, logs: LogManager, log: Log) -> None:
    offset = model.sim.random.randint(0, model.high_watermark)
    model.asked = max(model.asked, offset)
    log.advance_start(offset)
    started = log.log_start_offset
    await logs.checkpoints.save_log_starts()
    model.told = max(model.told, started)
    model.sim.counters["deleted_on_request"] += 1


def look(model: Model, log: Log, process: Process) -> None:
    """Where the log begins now, and whether what is gone had to go."""
    check_gone(model, log.log_start_offset, process.runtime.wall_ms())
    check_end(model, log)
    model.removed_end = first_on_disk(process)


def first_on_disk(process: Process) -> int:
    """The base offset of the first segment file that a process can see."""
    names = process.machine.disk.names
    bases = [int(name.rpartition("/")[2].removesuffix(".log")) for name in names if name.endswith(".log")]
    return min(bases, default=0)


def check_gone(model: Model, start: int, wall_ms: int) -> None:
    assert start >= model.start, f"the log began at {model.start}, now at {start}"
    assert start <= max(model.high_watermark, model.start), f"{start} is past the high watermark"
    left = sum(len(batch.data) for batch in model.written)
    config = model.config
    for batch in model.written:
        left -= len(batch.data)  # of what comes after it: that may be too old all the same
        if model.start <= batch.last_offset < start and batch.last_offset >= model.asked:
            age = wall_ms - model.newest_ms[batch.base_offset]
            is_old = 0 <= config.retention_ms < age
            is_in_excess = 0 <= config.retention_bytes <= left
            assert is_old or is_in_excess, (
                f"offset {batch.base_offset} is gone after {age} ms, and {left} bytes are left; {config.retention_ms=} "
                f"{config.retention_bytes=}"
            )
            model.sim.counters["retained_away"] += 1
    model.start = start


def check_end(model: Model, log: Log) -> None:
    assert log.log_end_offset == model.end, f"the log ends at {log.log_end_offset}, not at {model.end}"


def check(model: Model, log: Log, process: Process, power: bool) -> None:
    """The log as found on start; then the model becomes what was found."""
    found = batches_of(log_bytes(log))
    start, end = log.log_start_offset, log.log_end_offset
    assert start >= model.told, f"the log begins at {start}, but it was told that it begins at {model.told}"
    if not power:
        assert start >= min(model.removed_end, model.start), (
            f"the log begins at {start}, {model.removed_end} was removed"
        )
    assert end >= model.synced_end, f"the log ends at {end}, but {model.synced_end} was synced"
    known = [batch for batch in model.written if batch.last_offset >= start]
    check_prefix(found, known, "the log after a restart")
    assert end == (found[-1].last_offset + 1 if found else start), f"the log says that it ends at {end}"
    if not power and known:
        assert end >= known[-1].base_offset, f"a kill lost offsets from {end} on"
    model.sim.counters["starts_that_moved"] += start > model.start
    if start > model.start and not (power and model.synced_end <= model.start):
        # Else a power cut may have taken the name of the first segment alone, see `startup/recovery.py`.
        check_gone(model, start, process.runtime.wall_ms())  # gone just before the end
    model.start = start  # or what was not told of came back
    model.written = [batch for batch in model.written if batch.last_offset < end]
    model.high_watermark = min(max(model.high_watermark, start), end)
    model.synced_end = end if power else min(model.synced_end, end)  # what a power cut left is on the disk
    model.removed_end = 0
    if found:
        entry = log.producers.get(7)
        following = sequence_of(found[-1])[1]
        assert entry is not None and entry.last_sequence == following - 1, "the producer is forgotten"
        model.sequence = following
    else:
        entry = log.producers.get(7)
        model.sequence = 0 if entry is None else entry.last_sequence + 1


async def grow_old(model: Model, logs: LogManager, log: Log) -> None:
    """Nothing disturbs any more: what is past the bounds goes."""
    config = model.config
    model.high_watermark = log.log_end_offset
    logs.start()

    def is_within_bounds() -> bool:
        assert log.failure is None, log.failure
        if config.retention_ms >= 0 and log.log_start_offset < log.log_end_offset:
            return False
        closed = log.closed_segments()
        return (
            config.retention_bytes < 0 or not closed or log.size_bytes - config.retention_bytes < closed[0].size_bytes
        )

    await model.sim.until(is_within_bounds, f"what is past {config.retention_ms=} {config.retention_bytes=} goes", 10.0)
    await logs.close()
