"""Three brokers as real processes under librdkafka: nothing acknowledged is lost, doubled or reordered, whoever dies.

A fault comes while an idempotent producer sends. What it was told is then read from all replicas' leader, and the
replicas' files are the same. The control: the partition's leader or the controller was another one afterwards.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster, running_cluster
from integration_tests.waiting import until

from .sending import TOPIC, Sending, leader_of, read_all

BEFORE, AFTER = 300, 600  # records acknowledged before the fault, and in all
SETTLE_S = 40.0

HUNG_MS = 3000  # after which the administrator's client asks another broker
Fault = Callable[[BrokerCluster, int, int], None]  # (cluster, leader of the partition, active controller)


def kill_leader(cluster: BrokerCluster, leader: int, controller: int) -> None:
    cluster.brokers[leader].kill()


def kill_controller(cluster: BrokerCluster, leader: int, controller: int) -> None:
    cluster.brokers[controller].kill()


def pause_leader(cluster: BrokerCluster, leader: int, controller: int) -> None:
    cluster.brokers[leader].signal(signal.SIGSTOP)


def stop_leader(cluster: BrokerCluster, leader: int, controller: int) -> None:
    assert cluster.brokers[leader].stop() == 0


FAULTS: dict[str, Fault] = {
    "the leader is killed": kill_leader,
    "the controller is killed": kill_controller,
    "the leader hangs": pause_leader,
    "the leader is stopped": stop_leader,
}


def begun(cluster: BrokerCluster) -> tuple[AdminClient, Sending]:
    """A topic of three replicas, two of which acks=all waits for, is written to."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": HUNG_MS})
    topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(20)
    return admin, Sending(cluster.bootstrap)


@pytest.mark.parametrize("name", FAULTS)
def test_nothing_acknowledged_is_lost(tmp_path: Path, name: str) -> None:
    with running_cluster(tmp_path, settings={"broker.session.timeout.ms": 3000}) as cluster:
        admin, sending = begun(cluster)
        until(lambda: len(sending.acked) >= BEFORE, "records are acknowledged before the fault", SETTLE_S)
        leader, controller = leader_of(admin), cluster.controller()
        FAULTS[name](cluster, leader, controller)
        dead = controller if name == "the controller is killed" else leader
        until(lambda: len(sending.acked) >= AFTER, "records are acknowledged after the fault", SETTLE_S)
        if dead == controller:
            until(lambda: cluster.controller() not in (-1, controller), "another controller is elected", SETTLE_S)
        if dead == leader:
            until(lambda: leader_of(admin) not in (-1, leader), "another leader is elected", SETTLE_S)
        cluster.brokers[dead].signal(signal.SIGCONT)
        cluster.start()
        sending.end()
        assert not sending.errors
        offsets = [offset for offset, _ in sending.acked]
        assert [number for _, number in sending.acked] == list(range(len(sending.acked)))
        assert offsets == sorted(dict.fromkeys(offsets))
        found = read_all(cluster.bootstrap, len(sending.acked))
        assert found == [str(number).encode() for number in range(len(sending.acked))]
        until(lambda: len(set(copies(cluster))) == 1, "all replicas have the same bytes", SETTLE_S)


def test_a_site_that_is_gone_with_its_disk_loses_nothing_and_comes_back_empty(tmp_path: Path) -> None:
    """One broker a site, as in docs/how-to/stretch-a-cluster.md."""
    with running_cluster(tmp_path, settings={"broker.session.timeout.ms": 3000}) as cluster:
        admin, sending = begun(cluster)
        until(lambda: len(sending.acked) >= BEFORE, "records are acknowledged before", SETTLE_S)
        gone = leader_of(admin)
        cluster.brokers[gone].kill()
        shutil.rmtree(cluster.brokers[gone].folder / "data")
        acked = len(sending.acked)
        assert read_all(cluster.bootstrap, acked) == [str(number).encode() for number in range(acked)]
        sending.goes_on(AFTER)
        cluster.start()
        until(lambda: in_sync(admin) == [1, 2, 3], "it is in sync again", SETTLE_S)
        sending.goes_on(BEFORE)
        sending.end()
        sending.all_are_there(cluster.bootstrap)
        until(lambda: len(set(copies(cluster))) == 1, "all replicas have the same bytes", SETTLE_S)
        assert copies(cluster)[0]


def in_sync(admin: AdminClient) -> list[int]:
    return sorted(admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions[0].isrs)


def copies(cluster: BrokerCluster) -> list[bytes]:
    return [
        b"".join(path.read_bytes() for path in sorted((broker.folder / "data" / f"{TOPIC}-0").glob("*.log")))
        for broker in cluster.brokers.values()
    ]
