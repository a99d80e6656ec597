"""Where replicas shall be: plans for AlterPartitionReassignments. Pure.

A plan names the partitions to be moved and, for each, the nodes that shall have it, the preferred leader first. A
replica that is new goes to a node that lives, in the rack that has the fewest of the partition's replicas, then to the
node with the fewest bytes and replicas, as they will be after what is planned before it. A plan that is not possible
raises PlanError, which names the partition and the way out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .errors import ClientError
from .types import TopicPartition


class PlanError(ClientError):
    """Replicas cannot be placed so."""


@dataclass(frozen=True)
class Broker:
    """Only one that is alive, and not cordoned, is given replicas."""

    id: int
    rack: str | None = None
    is_alive: bool = True
    is_cordoned: bool = False

    @property
    def is_open(self) -> bool:
        return self.is_alive and not self.is_cordoned


@dataclass(frozen=True)
class Placed:
    """A partition as it is. size_bytes: of one of its logs."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...] = ()
    size_bytes: int = 0


Plan = dict[TopicPartition, list[int]]


@dataclass
class Load:
    """What each node has, and will have."""

    bytes_of: dict[int, int] = field(default_factory=dict)
    replicas_of: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, partitions: Iterable[Placed]) -> Load:
        load = cls()
        for each in partitions:
            for node in each.replicas:
                load.change(node, each, 1)
        return load

    def change(self, node: int, partition: Placed, by: int) -> None:
        """by: 1 for a replica that comes, -1 for one that goes."""
        self.bytes_of[node] = self.bytes_of.get(node, 0) + by * partition.size_bytes
        self.replicas_of[node] = self.replicas_of.get(node, 0) + by

    def __call__(self, node: int) -> tuple[int, int, int]:
        """To sort nodes by, the least loaded first."""
        return self.bytes_of.get(node, 0), self.replicas_of.get(node, 0), node


def drained(partitions: Mapping[TopicPartition, Placed], brokers: Iterable[Broker], leaving: Sequence[int]) -> Plan:
    """Moves every replica off these nodes, each to its place in the order of the partition's replicas."""
    nodes = {each.id: each for each in brokers}
    load = Load.of(partitions.values())
    plan: Plan = {}
    for tp, placed in sorted(partitions.items(), key=lambda pair: (-pair[1].size_bytes, pair[0])):
        replicas = list(placed.replicas)
        for index, gone in enumerate(replicas):
            if gone not in leaving:
                continue
            node = _best(nodes, [each for each in replicas if each != gone], load, leaving)
            if node is None:
                others = len([each for each in nodes.values() if each.is_open and each.id not in leaving])
                away = f"broker{'s' * (len(leaving) > 1)} {', '.join(map(str, leaving))}"
                closed = [
                    str(each.id)
                    for each in nodes.values()
                    if each.is_alive and each.is_cordoned and each.id not in leaving
                ]
                undo = f", use those that were drained (`isthmus broker drain {' '.join(closed)} --undo`)"
                raise PlanError(
                    f"{tp.topic}-{tp.partition} has {len(replicas)} replicas, and {others} brokers live beside "
                    f"{away}: add one{undo if closed else ''}, or give it fewer by "
                    f"`isthmus topic replicas {tp.topic} --factor {others}`"
                )
            replicas[index] = node
            load.change(gone, placed, -1)
            load.change(node, placed, 1)
        if replicas != list(placed.replicas):
            plan[tp] = replicas
    return plan


def with_factors(
    chosen: Mapping[TopicPartition, int], partitions: Mapping[TopicPartition, Placed], brokers: Iterable[Broker]
) -> Plan:
    """Gives each of the chosen partitions so many replicas. Those that go are first what is not in sync, then what
    shares its rack with the most others; the preferred leader stays."""
    nodes = {each.id: each for each in brokers}
    load = Load.of(partitions.values())
    plan: Plan = {}
    for tp, factor in chosen.items():
        placed = partitions[tp]
        replicas = list(placed.replicas)
        while len(replicas) > factor:
            gone = max(replicas[1:], key=lambda each: (_sheds(each, replicas, placed, nodes), load(each)))
            replicas.remove(gone)
            load.change(gone, placed, -1)
        while len(replicas) < factor:
            node = _best(nodes, replicas, load)
            if node is None:
                alive = len([each for each in nodes.values() if each.is_open])
                raise PlanError(
                    f"{tp.topic}-{tp.partition} cannot have {factor} replicas: {alive} brokers live; choose --factor "
                    f"{alive} or less, or add a broker"
                )
            replicas.append(node)
            load.change(node, placed, 1)
        if replicas != list(placed.replicas):
            plan[tp] = replicas
    return plan


LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")  # of brokers


def throttled(plan: Plan, partitions: Mapping[TopicPartition, Placed]) -> dict[str, dict[str, str]]:
    """The options of topics by which a plan's copies, and no others, are throttled (KIP-73): those that have a
    partition serve it, those that are new fetch it."""
    options: dict[str, dict[str, list[str]]] = {}
    for tp, nodes in sorted(plan.items()):
        now = partitions[tp].replicas
        new = [each for each in nodes if each not in now]
        if not new:
            continue
        topic = options.setdefault(tp.topic, {LEADERS: [], FOLLOWERS: []})
        topic[LEADERS] += [f"{tp.partition}:{each}" for each in now]
        topic[FOLLOWERS] += [f"{tp.partition}:{each}" for each in new]
    return {topic: {name: ",".join(parts) for name, parts in each.items()} for topic, each in options.items()}


def _sheds(node: int, replicas: Sequence[int], placed: Placed, nodes: Mapping[int, Broker]) -> tuple[bool, int]:
    rack = _rack(nodes, node)
    return node not in placed.isr, 0 if rack is None else sum(_rack(nodes, each) == rack for each in replicas)


def _best(nodes: Mapping[int, Broker], replicas: Sequence[int], load: Load, leaving: Sequence[int] = ()) -> int | None:
    """The node for one more replica; None: there is none. leaving: get none, and their racks do not count."""
    racks = [_rack(nodes, each) for each in replicas if each not in leaving]
    found = [each for each in nodes.values() if each.is_open and each.id not in (*replicas, *leaving)]
    found.sort(key=lambda each: (0 if each.rack is None else racks.count(each.rack), load(each.id)))
    return found[0].id if found else None


def _rack(nodes: Mapping[int, Broker], node: int) -> str | None:
    return nodes[node].rack if node in nodes else None
