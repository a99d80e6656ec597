"""A stopped broker's data directory goes from us to Kafka and back, and from Kafka to us: the same records are served.

The steps are those of docs/how-to/move-a-data-directory.md.
"""

from __future__ import annotations

import filecmp
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from integration_tests.brokers import ROOT, running_broker
from integration_tests.peers.peers import Cluster, cluster
from integration_tests.storage.dump import dump

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SEGMENT_BYTES = 1 << 20  # the least that a topic may ask for
COMPACTED = "compacted"
GROUP = "readers"
CLEANER = {"log.cleaner.backoff.ms": 100}
IDLE = {"log.cleaner.backoff.ms": 10**9}
pytestmark = pytest.mark.soak

UNLED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._UNKNOWN_PARTITION)
LED_WITHIN_S = 30.0
Rows = dict[tuple[str, int], list[tuple[Any, ...]]]


def make_topics(bootstrap: str) -> list[str]:
    """One topic a codec, and a compacted one; small segments."""
    small = {"segment.bytes": str(SEGMENT_BYTES), "retention.ms": "-1"}
    compacted = {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    names = [f"records.{codec}" for codec in CODECS]
    wanted = [NewTopic(name, 2, 1, config=small) for name in names] + [NewTopic(COMPACTED, 1, 1, config=compacted)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics(wanted).values():
        future.result(30)
    return [*names, COMPACTED]


def fill(bootstrap: str, mark: str) -> None:
    """Records of which each partition has several segments; the compacted topic's keys come again."""
    chance = random.Random(mark)
    for codec in CODECS:
        producer = Producer(
            {"bootstrap.servers": bootstrap, "compression.type": codec, "enable.idempotence": True, "linger.ms": 20,
             "batch.size": 200_000}
        )  # fmt: skip
        for n in range(180):
            value = b"%s %d " % (mark.encode(), n) + b"text " * 1000 + chance.randbytes(18_000)
            producer.produce(f"records.{codec}", value, b"k%d" % n, n % 2, headers=[("n", b"%d" % n)])
            if n % 3 == 0:
                producer.produce(COMPACTED, None if n % 39 == 0 else value, b"key %d" % (n % 40), 0)
        assert producer.flush(60) == 0


def everything(bootstrap: str, topics: list[str]) -> Rows:
    """All that a consumer reads, by partition; checksums are checked."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "everything", "enable.auto.commit": False, "check.crcs": True,
         "enable.partition.eof": True, "auto.offset.reset": "error"}
    )  # fmt: skip
    partitions = consumer.list_topics(timeout=30).topics
    found: Rows = {(topic, index): [] for topic in topics for index in partitions[topic].partitions}
    consumer.assign([TopicPartition(*key, start_of(consumer, key)) for key in found])
    left = set(found)
    while left:
        messages = consumer.consume(1000, 30)
        assert messages, f"nothing more came, though {left} are not at their ends"
        for message in messages:
            topic, partition = message.topic(), message.partition()
            assert topic is not None and partition is not None
            if message.error() is not None:
                left.discard((topic, partition))  # its end, or an error that leaves it short of what is due
            else:
                found[topic, partition].append(
                    (message.offset(), message.timestamp(), message.key(), message.value(), message.headers())
                )
    consumer.close()
    return found


def start_of(consumer: Consumer, key: tuple[str, int]) -> int:
    """Where a partition starts, once it is led: Kafka answers before its partitions are."""
    deadline = time.monotonic() + LED_WITHIN_S
    while True:
        try:
            return consumer.get_watermark_offsets(TopicPartition(*key), 30)[0]
        except KafkaException as error:
            assert time.monotonic() < deadline and error.args[0].code() in UNLED, (key, error)


def commit(bootstrap: str, offsets: dict[tuple[str, int], int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    rows = [TopicPartition(*key, offset, metadata=f"at {offset}") for key, offset in offsets.items()]
    while True:
        try:
            consumer.commit(offsets=rows, asynchronous=False)
            break
        except KafkaException as error:  # while the topic of groups is made
            assert error.args[0].code() in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS), error
    consumer.close()


def committed(bootstrap: str) -> dict[tuple[str, int], tuple[int, str]]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)]).values()
    return {(row.topic, row.partition): (row.offset, row.metadata) for row in answer.result(30).topic_partitions}


def facts(bootstrap: str, topics: list[str]) -> dict[str, Any]:
    """Ids and own options of topics."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
    options = {each.name: future.result(30) for each, future in admin.describe_configs(wanted).items()}
    described = admin.describe_topics(TopicCollection(topics))
    return {
        name: (
            str(described[name].result(30).topic_id),
            {option: entry.value for option, entry in options[name].items() if entry.source == 1},
        )
        for name in topics
    }


def dumped(data: Path, theirs: Path | None = None) -> None:
    """Kafka's own tool finds every batch and index of all partitions sound; theirs: leave out what is as it was there.

    (Where Kafka's cleaner leaves an empty batch, its time index keeps an entry that its own tool complains of.)
    """
    logs = sorted(path for path in data.glob("*/*.log") if path.stat().st_size and "__cluster" not in str(path))
    if theirs is not None:
        before = {path: theirs / path.relative_to(data) for path in logs}
        logs = [path for path in logs if not before[path].exists() or not filecmp.cmp(path, before[path], False)]
    text = dump(logs, "--deep-iteration")
    batches = [line for line in text.splitlines() if line.startswith("baseOffset: ")]
    assert len(batches) > len(logs) and all("isvalid: true" in line for line in batches)
    for codec in CODECS:
        assert any(f"compresscodec: {codec} " in line for line in batches)
    dump(sorted(path.with_suffix(".index") for path in logs), "--verify-index-only")
    dump(sorted(path.with_suffix(".timeindex") for path in logs), "--verify-index-only")


def to_kafka(data: Path) -> str:
    command = [sys.executable, "-m", "isthmus.core_broker", "to-kafka", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout


def log_of(kafka: Cluster) -> str:
    return (kafka.nodes[0].folder / "server.log").read_text()


def test_from_us_to_kafka_and_back(tmp_path: Path) -> None:
    with running_broker(tmp_path / "ours", CLEANER) as broker:
        topics = make_topics(broker.bootstrap)
        fill(broker.bootstrap, "ours")
        fill(broker.bootstrap, "ours again")
        ends = {("records.lz4", 0): 77, ("records.lz4", 1): 60, (COMPACTED, 0): 5}
        commit(broker.bootstrap, ends)
        assert "compacted up to offset" in broker.log
        assert broker.stop() == 0
        broker.start()
        expected = everything(broker.bootstrap, topics)
        told = facts(broker.bootstrap, topics)
        assert broker.stop() == 0
    data = tmp_path / "ours" / "data"
    assert all(len(list(data.glob(f"{topic}-0/*.log"))) > 1 for topic in topics)
    dumped(data)

    with cluster(folder=tmp_path / "kafka", heap="512m") as kafka:
        kafka.stop()
        theirs = kafka.nodes[0].folder / "data"
        shutil.rmtree(theirs)
        shutil.copytree(data, theirs)
        assert "7 topics" in to_kafka(theirs)
        kafka.start("512m")
        check_same(everything(kafka.bootstrap, topics), expected)
        assert facts(kafka.bootstrap, topics) == told
        assert committed(kafka.bootstrap) == {key: (offset, f"at {offset}") for key, offset in ends.items()}
        found = log_of(kafka)
        for topic in topics:
            assert f"Rebuilding producer state for partition {topic}" not in found
            assert not [
                line for line in found.splitlines() if topic in line and (" WARN " in line or " ERROR " in line)
            ]
        fill(kafka.bootstrap, "kafka")
        commit(kafka.bootstrap, {("records.gzip", 1): 9})
        more = everything(kafka.bootstrap, topics)
        assert len(more["records.none", 1]) == len(expected["records.none", 1]) + 90
        kafka.stop()

    data = tmp_path / "back" / "data"
    shutil.copytree(theirs, data)
    with running_broker(tmp_path / "back", IDLE) as broker:
        check_same(everything(broker.bootstrap, topics), more)
        assert facts(broker.bootstrap, topics) == told
        assert committed(broker.bootstrap)["records.gzip", 1] == (9, "at 9")
        assert committed(broker.bootstrap)["records.lz4", 0] == (77, "at 77")
        fill(broker.bootstrap, "ours at last")


def check_same(found: Rows, expected: Rows) -> None:
    """Of the compacted topic the last values, since a broker compacts when it likes, also between answer and stop."""
    assert found.keys() == expected.keys()
    for key, rows in found.items():
        assert key[0] == COMPACTED or rows == expected[key], key
    assert last_values(found) == last_values(expected)
    assert found[COMPACTED, 0]


def last_values(rows: Rows) -> dict[Any, Any]:
    """Of each key that has one."""
    found = {row[2]: row[3] for row in rows[COMPACTED, 0]}
    return {key: value for key, value in found.items() if value is not None}


def test_from_kafka_to_us(tmp_path: Path) -> None:
    """With a snapshot of Kafka's metadata, a topic deleted, options changed, quotas set."""
    snapshots = {"metadata.log.max.snapshot.interval.ms": 500, **CLEANER}
    with cluster(folder=tmp_path / "kafka", properties=snapshots, heap="512m") as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics = make_topics(kafka.bootstrap)
        admin.create_topics([NewTopic("doomed", 3)])["doomed"].result(30)
        admin.delete_topics(["doomed"])["doomed"].result(30)
        change = [ConfigEntry("retention.ms", "777600000", incremental_operation=AlterConfigOpType.SET)]
        resource = ConfigResource(ConfigResource.Type.TOPIC, "records.zstd", incremental_configs=change)
        admin.incremental_alter_configs([resource])[resource].result(30)
        fill(kafka.bootstrap, "kafka")
        fill(kafka.bootstrap, "kafka again")
        commit(kafka.bootstrap, {("records.snappy", 1): 30})
        expected = everything(kafka.bootstrap, topics)
        told = facts(kafka.bootstrap, topics)
        kafka.stop()
        theirs = kafka.nodes[0].folder / "data"
    assert list(theirs.glob("__cluster_metadata-0/*.checkpoint"))
    data = tmp_path / "ours" / "data"
    shutil.copytree(theirs, data)
    with running_broker(tmp_path / "ours", IDLE) as broker:
        check_same(everything(broker.bootstrap, topics), expected)
        assert facts(broker.bootstrap, topics) == told
        assert committed(broker.bootstrap) == {("records.snappy", 1): (30, "at 30")}
        assert "doomed" not in AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics
        fill(broker.bootstrap, "ours")
        assert broker.stop() == 0
        assert "WARNING" not in broker.log and "ERROR" not in broker.log
        check = [sys.executable, "-m", "isthmus.core_broker", "check", str(data)]
        done = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
        assert done.returncode == 0, done.stdout
    dumped(data, theirs)
