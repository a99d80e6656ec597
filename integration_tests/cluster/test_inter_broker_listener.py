"""Three brokers with an inter-broker listener of its own, under librdkafka: replication uses it, and clients do not.

Who is connected to whom is read from the kernel's table of sockets, before and after the leader is killed. The control:
a client that asks on the inter-broker listener is told that one, so that the check can tell the two apart.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerCluster
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until

from .sending import TOPIC, Sending, leader_of

BETWEEN = "REPLICATION"
SETTINGS = {
    "inter.broker.listener.name": BETWEEN,
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,{BETWEEN}:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "broker.session.timeout.ms": 3000,
}
GROUP = "readers"
RECORDS = 200  # acknowledged before the kill, after it, and after the broker is back
SETTLE_S = 40.0
LISTENS = "0A"  # a state in the kernel's table


@contextlib.contextmanager
def running(folder: Path) -> Iterator[tuple[BrokerCluster, dict[int, int]]]:
    """A cluster, and the port of each broker's inter-broker listener."""
    cluster = BrokerCluster(folder, settings=SETTINGS)
    between = dict(zip(cluster.brokers, free_ports(len(cluster.brokers)), strict=True))
    for node, broker in cluster.brokers.items():
        broker.listen = [*broker.listen, f"{BETWEEN}://127.0.0.1:{between[node]}"]
    try:
        yield cluster.start(), between
    finally:
        cluster.kill()


def reached(pid: int, ports: Iterable[int]) -> list[int]:
    """Those of these ports to which a process has a connection, or is about to have one."""
    inodes = {os.stat(each).st_ino for each in Path(f"/proc/{pid}/fd").iterdir() if each.exists() or each.is_symlink()}
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    remote = [int(row[2].partition(":")[2], 16) for row in rows if row[3] != LISTENS and int(row[9]) in inodes]
    return sorted(set(ports).intersection(remote))


def told(bootstrap: str) -> list[int]:
    """Ports of the brokers that a client is told of."""
    brokers = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=20).brokers
    return sorted(each.port for each in brokers.values())


def read(consumer: Consumer, numbers: list[int], count: int) -> None:
    def look() -> bool:
        messages = consumer.consume(count - len(numbers), timeout=0.5)
        numbers.extend(int(each.value() or b"") for each in messages if each.error() is None)
        return len(numbers) >= count

    until(look, lambda: f"{len(numbers)} of {count} records read", SETTLE_S)


def test_replication_and_clients_have_a_listener_each(tmp_path: Path) -> None:
    with running(tmp_path) as (cluster, between):
        clients = {node: broker.port for node, broker in cluster.brokers.items()}
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        topic = NewTopic(TOPIC, 1, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])[TOPIC].result(20)

        def in_sync() -> list[int]:
            return sorted(admin.list_topics(TOPIC, timeout=20).topics[TOPIC].partitions[0].isrs)

        def check(leader: int) -> None:
            """All that live are in sync, by the inter-broker listener alone."""
            alive = [node for node, broker in cluster.brokers.items() if broker.alive()]
            until(lambda: in_sync() == alive, lambda: f"{in_sync()} are in sync, and {alive} live", SETTLE_S)
            for node in alive:
                pid = cluster.brokers[node].pid
                assert reached(pid, clients.values()) == []
                assert node == leader or between[leader] in reached(pid, between.values())
                found = told(cluster.brokers[node].bootstrap)
                assert found and set(found) <= set(clients.values())  # one that died may be told for a moment
            assert admin.describe_consumer_groups([GROUP])[GROUP].result(20).coordinator.port in clients.values()

        numbers: list[int] = []
        sending = Sending(cluster.bootstrap)
        consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest", "log_level": 0}
        )
        consumer.subscribe([TOPIC])
        sending.goes_on(RECORDS)
        read(consumer, numbers, RECORDS)
        leader = leader_of(admin)
        check(leader)
        cluster.brokers[leader].kill()
        sending.goes_on(RECORDS)
        until(lambda: leader_of(admin) not in (-1, leader), "another leader is elected", SETTLE_S)
        check(leader_of(admin))
        cluster.start()
        sending.goes_on(RECORDS)
        sending.end()
        read(consumer, numbers, len(sending.acked))
        assert numbers == list(range(len(sending.acked)))
        check(leader_of(admin))
        assert reached(os.getpid(), clients.values()) and reached(os.getpid(), between.values()) == []
        consumer.close()
        sending.all_are_there(cluster.bootstrap)
        assert told(f"127.0.0.1:{between[leader]}") == sorted(between.values())
