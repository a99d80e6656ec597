"""Kafka's range assignor of KIP-848: of every topic, each subscriber gets one run of neighbouring partitions.

Members that subscribe to the same topics with as many partitions get the same partition numbers of each, as joins
need. It knows no stickiness but the order of members: static members by instance id, then the others by member id.
Replica racks play no part in Kafka 4.4's either.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...java import java_sort_key
from .types import Assignment, MemberSubscription, TopicDescriber

_Run = tuple[int, ...]


def assign(
    members: Mapping[str, MemberSubscription],
    topics: Mapping[bytes, TopicDescriber],
    homogeneous: bool | None = None,  # one rule for both
) -> Mapping[str, Assignment]:
    """See `Assignor`."""
    order = sorted(members, key=lambda member_id: _rank(member_id, members[member_id].instance_id))
    subscribers: dict[bytes, int] = {}
    for member_id in order:
        for topic_id in members[member_id].topic_ids:
            subscribers[topic_id] = subscribers.get(topic_id, 0) + 1
    runs = {topic_id: _runs(topics[topic_id].num_partitions, count) for topic_id, count in subscribers.items()}
    assigned: dict[str, Assignment] = {}
    for member_id in order:
        taken = {topic_id: next(runs[topic_id]) for topic_id in sorted(members[member_id].topic_ids)}
        assigned[member_id] = {topic_id: run for topic_id, run in taken.items() if run}
    return assigned


def _rank(member_id: str, instance_id: str | None) -> tuple[bool, bytes, bytes]:
    own = java_sort_key(member_id)
    return (True, own, own) if instance_id is None else (False, java_sort_key(instance_id), own)


def _runs(partitions: int, subscribers: int) -> Iterator[_Run]:
    """As many runs as subscribers; the first ones are longer by one, where it does not come out even."""
    least, longer = divmod(partitions, subscribers)
    start = 0
    for number in range(subscribers):
        end = start + least + (number < longer)
        yield tuple(range(start, end))
        start = end
