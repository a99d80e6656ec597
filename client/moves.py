"""Plans that move replicas: off a broker that is to go, or to spread them anew. What Metadata tells is enough for them.

Nothing is moved here: a plan is what AlterPartitionReassignments is to be asked for. Replicas of a partition stay in
different racks, as far as there are any, and a plan moves no replica without a reason. Brokers are those that live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Partition = tuple[str, int]  # topic and index
Racks = Mapping[int, str | None]  # by the id of a broker that lives; None: no rack is known
Replicas = Mapping[Partition, Sequence[int]]
Plan = dict[Partition, list[int]]  # replicas as they are to be, of the partitions that change

SLACK = 0.05  # of the mean load: two brokers that differ by less are left as they are


class NoPlace(Exception):
    """A replica has nowhere to go. The message names the partition and the way out."""


def drain(racks: Racks, partitions: Replicas, broker_id: int) -> Plan:
    """The plan after which no partition has a replica on a broker. Another one takes its place in each, so that the
    preferred leaders move with it. Raises NoPlace.
    """
    others = {each: rack for each, rack in racks.items() if each != broker_id}
    load = dict.fromkeys(others, 0)
    for replicas in partitions.values():
        for each in replicas:
            if each in load:
                load[each] += 1
    plan: Plan = {}
    for (topic, index), replicas in partitions.items():
        if broker_id not in replicas:
            continue
        staying = [each for each in replicas if each != broker_id]
        free = [each for each in others if each not in staying]
        if not free:
            raise NoPlace(
                f"{topic}-{index} has {len(replicas)} replicas, and besides broker {broker_id} only "
                f"{len(others)} live: add a broker, or lower the number of its replicas first"
            )
        chosen = min(free, key=lambda each: (_mates(each, staying, racks), load[each], each))
        load[chosen] += 1
        plan[topic, index] = [chosen if each == broker_id else each for each in replicas]
    return plan


def rebalance(racks: Racks, partitions: Replicas, loads: Mapping[Partition, float] | None = None) -> Plan:
    """The plan after which brokers carry about the same load, and are preferred leaders of about as many partitions.

    loads: of one replica of a partition, such as bytes; 1 for what is not named. Racks come first: no partition gets
    two replicas in one rack for the sake of load.
    """
    now = {key: list(replicas) for key, replicas in partitions.items()}
    weight = {key: 1.0 if loads is None else loads.get(key, 1.0) for key in now}
    _spread(racks, now, weight)
    _order(racks, now)
    return {key: replicas for key, replicas in now.items() if replicas != list(partitions[key])}


def _spread(racks: Racks, now: Plan, weight: Mapping[Partition, float]) -> None:
    """Move replicas from brokers with more load to those with less; each replica moves once at most.

    First all go down to the mean. Then they share among those that racks leave to them.
    """
    load = dict.fromkeys(sorted(racks), 0.0)
    held: dict[int, list[Partition]] = {each: [] for each in load}
    for key, replicas in now.items():
        for each in replicas:
            if each in load:
                load[each] += weight[key]
                held[each].append(key)
    mean = sum(load.values()) / max(len(load), 1)
    for least in (mean, 0.0):
        for giver in sorted(load, key=lambda each: (-load[each], each)):
            for key in sorted(held[giver], key=lambda key: (-weight[key], key)):
                if load[giver] <= least:
                    break
                taker = _taker(giver, now[key], load, racks)
                if taker is None or load[giver] - load[taker] <= max(weight[key], SLACK * mean):
                    continue
                load[giver] -= weight[key]
                load[taker] += weight[key]
                now[key] = [taker if each == giver else each for each in now[key]]


def _taker(giver: int, replicas: Sequence[int], load: Mapping[int, float], racks: Racks) -> int | None:
    """The broker with the least load that can have a replica instead. None if there is none, or if it was moved."""
    if giver not in replicas:
        return None
    staying = [each for each in replicas if each != giver]
    mates = _mates(giver, staying, racks)
    free = [each for each in load if each not in replicas and _mates(each, staying, racks) <= mates]
    return min(free, key=lambda each: (_mates(each, staying, racks), load[each], each), default=None)


def _order(racks: Racks, now: Plan) -> None:
    """Put another replica first where the first one leads more partitions than that."""
    led = dict.fromkeys(racks, 0)
    for replicas in now.values():
        if replicas and replicas[0] in led:
            led[replicas[0]] += 1
    for key in sorted(now):
        alive = [each for each in now[key] if each in led]
        if not alive:
            continue
        first = now[key][0]
        least = min(alive, key=lambda each: led[each])
        if first not in led or led[first] - led[least] > 1:
            if first in led:
                led[first] -= 1
            led[least] += 1
            now[key] = [least, *(each for each in now[key] if each != least)]


def _mates(broker_id: int, others: Sequence[int], racks: Racks) -> int:
    """How many of the others are in a broker's rack."""
    rack = racks.get(broker_id)
    return 0 if rack is None else sum(racks.get(each) == rack for each in others)
