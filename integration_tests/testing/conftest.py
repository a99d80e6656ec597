"""Topologies of processes on this machine, whatever the machine has."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.testing.suites import SHOPS
from isthmus.testing import Backend, IsthmusTopology


@pytest.fixture(scope="module")
def started_shops() -> Iterator[IsthmusTopology]:
    with IsthmusTopology(SHOPS, backend=Backend.LOCAL) as topology:
        yield topology


@pytest.fixture
def shops(started_shops: IsthmusTopology) -> Iterator[IsthmusTopology]:
    """Two shops and their office, whole again after each test. Use topics of your own, `orders-…`."""
    yield started_shops
    started_shops.repair()
