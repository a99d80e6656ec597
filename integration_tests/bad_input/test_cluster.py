"""What does not fit into a cluster of three brokers is refused with an error that names it and the way out.

Nothing changes: the cluster tells of itself as before, and serves. Its first two brokers run; the third is what is
started wrongly. What options alone show is in `tests/core_broker/test_membership.py`; brokers that join with an id, a
directory or levels of features that do not fit are in `integration_tests/cluster/test_strangers.py`, clocks that are an
hour apart in `tests/core_broker/server/test_clocks_apart.py`, racks that nobody has in `test_read_replicas.py` there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import CLUSTER_ID, BrokerCluster, BrokerProcess, running_cluster
from integration_tests.console.commands import error, isthmus, said
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until

OTHER_CLUSTER = "B" * 22
END_S = 60.0
THIRD = 3


class Three:
    """A cluster of which the third broker has stopped."""

    def __init__(self, cluster: BrokerCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.third = cluster.brokers[THIRD]

    def isthmus(self, *arguments: str) -> Any:
        return isthmus(*arguments, "-b", self.cluster.brokers[1].address, folder=self.folder)

    def status(self) -> Any:
        """Without what is of a moment."""
        found = json.loads(said(self.isthmus("cluster", "status", "--json")))
        return {each: found[each] for each in ("cluster_id", "controller_id", "topics", "partitions", "brokers")}

    def refused(self, folder: Path, settings: Mapping[str, object] = {}, listen: Sequence[str] | None = None) -> str:
        """The line by which a broker like the third one ends, in a folder and with other options."""
        own = {**self.third.settings, "initial.broker.registration.timeout.ms": 1500, **settings}
        return BrokerProcess(folder, own, listen=self.third.listen if listen is None else listen).refusal(END_S)


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    folder = tmp_path_factory.mktemp("three")
    with running_cluster(folder, settings={"broker.session.timeout.ms": 3000}) as cluster:
        made = Three(cluster, folder)
        if cluster.controller() == THIRD:
            assert cluster.brokers[THIRD].stop() == 0
            cluster.start()
        said(made.isthmus("topic", "create", "t", "-p", "3", "--replication-factor", "3"))  # each leads one
        assert cluster.brokers[THIRD].stop() == 0
        yield made


@pytest.fixture(autouse=True)
def nothing_changes(three: Three) -> Iterator[None]:
    before = three.status()
    yield
    assert three.status() == before


def test_a_controller_of_another_cluster(three: Three, tmp_path: Path) -> None:
    text = three.refused(tmp_path, {"cluster.id": OTHER_CLUSTER})
    assert f"belongs to another cluster than {OTHER_CLUSTER}: check" in text
    assert "controller.quorum.voters and cluster.id, or use another log.dirs" in text


def test_the_id_of_another_controller(three: Three, tmp_path: Path) -> None:
    """Two processes have the same options but for their ports."""
    listen = [f"CONTROLLER://127.0.0.1:{free_ports(1)[0]}"]
    follower = next(each for each in (1, 2) if each != three.cluster.controller())
    text = three.refused(tmp_path, {"node.id": follower}, listen)
    assert f"another process is registered as broker {follower}, and lives" in text
    assert "give each broker a node.id of its own" in text


def test_the_directory_of_another_node_or_cluster(three: Three) -> None:
    folder = three.third.folder
    text = three.refused(folder, {"node.id": 7, "process.roles": "broker"}, ())
    assert "meta.properties: the directory belongs to node 3, this is node 7: set node.id=3, or choose another" in text
    text = three.refused(folder, {"cluster.id": OTHER_CLUSTER})
    assert f"the directory belongs to cluster {CLUSTER_ID}, this is cluster {OTHER_CLUSTER}: set cluster.id=" in text


def test_more_replicas_than_brokers(three: Three) -> None:
    text = error(three.isthmus("topic", "create", "many", "-p", "1", "--replication-factor", "4"))
    assert "INVALID_REPLICATION_FACTOR (38): topic many: Unable to replicate the partition 4 time(s)" in text
    assert "because only 2 broker(s) are registered" in text  # the third has handed over what it led


def test_replicas_on_brokers_that_are_dead_or_unknown(three: Three) -> None:
    fenced = "broker 3 is down or cut off, so that its copy would never be in sync: start it, or choose of 1, 2"
    assert fenced in error(three.isthmus("partition", "move", "t-0", "--to", "3"))
    assert "there is no broker 9: there are 1, 2, 3" in error(three.isthmus("partition", "move", "t-0", "--to", "1,9"))


def test_levels_that_no_broker_has(three: Three) -> None:
    text = error(three.isthmus("cluster", "features", "upgrade", "metadata.version=99"))
    assert "Invalid update version 99 for feature metadata.version" in text and "only supports versions 7-" in text


def test_without_a_majority_of_voters(three: Three, tmp_path: Path) -> None:
    """A cluster of its own, of which one of three runs."""
    ports = free_ports(3)
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    settings = {**three.third.settings, "node.id": 1, "controller.quorum.voters": voters}
    broker = BrokerProcess(tmp_path, settings, listen=[f"CONTROLLER://127.0.0.1:{ports[0]}"])
    broker.begin()
    try:
        until(lambda: "node 1 waits" in broker.log, lambda: broker.log, END_S)
        assert broker.alive()
    finally:
        broker.kill()
    assert "of the voters 1, 2, 3 more than half must run to elect a controller" in broker.log
    assert f"2 at 127.0.0.1:{ports[1]}, 3 at 127.0.0.1:{ports[2]}: start them, or check" in broker.log
