"""Which broker the stream layer's tests run on: ours, or stock Kafka's (`--streams-on kafka`, in `make soak`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from integration_tests.brokers import BrokerProcess, running_broker

AT_ONCE = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess | SimpleNamespace]:
    """One for a test module. Of stock Kafka's there is the address alone (`bootstrap`)."""
    if request.config.getoption("--streams-on") == "kafka":
        yield SimpleNamespace(bootstrap=request.getfixturevalue("kafka"))
    else:
        with running_broker(tmp_path_factory.mktemp("streams"), AT_ONCE) as made:
            yield made


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `python` has made the packages of faust-streaming."""
    return tmp_path_factory.mktemp("programs")
