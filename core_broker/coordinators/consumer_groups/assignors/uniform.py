"""Kafka's uniform assignor of KIP-848: as even as can be, and then with as few moves as can be.

Where all members subscribe to the same topics, `_homogeneous`: counts differ by one at most. Where not,
`_heterogeneous`: partitions go to the least loaded subscriber of their topic, then from the most to the least loaded
as long as that evens out. What neither evenness nor stickiness decides, Kafka leaves to the order of its hash maps;
that order is kept, so that the same group has the same assignment with either. Replica racks play no part in Kafka
4.4's either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from ...java import java_order, java_slot, java_uuid_hash, slots_of_copy, slots_when_grown
from .types import Assignment, MemberSubscription, TopicDescriber, is_homogeneous

MAX_ROUNDS = 16  # of evening out over all topics; each about halves what is uneven
NOBODY = -1

_Members = Mapping[str, MemberSubscription]
_Topics = Mapping[bytes, TopicDescriber]


def assign(members: _Members, topics: _Topics, homogeneous: bool | None = None) -> Mapping[str, Assignment]:
    """See `Assignor`."""
    if is_homogeneous(members) if homogeneous is None else homogeneous:
        return _homogeneous(members, topics)
    return _heterogeneous(members, topics)


def _in_order(members: _Members) -> list[str]:
    return java_order(sorted(members))


def _collected(owned: Iterable[tuple[str, bytes, int]], members: Iterable[str]) -> Mapping[str, Assignment]:
    """The answer, from (member, topic, partition) in ascending order of partitions."""
    lists: dict[str, dict[bytes, list[int]]] = {member_id: {} for member_id in members}
    for member_id, topic_id, partition in owned:
        lists[member_id].setdefault(topic_id, []).append(partition)
    return {
        member_id: {topic_id: tuple(partitions) for topic_id, partitions in of_member.items()}
        for member_id, of_member in lists.items()
    }


# --- All members subscribe to the same topics -------------------------------------------------------------------------


def _homogeneous(members: _Members, topics: _Topics) -> Mapping[str, Assignment]:
    """Members keep what they have up to their quota; what is over and what is new fills those below it."""
    order = _in_order(members)
    if not order:
        return {}
    subscribed = _as_copied_set(members[order[0]].topic_ids)
    owners = {topic_id: [NOBODY] * topics[topic_id].num_partitions for topic_id in subscribed}
    given_up, below = _keep_up_to_quota(members, order, owners)
    free = [
        (topic_id, partition)
        for topic_id, partitions in owners.items()
        for partition, owner in enumerate(partitions)
        if owner == NOBODY and (topic_id, partition) not in given_up
    ]
    free += (each for each in given_up if owners[each[0]][each[1]] == NOBODY)  # last, as Kafka has it
    waiting = iter(free)
    for member, quota in below:
        for topic_id, partition in islice(waiting, quota):
            owners[topic_id][partition] = member
    return _of_owners(owners, order)


def _keep_up_to_quota(
    members: _Members, order: Sequence[str], owners: dict[bytes, list[int]]
) -> tuple[dict[tuple[bytes, int], None], list[tuple[int, int]]]:
    """Writes what members keep to `owners`; returns what they give up, in order, and who may take how many more."""
    least, extra = divmod(sum(map(len, owners.values())), len(order))
    given_up: dict[tuple[bytes, int], None] = {}
    below: list[tuple[int, int]] = []
    for member, member_id in enumerate(order):
        current = members[member_id].current
        quota = least + (extra > 0)
        for topic_id in _as_grown_map(current):
            partitions = owners.get(topic_id)
            if partitions is None:
                continue
            for partition in _as_copied_ints(current[topic_id]):
                if partition >= len(partitions) or partitions[partition] != NOBODY:
                    continue  # a classic group's leader may have given out anything
                if quota > 0:
                    quota -= 1
                    partitions[partition] = member
                else:
                    given_up[topic_id, partition] = None
        if extra > 0:
            # One that is not full leaves the place of one more to those after it, as long as there are enough.
            if quota > 0 and len(order) - member > extra:
                quota -= 1
            else:
                extra -= 1
        if quota > 0:
            below.append((member, quota))
    return given_up, below


def _as_grown_map(topic_ids: Iterable[bytes]) -> list[bytes]:
    ordered = sorted(topic_ids)
    slots = slots_when_grown(len(ordered))
    return sorted(ordered, key=lambda topic_id: java_slot(java_uuid_hash(topic_id), slots))


def _as_copied_set(topic_ids: Iterable[bytes]) -> list[bytes]:
    ordered = sorted(topic_ids)
    slots = slots_of_copy(len(ordered))
    return sorted(ordered, key=lambda topic_id: java_slot(java_uuid_hash(topic_id), slots))


def _as_copied_ints(partitions: frozenset[int]) -> list[int]:
    ordered = sorted(partitions)
    slots = slots_of_copy(len(ordered))
    return sorted(ordered, key=lambda partition: java_slot(partition, slots))


def _of_owners(owners: Mapping[bytes, Sequence[int]], order: Sequence[str]) -> Mapping[str, Assignment]:
    owned = (
        (order[owner], topic_id, partition)
        for topic_id, partitions in owners.items()
        for partition, owner in enumerate(partitions)
    )
    return _collected(owned, order)


# --- Members subscribe to different topics ----------------------------------------------------------------------------


def _heterogeneous(members: _Members, topics: _Topics) -> Mapping[str, Assignment]:
    order = _in_order(members)
    subscribers: dict[bytes, list[int]] = {}  # by topic, ascending; a member is its place in `order`
    for member, member_id in enumerate(order):
        for topic_id in sorted(members[member_id].topic_ids):
            subscribers.setdefault(topic_id, []).append(member)
    owners = {topic_id: [NOBODY] * topics[topic_id].num_partitions for topic_id in subscribers}
    load = [0] * len(order)
    for member, member_id in enumerate(order):
        subscription = members[member_id]
        for topic_id, partitions in subscription.current.items():
            if topic_id not in subscription.topic_ids:
                continue
            of_topic = owners[topic_id]
            for partition in partitions:
                if partition < len(of_topic) and of_topic[partition] == NOBODY:
                    of_topic[partition] = member
                    load[member] += 1

    def hardest_first(topic_id: bytes) -> tuple[float, int, int, int]:
        readers = len(subscribers[topic_id])
        high, low = (int.from_bytes(topic_id[at : at + 8], "big", signed=True) for at in (0, 8))
        return -len(owners[topic_id]) / readers, readers, high, low

    sequence = sorted(subscribers, key=hardest_first)
    for topic_id in sequence:
        _give_out(owners[topic_id], subscribers[topic_id], load)
    shared = [(owners[each], subscribers[each]) for each in sequence if len(subscribers[each]) > 1]
    _even_out(shared, load)
    return _of_owners(owners, order)


def _give_out(owners: list[int], subscribers: list[int], load: list[int]) -> None:
    """What nobody has of a topic goes to its least loaded subscribers."""
    takers = _least_loaded(sorted(subscribers, key=load.__getitem__), load)
    for partition, owner in enumerate(owners):
        if owner == NOBODY:
            _, taker = next(takers)
            owners[partition] = taker
            load[taker] += 1


def _even_out(shared: Sequence[tuple[list[int], list[int]]], load: list[int]) -> None:
    """Goes through topics, each its owners and its subscribers, until once through changes nothing."""
    last_changed: int | None = None
    for _ in range(MAX_ROUNDS):
        for number, (owners, subscribers) in enumerate(shared):
            if number == last_changed:
                return
            if _even_out_topic(owners, subscribers, load) or last_changed is None:
                last_changed = number


def _even_out_topic(owners: list[int], subscribers: list[int], load: list[int]) -> bool:
    """Moves partitions from the most to the least loaded; whether any moved."""
    by_load = sorted(subscribers, key=load.__getitem__)
    if load[by_load[-1]] - load[by_load[0]] <= 1:
        return False
    held: dict[int, list[int]] = {}
    for partition, owner in enumerate(owners):
        held.setdefault(owner, []).append(partition)
    takers = _least_loaded(by_load, load)
    moved = False
    for high, giver in _most_loaded(by_load, load, held):
        partition = held[giver].pop()
        low, taker = next(takers)
        if high - low <= 1:
            break
        owners[partition] = taker
        load[giver] -= 1
        load[taker] += 1
        moved = True
    return moved


def _least_loaded(by_load: Sequence[int], load: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(load before, member), lowest first and without end: each that is given out is given one partition.

    As water fills a vessel: once all of the lowest level have one more, those that were one above are of that level.
    """
    level, end = load[by_load[0]], 0
    while True:
        while end < len(by_load) and load[by_load[end]] == level:
            end += 1
        for at in range(end):
            yield level, by_load[at]
        level += 1


def _most_loaded(
    by_load: list[int], load: Sequence[int], held: Mapping[int, Sequence[int]]
) -> Iterator[tuple[int, int]]:
    """(load before, member), highest first, of members that hold something: each that is given out gives one away.

    One that holds nothing changes places with the end of the highest level and is out of it: `by_load` is changed.
    """
    start = end = len(by_load)
    level = load[by_load[-1]] + 1
    while end:
        level = load[by_load[start - 1]] if start == end else level - 1
        while start and load[by_load[start - 1]] == level:
            start -= 1
        for at in reversed(range(start, end)):
            member = by_load[at]
            if held.get(member):
                yield level, member
            else:
                end -= 1
                by_load[at], by_load[end] = by_load[end], member
