"""A group of two of each client library survives kill -9 of one member: the other gets all partitions, reads all.

The groups of all libraries go through it at the same time, since they mostly wait for a session to expire.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import confluent_kafka
import pytest

from integration_tests.brokers import BrokerProcess, running_broker

from .libraries import LIBRARIES
from .member import SESSION_MS
from .members import Member, wait_until
from .records import create_topics

PARTITIONS = 4
RECORDS = 200
JOIN_TIMEOUT_S = 60.0  # ten interpreters and JVMs start at once, on few cores
SURVIVE_TIMEOUT_S = SESSION_MS / 1000 + 30.0
COMMITTING = ("java",)  # VerifiableConsumer commits what it has read, and the survivor goes on from there


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
