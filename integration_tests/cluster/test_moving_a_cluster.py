"""A live cluster of stock Kafka becomes one of ours, broker by broker, as docs/how-to/move-a-kafka-cluster.md has it.

Clients run all the time and know Kafka's addresses only: an idempotent producer of librdkafka, VerifiableProducer, and
VerifiableConsumer in a group. None of them sees an error; no record is lost, doubled or reordered. The controls: in the
end our brokers lead all partitions and vote alone, and Kafka's processes are gone while the clients still run.
"""

from __future__ import annotations

from pathlib import Path

from integration_tests.brokers import BrokerProcess
from integration_tests.waiting import until
from isthmus.protocol import records as batches

from .kafka_nodes import LOWERED, has_brokers, kafka_nodes, log_in
from .moving import COMBINED, KAFKAS, Move, clients
from .placing import SETTLE_S

OURS = (11, 12, 13)
OF_4_4 = 33  # metadata.version
REGISTER, AT_4_0 = 0, 3  # type of record, and the version that it has there


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
        move = Move(cluster, tmp_path, OURS)
        kafkas = cluster.bootstrap
        with clients(tmp_path, kafkas) as apps:
            apps.go_on()
            move.isthmus("cluster", "features", "downgrade", *(f"{name}=0" for name in LOWERED))
            assert not any(move.levels()[name] for name in LOWERED)
            for each in OURS:
                move.comes(each)
            has_brokers(cluster.brokers[0].port, [*KAFKAS, *OURS])
            apps.go_on()

            move.isthmus("broker", "drain", *map(str, KAFKAS))
            until(lambda: move.leaders() <= {*OURS}, "ours lead", SETTLE_S)
            apps.go_on()
            move.isthmus("broker", "drain", *map(str, KAFKAS), "--undo")
            move.isthmus("broker", "drain", *map(str, OURS))  # the way back
            until(lambda: move.leaders() <= {*KAFKAS}, "Kafka's lead", SETTLE_S)
            apps.go_on()
            move.isthmus("broker", "drain", *map(str, OURS), "--undo")
            move.isthmus("broker", "drain", *map(str, KAFKAS))

            for ours, theirs in zip(OURS, KAFKAS, strict=True):  # a majority of the voters is there all the time
                move.votes(ours)
                cluster.nodes[theirs].stop()
                move.goes(theirs)
                apps.go_on()
            has_brokers(cluster.others[OURS[0]].port, OURS)
            assert not any(cluster.nodes[each].alive() for each in KAFKAS)
            assert move.voters() == [*OURS] and move.leaders() <= {*OURS}
            assert cluster.others[OURS[0]].stop() == 0
            cluster.others[OURS[0]].start()  # our controller registers it
            registered = versions_in(cluster.others[OURS[0]], REGISTER)
            assert registered == {AT_4_0}, "what our controller wrote has the versions of Kafka's level"
            move.isthmus("cluster", "features", "upgrade", f"metadata.version={OF_4_4}")
            assert move.levels()["metadata.version"] == OF_4_4
            apps.go_on()

            apps.end()
        apps.lost_nothing(",".join(each.address for each in cluster.others.values()))
