"""A broker of ours that does not fit into a cluster ends with a line that names the thing and the way out, whether
Kafka's controller or ours refuses it. Nothing changes in the cluster.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import CLUSTER_ID, BrokerProcess
from integration_tests.peers.peers import free_ports
from integration_tests.tools.tools import Tools, running_tools
from integration_tests.waiting import until

from .kafka_nodes import OUR_LEVELS, QUICK, KafkaCluster, has_brokers, joining, kafka_nodes
from .placing import SETTLE_S, ran

CONTROLLER, MEMBER, NEW = 1, 5, 6
OTHER_CLUSTER = "B" * 22


@dataclass
class Side:
    """A cluster whose controller has id 1, and a broker of ours, 5, that belongs to it."""

    folder: Path
    quorum: str
    member: BrokerProcess
    members: list[int]

    def refused(self, node_id: int, settings: Mapping[str, Any] = {}, name: str = "new") -> str:
        """What a broker says that cannot join. Kept out of the cluster, or it fails."""
        own = {"initial.broker.registration.timeout.ms": 1500, **settings}
        said = joining(self.folder / name, node_id, self.quorum, own).refusal(SETTLE_S)
        has_brokers(self.member.port, self.members)
        return said


@contextmanager
def our_controller(folder: Path) -> Iterator[Side]:
    [port] = free_ports(1)
    quorum = f"127.0.0.1:{port}"
    own = {
        "node.id": CONTROLLER,
        "cluster.id": CLUSTER_ID,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": quorum,
        **QUICK,
    }
    controller = BrokerProcess(folder / "controller", own, listen=[f"CONTROLLER://{quorum}"])
    member = joining(folder, MEMBER, quorum)
    try:
        controller.start()
        yield Side(folder, quorum, member.start(), [CONTROLLER, MEMBER])
    finally:
        for each in (member, controller):
            if each.alive():
                each.kill()


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    folder = tmp_path_factory.mktemp("kafkas")
    with kafka_nodes(folder, {CONTROLLER: "controller", 2: "broker"}, OUR_LEVELS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def kafka_side(kafkas: KafkaCluster) -> Side:
    return Side(kafkas.folder, kafkas.quorum, kafkas.ours(MEMBER).start(), [2, MEMBER])


@pytest.fixture(scope="module")
def our_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with our_controller(tmp_path_factory.mktemp("ours")) as side:
        yield side


@pytest.fixture(params=["kafka", "ours"])
def side(request: pytest.FixtureRequest) -> Side:
    found: Side = request.getfixturevalue({"kafka": "kafka_side", "ours": "our_side"}[request.param])
    return found


def test_two_clusters_mixed_up(side: Side) -> None:
    said = side.refused(NEW, {"cluster.id": OTHER_CLUSTER}, "mixed")
    assert f"{side.quorum} belongs to another cluster than {OTHER_CLUSTER}: check controller.quorum.bootstrap" in said


def test_a_node_id_taken_twice(side: Side) -> None:
    said = side.refused(MEMBER, name="twice")
    assert f"another process is registered as broker {MEMBER}" in said and "a node.id of its own" in said


def test_the_id_of_the_controller(side: Side) -> None:
    said = side.refused(CONTROLLER, name="controllers")
    assert f"node.id={CONTROLLER} is that of the active controller" in said and "an id of its own" in said


def test_a_copy_of_another_brokers_directory(side: Side) -> None:
    copied = side.folder / "copied" / f"ours-{NEW}" / "data"
    shutil.copytree(side.member.folder / "data", copied)
    assert f"the directory belongs to node {MEMBER}, this is node {NEW}" in side.refused(NEW, name="copied")
    meta = copied / "meta.properties"
    meta.write_text(meta.read_text().replace(f"node.id={MEMBER}", f"node.id={NEW}"))
    assert f"the directory.id of broker {MEMBER}, of whose directory it is a copy" in side.refused(NEW, name="copied")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    with running_tools(tmp_path_factory.mktemp("tools") / "log") as made:
        yield made


def test_levels_of_features_that_we_do_not_have(kafka_side: Side, kafkas: KafkaCluster, tools: Tools) -> None:
    """A member that runs keeps Kafka's controller from finalizing them; one that comes later is refused."""
    kafkas_own = f"127.0.0.1:{kafkas.brokers[0].port}"
    raised = ("FeatureCommand", "upgrade", "--feature", "streams.version=1")
    assert f"Broker {MEMBER} does not support this feature" in ran(tools, kafkas_own, *raised, exit_code=1)
    kafka_side.member.stop()
    ran(tools, kafkas_own, "ClusterTool", "unregister", "--id", str(MEMBER))
    ran(tools, kafkas_own, *raised)
    kafka_side.member.begin()
    assert kafka_side.member.process is not None and kafka_side.member.process.wait(SETTLE_S) == 1
    said = kafka_side.member.log.splitlines()[-1]
    assert "the cluster has finalized streams.version at 1; this version supports streams.version=0 at most" in said
    assert "`isthmus cluster features downgrade streams.version=0`" in said
    ran(tools, kafkas_own, "FeatureCommand", "downgrade", "--feature", "streams.version=0")
    kafka_side.member.start()
    has_brokers(kafkas.brokers[0].port, [2, MEMBER])


def test_a_record_that_cannot_be_ignored(kafka_side: Side, kafkas: KafkaCluster, tools: Tools) -> None:
    """The last test here: Kafka's controller has the record in its log from now on."""
    secret = ("--add-config", "SCRAM-SHA-256=[iterations=8192,password=x]")
    user = ("--entity-type", "users", "--entity-name", "u")
    at = ("--bootstrap-server", f"127.0.0.1:{kafkas.brokers[0].port}")
    # Java's Admin asks any broker, also ours, which does not know this request.
    until(lambda: tools.run("ConfigCommand", *at, "--alter", *user, *secret).exit == 0, "Kafka's is asked", SETTLE_S)
    reason = "a SCRAM credential, which this broker cannot enforce: remove it in Kafka"
    until(lambda: reason in kafka_side.member.log, lambda: kafka_side.member.log[-2000:], SETTLE_S)
    has_brokers(kafkas.brokers[0].port, [2])  # fenced: it leads no more
