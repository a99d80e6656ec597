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


class Seen(Cluster):
    def __init__(self) -> None:
        super().__init__(brokers=3)
        self.departed = Departed(self.image)
        self.departed.metadata_changed(self.image.everything())

    def become(self, broker_id: int, **change: int) -> None:
        epoch = self.image.brokers[broker_id].epoch
        self.apply(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, **change))
        self.departed.metadata_changed(Delta(brokers={broker_id: None}))

    def named(self) -> list[int]:
        return [each for each in self.image.brokers if self.departed.is_named(each)]


@run_by(run_checked)
async def test_a_broker_that_died_is_named_for_a_while(sim: Simulation, /) -> None:
    cluster = Seen()
    cluster.become(2, fenced=FENCED)
    await asyncio.sleep(LINGER_S - 0.1)
    assert cluster.named() == [2]
    await asyncio.sleep(0.2)
    assert cluster.named() == []


@run_by(run_checked)
async def test_one_that_shut_down_or_came_back_or_was_dead_before_is_not(sim: Simulation, /) -> None:
    cluster = Seen()
    cluster.become(1, in_controlled_shutdown=SHUTTING_DOWN)
    cluster.become(1, fenced=FENCED)
    cluster.become(2, fenced=FENCED)
    cluster.become(2, fenced=-FENCED)
    cluster.become(3, fenced=FENCED)
    await asyncio.sleep(LINGER_S + 1)
    cluster.become(3, fenced=FENCED)
    assert cluster.named() == []
