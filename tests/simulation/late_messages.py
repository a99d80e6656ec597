"""In a cluster: a leader's messages are late, and then it is none any more.

What only it has is lost, and what it has sent arrives when another leads: markers of transactions, most of all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from .brokers import Cluster
from .network import Link

LATE = Link(spike_s=(0.5, 5.0), spike_chance=0.4)
UNHEARD_S = 12.0  # more than a session


class LateMessages:
    """coordinators: topics whose leaders coordinate something, at partition 0. topics: all, with their number of
    partitions."""

    def __init__(self, cluster: Cluster, topics: dict[str, int], coordinators: Sequence[str]) -> None:
        self._cluster = cluster
        self._chance = cluster.sim.random
        self._topics = topics
        self._coordinators = coordinators

    async def one(self) -> None:
        if self._chance.random() < 0.5:
            await self._loses_its_end()
        else:
            await self._is_heard_late()

    def _leader(self, topic: str, index: int) -> int | None:
        found = [
            number
            for number, name, held_index, held in self._cluster.partitions()
            if (name, held_index) == (topic, index) and held.leads and self._cluster.hosts[number].alive
        ]
        return self._chance.choice(found) if found else None

    async def _loses_its_end(self) -> None:
        """A leader's followers do not hear from it, and it is killed before they have all of its log."""
        topic = self._chance.choice([*self._topics, *self._coordinators])
        leader = self._leader(topic, self._chance.randrange(self._topics.get(topic, 1)))
        if leader is None:
            return
        hosts = self._cluster.hosts
        others = [host.name for number, host in hosts.items() if number != leader]
        self._cluster.sim.network.partition([hosts[leader].name], others, both_ways=False)
        await asyncio.sleep(self._chance.uniform(0.1, 1.5))
        self._cluster.kill(leader, power=False)
        self._cluster.sim.counters["ends_lost"] += 1
        await asyncio.sleep(UNHEARD_S)  # others lead by then
        self._cluster.sim.network.heal()
        self._cluster.begin(leader)

    async def _is_heard_late(self) -> None:
        """A coordinator stops while one of the others has not heard yet what it has decided."""
        leader = self._leader(self._chance.choice(self._coordinators), 0)
        if leader is None:
            return
        hosts = self._cluster.hosts
        other = self._chance.choice([number for number in hosts if number != leader])
        links = self._cluster.sim.network.links
        links[hosts[leader].name, hosts[other].name] = LATE
        await asyncio.sleep(self._chance.uniform(0.3, 3.0))
        links[hosts[leader].name, hosts[other].name] = Link()  # what is under way stays late
        if self._cluster.serves(leader):
            self._cluster.sim.counters["heard_late"] += 1
            await self._cluster.stop(leader)
            self._cluster.begin(leader)
