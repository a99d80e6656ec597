"""Brokers of a cluster that are all stopped at once do not wait for each other."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.brokers import Cluster
from tests.simulation.runner import Simulation, run_checked

STOP_S = 3.0  # of a wait for leaders that nobody can take over, which is 10 s long


@pytest.mark.parametrize("seed", range(4))
def test_the_last_brokers_do_not_wait_for_a_majority_that_is_gone(seed: int) -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim)
        await cluster.form()
        await cluster.make_topic("t", 6, {"min.insync.replicas": "2"})
        began_s = sim.loop.time()
        await asyncio.gather(*(cluster.stop(number) for number in cluster.hosts))
        assert sim.loop.time() - began_s < STOP_S

    run_checked(scenario, seed)


def test_one_broker_alone_still_hands_over_what_it_leads() -> None:
    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim)
        await cluster.form()
        await cluster.make_topic("t", 6, {"min.insync.replicas": "2"})
        await cluster.stop(2)
        broker = cluster.hosts[1].broker
        assert broker is not None and broker._replicas is not None
        partitions = broker._replicas._image.topics["t"].partitions
        assert all(each.leader in (1, 3) for each in partitions.values())

    run_checked(scenario)
