"""What moves a cluster of stock Kafka to ours, and back: the commands of docs/how-to/move-a-kafka-cluster.md."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.console.commands import isthmus, said
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until

from .kafka_nodes import KafkaCluster, joining
from .placing import SETTLE_S
from .sending import TOPIC, Sending
from .verifiable import Told, both

KAFKAS = (1, 2, 3)
WORK = "work"
COMBINED = dict.fromkeys(KAFKAS, "broker,controller")


class Move:
    """The commands of the how-to."""

    def __init__(self, cluster: KafkaCluster, folder: Path, ours: Sequence[int]) -> None:
        self.cluster = cluster
        self.folder = folder
        self.controllers = dict(zip(ours, free_ports(len(ours)), strict=True))

    @property
    def quorum(self) -> str:
        """Addresses of all controllers, Kafka's and ours."""
        return ",".join([self.cluster.quorum, *(f"127.0.0.1:{port}" for port in self.controllers.values())])

    def isthmus(self, *arguments: str) -> str:
        return said(isthmus(*arguments, "-b", self.cluster.bootstrap, folder=self.folder))

    def comes(self, node_id: int) -> None:
        """A broker of ours joins."""
        self.cluster.ours(node_id).start()

    def votes(self, node_id: int) -> None:
        """It starts again, as a controller, too."""
        before = self.cluster.others[node_id]
        assert before.stop() == 0
        more = {
            "process.roles": "broker,controller",
            "controller.quorum.auto.join.enable": "true",
            "controller.quorum.fetch.timeout.ms": 1000,
        }
        listen = [f"CONTROLLER://127.0.0.1:{self.controllers[node_id]}"]
        now = joining(self.folder, node_id, self.quorum, more, listen)
        now.address = before.address
        self.cluster.others[node_id] = now.start()
        until(lambda: node_id in self.voters(), lambda: f"voters are {self.voters()}", SETTLE_S)

    def voters(self) -> list[int]:
        found = json.loads(self.isthmus("quorum", "status", "--json"))
        return [each["node_id"] for each in found["replicas"] if each["role"] == "voter"]

    def levels(self) -> dict[str, int]:
        """Finalized levels of features."""
        found = json.loads(self.isthmus("cluster", "features", "list", "--json"))
        return {each["feature"]: each["finalized"] for each in found}

    def leaders(self) -> set[int]:
        """Of all partitions."""
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        topics = admin.list_topics(timeout=20).topics.values()
        return {each.leader for topic in topics for each in topic.partitions.values()}

    def goes(self, node_id: int) -> None:
        """A node that has stopped belongs to the cluster no more."""
        self.isthmus("quorum", "remove", str(node_id))
        self.isthmus("broker", "unregister", str(node_id))


class Clients:
    """VerifiableProducer and VerifiableConsumer, and librdkafka's producer, which know Kafka's addresses only."""

    def __init__(self, bootstrap: str, producer: Told, consumer: Told) -> None:
        self.producer, self.consumer = producer, consumer
        self.sending = Sending(bootstrap)

    def go_on(self) -> None:
        """None has seen an error."""
        self.sending.goes_on()
        self.producer.goes_on("producer_send_success")
        self.consumer.goes_on("record_data")
        assert not self.sending.errors and not self.producer.events("producer_send_error")

    def end(self) -> None:
        """Once all that was acknowledged is consumed."""
        self.producer.end()
        self.sending.end()
        until(lambda: len(self.consumer.events("record_data")) >= len(self.sent), "all is consumed", SETTLE_S)
        self.consumer.end()

    @property
    def sent(self) -> list[int]:
        """What VerifiableProducer was told is there."""
        return [int(each["value"]) for each in self.producer.events("producer_send_success")]

    def lost_nothing(self, bootstrap: str) -> None:
        """After the end."""
        self.sending.all_are_there(bootstrap)
        assert not self.producer.events("producer_send_error")
        in_order(self.producer, self.consumer, self.sent)


@contextlib.contextmanager
def clients(folder: Path, bootstrap: str) -> Iterator[Clients]:
    """Their topics are made first."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, 1, 3), NewTopic(WORK, 3, 3)]).values():
        made.result(20)
    with both(folder, bootstrap, WORK) as (producer, consumer):
        yield Clients(bootstrap, producer, consumer)


def in_order(producer: Told, consumer: Told, sent: list[int]) -> None:
    """What was acknowledged was consumed once, and each partition's records in the order of their offsets."""
    assert sorted(sent) == list(range(len(sent)))
    consumed = consumer.events("record_data")
    assert sorted(int(each["value"]) for each in consumed) == sorted(sent)
    for index in range(3):
        rows = [each for each in consumed if each["partition"] == index]
        assert [each["offset"] for each in rows] == list(range(len(rows)))
        values = [int(each["value"]) for each in rows]
        assert values == sorted(values)
