"""A plan by which brokers have as many replicas as each other, and lead as many partitions, by few moves. Pure.

Replicas first: one is moved from a broker that has more to one that has fewer, through others where racks leave no
direct way, as long as any two differ by two. No move takes a partition into fewer racks. Each replica keeps its place
in the order of its partition. Then leaders, which costs no copies: the first replica of a partition changes places with
another. Brokers that are down or cordoned keep what they have, and get nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping

from .moves import Broker, Placed, Plan
from .types import TopicPartition

Where = dict[TopicPartition, list[int]]
Step = tuple[int, int, TopicPartition]  # from a broker, to a broker, what


def balanced(partitions: Mapping[TopicPartition, Placed], brokers: Iterable[Broker]) -> Plan:
    """The partitions that change, with their replicas then, the preferred leader first."""
    racks = {each.id: each.rack for each in brokers if each.is_alive and not each.is_cordoned}
    by_size = sorted(partitions, key=lambda tp: (partitions[tp].size_bytes, tp))  # small ones move first
    where: Where = {tp: list(partitions[tp].replicas) for tp in by_size}
    all_racks = {each.id: each.rack for each in brokers}
    held = _by_broker(where, racks)
    copies = _Level({node: len(held[node]) for node in racks}, _Copies(where, held, all_racks))
    while copies.step():
        pass
    leads: dict[int, dict[TopicPartition, None]] = {node: {} for node in racks}
    for tp, nodes in where.items():
        if nodes and nodes[0] in leads:
            leads[nodes[0]][tp] = None
    leaders = _Level({node: len(leads[node]) for node in racks}, _Leaders(where, leads))
    while leaders.step():
        pass
    return {tp: nodes for tp, nodes in sorted(where.items()) if nodes != list(partitions[tp].replicas)}


class _Copies:
    """Replicas that change their broker: where that can be, such that leaders even out, too. A sole replica leads
    wherever it is, so that no broker shall get more of these than its share of leaders."""

    def __init__(
        self, where: Where, held: dict[int, dict[TopicPartition, None]], racks: Mapping[int, str | None]
    ) -> None:
        self._where = where
        self._held = held
        self._racks = racks
        self._leads = Counter(nodes[0] for nodes in where.values() if nodes)
        self._sole = Counter(nodes[0] for nodes in where.values() if len(nodes) == 1)
        self._share = len(where) // max(1, len(held))  # of leaders, for each broker

    def possible(self, source: int, target: int) -> TopicPartition | None:
        found: TopicPartition | None = None
        gives_a_leader = self._leads[source] > self._leads[target] and self._sole[target] < self._share
        for tp in self._held[source]:
            nodes = self._where[tp]
            if target not in nodes and self._spread(nodes, source, target) >= self._spread(nodes, source, source):
                if (nodes[0] == source) == gives_a_leader:
                    return tp
                found = found or tp
        return found

    def move(self, source: int, target: int, tp: TopicPartition) -> None:
        nodes = self._where[tp]
        at = nodes.index(source)
        nodes[at] = target
        if at == 0:
            self._leads[source] -= 1
            self._leads[target] += 1
        if len(nodes) == 1:
            self._sole[source] -= 1
            self._sole[target] += 1
        del self._held[source][tp]
        self._held[target][tp] = None

    def _spread(self, nodes: list[int], source: int, target: int) -> int:
        """In how many racks a partition is once a replica has moved; brokers without a rack are one each."""
        after = (target if each == source else each for each in nodes)
        return len(dict.fromkeys(self._racks.get(each) or each for each in after))


class _Leaders:
    """Partitions of which another replica becomes the first."""

    def __init__(self, where: Where, leads: dict[int, dict[TopicPartition, None]]) -> None:
        self._where = where
        self._leads = leads

    def possible(self, source: int, target: int) -> TopicPartition | None:
        return next((tp for tp in self._leads[source] if target in self._where[tp]), None)

    def move(self, source: int, target: int, tp: TopicPartition) -> None:
        nodes = self._where[tp]
        at = nodes.index(target)
        nodes[0], nodes[at] = target, source
        del self._leads[source][tp]
        self._leads[target][tp] = None


class _Level:
    """Evens out what brokers have. count: by broker."""

    def __init__(self, count: dict[int, int], kind: _Copies | _Leaders) -> None:
        self._count = count
        self._kind = kind

    def step(self) -> bool:
        """Bring two brokers nearer to each other. False if that cannot be."""
        for source in sorted(self._count, key=lambda node: (-self._count[node], node)):
            path = self._path(source)
            if path:
                for giver, taker, tp in reversed(path):
                    self._kind.move(giver, taker, tp)
                self._count[path[0][0]] -= 1
                self._count[path[-1][1]] += 1
                return True
        return False

    def _path(self, source: int) -> list[Step]:
        """A shortest way to a broker that has at least two fewer, if there is one; to the one with fewest of these.

        A partition is on a way once: two steps of it might be possible apart, but not one after the other.
        """
        reached: dict[int, list[Step]] = {source: []}
        turn = deque([source])
        while turn:
            found: list[list[Step]] = []
            for _ in range(len(turn)):
                giver = turn.popleft()
                for taker in self._nodes():
                    if taker in reached:
                        continue
                    tp = self._kind.possible(giver, taker)
                    if tp is None or any(tp == each for _, _, each in reached[giver]):
                        continue
                    reached[taker] = [*reached[giver], (giver, taker, tp)]
                    turn.append(taker)
                    if self._count[source] - self._count[taker] >= 2:
                        found.append(reached[taker])
            if found:
                return min(found, key=lambda path: (self._count[path[-1][1]], path[-1][1]))
        return []

    def _nodes(self) -> Iterator[int]:
        yield from sorted(self._count, key=lambda node: (self._count[node], node))


def _by_broker(where: Where, nodes: Iterable[int]) -> dict[int, dict[TopicPartition, None]]:
    held: dict[int, dict[TopicPartition, None]] = {node: {} for node in nodes}
    for tp, replicas in where.items():
        for node in replicas:
            if node in held:
                held[node][tp] = None
    return held
