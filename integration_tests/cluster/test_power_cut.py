"""The power of all three replicas is cut at once, as real processes on real file systems see it (issue 30, Proof).

Each broker has an ext4 of its own. A cut takes from all of them at one moment what was not synced, ends the processes,
and gives the machine another boot id. Under `durability=fsync` nothing acknowledged may be lost: records, committed
offsets, topics. The control: with the default, acknowledged records are lost, so that the cut is a real one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster
from integration_tests.disks import Mounts, Volume
from integration_tests.waiting import until

from .sending import TOPIC, Sending, read_all

ROUNDS = 3
RECORDS = 300  # acknowledged before each cut
SETTLE_S = 60.0


class Machines:
    """Three brokers, whose power is cut together."""

    def __init__(self, stack: ExitStack, folder: Path, durability: str) -> None:
        self.mounts = Mounts(devices=True)
        stack.callback(self.mounts.close)
        settings = {"durability": durability, "min.insync.replicas": 2, "offsets.topic.num.partitions": 1}
        self.cluster = BrokerCluster(folder, 3, settings, inside=self.mounts.inside)
        self.data = [each.folder / "data" for each in self.cluster.brokers.values()]
        self.volumes = []
        for data in self.data:
            data.mkdir()
            self.volumes.append(Volume(self.mounts, data.parent, has_journal=True))
            self.volumes[-1].hold(data)
        stack.callback(self.cluster.kill)
        self.cluster.start()
        self.admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})

    def cut_power(self) -> None:
        self.mounts.switch_off(self.volumes, [each.pid for each in self.cluster.brokers.values()])
        self.cluster.kill()
        for volume, data in zip(self.volumes, self.data, strict=True):
            volume.mount_again(data)

    def create(self, name: str) -> None:
        self.admin.create_topics([NewTopic(name, 1, 3)])[name].result(20)

    def is_in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=20).topics
        return all(
            len(each.isrs) == len(each.replicas) == 3 and each.leader > 0
            for topic in topics.values()
            for each in topic.partitions.values()
        )

    def copies(self) -> list[bytes]:
        folders = [self.mounts.seen(each) / f"{TOPIC}-0" for each in self.data]
        return [b"".join(path.read_bytes() for path in sorted(folder.glob("*.log"))) for folder in folders]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def test_fsync_keeps_what_was_acknowledged(tmp_path: Path, stack: ExitStack) -> None:
    machines = Machines(stack, tmp_path, "fsync")
    machines.create(TOPIC)
    sending = Sending(machines.cluster.bootstrap)
    group = {"bootstrap.servers": machines.cluster.bootstrap, "group.id": "g"}
    for number in range(ROUNDS):
        sending.goes_on(RECORDS)
        consumer = Consumer(group)
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, number + 1)], asynchronous=False)
        consumer.close()
        machines.create(f"made-{number}")
        acked = len(sending.acked)
        machines.cut_power()
        machines.cluster.start()
        assert set(machines.admin.list_topics(timeout=20).topics) >= {f"made-{each}" for each in range(number + 1)}
        consumer = Consumer(group)
        assert [each.offset for each in consumer.committed([TopicPartition(TOPIC, 0)], SETTLE_S)] == [number + 1]
        assert read_all(machines.cluster.bootstrap, acked) == [str(each).encode() for each in range(acked)]
        until(machines.is_in_sync, "all replicas are in sync", SETTLE_S)
        consumer.close()
    sending.goes_on(RECORDS)
    sending.end()
    sending.all_are_there(machines.cluster.bootstrap)
    reader = Consumer(group)
    assert reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20) == (0, len(sending.acked))
    reader.close()
    until(lambda: len(set(machines.copies())) == 1, "all replicas have the same bytes", SETTLE_S)
    assert machines.copies()[0]


def test_page_cache_loses_what_was_acknowledged_the_control(tmp_path: Path, stack: ExitStack) -> None:
    machines = Machines(stack, tmp_path, "page_cache")
    machines.create(TOPIC)
    sending = Sending(machines.cluster.bootstrap)
    sending.goes_on(RECORDS)
    machines.cut_power()
    acked = len(sending.acked)
    machines.cluster.start()
    sending.end()
    until(machines.is_in_sync, "all replicas are in sync", SETTLE_S)
    reader = Consumer({"bootstrap.servers": machines.cluster.bootstrap, "group.id": "g"})
    _, end = reader.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=20)
    found = read_all(machines.cluster.bootstrap, end)
    reader.close()
    assert acked >= RECORDS
    assert found[:acked] != [str(each).encode() for each in range(acked)]
