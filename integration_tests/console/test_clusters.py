"""A topology with three brokers a datacenter: up, looked at, hurt, moved about, down again; stock Kafka beside it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from integration_tests.console.commands import error, isthmus, left_behind, said
from integration_tests.waiting import until

TOPOLOGY = """\
name: three
datacenters:
  here:
    brokers: 3
    racks: [a, b, c]
    options: {num.partitions: 3}
    topics:
      orders: {partitions: 6}
      few: {replication_factor: 1}
  there: {}
mirrors:
  - {name: here-there, source: here, target: there, topics: [orders]}
"""
BROKERS = ["here-broker-1", "here-broker-2", "here-broker-3"]
STATUS = ("cluster", "status", "-b", "here")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder in which the topology is up."""
    folder = tmp_path_factory.mktemp("three")
    (folder / "topology.yaml").write_text(TOPOLOGY)
    try:
        rows = json.loads(said(isthmus("up", "--json", folder=folder)))
        assert [row["process"] for row in rows] == [*BROKERS, "there-broker", "here-there-mirror"]
        yield folder
        assert "is down" in said(isthmus("down", folder=folder))
    finally:
        isthmus("down", folder=folder)
    assert left_behind(folder) == []


def asked(folder: Path, *arguments: str) -> Any:
    return json.loads(said(isthmus(*arguments, "--json", folder=folder)))


def status_once(folder: Path, holds: Callable[[Any], bool]) -> Any:
    """What `cluster status` says, once that holds."""
    answer: Any = None

    def look() -> Any:
        nonlocal answer
        answer = asked(folder, *STATUS)
        return holds(answer) and answer

    return until(look, lambda: answer)


def test_each_broker_is_told_with_its_node_id(running: Path) -> None:
    rows = [row for row in asked(running, "status") if row["kind"] == "broker"]
    assert [(row["process"], row["datacenter"], row["node_id"]) for row in rows] == [
        *((f"here-broker-{i}", "here", i) for i in (1, 2, 3)),
        ("there-broker", "there", 1),
    ]
    assert len({row["address"] for row in rows}) == len({row["pid"] for row in rows}) == 4


def test_a_cluster_tells_its_brokers_quorum_and_topics(running: Path) -> None:
    found = status_once(running, lambda found: not found["under_replicated"])
    assert [(row["broker_id"], row["state"], row["rack"]) for row in found["brokers"]] == [
        (1, "active", "a"), (2, "active", "b"), (3, "active", "c"),
    ]  # fmt: skip
    quorum = asked(running, "quorum", "-b", "here")  # `status` is what it does by itself
    refused = error(isthmus("quorum", "-b", "here", "status", folder=running))
    assert refused == "write options behind the command: isthmus quorum status -b here"
    assert [row["broker_id"] for row in found["brokers"] if row["controller"]] == [quorum["leader_id"]]
    assert [(row["node_id"], row["role"]) for row in quorum["replicas"]] == [(i, "voter") for i in (1, 2, 3)]
    orders, few = (asked(running, "topic", "describe", name, "-b", "here") for name in ("orders", "few"))
    assert {len(row["replicas"].split(",")) for row in orders["partitions"]} == {3} and orders["options"] == {}
    assert [len(row["replicas"].split(",")) for row in few["partitions"]] == [1]
    assert few["options"] == {"min.insync.replicas": "1"}


def test_what_is_not_in_sync_is_told_with_the_reason(running: Path) -> None:
    """Its broker hangs, and is fenced."""
    [pid] = [row["pid"] for row in asked(running, "status") if row["process"] == "here-broker-3"]
    os.kill(pid, signal.SIGSTOP)
    try:
        states = {row["process"]: (row["state"], row["reason"]) for row in asked(running, "status")}
        assert [states[name][0] for name in BROKERS] == ["ready", "ready", "silent"]
        assert "did not answer within 2000 ms" in states[BROKERS[2]][1]

        def is_fenced(found: dict[str, Any]) -> bool:
            """Leaders may leave it out of the in-sync replicas before its session is over."""
            states = {row["broker_id"]: row["state"] for row in found["brokers"]}
            return states[3] == "fenced" and len(found["under_replicated"]) >= 6 and not found["offline"][1:]

        found = status_once(running, is_fenced)
        reasons = {row["reason"] for row in found["under_replicated"]}
        assert reasons == {"broker 3 is fenced: it is down, or the controller does not hear of it"}
        text = said(isthmus(*STATUS, folder=running))
        refused = error(isthmus("partition", "move", "few-0", "--to", "3", "-b", "here", folder=running))
        assert "broker 3 is down or cut off, so that its copy would never be in sync: start it, or choose" in refused
        assert "3 brokers, 1 of them not active" in text and "\nunder-replicated\n" in text
    finally:
        os.kill(pid, signal.SIGCONT)
    status_once(running, lambda found: not found["under_replicated"] and not found["offline"])


def test_what_is_known_is_told_while_there_is_no_controller(running: Path) -> None:
    """Two of three voters hang."""
    pids = [row["pid"] for row in asked(running, "status") if row["process"] in BROKERS[1:]]
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        found = status_once(running, lambda found: found["trouble"])
        assert "more than half of the controllers must run" in found["trouble"] and found["controller_id"] == -1
        assert [row["broker_id"] for row in found["brokers"]] == [1, 2, 3] and found["partitions"] >= 7
        refused = error(isthmus("quorum", "status", "-b", "here", folder=running))
        assert "no leader that answers: more than half of its voters must run" in refused
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    status_once(running, lambda found: not found["trouble"] and not found["under_replicated"])


def test_partitions_move_and_a_broker_is_drained(running: Path) -> None:
    at = ("-b", "here")
    for number in range(6):
        said(isthmus("produce", "orders", "-p", str(number), *at, folder=running, stdin=f"{number}\n" * 50))
    assert "has 3 replicas, and 2 brokers live" in error(isthmus("broker", "drain", "2", *at, folder=running))
    said(isthmus("topic", "replicas", "orders", "--factor", "2", *at, folder=running))
    plan = asked(running, "broker", "drain", "2", "--dry-run", *at)
    assert not plan["done"] and plan["moves"]
    for name in asked(running, "topic", "list", "--internal", *at):
        if name["topic"].startswith("__"):
            said(isthmus("topic", "replicas", name["topic"], "--factor", "2", *at, folder=running))
    assert asked(running, "broker", "drain", "2", *at)["done"]
    rows = {row["broker_id"]: row for row in asked(running, "cluster", "status", *at)["brokers"]}
    assert rows[2]["replicas"] == rows[2]["leads"] == 0
    said(isthmus("topic", "create", "later", "--partitions", "8", "--replication-factor", "1", *at, folder=running))
    later = asked(running, "topic", "describe", "later", *at)["partitions"]
    assert {row["replicas"] for row in later} == {"1", "3"}  # a drained broker gets nothing new
    said(isthmus("broker", "drain", "2", "--undo", *at, folder=running))
    assert asked(running, "cluster", "balance", *at)["moves"]
    assert asked(running, "cluster", "balance", "--execute", *at)["done"]
    counts = [(row["replicas"], row["leads"]) for row in asked(running, "cluster", "status", *at)["brokers"]]
    for of_kind in zip(*counts, strict=True):
        assert max(of_kind) - min(of_kind) <= 1
    assert asked(running, "cluster", "balance", *at)["moves"] == []
    unknown = error(isthmus("partition", "move", "orders-5", "--to", "2,9", *at, folder=running))
    assert "there is no broker 9: there are 1, 2, 3" in unknown
    for partition, way_out in (
        ("nope-0", "there is no topic nope: create it, or check the name"),
        ("orders-77", "there is no partition orders-77: the topic has 6, from 0"),
    ):
        assert way_out in error(isthmus("partition", "move", partition, "--to", "1,3", *at, folder=running))
    said(isthmus("partition", "move", "orders-5", "--to", "2,1", "--wait", *at, folder=running))
    moved = asked(running, "topic", "describe", "orders", *at)["partitions"][5]
    assert (moved["replicas"], moved["records"]) == ("2,1", 50)
    assert asked(running, "partition", "list-moves", *at) == []
    text = error(isthmus("partition", "move", "orders-5", "--cancel", *at, folder=running))
    assert "NO_REASSIGNMENT_IN_PROGRESS (85): orders-5 is not on its way" in text
    assert "broker 1 runs, or is not missed yet" in error(isthmus("broker", "unregister", "1", *at, folder=running))
    assert "there is no broker 9: there are 1, 2, 3" in error(isthmus("broker", "drain", "9", *at, folder=running))
    said(isthmus("topic", "replicas", "orders", "--factor", "3", *at, folder=running))
    assert not asked(running, "cluster", "status", *at)["under_replicated"]


def test_the_number_of_brokers_stays(running: Path, tmp_path: Path) -> None:
    other = tmp_path / "one.yaml"
    other.write_text(TOPOLOGY.replace("brokers: 3", "brokers: 1").replace("racks: [a, b, c]", "racks: [a]"))
    data = tmp_path / "data"
    (data / "data" / "here" / "1").mkdir(parents=True)
    (data / "data" / "here" / "1" / "meta.properties").touch()
    kept = (running / ".isthmus/three/clusters.json").read_text()
    (data / "clusters.json").write_text(kept)
    text = error(isthmus("up", "-f", str(other), "--data", str(data), folder=tmp_path))
    assert "replication_factor" not in text and "datacenter here has the data of 3 brokers" in text


def test_stock_kafka_is_looked_at_by_the_same_commands(kafka: str, tmp_path: Path) -> None:
    at = ("-b", kafka)
    said(isthmus("topic", "create", "looked-at", "-p", "2", *at, folder=tmp_path))
    found = asked(tmp_path, "cluster", "status", *at)
    [row] = found["brokers"]
    assert row["state"] == "active" and row["controller"] and row["leads"] >= 2
    assert found["under_replicated"] == found["offline"] == []
    quorum = asked(tmp_path, "quorum", "status", *at)
    assert [each["node_id"] for each in quorum["replicas"] if each["leader"]] == [row["broker_id"]]
    assert "looked-at-0 cannot have 2 replicas: 1 brokers live" in error(
        isthmus("topic", "replicas", "looked-at", "--factor", "2", *at, folder=tmp_path)
    )
