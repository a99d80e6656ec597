"""Three nodes that Kafka's tools are run against, each broker and controller: ours, or stock Kafka's.

Node 1 is the only voter of the metadata quorum at first, as `kafka-storage format --standalone` makes it; the others
follow. Clients and controllers of a node are named by its id in what `plain` gives.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from integration_tests.brokers import CLUSTER_ID, BrokerProcess
from integration_tests.cluster.kafka_nodes import HEAP, JVM, format_all, has_brokers, kafka_node
from integration_tests.peers.peers import Node, free_ports, guarded

from .tools import Side

IDS = (1, 2, 3)
SETTINGS: Mapping[str, object] = {
    "broker.session.timeout.ms": 4000,
    "default.replication.factor": 3,
    "offsets.topic.replication.factor": 3,
    "group.initial.rebalance.delay.ms": 0,
    "leader.imbalance.check.interval.seconds": 3600,
}
DIRECTORY_ID = re.compile(r"(?m)^directory\.id=(\S+)$")
START_S = 60.0


class ThreeNodes:
    """nodes: by id. controllers: ports of their listeners for controllers, by id."""

    def __init__(self, name: str, nodes: Mapping[int, BrokerProcess | Node], controllers: Mapping[int, int]) -> None:
        self.name = name
        self.nodes = nodes
        self.controllers = controllers

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{self.nodes[each].port}" for each in IDS)

    @property
    def controller(self) -> str:
        """Where the first controller listens."""
        return f"127.0.0.1:{self.controllers[1]}"

    def data(self, node_id: int) -> Path:
        return self.nodes[node_id].folder / "data"

    def directory_id(self, node_id: int) -> str:
        found = DIRECTORY_ID.search((self.data(node_id) / "meta.properties").read_text())
        assert found, node_id
        return found[1]

    def properties(self, node_id: int) -> Path:
        """A file of options as the tool that adds a controller reads it."""
        path = self.nodes[node_id].folder / "controller.properties"
        rows = {
            "process.roles": "broker,controller",
            "node.id": node_id,
            "log.dirs": self.data(node_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.nodes[node_id].port},"
            f"CONTROLLER://127.0.0.1:{self.controllers[node_id]}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self.controller,
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
        return path

    def stop(self, node_id: int) -> None:
        self.nodes[node_id].stop()

    def start(self, node_id: int) -> None:
        node = self.nodes[node_id]
        if isinstance(node, Node):
            node.start(HEAP, JVM)
            node.wait(len(IDS), START_S)
        else:
            node.start(START_S)

    def kill(self) -> None:
        for each in self.nodes.values():
            if each.alive():
                each.kill()

    def plain(self, text: str) -> str:
        """A tool's output with the names of what belongs to these nodes, where that differs."""
        text = text.replace(self.bootstrap, "BROKERS").replace(CLUSTER_ID, "CLUSTER")
        for each in IDS:
            text = text.replace(str(self.data(each)), f"DATA-{each}").replace(self.directory_id(each), f"DIR-{each}")
            text = re.sub(rf"(localhost|127\.0\.0\.1):{self.nodes[each].port}\b", f"BROKER-{each}", text)
            text = re.sub(rf"(localhost|127\.0\.0\.1):{self.controllers[each]}\b", f"CONTROLLER-{each}", text)
            # Tools that print hosts and ports in columns of their own.
            text = re.sub(rf"\b{self.nodes[each].port}\b", f"PORT-{each}", text)
            text = re.sub(rf"\b{self.controllers[each]}\b", f"CONTROLLER-PORT-{each}", text)
        return Side(self.name, "no address", "no data").plain(text)


@contextlib.contextmanager
def our_nodes(folder: Path) -> Iterator[ThreeNodes]:
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    nodes = {}
    for each in IDS:
        own = {
            "node.id": each,
            "cluster.id": CLUSTER_ID,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports[1]}",
            **SETTINGS,
        }
        nodes[each] = BrokerProcess(folder / f"ours-{each}", own, listen=[f"CONTROLLER://127.0.0.1:{ports[each]}"])
    made = ThreeNodes("isthmus", nodes, ports)
    try:
        for each in IDS:
            nodes[each].start()
        yield made
    finally:
        made.kill()


@contextlib.contextmanager
def stock_nodes(folder: Path) -> Iterator[ThreeNodes]:
    ports = dict(zip(IDS, free_ports(len(IDS)), strict=True))
    with guarded(folder):
        quorum = f"127.0.0.1:{ports[1]}"
        nodes = {each: kafka_node(folder, each, "broker,controller", quorum, ports[each], SETTINGS) for each in IDS}
        own = {1: ("--standalone",), 2: ("--no-initial-controllers",), 3: ("--no-initial-controllers",)}
        format_all(nodes.values(), own, ())
        made = ThreeNodes("kafka", nodes, ports)
        try:
            for node in nodes.values():
                node.start(HEAP, JVM)
            for node in nodes.values():
                node.wait(len(IDS), START_S)
            has_brokers(nodes[1].port, IDS)
            yield made
        finally:
            made.kill()
