"""Both clusters that the client is tried on."""

from __future__ import annotations

import pytest

from integration_tests.brokers import BrokerProcess


@pytest.fixture(params=["stock", "own"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    """Of stock Kafka, and of a broker of ours."""
    if request.param == "stock":
        address: str = request.getfixturevalue("kafka")
        return address
    broker: BrokerProcess = request.getfixturevalue("isthmus_broker")
    return broker.bootstrap
