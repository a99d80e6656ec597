"""What a coordinator says of a group: of one whose members follow the coordinator (KIP-848, type `consumer`), and of
one whose leader gives out the partitions (type `classic`), in the same words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..protocol.errors import DecodeError
from ..protocol.messages import consumer_protocol

CLASSIC, CONSUMER = "classic", "consumer"  # types of groups
_CLASSIC_MEMBER = 0  # the type of a member that joined by JoinGroup (KIP-1099)

Partitions = Mapping[str, tuple[int, ...]]  # by topic, both sorted


@dataclass(frozen=True)
class GroupMember:
    """A member of a group. assigned: what it reads now. What only a `consumer` group tells is None of others:
    epoch, target (what it is to read when others have let go of it), and rack_id, topics and pattern (its subscription)
    where its client sent none. is_classic: it speaks the classic protocol, in a group of either type."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assigned: Partitions
    is_classic: bool = True
    rack_id: str | None = None
    epoch: int | None = None
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    target: Partitions | None = None


@dataclass(frozen=True)
class GroupDescription:
    """A group. assignor: of a `consumer` group the coordinator's, of a classic one the protocol that its members chose.
    epoch: of the group; assignment_epoch: of the last group that partitions were given out for. None of classic ones.
    """

    group_id: str
    type: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    assignment_epoch: int | None = None


def of_consumer_group(said: Any) -> GroupDescription:
    """said: a `consumer_group_describe.DescribedGroup`."""
    members = (
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _by_topic((one.topic_name, one.partitions) for one in each.assignment.topic_partitions),
            each.member_type == _CLASSIC_MEMBER,
            each.rack_id,
            each.member_epoch,
            tuple(sorted(each.subscribed_topic_names)),
            each.subscribed_topic_regex or None,
            _by_topic((one.topic_name, one.partitions) for one in each.target_assignment.topic_partitions),
        )
        for each in said.members
    )
    return GroupDescription(
        said.group_id,
        CONSUMER,
        said.group_state,
        said.assignor_name,
        tuple(members),
        said.group_epoch,
        said.assignment_epoch,
    )


def of_classic_group(said: Any) -> GroupDescription:
    """said: a `describe_groups.DescribedGroup`. Members of other kinds than consumers have no partitions."""
    reads = said.protocol_type == CONSUMER
    members = (
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            _given(each.member_assignment) if reads else {},
        )
        for each in said.members
    )
    return GroupDescription(said.group_id, CLASSIC, said.group_state, said.protocol_data, tuple(members))


def _given(assignment: Any) -> Partitions:
    """What a group's leader gave to a member; nothing where that cannot be read."""
    try:
        found = consumer_protocol.decode_assignment(assignment)
    except DecodeError:
        return {}
    return _by_topic((each.topic, each.partitions) for each in found.assigned_partitions)


def _by_topic(topics: Iterable[tuple[str, list[int]]]) -> Partitions:
    return {topic: tuple(sorted(partitions)) for topic, partitions in sorted(topics)}
