"""Three nodes, of Isthmus or of stock Kafka, each at its own address of a `Network` and on a `Disk` of its own."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from integration_tests.brokers import CLUSTER_ID, BrokerFailed, BrokerProcess
from integration_tests.histories.network import Disk, Network
from integration_tests.histories.planted import PLANTS
from integration_tests.peers import peers

NODES = (1, 2, 3)
PORT, CONTROLLER_PORT = 9092, 9093
DISK_BYTES = 128 << 20
START_TIMEOUT_S = 90.0
OURS, KAFKA = "ours", "kafka"
PEERS = (OURS, KAFKA, *PLANTS)  # planted: ours with a bug
HEAP = "384m"

# Kafka's names. Short times, so that a short history has an election, alike for both.
SETTINGS: dict[str, object] = {
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.num.partitions": 3,
    "transaction.state.log.min.isr": 2,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "broker.session.timeout.ms": 3000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5000,
}


def rack(node: int) -> str:
    """Each node has one of its own, so that a consumer may read from whichever replica (KIP-392)."""
    return f"rack-{node}"


class Node(Protocol):
    """One process that can be started again."""

    def begin(self) -> None:
        """Start it, and do not wait. It ends with the thread that starts it."""

    def kill(self) -> None:
        """kill -9, and wait until it is gone; nothing happens when it does not run."""

    def shut_down(self) -> None:
        """SIGTERM, and wait until it is gone; kill -9 when it does not end."""

    def signal(self, number: int) -> None: ...

    def alive(self) -> bool: ...


class OurNode(BrokerProcess):
    def __init__(self, folder: Path, node: int, network: Network, plant: str) -> None:
        voters = ",".join(f"{each}@{network.address(each)}:{CONTROLLER_PORT}" for each in NODES)
        own = {
            "node.id": node,
            "cluster.id": CLUSTER_ID,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": voters,
            "broker.rack": rack(node),
            "replica.selector.class": peers.RACK_SELECTOR,
            **SETTINGS,
        }
        address = network.address(node)
        super().__init__(folder, own, listen=[f"CONTROLLER://{address}:{CONTROLLER_PORT}"])
        self.address = f"{address}:{PORT}"
        self._inside = network.inside(node)
        self._plant = plant

    def command(self) -> list[str]:
        python, *rest = super().command()
        if self._plant:
            rest[:2] = [str(Path(__file__).with_name("planted.py")), self._plant]
        return [*self._inside, python, *rest]

    def kill(self) -> None:
        if self.process is not None:
            super().kill()

    def shut_down(self) -> None:
        if self.alive():
            with contextlib.suppress(BrokerFailed):  # it is paused, or has nobody to hand over to
                self.stop()


class KafkaNode:
    def __init__(self, node: peers.Node, inside: list[str]) -> None:
        self._node = peers.Node(node.folder, inside)

    def begin(self) -> None:
        self._node.start(HEAP)

    def kill(self) -> None:
        self._node.kill()

    def shut_down(self) -> None:
        self._node.stop()

    def signal(self, number: int) -> None:
        self._node.signal(number)

    def alive(self) -> bool:
        return self._node.alive()


class Cluster:
    """The nodes by id, which begin as soon as it is made. emptied: those that are to have no replicas; moving: held
    while replicas are assigned."""

    def __init__(self, folder: Path, peer: str, network: Network) -> None:
        self.network = network
        self.emptied: dict[int, None] = {}
        self.moving = threading.Lock()
        self.peer = peer
        self.nodes: dict[int, Node] = {}
        self.disks = {node: Disk(folder / f"node-{node}" / "data", DISK_BYTES) for node in NODES}
        if peer == KAFKA:
            hosts = [network.address(node) for node in NODES]
            racks = [rack(node) for node in NODES]
            ports = [PORT, CONTROLLER_PORT] * len(NODES)
            made = peers.Cluster.create(folder, len(NODES), ports, SETTINGS, racks=racks, hosts=hosts)
            for node in NODES:
                self.nodes[node] = KafkaNode(made.node(node), network.inside(node))
        else:
            for node in NODES:
                self.nodes[node] = OurNode(folder / f"node-{node}", node, network, peer if peer in PLANTS else "")
        for each in self.nodes.values():
            each.begin()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{self.network.address(node)}:{PORT}" for node in NODES)

    def controller(self) -> int:
        """Node id of the active controller, as the first node that answers tells; -1: none does."""
        for node in NODES:
            with contextlib.suppress(OSError):
                if (found := peers.quorum_leader(PORT, self.network.address(node))) > 0:
                    return found
        return -1

    def log(self, node: int, topic: str, partition: int) -> bytes:
        """What a node's replica has on disk."""
        segments = (self.disks[node].path / f"{topic}-{partition}").glob("*.log")
        return b"".join(path.read_bytes() for path in sorted(segments))

    def restart(self, node: int) -> None:
        """Start it, if it has ended."""
        if not self.nodes[node].alive():
            self.nodes[node].kill()
            self.nodes[node].begin()

    def close(self) -> None:
        for node in self.nodes.values():
            node.signal(signal.SIGCONT)
            node.kill()
        for disk in self.disks.values():
            disk.close()


@contextlib.contextmanager
def running(folder: Path, peer: str) -> Iterator[Cluster]:
    """Inside only (network.py)."""
    network = Network(len(NODES))
    try:
        made = Cluster(folder, peer, network)
        try:
            yield made
        finally:
            made.close()
    finally:
        network.close()
