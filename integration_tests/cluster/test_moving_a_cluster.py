"""A live cluster of stock Kafka becomes one of ours, broker by broker, as docs/how-to/move-a-kafka-cluster.md has it.

Clients run all the time and know Kafka's addresses only: an idempotent producer of librdkafka, VerifiableProducer, and
VerifiableConsumer in a group. None of them sees an error; no record is lost, doubled or reordered. The controls: in the
end our brokers lead all partitions and vote alone, and Kafka's processes are gone while the clients still run.
"""

from __future__ import annotations

import json
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess
from integration_tests.console.commands import isthmus, said
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until
from isthmus.protocol import records as batches

from .kafka_nodes import LOWERED, KafkaCluster, has_brokers, joining, kafka_nodes, log_in
from .placing import SETTLE_S
from .sending import TOPIC, Sending
from .verifiable import Told, both

KAFKAS, OURS = (1, 2, 3), (11, 12, 13)
WORK = "work"
COMBINED = dict.fromkeys(KAFKAS, "broker,controller")
OF_4_4 = 33  # metadata.version
REGISTER, AT_4_0 = 0, 3  # type of record, and the version that it has there


class Move:
    """The commands of the how-to."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.controllers = dict(zip(OURS, free_ports(3), strict=True))

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
        ours = ",".join(f"127.0.0.1:{port}" for port in self.controllers.values())
        listen = [f"CONTROLLER://127.0.0.1:{self.controllers[node_id]}"]
        now = joining(self.folder, node_id, f"{self.cluster.quorum},{ours}", more, listen)
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


def versions_in(broker: BrokerProcess, kind: int) -> set[int]:
    """Versions of the metadata records of a type in a broker's metadata log: frame version, type, version."""
    data = log_in(broker.folder, "__cluster_metadata-0")
    values = [
        record.value
        for position, header in batches.walk(data)
        if not header.is_control
        for record in batches.decode_batch(data, position)
    ]
    return {value[2] for value in values if value is not None and value[1] == kind}


def test_a_live_cluster_moves_and_the_first_part_is_taken_back(tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": 3, "min.insync.replicas": 2, "default.replication.factor": 3}
    with kafka_nodes(tmp_path, COMBINED, ("--release-version", "4.0"), settings) as cluster:
        move = Move(cluster, tmp_path)
        kafkas = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": kafkas})
        for made in admin.create_topics([NewTopic(TOPIC, 1, 3), NewTopic(WORK, 3, 3)]).values():
            made.result(20)
        with both(tmp_path, kafkas, WORK) as (producer, consumer):
            sending = Sending(kafkas)

            def all_go_on() -> None:
                sending.goes_on()
                producer.goes_on("producer_send_success")
                consumer.goes_on("record_data")
                assert not sending.errors and not producer.events("producer_send_error")

            all_go_on()
            move.isthmus("cluster", "features", "downgrade", *(f"{name}=0" for name in LOWERED))
            assert not any(move.levels()[name] for name in LOWERED)
            for each in OURS:
                move.comes(each)
            has_brokers(cluster.brokers[0].port, [*KAFKAS, *OURS])
            all_go_on()

            move.isthmus("broker", "drain", *map(str, KAFKAS))
            until(lambda: move.leaders() <= {*OURS}, "ours lead", SETTLE_S)
            all_go_on()
            move.isthmus("broker", "drain", *map(str, KAFKAS), "--undo")
            move.isthmus("broker", "drain", *map(str, OURS))  # the way back
            until(lambda: move.leaders() <= {*KAFKAS}, "Kafka's lead", SETTLE_S)
            all_go_on()
            move.isthmus("broker", "drain", *map(str, OURS), "--undo")
            move.isthmus("broker", "drain", *map(str, KAFKAS))

            for ours, theirs in zip(OURS, KAFKAS, strict=True):  # a majority of the voters is there all the time
                move.votes(ours)
                cluster.nodes[theirs].stop()
                move.isthmus("quorum", "remove", str(theirs))
                move.isthmus("broker", "unregister", str(theirs))
                all_go_on()
            has_brokers(cluster.others[OURS[0]].port, OURS)
            assert not any(cluster.nodes[each].alive() for each in KAFKAS)
            assert move.voters() == [*OURS] and move.leaders() <= {*OURS}
            assert cluster.others[OURS[0]].stop() == 0
            cluster.others[OURS[0]].start()  # our controller registers it
            registered = versions_in(cluster.others[OURS[0]], REGISTER)
            assert registered == {AT_4_0}, "what our controller wrote has the versions of Kafka's level"
            move.isthmus("cluster", "features", "upgrade", f"metadata.version={OF_4_4}")
            assert move.levels()["metadata.version"] == OF_4_4
            all_go_on()

            producer.end()
            sending.end()
            sent = [int(each["value"]) for each in producer.events("producer_send_success")]
            until(lambda: len(consumer.events("record_data")) >= len(sent), "all is consumed", SETTLE_S)
            consumer.end()
        sending.all_are_there(",".join(each.address for each in cluster.others.values()))
        assert not producer.events("producer_send_error")
        in_order(producer, consumer, sent)


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
