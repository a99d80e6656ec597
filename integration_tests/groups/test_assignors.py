"""Eager and cooperative rebalances (KIP-429), static members (KIP-345): as librdkafka and Java's client live them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.clients import java
from integration_tests.clients.records import create_topics
from integration_tests.peers.peers import java_command

PARTITIONS = 6
TIMEOUT_S = 60.0
OPTIONS = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 0}
COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("assignors"), OPTIONS) as made:
        yield made


class Reader:
    """One librdkafka consumer: what it holds now, and what was taken from it at once."""

    def __init__(self, bootstrap: str, group: str, strategy: str, instance: str | None = None) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "partition.assignment.strategy": strategy,
            "session.timeout.ms": 30_000,
            "heartbeat.interval.ms": 200,
            "enable.auto.commit": False,
        }
        if instance is not None:
            settings["group.instance.id"] = instance
        self.held: set[int] = set()
        self.revoked: list[set[int]] = []
        self.consumer = confluent_kafka.Consumer(settings)
        self.consumer.subscribe([group], on_assign=self._assigned, on_revoke=self._revoked)

    def _assigned(self, _: Any, given: list[Any]) -> None:
        self.held |= {each.partition for each in given}

    def _revoked(self, _: Any, taken: list[Any]) -> None:
        gone = {each.partition for each in taken}
        self.held -= gone
        if gone:
            self.revoked.append(gone)


def until(holds: Callable[[], bool], readers: list[Reader], what: str) -> None:
    """Poll the readers, which is how librdkafka lets events happen, until it holds."""
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline, f"{what}: {[(each.held, each.revoked) for each in readers]}"
        for each in readers:
            message = each.consumer.poll(0.05)
            assert message is None or not message.error(), message.error()


def shared_out(readers: list[Reader]) -> bool:
    held = [partition for each in readers for partition in each.held]
    return sorted(held) == list(range(PARTITIONS)) and all(each.held for each in readers)


@pytest.mark.parametrize(("strategy", "keeps"), [("cooperative-sticky", True), ("range", False)])
def test_a_second_member_takes_only_what_it_is_to_have(broker: BrokerProcess, strategy: str, keeps: bool) -> None:
    """The eager strategy is the control: there everything is given up in between."""
    topic = f"second-{strategy}"
    create_topics(broker.bootstrap, [topic], PARTITIONS)
    with ExitStack() as held:
        readers = [Reader(broker.bootstrap, topic, strategy)]
        held.callback(readers[0].consumer.close)
        until(lambda: shared_out(readers), readers, "the first holds all")
        readers.append(Reader(broker.bootstrap, topic, strategy))
        held.callback(readers[1].consumer.close)
        until(lambda: shared_out(readers), readers, "both hold some")
        taken = readers[0].revoked[0]
        assert (taken == readers[1].held) is keeps and (taken == set(range(PARTITIONS))) is not keeps


def test_a_static_member_comes_back_to_its_partitions(broker: BrokerProcess) -> None:
    topic = "static"
    create_topics(broker.bootstrap, [topic], PARTITIONS)
    with ExitStack() as held:
        readers = [Reader(broker.bootstrap, topic, "range", f"i{number}") for number in range(2)]
        held.callback(readers[0].consumer.close)
        until(lambda: shared_out(readers), readers, "both hold some")
        readers[0].revoked.clear()
        before = set(readers[1].held)
        readers[1].consumer.close()  # a static member does not leave
        readers[1] = Reader(broker.bootstrap, topic, "range", "i1")
        held.callback(readers[1].consumer.close)
        until(lambda: shared_out(readers), readers, "it is back")
        assert readers[1].held == before and readers[0].revoked == []


class Verifiable:
    """Java's consumer as a process; it prints a JSON line an event."""

    def __init__(self, bootstrap: str, group: str, folder: Path, name: str) -> None:
        self.path = folder / f"{name}.jsonl"
        command = java_command(
            "VerifiableConsumer", "--bootstrap-server", bootstrap, "--group-id", group, "--topic", group,
            "--assignment-strategy", COOPERATIVE, jvm=java.JVM,
        )  # fmt: skip
        with open(self.path, "wb") as events:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=events, stderr=subprocess.DEVNULL)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()

    def moved(self, name: str) -> list[set[int]]:
        rows = [json.loads(line) for line in self.path.read_text().splitlines() if line.startswith("{")]
        return [{each["partition"] for each in row["partitions"]} for row in rows if row["name"] == name]

    @property
    def held(self) -> set[int]:
        given = set().union(*self.moved("partitions_assigned"))
        return given - set().union(*self.moved("partitions_revoked"))


def test_java_members_share_without_giving_all_up(broker: BrokerProcess, tmp_path: Path) -> None:
    topic = "java-cooperative"
    create_topics(broker.bootstrap, [topic], PARTITIONS)
    with ExitStack() as held:
        members = [Verifiable(broker.bootstrap, topic, tmp_path, "first")]
        held.callback(members[0].close)
        await_held(members, "the first holds all")
        members.append(Verifiable(broker.bootstrap, topic, tmp_path, "second"))
        held.callback(members[1].close)
        await_held(members, "both hold some")
        [taken] = [each for each in members[0].moved("partitions_revoked") if each]
        assert taken == members[1].held


def await_held(members: list[Verifiable], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        shares = [member.held for member in members]
        if all(shares) and sorted(partition for share in shares for partition in share) == list(range(PARTITIONS)):
            return
        assert time.monotonic() < deadline, f"{what}: {shares}"
        time.sleep(0.1)
