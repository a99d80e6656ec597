"""The brokers of a datacenter: what each is called, and the options that make them one cluster.

Pure. A datacenter of one broker is told nothing of all this: it is a cluster of its own. Where there are several, each
is a controller, too, and all of them vote: they reach each other's controllers by a listener of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..protocol.primitives import uuid_to_str

if TYPE_CHECKING:
    from .topology import Datacenter, Topic

CONTROLLER = "CONTROLLER"  # the name of the controllers' listener
SAFE_FACTOR, SAFE_IN_SYNC = 3, 2  # from this factor on, so many replicas have what is acknowledged
KIND = "broker"
IN_SYNC = "min.insync.replicas"
METRICS = "metrics.listener"
BETWEEN_BY = "inter.broker.listener.name"  # the listener of brokers by which the others of their cluster reach them
SELECTOR = "replica.selector.class"
BY_RACK = "org.apache.kafka.common.replica.RackAwareReplicaSelector"  # consumers with client.rack read in their rack
# Broker options that a topology sets where it has several brokers, and what is said of one that it gives itself.
SET_FOR_SEVERAL = {
    "advertised.listeners": "the topology says this where there are several brokers: leave it out",
    "listener.security.protocol.map": "the topology says this where there are several brokers: leave it out",
    "broker.rack": "`racks` of the datacenter says this: leave it out",
    **dict.fromkeys(
        (
            "broker.id", "node.id", "cluster.id", "process.roles", "controller.listener.names",
            "controller.quorum.voters", "controller.quorum.bootstrap.servers",
            "controller.quorum.initial.controllers", "controller.quorum.auto.join.enable",
        ),
        "the topology says this to each of several brokers: leave it out",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Node:
    """A broker. process: its name among a topology's processes. folder: of its data, beside those of others.
    node_id: None where it is the only one, and has its default or what `options` say."""

    datacenter: str
    node_id: int | None
    process: str
    folder: str


def nodes(name: str, datacenter: Datacenter) -> list[Node]:
    """The brokers of a datacenter, by their ids. The names are no other's: those of mirrors and workers end in their
    kinds."""
    if datacenter.brokers == 1:
        return [Node(name, None, f"{name}-{KIND}", name)]
    return [Node(name, each, f"{name}-{KIND}-{each}", f"{name}/{each}") for each in range(1, datacenter.brokers + 1)]


def kind_of(process: str) -> str:
    """broker, mirror, worker, …, by the name of a process."""
    name, _, last = process.rpartition("-")
    return name.rpartition("-")[2] if last.isdecimal() else last


def id_of(datacenter: Datacenter, node: Node) -> int:
    """A broker's node.id."""
    said = plain(datacenter.options.get("node.id", datacenter.options.get("broker.id", 1)))
    return node.node_id or (int(said) if said.isdecimal() else 1)  # what else is said, the broker refuses by name


def cluster_options(datacenter: Datacenter, node: Node, cluster: str, quorum: Mapping[str, str]) -> dict[str, str]:
    """What a broker is told of its cluster, beside the options that people give, which count before the defaults in it.
    cluster: its id. quorum: who votes, by `fixed_voters` or `changing_voters`."""
    if node.node_id is None:
        return {}
    factor = str(datacenter.default_factor)
    found = {
        "node.id": str(node.node_id),
        "process.roles": "broker,controller",
        "cluster.id": cluster,
        "controller.listener.names": CONTROLLER,
        **quorum,
    }
    if datacenter.racks:
        found["broker.rack"] = datacenter.racks[(node.node_id - 1) % len(datacenter.racks)]
    defaults = {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        IN_SYNC: str(SAFE_IN_SYNC),
    }
    if datacenter.racks:
        defaults[SELECTOR] = BY_RACK
    return found | {option: value for option, value in defaults.items() if option not in datacenter.options}


def fixed_voters(controllers: Sequence[str]) -> dict[str, str]:
    """Options of a quorum whose voters are these for good. controllers: HOST:PORT by their ids."""
    return {"controller.quorum.voters": ",".join(f"{i}@{address}" for i, address in enumerate(controllers, 1))}


def changing_voters(controllers: Sequence[str], directories: Sequence[str]) -> dict[str, str]:
    """Options of a quorum whose voters are in its log (KIP-853). controllers: HOST:PORT by their ids. directories: of
    the first voters, as long as the cluster may not be made yet; a broker with an empty disk would take the id of the
    one that it lost, which has voted and may not do so again. Without them it gets a new one, and joins."""
    found = {
        "controller.quorum.bootstrap.servers": ",".join(controllers),
        "controller.quorum.auto.join.enable": "true",
    }
    if directories:
        pairs = enumerate(zip(controllers, directories, strict=True), 1)
        first = ",".join(f"{i}@{address}:{directory}" for i, (address, directory) in pairs)
        found["controller.quorum.initial.controllers"] = first
    return found


def factor_of(datacenter: Datacenter, topic: Topic) -> int:
    """How many replicas a topic is made with."""
    return topic.replication_factor or datacenter.default_factor


def topic_options(datacenter: Datacenter, topic: Topic) -> dict[str, str]:
    """The options that a topic is made with. Where it has fewer replicas than the default of min.insync.replicas is
    meant for, it is not to stop taking records with the first of them."""
    given = {key: plain(value) for key, value in topic.options.items()}
    if datacenter.brokers > 1 and factor_of(datacenter, topic) < SAFE_FACTOR and IN_SYNC not in datacenter.options:
        return {IN_SYNC: "1"} | given
    return given


def plain(value: object) -> str:
    """An option's value as Kafka writes it: YAML's true is `true`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def cluster_id(data: bytes) -> str:
    """The id of 16 bytes: 22 characters of base64, as Kafka writes it, and the first no '-'."""
    found = uuid_to_str(data)
    return f"_{found[1:]}" if found.startswith("-") else found


def lasting_cluster_id(topology: str, datacenter: str) -> str:
    """The id of a cluster where nothing is kept of it: always the same for the same names."""
    return cluster_id(hashlib.blake2b(f"{topology}/{datacenter}".encode(), digest_size=16).digest())
