"""Who reads what in a group: Kafka's range and roundrobin assignors, as pure functions.

wanted: member -> topics that it subscribes to; counts: topic -> partitions. The result has every member, with topic ->
partitions. Members are in Kafka's order: static ones by their instance id, then the others by their member id.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

Assignment = dict[str, dict[str, list[int]]]
Assignor = Callable[[Mapping[str, Collection[str]], Mapping[str, int]], Assignment]


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


ASSIGNORS: Mapping[str, Assignor] = {"range": by_range, "roundrobin": by_turns}
