"""Consumers of Java, librdkafka and franz-go in groups of KIP-848 on one of our brokers and on three, and on stock
Kafka, the control."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from .consumer_groups import GROUPS, SETTINGS, share
from .processes import SIDES, Brokers, starting

QUICK = ("confluent",) * 3  # its program needs no making, and on ours no start of another broker


@pytest.fixture(
    scope="module", params=[pytest.param(each, marks=pytest.mark.soak if each == "kafka" else []) for each in SIDES]
)
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Brokers, str]]:
    """Brokers, and where they are."""
    with starting(request.param, tmp_path_factory.mktemp("groups"), SETTINGS) as brokers:
        yield brokers, brokers()


@pytest.mark.parametrize(
    "libraries",
    [pytest.param(each, marks=[] if each == QUICK else pytest.mark.soak) for each in GROUPS],
    ids=lambda each: "-".join(each),
)
def test_each_record_has_one_reader_as_members_join_and_leave_and_are_killed(
    place: tuple[Brokers, str], libraries: tuple[str, ...], tmp_path: Path
) -> None:
    if "franz-go" in libraries and shutil.which("go") is None:
        pytest.skip("go is not installed, which makes the programs of franz-go")
    share(*place, libraries, tmp_path, tmp_path)
