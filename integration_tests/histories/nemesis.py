"""What is done to a cluster: one fault at a time or two, by a plan that depends on the seed alone.

A fault names its node by a role (the leader of a partition, the active controller, any node), so that the same seed
finds other node ids in another run.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.histories.clusters import NODES, Cluster
from integration_tests.histories.history import Fault, History
from integration_tests.histories.network import CLIENTS

FIRST_S = 1.5
QUIET_S = (2.0, 4.0)
LASTS_S = (3.0, 7.0)
SHORT_LASTS_S = 4.0  # longer than the session timeout, so that a silent leader is replaced
PAIRS = 0.35  # share of steps with two faults at once
ROLES = ("leader", "leader", "leader", "controller", "any")
ASK_S = 1.5


def _others(node: int) -> list[int]:
    return [each for each in NODES if each != node]


def _cut(cluster: Cluster, node: int, out: bool, into: bool, clients: bool = False) -> None:
    for other in [*_others(node), *([CLIENTS] if clients else [])]:
        if out:
            cluster.network.cut(node, other)
        if into:
            cluster.network.cut(other, node)


def _mend(cluster: Cluster, node: int) -> None:
    for other in [CLIENTS, *_others(node)]:
        cluster.network.mend(node, other)
        cluster.network.mend(other, node)


def _make_room(cluster: Cluster, node: int) -> None:
    cluster.disks[node].empty()
    cluster.restart(node)  # a full disk may end a broker


Deed = Callable[[Cluster, int], None]
# In this order, consecutive seeds begin with different faults.
FAULTS: dict[str, tuple[Deed, Deed]] = {
    "kill": (lambda cluster, node: cluster.nodes[node].kill(), lambda cluster, node: cluster.restart(node)),
    "cut from brokers": (lambda cluster, node: _cut(cluster, node, True, True), _mend),
    "pause": (
        lambda cluster, node: cluster.nodes[node].signal(signal.SIGSTOP),
        lambda cluster, node: cluster.nodes[node].signal(signal.SIGCONT),
    ),
    "full disk": (lambda cluster, node: cluster.disks[node].fill(), _make_room),
    "cut outgoing": (lambda cluster, node: _cut(cluster, node, True, False), _mend),
    "cut incoming": (lambda cluster, node: _cut(cluster, node, False, True), _mend),
    "cut from all": (lambda cluster, node: _cut(cluster, node, True, True, clients=True), _mend),
}


@dataclass(frozen=True)
class Step:
    """Faults, as (kind, role), that begin together."""

    at_s: float
    lasts_s: float
    faults: tuple[tuple[str, str], ...]


def plan(seed: int, seconds: float) -> list[Step]:
    """Steps that end before `seconds`. The first is of one fault: that of the seed, on a leader."""
    chance = random.Random(seed)
    kinds = list(FAULTS)
    first = kinds[seed % len(kinds)]
    made = [Step(FIRST_S, SHORT_LASTS_S, ((first, "leader"),))]
    while True:
        at_s = made[-1].at_s + made[-1].lasts_s + chance.uniform(*QUIET_S)
        lasts_s = chance.uniform(*LASTS_S)
        chosen = chance.sample(kinds, 2 if chance.random() < PAIRS else 1)
        faults = tuple((kind, chance.choice(ROLES)) for kind in chosen)
        if at_s + lasts_s > seconds:
            return made
        made.append(Step(at_s, lasts_s, faults))


class Nemesis:
    """Does the steps of a plan to a cluster."""

    def __init__(self, cluster: Cluster, topic: str, seed: int, history: History, now_s: Callable[[], float]) -> None:
        self._cluster = cluster
        self._topic = topic
        self._chance = random.Random(f"nodes {seed}")
        self._history = history
        self._now_s = now_s
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 1500, "log_level": 0})
        self._leaders: dict[int, int] = {}

    async def run(self, steps: list[Step]) -> None:
        for step in steps:
            await asyncio.sleep(max(0.0, step.at_s - self._now_s()))
            begun = []
            await asyncio.to_thread(self._look)
            for kind, role in step.faults:
                node = await asyncio.to_thread(self._node, role)
                led = [partition for partition, leader in self._leaders.items() if leader == node]
                fault = Fault(kind, node, led, self._now_s())
                self._history.faults.append(fault)
                begun.append(fault)
                await asyncio.to_thread(FAULTS[kind][0], self._cluster, node)
            await asyncio.sleep(max(0.0, step.at_s + step.lasts_s - self._now_s()))
            self._count_dead({fault.node for fault in begun if fault.kind in ("kill", "full disk")})
            for fault in begun:
                fault.ended_s = self._now_s()
                await asyncio.to_thread(FAULTS[fault.kind][1], self._cluster, fault.node)

    def _count_dead(self, expected: set[int]) -> None:
        for node in NODES:
            if node not in expected and not self._cluster.nodes[node].alive():
                self._history.unfinished.append(f"node {node} had ended of itself at {self._now_s():.1f} s")
                self._cluster.restart(node)

    def _look(self) -> None:
        """Who leads now; what was known before, if nobody tells."""
        try:
            told = self._admin.list_topics(self._topic, timeout=ASK_S).topics[self._topic]
        except KafkaException:
            return
        self._leaders = {each.id: each.leader for each in told.partitions.values()}

    def _node(self, role: str) -> int:
        node = -1
        if role == "leader" and self._leaders:
            node = self._leaders[self._chance.choice(sorted(self._leaders))]
        elif role == "controller":
            node = self._cluster.controller()
        return node if node in NODES else self._chance.choice(NODES)
