"""Clients of other languages do the same on one of our brokers and on three as on stock Kafka.

Of three, the one that coordinates their transactions is killed meanwhile. The page that tells of them is true.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from integration_tests.waiting import until
from isthmus.protocol.records import walk

from .clients import CLIENTS, RUN_TIMEOUT_S, Client, smoke
from .processes import OURS, TRANSACTION, Brokers, is_in_sync, starting
from .table import PAGE, RECORDS, row

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
MAKERS = {"npm", "go", "cargo"}  # fetch what a program is made of, and take their time to make it

Program = Callable[[Client], list[str]]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    folder = tmp_path_factory.mktemp("programs")

    def build(client: Client) -> list[str]:
        if shutil.which(client.needs) is None:
            pytest.skip(f"{client.needs} is not installed, which makes programs of {client.language}")
        return client.build(folder)

    return build


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=pytest.mark.soak if each == "three" else []) for each in OURS]
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Brokers, str]]:
    """Brokers, and where they are."""
    folder = tmp_path_factory.mktemp("isthmus")
    with starting(request.param, folder, {"group.initial.rebalance.delay.ms": 0}) as brokers:
        yield brokers, brokers()


@pytest.mark.parametrize(
    "client",
    [pytest.param(each, marks=pytest.mark.soak if each.needs in MAKERS else []) for each in CLIENTS],
    ids=lambda client: client.name,
)
def test_a_client_sees_what_it_sees_of_kafka(
    client: Client, program: Program, place: tuple[Brokers, str], kafka: str
) -> None:
    brokers, bootstrap = place
    command = program(client)
    topic = f"smoke-{brokers.replicas}-{CLIENTS.index(client)}"
    stock = smoke(command, kafka, topic, RECORDS, 1)
    if brokers.replicas > 1 and client.tries_again:
        ours = smoke_as_coordinator_dies(command, brokers, bootstrap, topic)
    else:
        ours = smoke(command, bootstrap, topic, RECORDS, brokers.replicas)
    for seen in (ours, stock):
        seen["values"] = sorted(seen["values"])
    assert ours == stock
    assert ours["listed"] and ours["values"] == sorted(
        f"{codec} {n}" for codec in ours["codecs"] for n in range(RECORDS)
    )
    if client.groups:
        assert ours["committed"] == len(ours["values"])
        assert len(ours["transacted"]) == ours["transacted_offset"] == RECORDS
    assert stored(brokers.folder, topic) == set(ours["codecs"])
    assert row(client, ours) in PAGE.read_text(), f"python -m {row.__module__} makes the page anew"


def smoke_as_coordinator_dies(command: Sequence[str], brokers: Brokers, bootstrap: str, topic: str) -> dict[str, Any]:
    """It is killed as soon as there is the topic that the transactions are of."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    target = f"{topic}-transacted"
    until(lambda: is_in_sync(bootstrap), "the one killed before is in sync")
    with ThreadPoolExecutor(1) as pool:
        seeing = pool.submit(lambda: (smoke(command, bootstrap, topic, RECORDS, brokers.replicas), time.monotonic()))
        until(
            lambda: seeing.done() or target in admin.list_topics(timeout=10).topics, f"there is {target}", RUN_TIMEOUT_S
        )
        killed_at = brokers.restart(bootstrap, TRANSACTION, f"{target}-copiers")
        seen, ended_at = seeing.result()
    assert killed_at < ended_at
    return seen


def stored(folder: Path, topic: str) -> set[str]:
    """The codecs of a topic's batches."""
    found = set()
    for path in folder.rglob(f"{topic}-*/*.log"):
        found |= {CODECS[header.codec] for _, header in walk(path.read_bytes())}
    return found
