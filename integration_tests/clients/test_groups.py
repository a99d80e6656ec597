"""A group of two of each client library survives kill -9 of one member: the other gets all partitions, reads all.

The groups of all libraries go through it at the same time, since they mostly wait for a session to expire.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest

from integration_tests.brokers import ROOT, BrokerProcess, running_broker
from integration_tests.peers.peers import java_command

from . import java
from .libraries import LIBRARIES
from .member import HEARTBEAT_MS, SESSION_MS
from .records import create_topics

PARTITIONS = 4
RECORDS = 200
JOIN_TIMEOUT_S = 60.0  # ten interpreters and JVMs start at once, on few cores
SURVIVE_TIMEOUT_S = SESSION_MS / 1000 + 30.0
COMMITTING = ("java",)  # VerifiableConsumer commits what it has read, and the survivor goes on from there
PR_SET_PDEATHSIG = 1
PRCTL = ctypes.CDLL(None).prctl


class Member:
    """A consumer process that writes what happens to it into a file."""

    def __init__(self, library: str, bootstrap: str, group: str, topic: str, folder: Path, name: str):
        self.path, self.errors = folder / f"{name}.jsonl", folder / f"{name}.log"
        if library == "java":
            properties = folder / "consumer.properties"
            properties.write_text(f"heartbeat.interval.ms={HEARTBEAT_MS}\n")
            command = java_command(
                "VerifiableConsumer", "--bootstrap-server", bootstrap, "--group-id", group, "--topic", topic,
                "--session-timeout", str(SESSION_MS), "--verbose", "--command-config", str(properties), jvm=java.JVM,
            )  # fmt: skip
        else:
            command = [sys.executable, "-m", "integration_tests.clients.member", library, bootstrap, group, topic]
        environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"}
        with open(self.path, "wb") as events, open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=events, stderr=errors, env=environment, cwd=folder,
                preexec_fn=lambda: PRCTL(PR_SET_PDEATHSIG, signal.SIGKILL),
            )  # fmt: skip

    def events(self) -> Iterator[dict]:
        for line in self.path.read_text().splitlines(keepends=True):
            if line.startswith("{") and line.endswith("\n"):
                yield json.loads(line)

    def owned(self) -> set[int]:
        """Partitions that it holds now."""
        held: set[int] = set()
        for event in self.events():
            named = {each["partition"] for each in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                held |= named
            elif event["name"] == "partitions_revoked":
                held -= named
        return held

    def values(self) -> set[str]:
        return {event["value"] for event in self.events() if event["name"] == "record_data"}

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def state(self) -> str:
        end = self.errors.read_text(errors="replace")[-1500:]
        return f"{self.path.stem} owns {self.owned()}, has read {len(self.values())}; its log ends:\n{end}"


def wait_until(holds: Callable[[], bool], timeout_s: float, what: str, members: list[Member]) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "\n".join(
            [f"not within {timeout_s} s: {what}", *(m.state() for m in members)]
        )
        time.sleep(0.1)


def produce(bootstrap: str, topic: str, values: list[str]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for n, value in enumerate(values):
        producer.produce(topic, value, partition=n % PARTITIONS)
    assert producer.flush(20) == 0


def group_of_two(library: str, bootstrap: str, folder: Path) -> None:
    folder.mkdir()
    topic = group = f"group-{library}"
    create_topics(bootstrap, [topic], PARTITIONS)
    before, after = ([f"{when}-{n}" for n in range(RECORDS)] for when in ("before", "after"))
    produce(bootstrap, topic, before)
    first, second = members = [Member(library, bootstrap, group, topic, folder, name) for name in ("first", "second")]
    everything = set(range(PARTITIONS))
    try:
        wait_until(
            lambda: (
                bool(first.owned()) and bool(second.owned())
                and first.owned() | second.owned() == everything and not first.owned() & second.owned()
                and first.values() | second.values() == set(before)
            ),
            JOIN_TIMEOUT_S, "both own partitions and have read what there is", members,
        )  # fmt: skip
        assert second.process.poll() is None
        lost = first.owned()
        first.kill()
        committed = first.values() if library in COMMITTING else set()
        assert lost and second.owned() == everything - lost
        produce(bootstrap, topic, after)
        wait_until(
            lambda: (
                second.owned() == everything
                and second.values() >= set(after)
                and second.values() | committed == {*before, *after}
            ),
            SURVIVE_TIMEOUT_S, "the survivor owns all partitions and has read everything", members,
        )  # fmt: skip
    finally:
        for each in members:
            each.kill()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.min.session.timeout.ms": 1_000, "group.initial.rebalance.delay.ms": 0}
    with running_broker(tmp_path_factory.mktemp("groups"), settings) as made:
        yield made


@pytest.fixture(scope="module")
def groups(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Future[None]]]:
    folder = tmp_path_factory.mktemp("members")
    with ThreadPoolExecutor(len(LIBRARIES)) as pool:
        yield {name: pool.submit(group_of_two, name, broker.bootstrap, folder / name) for name in LIBRARIES}


@pytest.mark.parametrize("library", LIBRARIES)
def test_group_of_two_survives_kill_of_one_member(groups: dict[str, Future[None]], library: str):
    groups[library].result()
