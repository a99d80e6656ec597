"""What a node's options say of the cluster that it belongs to: its roles, the voters, and where controllers are.

Pure: checked when the options are read, before anything is opened. A node that is told of no other is a cluster of its
own, and needs none of these options. `check` refuses with ConfigError what could never work, as Kafka does, and a voter
set that no majority can come from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from .option import ConfigError

VOTERS = "controller.quorum.voters"
SERVERS = "controller.quorum.bootstrap.servers"
LISTENERS = "controller.listener.names"
BROKER, CONTROLLER = "broker", "controller"
MAX_PORT = 65535
_ID = re.compile(r"\d{1,10}")
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}")
_OWN_HOSTS = ("localhost", "127.0.0.1", "[::1]")

Config = Mapping[str, Any]


class NodeAddress(NamedTuple):
    """node_id: None where only the address is known."""

    node_id: int | None
    host: str
    port: int


def voters(config: Config) -> list[NodeAddress]:
    """The voters of controller.quorum.voters, by their ids. Raises ConfigError."""
    found: dict[int, NodeAddress] = {}
    for text in config[VOTERS]:
        node_id, at, address = text.partition("@")
        if not at or _ID.fullmatch(node_id) is None:
            raise _invalid(VOTERS, text, "each entry is ID@HOST:PORT")
        voter = NodeAddress(int(node_id), *_address(VOTERS, text, address))
        if voter.node_id in found:
            raise _invalid(VOTERS, ",".join(config[VOTERS]), f"voter {node_id} is there twice: give each its own id")
        for other in found.values():
            if (other.host, other.port) == (voter.host, voter.port):
                raise _invalid(
                    VOTERS, text, f"voter {other.node_id} has the same address: no majority could ever be reached"
                )
        found[int(node_id)] = voter
    return [found[node_id] for node_id in sorted(found)]


def servers(config: Config) -> list[NodeAddress]:
    """Where voters may be found, by controller.quorum.bootstrap.servers. Raises ConfigError."""
    return [NodeAddress(None, *_address(SERVERS, text, text)) for text in config[SERVERS]]


def is_alone(config: Config) -> bool:
    """Whether this node is told of no other: it is its own controller, and the only voter."""
    own = _own_controllers(config)
    return (
        BROKER in config["process.roles"]
        and CONTROLLER in config["process.roles"]
        and all(voter.node_id == config["node.id"] for voter in voters(config))
        and all(server in own for server in config[SERVERS])
    )


def check(config: Config) -> None:
    """Raises ConfigError."""
    node_id, roles = config["node.id"], config["process.roles"]
    if config["broker.id"] not in (-1, node_id):
        raise ConfigError(f"node.id={node_id} and broker.id={config['broker.id']} differ: leave broker.id out")
    if not roles or len(dict.fromkeys(roles)) != len(roles):
        raise _invalid("process.roles", ",".join(roles), "write broker, controller or broker,controller")
    directory = config["metadata.log.dir"]
    if directory is not None and directory.rstrip("/") != config["log.dirs"][0].rstrip("/"):
        raise _invalid(
            "metadata.log.dir", directory, "the metadata log is in log.dirs: leave it out, or name that directory"
        )
    cluster_id = config["cluster.id"]
    if cluster_id is not None and _CLUSTER_ID.fullmatch(cluster_id) is None:
        raise _invalid("cluster.id", cluster_id, "expected 22 characters of base64, as `kafka-storage random-uuid` has")
    listed = voters(config)
    servers(config)
    if not is_alone(config):
        _check_quorum(config, listed)


def _check_quorum(config: Config, listed: list[NodeAddress]) -> None:
    """What a node of several needs."""
    node_id, roles = config["node.id"], config["process.roles"]
    is_voter = any(voter.node_id == node_id for voter in listed)
    text = ",".join(config[VOTERS])
    if not listed and not config[SERVERS]:
        raise _invalid(
            "process.roles", ",".join(roles), f"where are the controllers? Name them in {VOTERS}, as ID@HOST:PORT, or "
            f"their addresses in {SERVERS}; a node that is broker and controller needs neither"
        )  # fmt: skip
    if not config[LISTENERS]:
        raise ConfigError(f"controllers are reached by a listener of their own: write {LISTENERS}=CONTROLLER")
    if listed and CONTROLLER in roles and not is_voter:
        raise _invalid(
            VOTERS, text, f"node.id={node_id} has the role controller and is not among the voters: add it, or write "
            "process.roles=broker"
        )  # fmt: skip
    if is_voter and CONTROLLER not in roles:
        raise _invalid(
            VOTERS, text, f"node.id={node_id} is among the voters and has not the role controller: leave it out, or "
            "write process.roles=broker,controller"
        )  # fmt: skip
    if is_voter and len(listed) % 2 == 0:
        raise _invalid(
            VOTERS, text, f"{len(listed)} voters can lose no more of them than {len(listed) - 1} can: name 1, 3 or 5"
        )
    if config["cluster.id"] is None:
        raise ConfigError(
            "cluster.id is not set, and this node is not alone: nodes of one cluster have the same; write the one that "
            "meta.properties has in another node's directory, or a new one for a new cluster"
        )


def _own_controllers(config: Config) -> list[str]:
    """HOST:PORT of this node's listeners for controllers, by each name that its machine has for certain."""
    names = [name.upper() for name in config[LISTENERS] or ()]
    found: dict[str, None] = {}
    for text in (*config["listeners"], *(config["advertised.listeners"] or ())):
        name, _, address = text.rpartition("://")
        if name.upper() in names:
            port = address.rpartition(":")[2]
            found |= dict.fromkeys((address, *(f"{host}:{port}" for host in _OWN_HOSTS)))
    return [each for each in found if not each.startswith((":", "0.0.0.0:"))]


def _address(option: str, text: str, address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > MAX_PORT:
        raise _invalid(option, text, "expected HOST:PORT, the port from 0 to 65535")
    return host.strip("[]"), int(port)


def _invalid(option: str, text: str, reason: str) -> ConfigError:
    return ConfigError(f"Invalid value {text} for configuration {option}: {reason}")
