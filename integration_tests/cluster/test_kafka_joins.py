"""A broker of stock Kafka in a cluster of ours: it follows and leads our brokers, and asks our controllers.

All the time an idempotent producer sends; in the end all that was acknowledged is there once, in order. The controls:
who leads after each step, and the bytes of the logs.
"""

from __future__ import annotations

import struct
from functools import partial
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster, running_cluster
from integration_tests.console.commands import isthmus, said
from integration_tests.peers.peers import Node, asked, guarded
from integration_tests.tools.tools import Tools, running_tools
from integration_tests.waiting import until

from .kafka_nodes import HEAP, JVM, QUICK, START_S, format_all, has_brokers, kafka_node, log_in
from .placing import SETTLE_S, Placing, ran
from .sending import TOPIC, Sending

KAFKAS = 7
OFFSETS = [f"__consumer_offsets-{index}" for index in range(4)]
INIT_PRODUCER_ID = 22


def joined(folder: Path, ours: BrokerCluster) -> Node:
    """A broker of Kafka's, with two directories: so it tells the controller in which one each replica is."""
    voters = ours.brokers[1].settings["controller.quorum.voters"]
    home = folder / f"node-{KAFKAS}"
    dirs = {"log.dirs": f"{home}/data-a,{home}/data-b", "controller.quorum.voters": voters}
    node = kafka_node(folder, KAFKAS, "broker", "", 0, dirs)
    format_all([node], {}, [])
    node.start(HEAP, JVM)
    node.wait(len(ours.brokers) + 1, START_S)
    return node


def producer_id(node: Node) -> int:
    """A new one, of a broker, which says COORDINATOR_LOAD_IN_PROGRESS until it has a block of them."""

    def found() -> int:
        answer = asked(node.port, INIT_PRODUCER_ID, 0, struct.pack(">hi", -1, 0), timeout_s=20)
        answer.skip(8)  # correlation id, throttle time
        return -1 if answer.take("h") else answer.take("q")

    return until(lambda: found() + 1, "a producer id", SETTLE_S) - 1


def committed(bootstrap: str, offset: int | None = None) -> int:
    """The offset that a group has committed. offset: is committed before."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        if offset is not None:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
        return found.offset
    finally:
        consumer.close()


def asks_our_controller(tools: Tools, node: Node) -> None:
    """What Kafka's broker passes on to the controller: topics, options, features."""
    run = partial(ran, tools, f"127.0.0.1:{node.port}")
    run("TopicCommand", "--create", "--topic", "theirs", "--partitions", "3", "--replication-factor", "3")
    run("ConfigCommand", "--alter", "--topic", "theirs", "--add-config", "retention.ms=7200000")
    until(lambda: "retention.ms=7200000" in run("ConfigCommand", "--describe", "--topic", "theirs"), "an option is set")
    run("TopicCommand", "--delete", "--topic", "theirs")
    until(lambda: "theirs" not in run("TopicCommand", "--list"), "a topic is deleted")
    refused = run("FeatureCommand", "upgrade", "--feature", "streams.version=1", exit_code=1)
    assert "does not support this feature" in refused
    assert "FinalizedVersionLevel: UNKNOWN 33" in run("FeatureCommand", "describe")  # tools of 4.3: 33 is 4.4-IV2


def test_a_member_from_its_coming_to_its_going(tmp_path: Path) -> None:
    settings = {
        **QUICK,
        "metadata.log.max.record.bytes.between.snapshots": 2000,  # Kafka's broker begins with a snapshot
        "offsets.topic.num.partitions": len(OFFSETS),
        "min.insync.replicas": 2,
    }
    with (
        running_cluster(tmp_path, settings=settings) as ours,
        guarded(tmp_path),
        running_tools(tmp_path / "tools.log") as tools,
    ):
        admin = AdminClient({"bootstrap.servers": ours.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2, 3]])])[TOPIC].result(20)
        assert committed(ours.bootstrap, 17) == 17
        kafkas = joined(tmp_path, ours)
        bootstrap = f"{ours.bootstrap},127.0.0.1:{kafkas.port}"
        has_brokers(ours.brokers[1].port, [1, 2, 3, KAFKAS])
        place = Placing(tools, bootstrap, tmp_path, TOPIC)
        sending = Sending(bootstrap)
        sending.goes_on()

        place.move({f"{TOPIC}-0": [KAFKAS, 1, 2], **{each: [KAFKAS, 1] for each in OFFSETS}})
        place.in_sync(1, 2, KAFKAS)  # it follows our leader
        place.elect()
        place.leads(KAFKAS)  # it leads ours
        sending.goes_on()
        place.in_sync(1, 2, KAFKAS)
        until(lambda: place.is_now("__consumer_offsets")[0] == KAFKAS, "it is a coordinator", SETTLE_S)
        assert committed(bootstrap) == 17 and committed(bootstrap, 23) == 23
        assert producer_id(kafkas) != producer_id(kafkas)
        asks_our_controller(tools, kafkas)

        controller = ours.controller()
        ours.brokers[controller].kill()
        until(lambda: ours.controller() not in (-1, controller), "another controller is elected", SETTLE_S)
        sending.goes_on()
        ours.start()
        place.in_sync(1, 2, KAFKAS)
        kafkas.kill()
        until(lambda: place.is_now()[0] in (1, 2), "one of ours leads", SETTLE_S)
        sending.goes_on()
        kafkas.start(HEAP, JVM)
        place.in_sync(1, 2, KAFKAS)

        sending.end()
        homes = [tmp_path / name for name in ("b1", "b2", f"node-{KAFKAS}")]
        until(lambda: len({log_in(home, f"{TOPIC}-0") for home in homes}) == 1, "equal bytes", SETTLE_S)
        sending.all_are_there(bootstrap)

        said(isthmus("broker", "drain", str(KAFKAS), "-b", ours.bootstrap, folder=tmp_path))
        kafkas.stop()
        ran(tools, ours.bootstrap, "ClusterTool", "unregister", "--id", str(KAFKAS))
        has_brokers(ours.brokers[1].port, [1, 2, 3])
        assert committed(ours.bootstrap) == 23
