"""A live cluster of stock Kafka has become ours but for one node, and becomes Kafka's again, as
docs/how-to/move-a-kafka-cluster.md has it.

Two of Kafka's three nodes, broker and controller each, were replaced by ours and are gone. One comes back on an empty
directory, the other on the directory that it had; both have their old ids and addresses. Clients run all the time and
know Kafka's addresses only. None of them sees an error; no record is lost, doubled or reordered. The controls: in the
end Kafka's lead all partitions and vote alone, our processes are gone, and the replicas' bytes are equal.
"""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from integration_tests.peers.peers import guarded
from integration_tests.waiting import until

from .kafka_nodes import HEAP, JVM, START_S, format_all, has_brokers, kafka_node, kafka_nodes, log_in
from .moving import COMBINED, KAFKAS, WORK, Move, clients
from .placing import SETTLE_S
from .sending import TOPIC

OURS = (11, 12)
FRESH, KEPT, LAST = KAFKAS  # nodes of Kafka's: two that were replaced, and one that was not
PARTITIONS = [f"{TOPIC}-0", *(f"{WORK}-{index}" for index in range(3))]


def comes_back(move: Move, node_id: int, folder: Path) -> None:
    """A node of Kafka's with the id and the addresses that it had, and all controllers to ask."""
    node = move.cluster.nodes[node_id]
    settings = {
        **node.properties,
        "controller.quorum.bootstrap.servers": move.quorum,
        "controller.quorum.auto.join.enable": "true",
    }
    if node_id == FRESH:
        settings["log.dirs"] = str(folder / f"node-{node_id}" / "data")
        node = kafka_node(folder, node_id, COMBINED[node_id], move.quorum, 0, settings)
        format_all([node], {}, ["--no-initial-controllers"])
        move.cluster.nodes[node_id] = node
    rows = "".join(f"{name}={value}\n" for name, value in settings.items())
    (node.folder / "server.properties").write_text(rows)
    node.start(HEAP, JVM)
    node.wait(1, START_S)
    until(lambda: node_id in move.voters(), lambda: f"voters are {move.voters()}", SETTLE_S)


def committed(bootstrap: str) -> dict[int, int]:
    """Partition -> offset that the group of VerifiableConsumer has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    try:
        found = consumer.committed([TopicPartition(WORK, index) for index in range(3)], timeout=30)
        return {each.partition: each.offset for each in found}
    finally:
        consumer.close()


def test_a_live_cluster_goes_back_when_one_node_of_kafkas_is_left(tmp_path: Path) -> None:
    settings = {"offsets.topic.replication.factor": 3, "min.insync.replicas": 2, "default.replication.factor": 3}
    again = tmp_path / "again"
    with kafka_nodes(tmp_path, COMBINED, settings=settings) as cluster, guarded(again):
        move = Move(cluster, tmp_path, OURS)
        kafkas = cluster.bootstrap
        with clients(tmp_path, kafkas) as apps:
            for each in OURS:
                move.comes(each)
            has_brokers(cluster.nodes[LAST].port, [*KAFKAS, *OURS])
            move.isthmus("broker", "drain", str(FRESH), str(KEPT))
            for ours, theirs in zip(OURS, (FRESH, KEPT), strict=True):
                move.votes(ours)
                cluster.nodes[theirs].stop()
                move.goes(theirs)
            has_brokers(cluster.nodes[LAST].port, [LAST, *OURS])
            assert move.voters() == [LAST, *OURS]
            apps.go_on()

            there = [LAST, *OURS]
            for ours, theirs in zip(OURS, (FRESH, KEPT), strict=True):
                comes_back(move, theirs, again)
                there.append(theirs)
                for each in KAFKAS:
                    if each in there:
                        has_brokers(cluster.nodes[each].port, sorted(there))
                move.isthmus("broker", "drain", str(theirs), "--undo")
                move.isthmus("broker", "drain", str(ours))
                apps.go_on()
                assert cluster.others[ours].stop() == 0
                move.goes(ours)
                there.remove(ours)
            has_brokers(cluster.nodes[LAST].port, KAFKAS)
            assert not any(cluster.others[each].alive() for each in OURS)
            assert move.voters() == [*KAFKAS] and move.leaders() <= {*KAFKAS}
            apps.go_on()

            apps.end()
        apps.lost_nothing(kafkas)
        ends = [sum(each["partition"] == index for each in apps.consumer.events("record_data")) for index in range(3)]
        assert committed(kafkas) == dict(enumerate(ends))
        homes = [node.folder for node in cluster.nodes.values()]
        until(
            lambda: all(len({log_in(home, name) for home in homes}) == 1 for name in PARTITIONS),
            "replicas have equal bytes",
            SETTLE_S,
        )
