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
INITIAL = "controller.quorum.initial.controllers"
LISTENERS = "controller.listener.names"
BROKER, CONTROLLER = "broker", "controller"
MAX_PORT = 65535
_ID = re.compile(r"\d{1,10}")
_CLUSTER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{21}")
_DIRECTORY_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_OWN_HOSTS = ("localhost", "127.0.0.1", "[::1]")

Config = Mapping[str, Any]


class NodeAddress(NamedTuple):
    """node_id: None where only the address is known."""

    node_id: int | None
    host: str
    port: int


class FirstVoter(NamedTuple):
    """directory_id: 22 characters of base64."""

    node_id: int
    host: str
    port: int
    directory_id: str


def voters(config: Config) -> list[NodeAddress]:
    """The voters of controller.quorum.voters, by their ids. Raises ConfigError."""
    return [NodeAddress(*each) for each in _voters(VOTERS, config[VOTERS])]


def first_voters(config: Config) -> list[FirstVoter]:
    """Those of controller.quorum.initial.controllers, by their ids. Raises ConfigError."""
    pairs: list[tuple[str, str]] = []
    for text in config[INITIAL]:
        address, _, directory = text.rpartition(":")
        if _DIRECTORY_ID.fullmatch(directory) is None:
            raise _invalid(
                INITIAL, text, "each entry is ID@HOST:PORT:DIRECTORY_ID, the last of 22 characters, as "
                "`kafka-storage random-uuid` has"
            )  # fmt: skip
        if any(directory == other for _, other in pairs):
            raise _invalid(INITIAL, text, "another voter has this directory id: give each its own")
        pairs.append((address, directory))
    listed = _voters(INITIAL, [address for address, _ in pairs])
    directories = {int(address.partition("@")[0]): directory for address, directory in pairs}
    return [FirstVoter(node_id, host, port, directories[node_id]) for node_id, host, port in listed]


def own_directory(config: Config) -> str | None:
    """The id that a new directory of this node takes, if it is one of the first voters."""
    own = [each.directory_id for each in first_voters(config) if each.node_id == config["node.id"]]
    return own[0] if own else None


def _voters(option: str, texts: list[str]) -> list[tuple[int, str, int]]:
    """(node id, host, port) by their ids. texts: ID@HOST:PORT."""
    found: dict[int, tuple[int, str, int]] = {}
    for text in texts:
        node_id, at, address = text.partition("@")
        if not at or _ID.fullmatch(node_id) is None:
            raise _invalid(option, text, "each entry is ID@HOST:PORT")
        host, port = _address(option, text, address)
        if int(node_id) in found:
            raise _invalid(option, ",".join(texts), f"voter {node_id} is there twice: give each its own id")
        for other, *its_address in found.values():
            if its_address == [host, port]:
                raise _invalid(option, text, f"voter {other} has the same address: no majority could ever be reached")
        found[int(node_id)] = (int(node_id), host, port)
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
    if first := first_voters(config):
        _check_first(config, listed, first)
    if not is_alone(config):
        _check_quorum(config, listed)


def _check_first(config: Config, listed: list[NodeAddress], first: list[FirstVoter]) -> None:
    text = ",".join(config[INITIAL])
    if listed:
        raise _invalid(INITIAL, text, f"{VOTERS} says for good who votes: leave one of them out")
    if is_alone(config):
        raise _invalid(INITIAL, text, f"this node is told of no other: name their controllers in {SERVERS}")
    if len(first) % 2 == 0:
        raise _invalid(
            INITIAL, text, f"{len(first)} voters can lose no more of them than {len(first) - 1} can: name 1, 3 or 5"
        )
    if CONTROLLER not in config["process.roles"] and any(each.node_id == config["node.id"] for each in first):
        raise _invalid(
            INITIAL, text, f"node.id={config['node.id']} is among them and has not the role controller: leave it out, "
            "or write process.roles=broker,controller"
        )  # fmt: skip


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
