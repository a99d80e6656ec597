"""Our data directories and Kafka's are the same: its tools verify ours, each goes on where the other stopped."""

from __future__ import annotations

import asyncio
import re
import shutil
import struct
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.peers.peers import cluster
from integration_tests.storage.dump import dump, sections
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.disk.small_files import parse_offsets, parse_partition_metadata
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import open_log
from isthmus.protocol.records import build_batch, iter_records

NOW_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ABORT, COMMIT = 0, 1
SMALL = LogConfig(segment_bytes=8_000, index_interval_bytes=1000, retention_ms=-1)


def at(data: bytes, base_offset: int, epoch: int) -> bytes:
    return base_offset.to_bytes(8, "big") + data[8:12] + epoch.to_bytes(4, "big") + data[16:]


def fill(log: Log) -> None:
    """Every codec, many epochs, producers and segments, times out of order, holes and transactions."""
    sequence = 0
    first_epoch = max(0, log.latest_epoch)  # a log's epochs only rise
    for n in range(400):
        epoch = first_epoch + n // 40
        rows = [
            (NOW_MS + n * 10 - (n % 7) * 35 + m, b"k%d" % m if m % 3 else None, b"v%d-%d" % (n, m) * 9, ())
            for m in range(1 + n % 5)
        ]
        if n % 2:
            log.append(build_batch(rows, CODECS[n % 5]), Origin.COORDINATOR, epoch, NOW_MS)
        else:
            producer = {"producer_id": 7 + n % 3, "producer_epoch": n // 100, "base_sequence": sequence}
            data = at(build_batch(rows, CODECS[n % 5], **producer), log.log_end_offset + n % 3, epoch)
            log.append(data, Origin.MIRROR, 0, NOW_MS)
        sequence += len(rows)
    for n in range(6):
        epoch = first_epoch + 10 + n
        rows = [(NOW_MS + 5000 + n, b"k", b"in a transaction", ())]
        data = build_batch(rows, transactional=True, producer_id=50 + n, producer_epoch=0, base_sequence=0)
        log.append(at(data, log.log_end_offset + n, epoch), Origin.MIRROR, 0, NOW_MS)
        end = (NOW_MS + 5000 + n, struct.pack(">hh", 0, ABORT if n % 2 else COMMIT), struct.pack(">hi", 0, 1), ())
        data = build_batch([end], control=True, transactional=True, producer_id=50 + n, producer_epoch=0)
        log.append(at(data, log.log_end_offset, epoch), Origin.MIRROR, 0, NOW_MS)


@pytest.mark.parametrize("how", ["closed", "recovered", "truncated"])
def test_dump_log_segments_finds_nothing_wrong(tmp_path, how):
    async def make() -> tuple[list[tuple[int, int]], int]:
        files = RealFiles(1)
        directory = f"{tmp_path}/t-0"
        log = await open_log(files, directory, SMALL, wall_ms=NOW_MS)
        fill(log)
        if how == "truncated":
            await log.truncate_to(log.log_end_offset // 2)
            fill(log)
        if how == "recovered":
            for path in Path(directory).glob("*index"):
                path.unlink()
            log = await open_log(files, directory, SMALL, wall_ms=NOW_MS)
        producers = [(pid, entry.last_sequence) for pid, entry in log.producers.items()]
        await log.close()
        files.close()
        return producers, log.log_end_offset

    producers, end = asyncio.run(make())
    directory = tmp_path / "t-0"
    logs = sorted(directory.glob("*.log"))
    indexes = sorted(directory.glob("*index"))
    assert len(logs) > 5 and any(path.suffix == ".txnindex" for path in indexes)

    text = dump(logs, "--deep-iteration")
    batches = re.findall(r"^baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .* isvalid: (\w+)", text, re.MULTILINE)
    assert batches and all(valid == "true" for *_, valid in batches)
    assert int(batches[-1][1]) == end - 1
    assert len(re.findall(r"^\| offset: ", text, re.MULTILINE)) == sum(int(count) for _, _, count, _ in batches)

    # The tool compares every entry with the log and says so where they differ.
    text = dump([*indexes, *sorted(directory.glob("*.snapshot"))])
    shown = sections(text)
    assert shown.keys() == {path.name for path in [*indexes, *directory.glob("*.snapshot")]}
    for path in indexes:
        entries = {".index": r"^offset: ", ".timeindex": r"^timestamp: ", ".txnindex": r"^version: "}[path.suffix]
        size = {".index": 8, ".timeindex": 12, ".txnindex": 34}[path.suffix]
        assert len(re.findall(entries, shown[path.name], re.MULTILINE)) == path.stat().st_size // size
    last = shown[f"{end:020d}.snapshot"]
    found: dict[int, int] = {}
    for pid, sequence in re.findall(r"producerId: (\d+) .*lastSequence: (-?\d+)", last):
        found[int(pid)] = int(sequence)
    assert sorted(found.items()) == [(pid, sequence) for pid, sequence in producers]
    dump(indexes, "--verify-index-only")
    dump([path for path in indexes if path.suffix != ".txnindex"], "--index-sanity-check")


def test_each_goes_on_where_the_other_stopped(tmp_path):
    """Kafka fills a partition and stops; we append to its directory; Kafka serves both and goes on appending."""
    topic = "shared"

    def produce(bootstrap: str, codec: str, first: int) -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True})
        for n in range(first, first + 300):
            producer.produce(topic, b"kafka %d" % n, key=b"k%d" % n, partition=0)
        assert producer.flush(30) == 0

    with cluster(heap="512m", folder=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        config = {"segment.bytes": "1048576", "index.interval.bytes": "1000", "retention.ms": "-1"}
        admin.create_topics([NewTopic(topic, 1, config=config)])[topic].result(30)
        for n, codec in enumerate(CODECS):
            produce(kafka.bootstrap, codec, n * 300)
        kafka.stop()

        data = tmp_path / "node-1" / "data"
        directory = data / f"{topic}-0"
        shutil.copytree(directory, tmp_path / "copy")
        files = RealFiles(1)
        points = parse_offsets(files.read(f"{data}/recovery-point-offset-checkpoint"), "checkpoint")
        assert points[topic, 0] == 1500
        assert len(parse_partition_metadata(files.read(f"{directory}/partition.metadata"), "metadata")) == 16

        async def go_on() -> None:
            unclean = await open_log(files, f"{tmp_path}/copy", LogConfig(), wall_ms=NOW_MS)
            log = await open_log(files, str(directory), LogConfig(), wall_ms=NOW_MS, clean=True, recovery_point=1500)
            for each in (unclean, log):
                assert (each.log_start_offset, each.log_end_offset, each.recovery_notes) == (0, 1500, [])
            assert log.epochs.entries() == unclean.epochs.entries()
            last = [(pid, entry.epoch, entry.last_sequence) for pid, entry in log.producers.items()]
            assert last == [(pid, entry.epoch, entry.last_sequence) for pid, entry in unclean.producers.items()]
            assert len(last) == len(CODECS)
            stored = b"".join(part.read() for part in log.read(0, 1 << 30).ranges)
            assert [record.value for record in iter_records(stored)] == [b"kafka %d" % n for n in range(1500)]
            epoch = log.latest_epoch
            for n in range(1500, 1600):
                data = build_batch([(NOW_MS + n, b"k", b"ours %d" % n, ())], CODECS[n % 5])
                log.append(data, Origin.CLIENT, epoch, NOW_MS)
            await log.close()

        asyncio.run(go_on())
        text = (data / "recovery-point-offset-checkpoint").read_text()
        (data / "recovery-point-offset-checkpoint").write_text(text.replace(f"{topic} 0 1500", f"{topic} 0 1600"))
        kafka.start("512m")
        produce(kafka.bootstrap, "none", 1600)
        consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "g", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while len(values) < 1900:
            messages = consumer.consume(500, 30)
            assert messages, f"only {len(values)} records came"
            assert not any(message.error() for message in messages)
            values += [message.value() or b"" for message in messages]
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, NOW_MS + 1550)], 30)
        consumer.close()
        assert values[1500:1600] == [b"ours %d" % n for n in range(1500, 1600)]
        assert values[1600:] == [b"kafka %d" % n for n in range(1600, 1900)]
        log_text = (kafka.nodes[0].folder / "server.log").read_text()
        assert f"Rebuilding producer state for partition {topic}-0" not in log_text
        assert not re.search(rf"(WARN|ERROR).*{topic}-0", log_text)
        assert found.offset >= 0
