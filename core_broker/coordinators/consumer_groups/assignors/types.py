"""What an assignor of consumer groups (KIP-848) is told, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

Assignment = Mapping[bytes, tuple[int, ...]]  # partitions in ascending order, by topic id; no topic without any


class MemberSubscription(NamedTuple):
    """What a member wants and what it was to have until now.

    topic_ids: topics that exist, of the names and of the regular expression it subscribed to.
    current: its target assignment of the last group epoch, by topic id.
    rack_id and instance_id are None where the client gave none.
    """

    rack_id: str | None
    instance_id: str | None
    topic_ids: frozenset[bytes]
    current: Mapping[bytes, frozenset[int]]


class TopicDescriber(NamedTuple):
    """A topic that members read. racks: of each partition, where its replicas are."""

    num_partitions: int
    racks: Sequence[frozenset[str]] = ()


class Assignor(Protocol):
    """One way to share partitions among the members of a group."""

    def __call__(
        self,
        members: Mapping[str, MemberSubscription],
        topics: Mapping[bytes, TopicDescriber],
        homogeneous: bool | None = None,
    ) -> Mapping[str, Assignment]:
        """The new target assignment of every member, by member id: the same for the same input, in any order.

        topics: all that members subscribe to, by id. homogeneous: whether all members subscribe to the same; the
        coordinator says it where it is decided by names and patterns, None takes it from the topic ids.
        """
        ...


def is_homogeneous(members: Mapping[str, MemberSubscription]) -> bool:
    return len({member.topic_ids for member in members.values()}) <= 1
