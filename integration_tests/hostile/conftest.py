"""The broker that hostile clients meet: it closes what is idle soon, and its log must hold no traceback."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from integration_tests.brokers import BrokerProcess, running_broker

from .sockets import IDLE_MS


@pytest.fixture
def broker(tmp_path) -> Iterator[BrokerProcess]:
    with running_broker(tmp_path, {"connections.max.idle.ms": IDLE_MS}) as made:
        yield made
        assert "Traceback" not in made.log
