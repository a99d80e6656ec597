"""Who reads what in a classic group: Kafka's range, roundrobin and cooperative-sticky assignors, as pure functions.

wanted: member -> topics that it subscribes to; claims: the same, with what it has; counts: topic -> partitions. The
result has every member, with topic -> partitions. Members are in Kafka's order: static ones by their instance id, then
the others by their member id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .types import TopicPartition

Assignment = dict[str, dict[str, list[int]]]


class Claim(NamedTuple):
    """What a member wants, and what it has. generation: of what it has, -1 if it does not say."""

    topics: Collection[str]
    owned: Collection[TopicPartition] = ()
    generation: int = -1


def by_range(wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> Assignment:
    """Each topic's partitions in consecutive ranges over its members; topics with equal counts are divided alike."""
    found: Assignment = {member: {} for member in wanted}
    for topic in sorted(counts):
        members = [member for member, topics in wanted.items() if topic in topics]
        if not members:
            continue
        each, more = divmod(counts[topic], len(members))
        start = 0
        for i, member in enumerate(members):
            size = each + (1 if i < more else 0)
            if size:
                found[member][topic] = list(range(start, start + size))
            start += size
    return found


def by_turns(wanted: Mapping[str, Collection[str]], counts: Mapping[str, int]) -> Assignment:
    """All partitions of all topics, dealt one by one to the members that subscribe to the topic."""
    found: Assignment = {member: {} for member in wanted}
    members = list(wanted)
    at = 0
    for topic in sorted(counts):
        if not any(topic in topics for topics in wanted.values()):
            continue
        for partition in range(counts[topic]):
            while topic not in wanted[members[at % len(members)]]:
                at += 1
            found[members[at % len(members)]].setdefault(topic, []).append(partition)
            at += 1
    return found


def by_sticking(claims: Mapping[str, Claim], counts: Mapping[str, int]) -> Assignment:
    """As even as subscriptions allow, no two members differing by two where one could give to the other, and with as
    few moves as that takes. Of two that claim a partition, who has it from the later generation keeps it (KIP-792)."""
    holder = _holders(claims, counts)
    held: dict[str, list[TopicPartition]] = {member: [] for member in claims}
    for tp in sorted(holder):
        held[holder[tp]].append(tp)
    topics = {member: frozenset(claim.topics) for member, claim in claims.items()}
    for topic in sorted(counts):
        members = [member for member in claims if topic in topics[member]]
        for tp in (TopicPartition(topic, partition) for partition in range(counts[topic])):
            if members and tp not in holder:
                held[min(members, key=lambda member: len(held[member]))].append(tp)
    while _even_out(held, topics):
        pass
    return {member: _by_topic(tps) for member, tps in held.items()}


def _holders(claims: Mapping[str, Claim], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Whose each partition is before it is assigned anew: nobody's if its claims are of one generation."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, claim in claims.items():
        for tp in claim.owned:
            if tp.topic in claim.topics and tp.partition < counts.get(tp.topic, 0):
                generation, _ = best.get(tp, (-2, None))
                if claim.generation >= generation:
                    best[tp] = (claim.generation, member if claim.generation > generation else None)
    return {tp: member for tp, (_, member) in best.items() if member is not None}


def _even_out(held: Mapping[str, list[TopicPartition]], topics: Mapping[str, Collection[str]]) -> bool:
    """Move one partition to a member that has at least two fewer; False if there is none."""
    by_size = sorted(held, key=lambda member: len(held[member]))
    for giver in reversed(by_size):
        for taker in by_size:
            if len(held[giver]) - len(held[taker]) < 2:
                break
            for tp in reversed(held[giver]):
                if tp.topic in topics[taker]:
                    held[giver].remove(tp)
                    held[taker].append(tp)
                    return True
    return False


def by_cooperation(claims: Mapping[str, Claim], counts: Mapping[str, int]) -> Assignment:
    """`by_sticking`, without what another member still has: it gives that up and joins again, and then it is assigned
    (KIP-429)."""
    owners: dict[TopicPartition, list[str]] = {}
    for member, claim in claims.items():
        for tp in claim.owned:
            owners.setdefault(tp, []).append(member)
    shares: Assignment = {}
    for member, found in by_sticking(claims, counts).items():
        tps = [TopicPartition(topic, partition) for topic, partitions in found.items() for partition in partitions]
        shares[member] = _by_topic([tp for tp in tps if all(owner == member for owner in owners.get(tp, ()))])
    return shares


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(tps):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


def _wanted(claims: Mapping[str, Claim]) -> dict[str, Collection[str]]:
    return {member: claim.topics for member, claim in claims.items()}


@dataclass(frozen=True)
class Assignor:
    """is_cooperative: whether it takes no partition from a member that has it and gives it to another at once."""

    assign: Callable[[Mapping[str, Claim], Mapping[str, int]], Assignment]
    is_cooperative: bool = False


ASSIGNORS: Mapping[str, Assignor] = {
    "range": Assignor(lambda claims, counts: by_range(_wanted(claims), counts)),
    "roundrobin": Assignor(lambda claims, counts: by_turns(_wanted(claims), counts)),
    "cooperative-sticky": Assignor(by_cooperation, is_cooperative=True),
}
