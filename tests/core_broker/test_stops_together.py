"""Brokers of a cluster that are all stopped at once do not wait for each other."""

from __future__ import annotations

import asyncio

import pytest

from tests.simulation.brokers import BOOTSTRAP, CONTROLLER_PORT, Cluster
from tests.simulation.runner import Simulation, run_checked

AWAY_S = 5.0  # that a broker is not there
UP_S = 30.0
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
        assert all(each in (1, 3) for each in leaders(cluster, 1))

    run_checked(scenario)


def test_broker_that_has_the_addresses_of_controllers_alone_hands_over_what_it_leads() -> None:
    """At kraft.version 0 such a broker does not know who votes (`controller.quorum.bootstrap.servers`)."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim, 4, voters=3)
        options = cluster.hosts[4].options
        del options["controller.quorum.voters"]
        options[BOOTSTRAP] = ",".join(f"b{each}:{CONTROLLER_PORT}" for each in cluster.first_voters)
        await cluster.form()
        await cluster.make_topic("t", 8, {"min.insync.replicas": "2"})
        assert 4 in leaders(cluster, 1)
        await cluster.stop(4)
        assert all(each in (1, 2, 3) for each in leaders(cluster, 1))

    run_checked(scenario)


def leaders(cluster: Cluster, number: int) -> list[int]:
    """Of the partitions of `t`, as a broker knows."""
    broker = cluster.hosts[number].broker
    assert broker is not None and broker._replicas is not None
    return [each.leader for each in broker._replicas._image.topics["t"].partitions.values()]


def controller(cluster: Cluster) -> int:
    """Number of the broker that is the active controller; 0 while there is none."""
    for number, host in cluster.hosts.items():
        if (
            host.broker is not None
            and host.broker._controller is not None
            and host.broker._controller.metadata.is_leader
        ):
            return number
    return 0


def test_a_controller_hands_over_after_all_others_were_restarted() -> None:
    """What it asked of them last had no answer, and it has nothing to ask since they are back."""

    async def scenario(sim: Simulation) -> None:
        cluster = Cluster(sim)
        await cluster.form()
        await cluster.make_topic("t", 6, {"min.insync.replicas": "2"})
        last = controller(cluster)
        others = [each for each in cluster.hosts if each != last]
        for each in others:
            await cluster.stop(each)
            await asyncio.sleep(AWAY_S)
            await cluster.up(UP_S)
            await sim.until(cluster.are_in_sync, "all is in sync", UP_S)
        assert controller(cluster) == last in leaders(cluster, last)
        await cluster.stop(last)
        assert all(each in others for each in leaders(cluster, others[0]))

    run_checked(scenario)
