"""Who reads what in a classic group: what an assignor is, and Kafka's range, roundrobin and cooperative-sticky.

wanted: member -> topics that it subscribes to; members: the same, with all that they say; counts: topic -> partitions.
The result has every member, with topic -> partitions. Members are in Kafka's order: static ones by their instance id,
then the others by their member id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from .errors import ClientError
from .types import TopicPartition

Assignment = dict[str, dict[str, list[int]]]
Share = tuple[Mapping[str, Sequence[int]], bytes]  # a member's partitions by topic, and user data for it


class Member(NamedTuple):
    """What a member of a classic group says when it joins. owned: partitions that it has (KIP-429); generation: of
    these, -1 if it does not say (KIP-792); user_data: its assignor's; rack: empty if it has none (KIP-881)."""

    topics: Collection[str]
    owned: Collection[TopicPartition] = ()
    generation: int = -1
    instance_id: str | None = None
    user_data: bytes = b""
    rack: str = ""


class Assignor(Protocol):
    """Decides in the group's leader who reads what: for `Consumer(assignors=[...])`, beside the names of Kafka's. One
    object serves one consumer. Its methods are called in the event loop, and must not take long.

    name: of the protocol in the group; members must have one in common, else the broker refuses to let them in
    (INCONSISTENT_GROUP_PROTOCOL). is_cooperative: a member keeps what it has through a rebalance, if all its assignors
    are so (KIP-429); then `assign` must not give out what another member has: `cooperatively` sees to that."""

    @property
    def name(self) -> str: ...

    @property
    def is_cooperative(self) -> bool: ...

    def user_data(self) -> bytes:
        """What the leader shall know of this member; asked for at each join."""

    def assign(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
        """Called in the leader. members: by member id; counts: the partitions of each topic that one of them subscribes
        to, 0 where it does not exist. Returns a share by member id; who is left out gets nothing. An error that it
        raises is raised by the leader's poll, and the group waits until the leader's next polls do better."""

    def on_assignment(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        """Called in every member, in a poll, with all partitions that it shall have and what the leader wrote to it:
        after on_revoked, before on_assigned. An error that it raises is raised by the poll, and the next one calls it
        again."""


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


def by_sticking(members: Mapping[str, Member], counts: Mapping[str, int]) -> Assignment:
    """As even as subscriptions allow, no two members differing by two where one could give to the other, and with as
    few moves as that takes. Of two that claim a partition, who has it from the later generation keeps it (KIP-792)."""
    holder = _holders(members, counts)
    held: dict[str, list[TopicPartition]] = {member: [] for member in members}
    for tp in sorted(holder):
        held[holder[tp]].append(tp)
    topics = {member: frozenset(claim.topics) for member, claim in members.items()}
    for topic in sorted(counts):
        readers = [member for member in members if topic in topics[member]]
        for tp in (TopicPartition(topic, partition) for partition in range(counts[topic])):
            if readers and tp not in holder:
                held[min(readers, key=lambda member: len(held[member]))].append(tp)
    while _even_out(held, topics):
        pass
    return {member: _by_topic(tps) for member, tps in held.items()}


def _holders(members: Mapping[str, Member], counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """Whose each partition is before it is assigned anew: nobody's if its claims are of one generation."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for member, claim in members.items():
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


def by_cooperation(members: Mapping[str, Member], counts: Mapping[str, int]) -> Assignment:
    """`by_sticking`, without what another member still has."""
    return cooperatively(by_sticking(members, counts), members)


def cooperatively(wanted: Mapping[str, Mapping[str, Sequence[int]]], members: Mapping[str, Member]) -> Assignment:
    """What may be given out at once of a wanted assignment (member -> topic -> partitions): all but what another member
    still has. That one gives it up, since it is not given it again, and joins once more; then it is assigned
    (KIP-429)."""
    owners = _owners(members)
    shares: Assignment = {}
    for member, found in wanted.items():
        tps = (TopicPartition(topic, partition) for topic, partitions in found.items() for partition in partitions)
        shares[member] = _by_topic([tp for tp in tps if all(owner == member for owner in owners.get(tp, ()))])
    return shares


def _owners(members: Mapping[str, Member]) -> dict[TopicPartition, list[str]]:
    owners: dict[TopicPartition, list[str]] = {}
    for member, claim in members.items():
        for tp in claim.owned:
            owners.setdefault(tp, []).append(member)
    return owners


def _by_topic(tps: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for tp in sorted(tps):
        found.setdefault(tp.topic, []).append(tp.partition)
    return found


def _wanted(members: Mapping[str, Member]) -> dict[str, Collection[str]]:
    return {member: claim.topics for member, claim in members.items()}


def checked(assignor: Assignor, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
    """What it assigns. Raises ClientError for an assignment that would harm the group."""
    shares = assignor.assign(members, counts)
    owners = _owners(members) if assignor.is_cooperative else {}
    given: dict[TopicPartition, str] = {}
    for member, (topics, _) in shares.items():
        if member not in members:
            raise ClientError(f"assignor {assignor.name}: the group has no member {member}")
        for tp in (
            TopicPartition(topic, partition) for topic, partitions in topics.items() for partition in partitions
        ):
            what = f"assignor {assignor.name} gives {tp.topic}-{tp.partition} to {member}"
            if tp.topic not in members[member].topics:
                raise ClientError(f"{what}, which does not subscribe to it")
            if not 0 <= tp.partition < counts.get(tp.topic, 0):
                raise ClientError(f"{what}, but the topic has {counts.get(tp.topic, 0)} partitions")
            if tp in given:
                raise ClientError(f"{what}, and to {given[tp]}: a partition has one reader")
            if others := [owner for owner in owners.get(tp, ()) if owner != member]:
                raise ClientError(
                    f"{what} while {others[0]} still has it, and is cooperative: return cooperatively(wanted, members)"
                )
            given[tp] = member
    return shares


@dataclass(frozen=True)
class _Kafkas:
    """An `Assignor` of Kafka's, which has no user data."""

    name: str
    _assign: Callable[[Mapping[str, Member], Mapping[str, int]], Assignment]
    is_cooperative: bool = False

    def user_data(self) -> bytes:
        return b""

    def assign(self, members: Mapping[str, Member], counts: Mapping[str, int]) -> Mapping[str, Share]:
        return {member: (topics, b"") for member, topics in self._assign(members, counts).items()}

    def on_assignment(self, partitions: list[TopicPartition], user_data: bytes) -> None:
        pass


KAFKAS: Mapping[str, Assignor] = {
    each.name: each
    for each in (
        _Kafkas("range", lambda members, counts: by_range(_wanted(members), counts)),
        _Kafkas("roundrobin", lambda members, counts: by_turns(_wanted(members), counts)),
        _Kafkas("cooperative-sticky", by_cooperation, is_cooperative=True),
    )
}


def chosen(assignors: Iterable[str | Assignor]) -> dict[str, Assignor]:
    """By name, in the order of preference. Raises ClientError for a name that is none, or that is given twice."""
    found: dict[str, Assignor] = {}
    for each in assignors:
        if isinstance(each, str):
            if each not in KAFKAS:
                raise ClientError(
                    f"there is no assignor {each}: choose from {', '.join(KAFKAS)}, or pass an object of your own"
                )
            each = KAFKAS[each]
        if each.name in found:
            raise ClientError(f"assignors has {each.name} twice: give yours another name")
        found[each.name] = each
    if not found:
        raise ClientError("assignors is empty: name at least one, such as range")
    return found
