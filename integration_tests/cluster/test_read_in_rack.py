"""Three brokers in three racks: librdkafka's, our and Java's consumers read from the replica in their rack (KIP-392).

What a broker sent is told by its metrics. The control: without `client.rack` the same consumer has all of it from the
leader. When the replica is killed, they go on from the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster
from integration_tests.peers.peers import java_command
from integration_tests.waiting import until
from isthmus.client import Client
from isthmus.client import Consumer as OurConsumer
from isthmus.client import TopicPartition as OurPartition

TOPIC = "events"
COUNT, VALUE_BYTES = 500, 1000
SIZE_BYTES = COUNT * VALUE_BYTES
SETTLE_S = 40.0
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SENT = re.compile(rf'^kafka_server_brokertopicmetrics_bytesout_total\{{topic="{TOPIC}"\}} (\S+)$', re.MULTILINE)


class Racks:
    """A cluster, its topic of one partition with its leader, and a follower in a rack of its own."""

    def __init__(self, folder: Path) -> None:
        settings = {
            "broker.session.timeout.ms": 3000,
            "metrics.listener": "127.0.0.1:0",
            "replica.selector.class": SELECTOR,
        }
        self.cluster = BrokerCluster(folder, settings=settings)
        for number, broker in self.cluster.brokers.items():
            broker.settings["broker.rack"] = f"rack-{number}"
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap})
        self.admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(20)
        self.sent = 0
        self.produce()
        until(lambda: len(self.partition().isrs) == 3, "all are in sync", SETTLE_S)
        self.leader: int = self.partition().leader
        self.follower = next(each for each in self.cluster.brokers if each != self.leader)
        self.rack = f"rack-{self.follower}"

    def partition(self) -> Any:
        return self.admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0]

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        problems: list[object] = []

        def told(error: object, message: Message) -> None:
            if error is not None:
                problems.append(error)

        for _ in range(COUNT):
            value = f"{self.sent:0{VALUE_BYTES}}"
            producer.produce(TOPIC, value.encode(), partition=0, on_delivery=told)
            self.sent += 1
        assert producer.flush(30) == 0 and not problems

    def bytes_from_follower(self) -> float:
        """What it has sent of the topic."""
        [where] = re.findall(r"metrics and health at (http://[^/]+)/metrics", self.cluster.brokers[self.follower].log)
        with urllib.request.urlopen(f"{where}/metrics", timeout=10) as answer:
            [count] = SENT.findall(answer.read().decode())
        return float(count)


@pytest.fixture
def racks(tmp_path: Path) -> Iterator[Racks]:
    made = Racks(tmp_path)
    try:
        yield made
    finally:
        made.cluster.kill()


class Librdkafka:
    """Reads the topic from its begin."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "reader",
                "client.rack": rack,
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        self.consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read(self, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            messages = self.consumer.consume(count - len(found), timeout=20)
            assert messages, f"{len(found)} of {count} records came"
            found += [int(each.value() or b"") for each in messages if each.error() is None]
        return found


class Ours:
    """The same, by our client; its loop runs while something is asked."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.runner = asyncio.Runner()
        self.client = Client(bootstrap)
        self.consumer = OurConsumer(self.client, client_rack=rack)
        self.runner.run(self._begun())

    async def _begun(self) -> None:
        await self.client.start()
        self.consumer.assign({OurPartition(TOPIC, 0): 0})

    def read(self, count: int) -> list[int]:
        async def polled() -> list[int]:
            found: list[int] = []
            async with asyncio.timeout(60):
                while len(found) < count:
                    for records in (await self.consumer.poll(1000)).values():
                        found += [int(each.value or b"") for each in records]
            return found

        return self.runner.run(polled())

    def close(self) -> None:
        async def closed() -> None:
            await self.consumer.close()
            await self.client.close()

        self.runner.run(closed())
        self.runner.close()


def java(bootstrap: str, rack: str, count: int) -> list[int]:
    command = java_command(
        "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap, "--topic", TOPIC,
        "--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000",
        "--command-property", f"client.rack={rack}", jvm=("-XX:TieredStopAtLevel=1",),
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, timeout=60)
    assert b"ERROR" not in done.stderr, done.stderr[-2000:].decode(errors="replace")
    return [int(line) for line in done.stdout.split()]


def test_librdkafka_and_our_consumer_read_in_their_rack_and_go_on_without_it(racks: Racks) -> None:
    no_rack = Librdkafka(racks.bootstrap, "")
    assert no_rack.read(COUNT) == list(range(COUNT))
    no_rack.consumer.close()
    assert racks.bytes_from_follower() == 0

    theirs, ours = Librdkafka(racks.bootstrap, racks.rack), Ours(racks.bootstrap, racks.rack)
    with contextlib.closing(ours), contextlib.closing(theirs.consumer):
        for reader in (theirs, ours):
            before = racks.bytes_from_follower()
            assert reader.read(COUNT) == list(range(COUNT))
            assert racks.bytes_from_follower() - before >= SIZE_BYTES, type(reader).__name__
        before = racks.bytes_from_follower()
        racks.produce()
        for reader in (theirs, ours):
            assert reader.read(COUNT) == list(range(COUNT, 2 * COUNT))
        assert racks.bytes_from_follower() - before >= 2 * SIZE_BYTES

        racks.cluster.brokers[racks.follower].kill()
        racks.produce()
        for reader in (theirs, ours):
            assert reader.read(COUNT) == list(range(2 * COUNT, 3 * COUNT)), type(reader).__name__


def test_javas_consumer_reads_in_its_rack(racks: Racks) -> None:
    assert java(racks.bootstrap, racks.rack, COUNT) == list(range(COUNT))
    assert racks.bytes_from_follower() >= SIZE_BYTES
