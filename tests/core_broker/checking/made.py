"""A data directory as a stopped broker leaves it: metadata, a plain topic with all that a log can hold, a mirrored one.

Segments are small, so that there are many; epochs rise, producers write, transactions are aborted.
"""

from __future__ import annotations

import random
import struct
from pathlib import Path

from isthmus.core_broker.checking.directory import DirectoryCheck
from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.cluster.metadata_log import MetadataLog
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.records import build_batch, walk
from isthmus.runtime import Runtime
from tests.core_broker.storage.support import NOW_MS, at, run

POINTS, STARTS, MARKS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)
DIRTY = "cleaner-offset-checkpoint"
PLAIN, MIRRORED = "plain", "mirrored"
IDS = {PLAIN: bytes(range(16)), MIRRORED: bytes(range(16, 32))}
SMALL = LogConfig(segment_bytes=1500, index_interval_bytes=300)
ONE_SEGMENT = LogConfig(index_interval_bytes=300)
RUNTIME = Runtime(random.Random(7), lambda: NOW_MS, lambda: 0)
FIRST_MS = NOW_MS + 123_457  # of the records: no byte of it is 0
EPOCHS = 4  # of each partition


def records() -> list[object]:
    found: list[object] = []
    for name, topic_id in IDS.items():
        found.append(r.TopicRecord(name=name, topic_id=topic_id))
        found += [
            r.PartitionRecord(
                partition_id=index, topic_id=topic_id, replicas=[1], isr=[1], leader=1, leader_epoch=EPOCHS - 1
            )
            for index in range(2)
        ]
    found += [r.FeatureLevelRecord(name=name, feature_level=1) for name in ("group.version", "kraft.version", "f")]
    link = r.ConfigRecord(resource_type=2, resource_name=MIRRORED, name="mirror.link", value="x")
    return [*found, link]


def fill(log: Log, dense: bool) -> None:
    """Batches of rising epochs, every third of an idempotent producer, every fifth in a transaction."""
    for n in range(40):
        epoch = n * EPOCHS // 40
        rows = [(FIRST_MS + n * 10 - n % 3 * 25, b"k", b"value %d" % n * 3, ())] * (2 + n % 3)
        start = log.log_end_offset if dense else log.log_end_offset + n % 4
        producer: dict[str, object] = {}
        if n % 3 == 0:
            producer = {"producer_id": 7, "producer_epoch": epoch, "base_sequence": n if n % 10 else 0}
        if n % 5 == 0:
            producer = {"producer_id": 50 + n, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
        log.append(at(build_batch(rows, "none", **producer), start, epoch), Origin.REPLICATION, epoch, NOW_MS)
        if n % 5 == 2:  # with others in between
            kind = n % 2  # 0 aborts
            rows = [(FIRST_MS + n * 10, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 1), ())]
            data = build_batch(rows, control=True, transactional=True, producer_id=48 + n, producer_epoch=0)
            log.append(at(data, log.log_end_offset, epoch), Origin.REPLICATION, epoch, NOW_MS)


def make(folder: Path, clean: bool = True, config: LogConfig = SMALL) -> Path:
    """Make the directory; `clean` False leaves it as a kill does after all was synced once, and then some appended."""

    async def work() -> None:
        files = RealFiles(2)
        logs = LogManager(files, str(folder), RUNTIME)
        await logs.open(1)
        metadata = await MetadataLog.open(files, str(folder), RUNTIME)
        await metadata.replay(MetadataImage(logs.cluster_id))
        metadata.append(records(), 0)
        await metadata.sync()
        for name, topic_id in IDS.items():
            for index in range(2):
                log = await logs.create(name, index, topic_id, config)
                fill(log, name == PLAIN)
                if not clean:
                    await log.sync()
        if clean:
            await metadata.close()
            await logs.close()
        else:
            await logs.checkpoints.save()
            for log in logs.logs.values():
                log.append(build_batch([(FIRST_MS + 900, b"k", b"v", ())]), Origin.CLIENT, EPOCHS - 1, NOW_MS)
                log.abandon()
            metadata.log.abandon()
            logs._release()
        files.close()

    run(work())
    return folder


def check(folder: Path, repair: bool = False) -> DirectoryCheck:
    """The check after all partitions, and after a repair if asked for."""
    files = RealFiles(1)
    made = DirectoryCheck(files, str(folder), RUNTIME)
    made.begin()
    try:
        list(made.partitions())
        if repair:
            run(made.repair())
    finally:
        made.end()
        files.close()
    return made


def found(folder: Path) -> list[str]:
    """All that is wrong, a line each: partition, kind, file."""
    made = check(folder)
    lines = [f"{each.kind} {each.file}" for each in made.problems]
    for checked in made.checked.values():
        lines += [f"{checked.report.name} {each.kind} {each.file}" for each in checked.report.problems]
    return lines


def stored(directory: Path) -> dict[str, list[tuple[int, bytes]]]:
    """(base offset, what the CRC covers) of each partition's batches."""
    batches: dict[str, list[tuple[int, bytes]]] = {}
    for name in IDS:
        for index in range(2):
            each = batches[f"{name}-{index}"] = []
            for path in sorted((directory / f"{name}-{index}").glob("*.log")):
                data = path.read_bytes()
                for position, header in walk(data):
                    each.append((header.base_offset, data[position + 21 : position + header.size_bytes]))
    return batches
