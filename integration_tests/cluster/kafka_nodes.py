"""Stock Kafka with roles and feature levels of one's choice, and brokers that join: theirs to ours, ours to theirs.

Kafka 4.4 finalizes levels in a new cluster that our brokers do not have: of transactions, share and streams groups. So
a cluster that ours can join is formatted with them at 0, by `kafka-storage format --feature share.version=0 ...`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from integration_tests.brokers import CLUSTER_ID, BrokerProcess
from integration_tests.peers.peers import NODE_DEFAULTS, Node, free_ports, guarded, metadata
from integration_tests.waiting import until
from isthmus.protocol.primitives import uuid_to_str

HEAP = "256m"
JVM = ("-XX:TieredStopAtLevel=1",)  # a short life
LOWERED = ("share.version", "streams.version")
OUR_LEVELS = [part for name in LOWERED for part in ("--feature", f"{name}=0")]
ROLES = {1: "controller", 2: "broker", 3: "broker"}
START_S = 60.0
QUICK = {  # a broker that dies is missed soon
    "broker.heartbeat.interval.ms": 300,
    "broker.session.timeout.ms": 4000,
    "leader.imbalance.check.interval.seconds": 3600,
}


def kafka_node(
    folder: Path, node_id: int, roles: str, quorum: str, port: int, settings: Mapping[str, object] = {}
) -> Node:
    """A node that is not formatted yet. quorum: addresses of controllers. port: its controllers' listener has it, if it
    is one; a broker's listener has a free one."""
    home = folder / f"node-{node_id}"
    home.mkdir(parents=True)
    listeners = []
    if "broker" in roles:
        listeners.append(f"PLAINTEXT://127.0.0.1:{free_ports(1)[0]}")
    if "controller" in roles:
        listeners.append(f"CONTROLLER://127.0.0.1:{port}")
    rows = {
        "process.roles": roles,
        "node.id": node_id,
        "controller.quorum.bootstrap.servers": quorum,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listeners": ",".join(listeners),
        "log.dirs": home / "data",
        **NODE_DEFAULTS,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 2,
        **QUICK,
        **settings,
    }
    (home / "server.properties").write_text("".join(f"{name}={value}\n" for name, value in rows.items()))
    return Node(home)


def joining(
    folder: Path, node_id: int, quorum: str, settings: Mapping[str, object] = {}, listen: Sequence[str] = ()
) -> BrokerProcess:
    """A broker of ours that is to join the cluster with controllers at these addresses."""
    own = {
        "node.id": node_id,
        "cluster.id": CLUSTER_ID,
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": quorum,
        "offsets.topic.num.partitions": 4,
        "offsets.topic.replication.factor": 2,
        **QUICK,
        **settings,
    }
    return BrokerProcess(folder / f"ours-{node_id}", own, listen=listen)


class KafkaCluster:
    """Nodes of stock Kafka by id, and brokers of ours that were made by `ours`. roles: of each node.

    format: options of `kafka-storage format`.
    """

    def __init__(
        self, folder: Path, roles: Mapping[int, str], format: Sequence[str], settings: Mapping[str, object] = {}
    ) -> None:
        ports = dict(zip(roles, free_ports(len(roles)), strict=True))
        controllers = [each for each, role in roles.items() if "controller" in role]
        self.folder = folder
        self.quorum = ",".join(f"127.0.0.1:{ports[each]}" for each in controllers)
        self.nodes = {
            each: kafka_node(folder, each, role, self.quorum, ports[each], settings) for each, role in roles.items()
        }
        self.others: dict[int, BrokerProcess] = {}
        voters = [f"{each}@127.0.0.1:{ports[each]}:{uuid_to_str(uuid.uuid4().bytes)}" for each in controllers]
        initial = ("--initial-controllers", ",".join(voters))
        format_all(self.nodes.values(), dict.fromkeys(controllers, initial), format)

    @property
    def brokers(self) -> list[Node]:
        return [node for node in self.nodes.values() if "broker" in node.properties["process.roles"]]

    @property
    def bootstrap(self) -> str:
        theirs = [f"127.0.0.1:{node.port}" for node in self.brokers]
        return ",".join([*theirs, *(each.address for each in self.others.values() if each.port)])

    def start(self) -> None:
        for node in self.nodes.values():
            node.start(HEAP, JVM)
        for node in self.brokers:
            node.wait(len(self.brokers), START_S)

    def ours(self, node_id: int, settings: Mapping[str, object] = {}) -> BrokerProcess:
        """A broker of ours, not started yet."""
        self.others[node_id] = joining(self.folder, node_id, self.quorum, settings)
        return self.others[node_id]

    def log_of(self, node_id: int, partition: str) -> bytes:
        home = self.others[node_id].folder if node_id in self.others else self.nodes[node_id].folder
        return log_in(home, partition)

    def kill(self) -> None:
        for each in self.others.values():
            if each.alive():
                each.kill()


def log_in(home: Path, partition: str) -> bytes:
    """The contents of a partition's log in a node's folder."""
    return b"".join(path.read_bytes() for path in sorted(home.glob(f"data*/{partition}/*.log")))


def format_all(nodes: Iterable[Node], own: Mapping[int, Sequence[str]], options: Sequence[str]) -> None:
    """own: options of some of the nodes."""
    begun = [(node, node.format(CLUSTER_ID, *own.get(node.id, ()), *options)) for node in nodes]
    for node, formatting in begun:
        assert formatting.wait() == 0, (node.folder / "format.log").read_text()[-2000:]


@contextmanager
def kafka_nodes(
    folder: Path,
    roles: Mapping[int, str] = ROLES,
    format: Sequence[str] = OUR_LEVELS,
    settings: Mapping[str, object] = {},
) -> Iterator[KafkaCluster]:
    """A running cluster, gone at the end, and also when this process is killed."""
    with guarded(folder):
        made = KafkaCluster(folder, roles, format, settings)
        try:
            made.start()
            yield made
        finally:
            made.kill()


def brokers_of(port: int) -> list[int]:
    """Ids of the live brokers, as one of them tells."""
    return sorted(metadata(port)[0])


def has_brokers(port: int, ids: Sequence[int]) -> None:
    """Wait until exactly these brokers live, as one of them tells."""
    until(lambda: brokers_of(port) == list(ids), lambda: f"brokers are {brokers_of(port)}, not {ids}", START_S)
