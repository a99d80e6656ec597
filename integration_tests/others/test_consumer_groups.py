"""Consumers of Java, librdkafka and franz-go in groups of KIP-848 on our broker, and on stock Kafka, the control."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration_tests.brokers import running_broker
from integration_tests.peers.peers import kafka_cluster

from .consumer_groups import GROUPS, SETTINGS, share

QUICK = ("confluent",) * 3  # its program needs no making, and on ours no start of another broker


@pytest.fixture(scope="module", params=["isthmus", pytest.param("kafka", marks=pytest.mark.soak)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "kafka":
        with kafka_cluster(properties=SETTINGS, heap="512m") as made:
            yield made
    else:
        with running_broker(tmp_path_factory.mktemp("groups"), SETTINGS) as broker:
            yield broker.bootstrap


@pytest.mark.parametrize(
    "libraries",
    [pytest.param(each, marks=[] if each == QUICK else pytest.mark.soak) for each in GROUPS],
    ids=lambda each: "-".join(each),
)
def test_each_record_has_one_reader_as_members_join_and_leave_and_are_killed(
    bootstrap: str, libraries: tuple[str, ...], tmp_path: Path
) -> None:
    if "franz-go" in libraries and shutil.which("go") is None:
        pytest.skip("go is not installed, which makes the programs of franz-go")
    share(bootstrap, libraries, tmp_path, tmp_path)
