"""Voters of a topology's cluster are replaced while it runs, as docs/how-to/run-a-cluster.md has it.

A fourth node joins the three of `isthmus up`, and is added; the first is stopped and removed; then the leader of the
quorum is gone, too. An idempotent producer of librdkafka with acks=all runs all the time: it sees no error, and its
records are there once, in order. Without the change two of three voters would be gone, and no other could be elected.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.console.commands import error, isthmus, left_behind, said
from integration_tests.peers.peers import free_ports
from integration_tests.waiting import until

from .sending import TOPIC, Sending

TOPOLOGY = f"""\
name: voters
datacenters:
  here:
    brokers: 3
    options: {{broker.session.timeout.ms: 3000}}
    topics:
      {TOPIC}: {{partitions: 1}}
"""
LEAVES, NEW = 1, 4
SETTLE_S = 60.0


class Running:
    """The topology in a folder, and a node that is not of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fourth: BrokerProcess | None = None

    def isthmus(self, *arguments: str) -> Any:
        return isthmus(*arguments, folder=self.folder)

    def told(self, *arguments: str) -> Any:
        return json.loads(said(self.isthmus(*arguments, "--json")))

    def processes(self) -> dict[int, Any]:
        return {row["node_id"]: row for row in self.told("status")}

    def voters(self) -> list[int]:
        found = self.told("quorum", "status", "-b", self.bootstrap)
        return [each["node_id"] for each in found["replicas"] if each["role"] == "voter"]

    def leader(self) -> int:
        return int(self.told("quorum", "status", "-b", self.bootstrap)["leader_id"])

    @property
    def bootstrap(self) -> str:
        addresses: str = json.loads((self.folder / ".isthmus/voters/addresses.json").read_text())["here"]
        return addresses if self.fourth is None else f"{addresses},{self.fourth.address}"

    def joins(self, node_id: int) -> str:
        """A broker and controller on an empty directory joins. Returns where its controller listens."""
        cluster = json.loads((self.folder / ".isthmus/voters/clusters.json").read_text())["here"]
        address = f"127.0.0.1:{free_ports(1)[0]}"
        own = {
            "node.id": node_id,
            "cluster.id": cluster["id"],
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(cluster["controllers"]),
            "default.replication.factor": 3,
            "broker.session.timeout.ms": 3000,
        }
        self.fourth = BrokerProcess(self.folder / "fourth", own, listen=[f"CONTROLLER://{address}"])
        self.fourth.start()
        return address


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    cluster = Running(tmp_path)
    try:
        said(cluster.isthmus("up"))
        yield cluster
    finally:
        if cluster.fourth is not None and cluster.fourth.alive():
            cluster.fourth.kill()
        cluster.isthmus("down")
    assert left_behind(tmp_path) == []


def test_voters_are_added_removed_and_replaced_while_records_are_written(running: Running) -> None:
    assert running.voters() == [1, 2, 3]
    sending = Sending(running.bootstrap)
    sending.goes_on()

    refused = ("quorum", "add", str(NEW), "--endpoint", "127.0.0.1:1", "-b", "here")
    assert "node 4 does not follow the metadata quorum, none does" in error(running.isthmus(*refused))
    endpoint = running.joins(NEW)
    assert "node 4 is not reached at 127.0.0.1:1" in error(running.isthmus(*refused))
    assert running.fourth is not None
    no_controller = running.isthmus("quorum", "add", str(NEW), "--endpoint", running.fourth.address, "-b", "here")
    assert f"{running.fourth.address} is no listener for controllers" in error(no_controller)
    add = ("quorum", "add", str(NEW), "--endpoint", endpoint, "-b", "here")
    assert running.told(*add)["added"] == NEW
    assert running.voters() == [1, 2, 3, 4]
    assert "node 4 is a voter already" in error(running.isthmus(*add))
    sending.goes_on()

    said(running.isthmus("broker", "drain", str(LEAVES), "-b", running.bootstrap))
    os.kill(running.processes()[LEAVES]["pid"], signal.SIGSTOP)  # what is dead the supervisor starts again
    until(lambda: running.leader() != LEAVES, "another one leads", SETTLE_S)
    said(running.isthmus("quorum", "remove", str(LEAVES), "-b", running.bootstrap))
    assert running.voters() == [2, 3, 4]
    sending.goes_on()

    leader = running.leader()
    assert leader != LEAVES
    if leader == NEW:
        running.fourth.kill()
    else:
        os.kill(running.processes()[leader]["pid"], signal.SIGSTOP)
    until(lambda: running.leader() not in (LEAVES, leader), "another one leads", SETTLE_S)
    sending.goes_on()
    sending.end()
    sending.all_are_there(running.bootstrap)
