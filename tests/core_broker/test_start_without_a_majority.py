"""A broker that is started while too few controllers run waits for them, and says which are missing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from isthmus.core_broker.broker import UNLED_S
from tests.simulation.brokers import Cluster
from tests.simulation.runner import Simulation, run_checked

UP_S = 30.0


def test_who_is_missing_is_told_until_there_is_a_majority(caplog: pytest.LogCaptureFixture) -> None:
    def told() -> list[str]:
        return [each.getMessage() for each in caplog.records if "more than half must run" in each.getMessage()]

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim)
        cluster.begin(1)
        await asyncio.sleep(UNLED_S / 2)
        assert told() == []  # others may be on their way
        await asyncio.sleep(2 * UNLED_S)
        first, *_ = said = told()
        assert len(said) == 2 and not cluster.serves(1)
        assert "node 1 waits: of the voters 1, 2, 3 more than half must run to elect a controller" in first
        assert "2 at b2:9093, 3 at b3:9093: start them" in first
        await cluster.up(UP_S)
        await asyncio.sleep(2 * UNLED_S)
        assert told() == said

    with caplog.at_level(logging.WARNING):
        run_checked(scenario)
