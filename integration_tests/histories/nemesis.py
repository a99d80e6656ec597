"""What is done to a cluster: one fault at a time, or two, by a plan that depends on the seed alone.

A fault names its node by a role (the leader of a partition, the active controller, any node), so that the same seed
finds other node ids in another run. What is no fault is done too: all partitions leave a node, and come back to it with
nothing kept, so that leaders, followers and coordinators move while the rest happens.
"""

from __future__ import annotations

import asyncio
import math
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from integration_tests.histories.clusters import NODES, Cluster
from integration_tests.histories.history import Fault, History
from integration_tests.histories.network import CLIENTS
from integration_tests.histories.workers import SETTLE_S
from integration_tests.waiting import until
from isthmus.client import Admin, Client, TopicPartition
from isthmus.client.errors import ClientError
from isthmus.protocol.errors import KafkaError

FIRST_S = 1.5
QUIET_S = (0.5, 4.0)  # also too short for all replicas to be in sync again
LASTS_S = (2.0, 7.0)
FIRST_LASTS_S = 5.0  # longer than the session timeout, so that a silent leader is replaced
PAIRS = 0.4  # share of faults during which another begins
ROLES = ("leader", "leader", "leader", "controller", "any")
ASK_S = 1.5
MOVE_S = 5.0  # in which a cluster agrees to a move, or none is made
COORDINATORS_TOPICS = ("__consumer_offsets", "__transaction_state")


def _others(node: int) -> list[int]:
    return [each for each in NODES if each != node]


def _cut(cluster: Cluster, node: int, out: bool, into: bool, clients: bool = False) -> None:
    for other in [*_others(node), *([CLIENTS] if clients else [])]:
        if out:
            cluster.network.cut(node, other)
        if into:
            cluster.network.cut(other, node)


def _mend(cluster: Cluster, node: int, _: Sequence[str]) -> None:
    for other in [CLIENTS, *_others(node)]:
        cluster.network.mend(node, other)
        cluster.network.mend(other, node)


def _make_room(cluster: Cluster, node: int, _: Sequence[str]) -> None:
    cluster.disks[node].empty()
    cluster.restart(node)  # a full disk may end a broker


def _move(cluster: Cluster, topics: Sequence[str], within_s: float) -> bool:
    """Begin to move all partitions of the topics, and of the coordinators', to the nodes that are not emptied; whether
    all of them had been there before, and were to stay.

    Raises ClientError or KafkaError: also where the node that was asked does not know the topics yet.
    """

    async def run() -> bool:
        client = Client(cluster.bootstrap, "nemesis")
        try:
            await client.start(within_s * 1000)
            admin = Admin(client, int(within_s * 1000))
            wanted, away = {}, False
            leaving = [tp for tp, move in (await admin.list_partition_reassignments()).items() if move.removing]
            for told in await admin.all_topics():
                for each in told.partitions if told.name in (*topics, *COORDINATORS_TOPICS) else ():
                    first = each.partition_index % len(NODES)
                    nodes = [node for node in NODES[first:] + NODES[:first] if node not in cluster.emptied]
                    tp = TopicPartition(told.name, each.partition_index)
                    wanted[tp] = nodes
                    away |= tp in leaving or set(each.replica_nodes) != set(nodes)
            if unknown := set(topics) - {tp.topic for tp in wanted}:
                raise ClientError(f"a node that lags behind does not know {', '.join(sorted(unknown))}")
            await admin.alter_partition_reassignments(wanted)
            return not away
        finally:
            await client.close()

    with cluster.moving:
        return asyncio.run(run())


def _empty(cluster: Cluster, node: int, topics: Sequence[str]) -> None:
    cluster.emptied[node] = None
    _move(cluster, topics, MOVE_S)


def _fill(cluster: Cluster, node: int, topics: Sequence[str]) -> None:
    cluster.emptied.pop(node, None)
    until(lambda: _moves_back(cluster, topics) is not None, f"node {node} is given replicas again", SETTLE_S)


def _moves_back(cluster: Cluster, topics: Sequence[str]) -> bool | None:
    """See `_move`. None: another fault lasts; for example, the controller's disk is full."""
    try:
        return _move(cluster, topics, SETTLE_S)
    except (KafkaError, ClientError):
        return None


MOVED_AWAY = "moved away"
Deed = Callable[[Cluster, int, Sequence[str]], None]  # the topics
# In this order, consecutive seeds begin with different faults.
FAULTS: dict[str, tuple[Deed, Deed]] = {
    "kill": (lambda cluster, node, _: cluster.nodes[node].kill(), lambda cluster, node, _: cluster.restart(node)),
    "cut from brokers": (lambda cluster, node, _: _cut(cluster, node, True, True), _mend),
    "pause": (
        lambda cluster, node, _: cluster.nodes[node].signal(signal.SIGSTOP),
        lambda cluster, node, _: cluster.nodes[node].signal(signal.SIGCONT),
    ),
    "full disk": (lambda cluster, node, _: cluster.disks[node].fill(), _make_room),
    "cut outgoing": (lambda cluster, node, _: _cut(cluster, node, True, False), _mend),
    "cut incoming": (lambda cluster, node, _: _cut(cluster, node, False, True), _mend),
    "cut from all": (lambda cluster, node, _: _cut(cluster, node, True, True, clients=True), _mend),
    "shutdown": (
        lambda cluster, node, _: cluster.nodes[node].shut_down(),
        lambda cluster, node, _: cluster.restart(node),
    ),
    MOVED_AWAY: (_empty, _fill),
}
ENDING = ("kill", "full disk", "shutdown")  # may end the process


@dataclass(frozen=True)
class Planned:
    """A fault of the node that has this role when it begins."""

    at_s: float
    kind: str
    role: str
    lasts_s: float

    @property
    def end_s(self) -> float:
        return self.at_s + self.lasts_s


def plan(seed: int, seconds: float) -> list[Planned]:
    """Faults that end before `seconds`, at most two at once. The first is that of the seed, on a leader, alone."""
    chance = random.Random(seed)
    kinds = list(FAULTS)
    made = [Planned(FIRST_S, kinds[seed % len(kinds)], "leader", FIRST_LASTS_S)]
    while True:
        at_s = max(each.end_s for each in made) + chance.uniform(*QUIET_S)
        one = Planned(at_s, chance.choice(kinds), chance.choice(ROLES), chance.uniform(*LASTS_S))
        more = [one]
        if chance.random() < PAIRS:
            at_s += chance.uniform(0, one.lasts_s)
            more.append(Planned(at_s, chance.choice(kinds), chance.choice(ROLES), chance.uniform(*LASTS_S)))
        if max(each.end_s for each in more) > seconds:
            return made
        made += more


class Nemesis:
    """Does the steps of a plan to a cluster. The leaders are those of the first topic."""

    def __init__(
        self, cluster: Cluster, topics: Sequence[str], seed: int, history: History, now_s: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._topics = topics
        self._chance = random.Random(f"nodes {seed}")
        self._history = history
        self._now_s = now_s
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "socket.timeout.ms": 1500, "log_level": 0})
        self._leaders: dict[int, int] = {}
        self._behind: list[int] = []

    async def run(self, planned: list[Planned]) -> None:
        await asyncio.gather(*map(self._do, planned))
        if any(each.kind == MOVED_AWAY for each in planned):
            # A request to empty a node whose answer nobody heard may be done after that to fill it again, and Kafka
            # does nothing of a move back while the move away is under way.
            back = partial(_moves_back, self._cluster, self._topics)
            await asyncio.to_thread(until, back, "all nodes have their replicas again", SETTLE_S)

    async def _do(self, planned: Planned) -> None:
        await asyncio.sleep(planned.at_s - self._now_s())
        await asyncio.to_thread(self._look)
        node = await asyncio.to_thread(self._node, planned.role)
        led = [partition for partition, leader in self._leaders.items() if leader == node]
        fault = Fault(planned.kind, node, led, self._now_s(), behind=[each for each in led if each in self._behind])
        self._history.faults.append(fault)
        begin, end = FAULTS[planned.kind]
        try:
            await asyncio.to_thread(begin, self._cluster, node, self._topics)
        except (KafkaError, ClientError):  # because of another fault nobody told that a move has begun
            self._history.faults.remove(fault)
        await asyncio.sleep(planned.end_s - self._now_s())
        self._note_dead()
        fault.ended_s = self._now_s()
        if planned.kind in ENDING:
            end(self._cluster, node, self._topics)  # in this thread, with which a started node would end
        else:
            await asyncio.to_thread(end, self._cluster, node, self._topics)

    def _note_dead(self) -> None:
        """Nodes that have ended without a fault that ends them."""
        expected = [each.node for each in self._history.faults if each.kind in ENDING and each.ended_s == math.inf]
        for node in NODES:
            if node not in expected and not self._cluster.nodes[node].alive():
                self._history.unfinished.append(f"node {node} had ended of itself at {self._now_s():.1f} s")
                self._cluster.restart(node)

    def _look(self) -> None:
        """Who leads now; what was known before, if nobody tells."""
        try:
            told = self._admin.list_topics(self._topics[0], timeout=ASK_S).topics[self._topics[0]]
        except KafkaException:
            return
        self._leaders = {each.id: each.leader for each in told.partitions.values()}
        self._behind = [each.id for each in told.partitions.values() if len(each.isrs) < len(NODES)]

    def _node(self, role: str) -> int:
        node = -1
        if role == "leader" and self._leaders:
            node = self._leaders[self._chance.choice(sorted(self._leaders))]
        elif role == "controller":
            node = self._cluster.controller()
        return node if node in NODES else self._chance.choice(NODES)
