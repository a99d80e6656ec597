"""What options say of a cluster's nodes, and which say nothing that could work."""

from __future__ import annotations

import pytest

from isthmus.core_broker.config import BrokerConfig, ConfigError
from isthmus.core_broker.membership import (
    FirstVoter,
    NodeAddress,
    first_voters,
    is_alone,
    own_directory,
    servers,
    voters,
)

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
CONTROLLER = {
    "listeners": "PLAINTEXT://:9092,CONTROLLER://localhost:9093",
    "controller.listener.names": "CONTROLLER",
}
THREE = {
    "controller.quorum.voters": "2@b:9093,1@a:9093,3@[::1]:9093",
    "controller.listener.names": "CONTROLLER",
    "cluster.id": CLUSTER,
}
INITIAL = "controller.quorum.initial.controllers"
A, B, C = ("kj0xpwPMaQ7IW0FXtAcZxA", "4ty-9FFvYG5R9guWnJvMHA", "BJoZpra4JRJggrV9hoo7Gg")
NEW = {
    INITIAL: f"2@b:9093:{B},1@a:9093:{A},3@[::1]:9093:{C}",
    "controller.quorum.bootstrap.servers": "a:9093,b:9093",
    "controller.listener.names": "CONTROLLER",
    "cluster.id": CLUSTER,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"process.roles": "controller,broker", "broker.id": "1"},
        {"controller.quorum.voters": "1@elsewhere:9093"},
        {**CONTROLLER, "controller.quorum.bootstrap.servers": "localhost:9093"},
        {**CONTROLLER, "controller.quorum.bootstrap.servers": "127.0.0.1:9093", "controller.quorum.voters": "1@h:9093"},
        {"metadata.log.dir": "/d/", "log.dirs": "/d"},
    ],
)
def test_a_node_that_is_told_of_no_other_is_alone(options: dict[str, str]) -> None:
    assert is_alone(BrokerConfig(options))


def test_voters_come_by_their_ids() -> None:
    config = BrokerConfig(THREE | {"controller.quorum.bootstrap.servers": "c:9094"})
    assert voters(config) == [NodeAddress(1, "a", 9093), NodeAddress(2, "b", 9093), NodeAddress(3, "::1", 9093)]
    assert servers(config) == [NodeAddress(None, "c", 9094)]
    assert not is_alone(config)


def test_first_voters_have_their_directories() -> None:
    config = BrokerConfig(NEW)
    assert first_voters(config) == [
        FirstVoter(1, "a", 9093, A),
        FirstVoter(2, "b", 9093, B),
        FirstVoter(3, "::1", 9093, C),
    ]
    assert own_directory(config) == A
    assert own_directory(BrokerConfig({**NEW, "node.id": "4"})) is None
    assert not is_alone(config)


@pytest.mark.parametrize(
    "options",
    [
        {**THREE, "process.roles": "broker", "node.id": "4"},
        {**THREE, "process.roles": "controller"},
        {**CONTROLLER, "controller.quorum.bootstrap.servers": "other:9093", "cluster.id": CLUSTER},
        {**THREE, "controller.quorum.voters": "1@a:1,2@b:1", "process.roles": "broker", "node.id": "4"},  # not ours
    ],
)
def test_nodes_of_all_roles_have_others(options: dict[str, str]) -> None:
    assert not is_alone(BrokerConfig(options))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"broker.id": "2", "node.id": "3"}, "node.id=3 and broker.id=2 differ"),
        ({"process.roles": ""}, "write broker, controller or broker,controller"),
        ({"process.roles": "broker,broker"}, "process.roles: write"),
        ({"process.roles": "broker"}, "process.roles: where are the controllers"),
        ({"process.roles": "controller"}, "process.roles: where are the controllers"),
        ({"metadata.log.dir": "/m", "log.dirs": "/d"}, "the metadata log is in log.dirs"),
        ({"cluster.id": "mine"}, "cluster.id: expected 22 characters"),
        ({**NEW, INITIAL: "1@a:9093"}, "each entry is ID@HOST:PORT:DIRECTORY_ID"),
        ({**NEW, INITIAL: f"a:9093:{A}"}, "each entry is ID@HOST:PORT"),
        ({**NEW, INITIAL: f"1@a:9093:{A},2@b:9093:{A},3@c:9093:{C}"}, "another voter has this directory id"),
        ({**NEW, INITIAL: f"1@a:9093:{A},1@b:9093:{B},3@c:9093:{C}"}, "voter 1 is there twice"),
        ({**NEW, INITIAL: f"1@a:9093:{A},2@b:9093:{B}"}, "2 voters can lose no more of them than 1 can"),
        (
            {**NEW, "controller.quorum.voters": "1@a:9093,2@b:1,3@c:1"},
            "controller.quorum.voters says for good who votes",
        ),
        ({INITIAL: f"1@a:9093:{A}"}, "this node is told of no other: name their controllers in"),
        ({**NEW, "process.roles": "broker"}, "node.id=1 is among them and has not the role controller"),
        ({"controller.quorum.voters": "a:9093"}, "each entry is ID@HOST:PORT"),
        ({"controller.quorum.voters": "1@a"}, "expected HOST:PORT"),
        ({"controller.quorum.bootstrap.servers": "a"}, "expected HOST:PORT"),
        ({**THREE, "controller.quorum.voters": "1@a:1,2@b:1,1@c:1"}, "voter 1 is there twice"),
        ({**THREE, "controller.quorum.voters": "1@a:1,2@b:1,3@a:1"}, "voter 1 has the same address: no majority"),
        ({**THREE, "controller.quorum.voters": "1@a:1,2@b:1"}, "2 voters can lose no more of them than 1 can"),
        ({**THREE, "node.id": "4"}, "node.id=4 has the role controller and is not among the voters"),
        ({**THREE, "process.roles": "broker"}, "node.id=1 is among the voters and has not the role controller"),
        ({**THREE, "controller.listener.names": ""}, "write controller.listener.names=CONTROLLER"),
        ({name: text for name, text in THREE.items() if name != "cluster.id"}, "cluster.id is not set"),
    ],
)
def test_what_could_never_work_is_refused_with_the_way_out(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BrokerConfig(options)
