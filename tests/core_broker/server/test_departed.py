"""On simulated time: which dead brokers Metadata still names."""

from __future__ import annotations

import asyncio

from isthmus.core_broker.cluster.image import Delta
from isthmus.core_broker.server.departed import LINGER_S, Departed
from isthmus.protocol.messages.metadata_records import BrokerRegistrationChangeRecord
from tests.core_broker.cluster.support import Cluster
from tests.running import run_by
from tests.simulation.runner import Simulation, run_checked

FENCED, SHUTTING_DOWN = 1, 1


class Seen:
    """Three brokers, as one of them sees the cluster."""

    def __init__(self) -> None:
        self.cluster = Cluster(brokers=3)
        self.departed = Departed(self.cluster.image)
        self.departed.metadata_changed(self.cluster.image.everything())

    def become(self, broker_id: int, **change: int) -> None:
        epoch = self.cluster.image.brokers[broker_id].epoch
        self.cluster.apply(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **change))
        self.departed.metadata_changed(Delta(brokers={broker_id: None}))

    def named(self) -> list[int]:
        return [each for each in self.cluster.image.brokers if self.departed.is_named(each)]


@run_by(run_checked)
async def test_a_broker_that_died_is_named_for_a_while(sim: Simulation, /) -> None:
    seen = Seen()
    seen.become(2, fenced=FENCED)
    await asyncio.sleep(LINGER_S - 0.1)
    assert seen.named() == [2]
    await asyncio.sleep(0.2)
    assert seen.named() == []


@run_by(run_checked)
async def test_one_that_shut_down_or_came_back_or_was_dead_before_is_not(sim: Simulation, /) -> None:
    seen = Seen()
    seen.become(1, in_controlled_shutdown=SHUTTING_DOWN)
    seen.become(1, fenced=FENCED)
    seen.become(2, fenced=FENCED)
    seen.become(2, fenced=-FENCED)
    seen.become(3, fenced=FENCED)
    await asyncio.sleep(LINGER_S + 1)
    seen.become(3, fenced=FENCED)
    assert seen.named() == []
