"""Three brokers are stopped by SIGTERM and started again, one after another, under three kinds of clients.

Kafka's VerifiableProducer and VerifiableConsumer, librdkafka's idempotent producer, and our producer and consumer run
all the time. No error reaches one of them, nothing acknowledged is lost, doubled or reordered, and no member of a
group is given its partitions again. The controls: each broker was another process afterwards, and among them were the
controller, the leaders of all partitions and the coordinators.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster, running_cluster
from integration_tests.waiting import until

from .moving import in_order
from .our_clients import OurClients
from .sending import TOPIC, Sending
from .verifiable import Told, both

WORK, OURS, OFFSETS = "work", "ours", "__consumer_offsets"
PARTITIONS = 3
SETTLE_S = 60.0


def stalls_ms(times_ms: Iterable[float], since_ms: float) -> float:
    """The longest time between two acknowledgements, of which the later one came after a moment."""
    return max((later - before for before, later in pairwise(times_ms) if later >= since_ms), default=0.0)


class Rolling:
    """The cluster, and what its clients have done."""

    def __init__(
        self, cluster: BrokerCluster, sending: Sending, ours: OurClients, producer: Told, consumer: Told
    ) -> None:
        self.cluster = cluster
        self.sending = sending
        self.ours = ours
        self.producer = producer
        self.consumer = consumer
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

    def all_go_on(self) -> None:
        self.sending.goes_on()
        self.ours.goes_on()
        self.producer.goes_on("producer_send_success")
        self.consumer.goes_on("record_data")

    def no_error(self) -> None:
        assert self.sending.errors == self.ours.errors == []
        assert not self.producer.events("producer_send_error")
        failed = [each for each in self.consumer.events("offsets_committed") if not each["success"]]
        assert not failed, failed[0]

    def assigned(self) -> tuple[int, int]:
        """How often our consumer and VerifiableConsumer were given partitions."""
        return self.ours.assigned, len(self.consumer.events("partitions_assigned"))

    def restart(self, node_id: int) -> str:
        """Stop it and start it again. How long each producer waited at most, in words."""
        broker = self.cluster.brokers[node_id]
        is_controller = self.cluster.controller() == node_id
        begun_ms = self.sending.acked_ms[-1]
        assert broker.stop() == 0
        self.all_go_on()
        stop = self.waited(begun_ms)
        until(lambda: self.cluster.controller() not in (-1, node_id), "another node is the controller", SETTLE_S)
        begun_ms = self.sending.acked_ms[-1]
        broker.start()
        until(self.in_sync, "all replicas are in sync", SETTLE_S)
        self.all_go_on()
        what = f"{node_id}{' (controller)' if is_controller else ''}"
        return f"broker {what}: stop {stop}; start {self.waited(begun_ms)}"

    def waited(self, since_ms: float) -> str:
        java = [each["timestamp"] for each in self.producer.events("producer_send_success")]
        found = {"librdkafka": self.sending.acked_ms, "ours": self.ours.acked_ms, "Java": java}
        return ", ".join(f"{name} {stalls_ms(times, since_ms):.0f} ms" for name, times in found.items())

    def in_sync(self) -> bool:
        topics = self.admin.list_topics(timeout=10).topics.values()
        return all(len(each.isrs) == 3 for topic in topics for each in topic.partitions.values())


def test_no_client_notices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = {"min.insync.replicas": 2, "offsets.topic.num.partitions": 6}
    with running_cluster(tmp_path, settings=settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        topics = [NewTopic(TOPIC, 1, 3), NewTopic(OURS, 1, 3), NewTopic(WORK, PARTITIONS, 3)]
        for made in admin.create_topics(topics).values():
            made.result(20)
        with both(tmp_path, cluster.bootstrap, WORK) as (producer, consumer):
            sending, ours = Sending(cluster.bootstrap), OurClients(cluster.bootstrap, OURS, "our-group")
            rolling = Rolling(cluster, sending, ours, producer, consumer)
            rolling.all_go_on()
            until(rolling.in_sync, "all replicas are in sync", SETTLE_S)
            before = rolling.assigned()
            told = [rolling.restart(each) for each in (1, 2, 3)]
            with capsys.disabled():
                print("\n" + "\n".join(told))
            rolling.no_error()
            assert rolling.assigned() == before, "a member has joined again"
            producer.end()
            sending.end()
            ours.end()
            sent = [int(each["value"]) for each in producer.events("producer_send_success")]
            until(lambda: len(consumer.events("record_data")) >= len(sent), "all is consumed", SETTLE_S)
            consumer.end()
        rolling.no_error()
        sending.all_are_there(cluster.bootstrap)
        assert ours.read == ours.acked == [(number, number) for number in range(len(ours.acked))]
        in_order(producer, consumer, sent)
