from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.brokers import BrokerProcess, running_broker


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, BrokerProcess]]:
    """A source and a target for tests that break neither."""
    folder = tmp_path_factory.mktemp("mirror")
    with running_broker(folder / "source") as source, running_broker(folder / "target") as target:
        yield source, target
