"""Clients of other languages do the same on our broker as on stock Kafka, and the page that tells of them is true."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from isthmus.protocol.records import walk

from .clients import CLIENTS, Client, smoke
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


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path_factory.mktemp("isthmus"), {"group.initial.rebalance.delay.ms": 0}) as made:
        yield made


@pytest.mark.parametrize(
    "client",
    [pytest.param(each, marks=pytest.mark.soak if each.needs in MAKERS else []) for each in CLIENTS],
    ids=lambda client: client.name,
)
def test_a_client_sees_what_it_sees_of_kafka(
    client: Client, program: Program, broker: BrokerProcess, kafka: str
) -> None:
    command = program(client)
    topic = f"smoke-{CLIENTS.index(client)}"
    ours, stock = (smoke(command, address, topic, RECORDS) for address in (broker.bootstrap, kafka))
    for seen in (ours, stock):
        seen["values"] = sorted(seen["values"])
    assert ours == stock
    assert ours["listed"] and ours["values"] == sorted(
        f"{codec} {n}" for codec in ours["codecs"] for n in range(RECORDS)
    )
    if client.groups:
        assert ours["committed"] == len(ours["values"])
        assert len(ours["transacted"]) == ours["transacted_offset"] == RECORDS
    assert stored(broker.folder / "data", topic) == set(ours["codecs"])
    assert row(client, ours) in PAGE.read_text(), f"python -m {row.__module__} makes the page anew"


def stored(data: Path, topic: str) -> set[str]:
    """The codecs of a topic's batches."""
    found = set()
    for path in data.glob(f"{topic}-*/*.log"):
        found |= {CODECS[header.codec] for _, header in walk(path.read_bytes())}
    return found
