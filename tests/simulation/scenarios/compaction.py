"""A data directory whose log is compacted and retained while it is written, cut, closed, killed and loses its power.

Whatever happened, each key has the value that was written last of what a start finds; a tombstone is there for
delete.retention.ms; nothing comes back, nothing undecided is touched, and producers that are remembered go on.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.core_broker.storage.upkeep.cleaner import CleanerConfig
from isthmus.protocol.records import build_batch, iter_records

from ..history import batches_of, log_bytes
from ..hosts import Process
from ..runner import Simulation
from .lives import lives
from .log import CODECS, sequence_of

DAY_MS = 24 * 60 * 60 * 1000


class Written(NamedTuple):
    offset: int
    key: bytes
    value: bytes | None
    wall_ms: int


class Model:
    """What must be true of the log, kept outside of it."""

    def __init__(self, sim: Simulation) -> None:
        chance = sim.random
        self.sim = sim
        self.written: list[Written] = []
        self.cut: list[list[Written]] = []  # histories before truncations that a crash may bring back
        self.synced_end = 0
        self.stable = 0  # all before it is decided: never cut, and the cleaner may have it
        self.newest_producer = 7
        self.sequences: dict[int, int] = {}
        self.batches: list[tuple[int, int, int]] = []  # of producers: id, last offset, last sequence
        self.truncates = chance.random() < 0.5
        self.values = 0
        self.start = self.end = 0
        self.config = LogConfig(
            cleanup_policy=chance.choice(("compact", "compact", "compact,delete")),
            segment_bytes=chance.choice((1200, 3000)),
            segment_ms=chance.choice((15, DAY_MS)),
            index_interval_bytes=300,
            retention_ms=-1,
            retention_bytes=5000,
            min_cleanable_dirty_ratio=chance.choice((0.0, 0.0, 0.3)),
            min_compaction_lag_ms=chance.choice((0, 0, 30)),
            delete_retention_ms=chance.choice((0, 40, DAY_MS)),
        )
        self.options = ManagerConfig(
            checkpoint_interval_ms=chance.choice((20, 60_000)),
            high_watermark_interval_ms=50,
            retention_interval_ms=25,
            cleaner=CleanerConfig(
                map_bytes=24 * chance.choice((25, 1000, 1000)),
                buffer_bytes=chance.choice((200, 5000)),
                backoff_ms=chance.choice((2, 20)),
            ),
        )


async def compaction(sim: Simulation) -> None:
    machine = sim.machine("disk")
    model = Model(sim)

    def doom(power: bool) -> None:
        if sim.random.random() < 0.5:
            machine.kill_at_disk_operation(sim.random.randint(1, 300), power=power)
        elif sim.random.random() < 0.8:
            after, most = sim.random.choice(((".cleaned", 30), (".swap", 15)))
            machine.kill_at_disk_operation(sim.random.randint(1, most), power=power, after=after)

    await lives(
        sim, machine, model.options, model.config, lambda: model.stable, check=partial(check, model), doom=doom,
        live=partial(live, model),
    )  # fmt: skip


async def live(model: Model, logs: LogManager, log: Log, process: Process) -> None:
    chance = model.sim.random
    logs.start()
    for _ in range(chance.randint(10, 50)):
        action = chance.random()
        if action < 0.7:
            append(model, log, process)
        elif action < 0.8:
            await sync(model, log)
        elif action < 0.93:
            model.stable = chance.randint(model.stable, log.log_end_offset)
        elif action < 0.97 and model.truncates:
            await truncate(model, log)
        if chance.random() < 0.5:
            rounds = logs.cleaner.rounds
            await asyncio.sleep(chance.uniform(0.0, 0.02))
            model.sim.counters["rounds"] += logs.cleaner.rounds - rounds
    await logs.close()
    model.synced_end = model.end
    model.cut.clear()
    model.sim.counters["clean_closes"] += 1


def append(model: Model, log: Log, process: Process) -> None:
    chance = model.sim.random
    now = process.runtime.wall_ms()
    rows = []
    base = log.log_end_offset
    for n in range(chance.randint(1, 6)):
        model.values += 1
        key = b"k%d" % chance.randint(0, 9) if chance.random() < 0.9 else b"once%d" % model.values
        value = None if chance.random() < 0.15 else b"%d " % model.values + bytes(chance.randint(0, 120))
        rows.append((now - chance.randint(0, 20), key, value, ()))
        model.written.append(Written(base + n, key, value, now))
    model.newest_producer += chance.random() < 0.1  # the one before writes no more
    producer = chance.choice((-1, model.newest_producer))
    head = {}
    if producer >= 0:
        sequence = model.sequences.get(producer, 0)
        head = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
        model.sequences[producer] = sequence + len(rows)
        model.batches.append((producer, base + len(rows) - 1, sequence + len(rows) - 1))
    model.end = base + len(rows)
    log.append(build_batch(rows, chance.choice(CODECS), **head), Origin.CLIENT, 0, now)


async def sync(model: Model, log: Log) -> None:
    end, cuts = log.log_end_offset, len(model.cut)
    await log.sync()
    del model.cut[:cuts]
    model.synced_end = max(model.synced_end, min(end, log.log_end_offset))


async def truncate(model: Model, log: Log) -> None:
    """Cut a tail off that was never decided, at a batch's begin."""
    bases = [batch.base_offset for batch in batches_of(log_bytes(log)) if batch.base_offset >= model.stable]
    if not bases:
        return
    offset = model.sim.random.choice(bases)
    before = list(model.written)
    model.synced_end = min(model.synced_end, offset)
    model.cut.append(before)
    model.written = [each for each in before if each.offset < offset]
    model.end = offset
    await log.truncate_to(offset)
    remember_producers(model, log)
    model.sim.counters["truncations"] += 1


def remember_producers(model: Model, log: Log) -> None:
    model.sequences.clear()
    for producer, entry in log.producers.items():
        model.sequences[producer] = entry.last_sequence + 1


def check(model: Model, log: Log, process: Process, power: bool) -> None:
    """The log as found on start; then the model becomes what was found."""
    data = log_bytes(log)
    end, start = log.log_end_offset, log.log_start_offset
    assert end >= model.synced_end, f"the log ends at {end}, but {model.synced_end} was synced"
    found = {record.offset: (record.key, record.value) for record in iter_records(data)}
    offsets = list(found)
    assert offsets == sorted(offsets), "offsets do not rise"
    failures = []
    for version in (model.written, *model.cut):
        try:
            model.written = check_version(model, version, found, start, end, process.runtime.wall_ms(), power)
            break
        except AssertionError as error:
            failures.append(error)
    else:
        raise failures[0]
    check_producers(model, log, data, start, end)
    check_searches(model, log, offsets, start, end)
    model.sim.counters["retentions"] += start > model.start
    model.start = start
    if power:
        model.cut.clear()  # what a power cut left is on the disk
    model.end = end
    model.stable = min(model.stable, end)
    model.synced_end = min(model.synced_end, end)
    remember_producers(model, log)
    model.sim.counters["checked_holes"] += len(offsets) < end - start


def check_producers(model: Model, log: Log, data: bytes, start: int, end: int) -> None:
    """Each goes on after its last batch, however little compaction has left of it."""
    for producer, following in {p: f for p, f in map(sequence_of, batches_of(data)) if p >= 0}.items():
        entry = log.producers.get(producer)
        assert entry is not None and entry.last_sequence >= following - 1, f"producer {producer} is behind the log"
    if model.truncates:
        return  # what came before the batch that was cut may have been compacted away already, in Kafka too
    model.batches = [batch for batch in model.batches if batch[1] < end]
    for producer, last_offset, last_sequence in {batch[0]: batch for batch in model.batches}.values():
        if last_offset >= start:
            entry = log.producers.get(producer)
            assert entry is not None, f"producer {producer} is forgotten"
            assert entry.last_sequence == last_sequence, f"producer {producer} is at {entry.last_sequence}"


def check_version(
    model: Model,
    version: list[Written],
    found: dict[int, tuple[bytes | None, bytes | None]],
    start: int,
    end: int,
    wall_ms: int,
    power: bool,
) -> list[Written]:
    known = [each for each in version if each.offset < end]
    if not power and version and version is model.written:  # else a truncation was under way
        assert end >= version[-1].offset - 5, f"a kill lost offsets from {end} on"
    by_offset = {each.offset: (each.key, each.value) for each in known}
    for offset, record in found.items():
        assert by_offset.get(offset) == record, f"offset {offset} holds {record}, not {by_offset.get(offset)}"
    last = {each.key: each for each in known if each.offset >= start}
    for each in last.values():
        if each.offset not in found:
            assert each.value is None, f"the last value of {each.key!r}, at offset {each.offset}, is gone"
            age = wall_ms - each.wall_ms
            assert age >= model.config.delete_retention_ms, f"the tombstone of {each.key!r} is gone after {age} ms"
    for key, value in dict(found.values()).items():  # what a reader ends with
        if key is not None and key in last and last[key].value is None:
            assert value is None, f"{key!r}, which was deleted at offset {last[key].offset}, has come back"
    for each in known:
        if each.offset >= max(model.stable, start):
            assert each.offset in found, f"offset {each.offset} is gone, and only what is before {model.stable} may"
    return known


def check_searches(model: Model, log: Log, offsets: list[int], start: int, end: int) -> None:
    """A read from any offset begins with the batch that holds the first record from there on, or nothing that is."""
    for _ in range(6):
        if start < end:
            offset = model.sim.random.randint(start, end - 1)
            part = log.read(offset, 1 << 20)
            records = list(iter_records(b"".join(piece.read() for piece in part.ranges)))
            first = next((record.offset for record in records if record.offset >= offset), None)
            assert first == next((each for each in offsets if each >= offset), None), f"read at {offset}"
