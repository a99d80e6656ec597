"""A cluster of one broker becomes one of three: what the broker has made for itself gets the replicas that it lacks."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration_tests.brokers import CLUSTER_ID, BrokerProcess
from integration_tests.console.commands import error, isthmus, said
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until

TOPIC, OFFSETS = "orders", "__consumer_offsets"
OFFSETS_PARTITIONS = 2
FIRST, OTHERS = 1, (2, 3)


class Growing:
    """Broker 1 is the only controller. None is told how many replicas the topic of groups has."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(1)[0]
        shared = {
            "cluster.id": CLUSTER_ID,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{FIRST}@127.0.0.1:{port}",
            "broker.session.timeout.ms": 3000,
            "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
        }
        self.folder = folder
        self.brokers = {
            FIRST: BrokerProcess(
                folder / "b1", {**shared, "node.id": FIRST}, listen=[f"CONTROLLER://127.0.0.1:{port}"]
            ),
            **{
                each: BrokerProcess(folder / f"b{each}", {**shared, "node.id": each, "process.roles": "broker"})
                for each in OTHERS
            },
        }

    @property
    def at(self) -> str:
        return self.brokers[FIRST].address

    def status(self) -> Any:
        return json.loads(said(isthmus("cluster", "status", "-b", self.at, "--json", folder=self.folder)))

    def group(self) -> Consumer:
        addresses = ",".join(each.address for each in self.brokers.values() if each.alive())
        return Consumer({"bootstrap.servers": addresses, "group.id": "g", "log_level": 0})


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[Growing]:
    cluster = Growing(tmp_path)
    try:
        cluster.brokers[FIRST].start()
        yield cluster
    finally:
        for each in cluster.brokers.values():
            if each.alive():
                each.kill()


def test_internal_topics_get_the_replicas_that_they_lack(growing: Growing) -> None:
    said(isthmus("topic", "create", TOPIC, "-p", "1", "-b", growing.at, folder=growing.folder))
    with contextlib.closing(growing.group()) as group:
        group.commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)
    assert growing.status()["too_few_replicas"] == []

    for each in OTHERS:
        growing.brokers[each].start()
    lack = until(lambda: growing.status()["too_few_replicas"], "three brokers are active", 30)
    assert lack == [{"topic": OFFSETS, "replicas": 1, "wanted": 3}]
    shown = said(isthmus("cluster", "status", "-b", growing.at, folder=growing.folder))
    command = f"isthmus topic replicas --internal -b {growing.at}"
    assert f"`{command}`" in shown
    done = json.loads(said(isthmus(*command.split()[1:], "--json", folder=growing.folder)))
    assert done["done"] and {(each["topic"], len(each["replicas"])) for each in done["moves"]} == {(OFFSETS, 3)}
    found = growing.status()
    assert found["too_few_replicas"] == found["under_replicated"] == []
    again = json.loads(said(isthmus(*command.split()[1:], "--json", folder=growing.folder)))
    assert again["moves"] == []

    # What was committed while there was one broker is known to the next coordinator.
    for index in range(OFFSETS_PARTITIONS):
        move = ("partition", "move", f"{OFFSETS}-{index}", "--to", "2,3", "--wait", "-b", growing.at)
        said(isthmus(*move, folder=growing.folder))
    with contextlib.closing(growing.group()) as group:
        assert [each.offset for each in group.committed([TopicPartition(TOPIC, 0)], 20)] == [7]


def test_what_is_not_clear_is_refused(growing: Growing) -> None:
    for arguments in ((), (TOPIC,), (TOPIC, "--internal"), ("--internal", "--factor", "3"), ("--factor", "3")):
        text = error(isthmus("topic", "replicas", *arguments, "-b", growing.at, folder=growing.folder))
        assert "or --internal alone" in text
