"""One consumer group (KIP-848): nothing but the replay of its records, and what can be counted from them.

`heartbeat.py` and its neighbours decide which records come next. The semantics are those of Kafka 4.4.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple

from ....protocol.messages import consumer_group_records as r
from ..java import java_order
from ..runtime import Record
from . import counts, records
from .member import LEAVING_EPOCH, Member, MemberState, Target
from .reconciliation import NOBODY

FIRST_EPOCH = 1  # of a group that has no record of its epoch yet
NO_EPOCH = -1  # of a target assignment that was removed
NOTHING: Target = MappingProxyType({})


class GroupState(Enum):
    """Names as in ConsumerGroupDescribe and ListGroups."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"

    __hash__ = object.__hash__


class Resolved(NamedTuple):
    """The topics that a regular expression matched. version: of the metadata; at_ms: of the wall clock."""

    topics: frozenset[str]
    version: int
    at_ms: int


class ConsumerGroup:
    """epoch: raised when members, subscriptions or topics change. assignment_epoch: for which the target was made."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = FIRST_EPOCH
        self.metadata_hash = 0
        self.assignment_epoch = FIRST_EPOCH
        self.assigned_at_ms = 0  # by the wall clock; 0 where no time is known
        self.members: dict[str, Member] = {}
        self.static: dict[str, str] = {}  # member id by instance id
        self.targets: dict[str, Target] = {}  # by member id
        self.resolved: dict[str, Resolved] = {}  # by regular expression
        self.has_partition_metadata = False  # there is a record of before Kafka 4.1, to be removed
        self.refreshed_at = -1  # of `Topics.changes`: what the metadata hash is known to hold for; no part of records
        self.names: dict[str, int] = {}  # members that subscribe to a topic by its name
        self.matched: dict[str, int] = {}  # regular expressions that match a topic
        self.patterns: dict[str, int] = {}  # members that subscribe by a regular expression
        self.assignors: dict[str, int] = {}  # members that ask for an assignor
        self.classic_members = 0
        self.classic_protocols: dict[str, int] = {}  # members that support a protocol, of those that are classic
        self._partition_epochs: dict[bytes, dict[int, int]] = {}
        self._state: GroupState | None = GroupState.EMPTY  # None: to be found anew

    # --- What is asked ------------------------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        if self._state is None:
            self._state = self._present_state()
        return self._state

    def _present_state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def partition_epoch(self, topic_id: bytes, partition: int) -> int:
        """The epoch of the member that has a partition; NOBODY if none has it."""
        partitions = self._partition_epochs.get(topic_id)
        return NOBODY if partitions is None else partitions.get(partition, NOBODY)

    def target_of(self, member_id: str, instance_id: str | None) -> Target:
        """The target of a member; of a static one whatever its id was."""
        if instance_id is not None:
            member_id = self.static.get(instance_id, "")
        return self.targets.get(member_id, NOTHING)

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.names or topic in self.matched

    def subscribed_names(self) -> Collection[str]:
        """The topics that members want, by name or by regular expression."""
        return self.names.keys() | self.matched.keys() if self.matched else self.names.keys()

    def names_wanted_by(self, member: Member) -> Collection[str]:
        resolved = self.resolved.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if resolved is None else member.topic_names | resolved.topics

    def preferred_assignor(self, changed: Iterable[tuple[Member | None, Member | None]] = ()) -> str | None:
        """That which most members ask for; None where nobody asks. changed: members as they are and will be."""
        found = self.assignors
        pairs = [(old, new) for old, new in changed if _assignor(old) != _assignor(new)]
        if pairs:
            found = dict(found)
            for old, new in pairs:
                counts.add(found, _assignor(old), -1)
                counts.add(found, _assignor(new), 1)
        return max(java_order(found), key=lambda name: found[name], default=None)

    def waits_for_others(self, member: Member) -> bool:
        """Whether partitions of its target are still with other members."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        return any(
            index not in member.assigned.get(topic_id, {}) and self.partition_epoch(topic_id, index) != NOBODY
            for topic_id, partitions in self.targets.get(member.member_id, NOTHING).items()
            for index in partitions
        )

    def tombstones(self) -> list[Record]:
        """Records that remove the group."""
        return records.no_group(self.group_id, list(self.members), list(self.resolved))

    # --- Replay -------------------------------------------------------------------------------------------------------

    def replay(self, key: Any, value: Any) -> None:
        """Take a record in. The group's own tombstone is for the shard to follow."""
        _REPLAY[type(key)](self, key, value)
        self._state = None

    def _epoch(self, key: r.ConsumerGroupMetadataKey, value: r.ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.epoch = value.epoch
            self.metadata_hash = value.metadata_hash

    def _partition_metadata(self, key: r.ConsumerGroupPartitionMetadataKey, value: Any) -> None:
        self.has_partition_metadata = value is not None

    def _subscription(
        self, key: r.ConsumerGroupMemberMetadataKey, value: r.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        old = self.members.get(key.member_id)
        if old is not None:
            self._count(old, -1)
        if value is not None:
            new = records.with_subscription(old or Member(key.member_id), value)
            self.members[key.member_id] = new
            self._count(new, 1)
        elif old is not None:
            self._release(old)
            del self.members[key.member_id]

    def _current(
        self,
        key: r.ConsumerGroupCurrentMemberAssignmentKey,
        value: r.ConsumerGroupCurrentMemberAssignmentValue | None,
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            new = records.with_current(old or Member(key.member_id), value)
        elif old is not None:
            new = replace(old, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned={}, pending_revocation={})
        else:
            return
        if old is not None:
            self._release(old)
        self.members[key.member_id] = new
        self._take(new)

    def _target_epoch(
        self,
        key: r.ConsumerGroupTargetAssignmentMetadataKey,
        value: r.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        if value is None:
            self.assignment_epoch, self.assigned_at_ms = NO_EPOCH, 0
        else:
            self.assignment_epoch, self.assigned_at_ms = value.assignment_epoch, value.assignment_timestamp

    def _target(
        self,
        key: r.ConsumerGroupTargetAssignmentMemberKey,
        value: r.ConsumerGroupTargetAssignmentMemberValue | None,
    ) -> None:
        if value is None:
            self.targets.pop(key.member_id, None)
        else:
            self.targets[key.member_id] = records.target_of(value)

    def _regular_expression(
        self, key: r.ConsumerGroupRegularExpressionKey, value: r.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        old = self.resolved.pop(key.regular_expression, None)
        if old is not None:
            counts.add(self.matched, old.topics, -1)
        if value is not None:
            new = Resolved(frozenset(value.topics), value.version, value.timestamp)
            self.resolved[key.regular_expression] = new
            counts.add(self.matched, new.topics, 1)

    def _count(self, member: Member, step: int) -> None:
        """Count a member's subscription in, or out."""
        counts.add(self.names, member.topic_names, step)
        counts.add(self.patterns, _pattern(member), step)
        counts.add(self.assignors, _assignor(member), step)
        if member.classic is not None:
            self.classic_members += step
            counts.add(self.classic_protocols, (each.name for each in member.classic.supported_protocols), step)
        if member.instance_id is None:
            return
        if step > 0:
            self.static[member.instance_id] = member.member_id
        elif self.static.get(member.instance_id) == member.member_id:
            del self.static[member.instance_id]

    def _take(self, member: Member) -> None:
        for assigned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assigned.items():
                epochs = self._partition_epochs.setdefault(topic_id, {})
                for index in partitions:
                    epochs[index] = max(member.epoch, epochs.get(index, member.epoch))

    def _release(self, member: Member) -> None:
        for assigned in (member.assigned, member.pending_revocation):
            for topic_id, partitions in assigned.items():
                epochs = self._partition_epochs.get(topic_id, {})
                for index in partitions:
                    if epochs.get(index) == member.epoch:  # else another member has it by now
                        del epochs[index]
                if not epochs:
                    self._partition_epochs.pop(topic_id, None)


def _assignor(member: Member | None) -> tuple[str, ...]:
    return () if member is None or member.server_assignor is None else (member.server_assignor,)


def _pattern(member: Member | None) -> tuple[str, ...]:
    return (member.topic_regex,) if member is not None and member.topic_regex else ()


_REPLAY: Mapping[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    r.ConsumerGroupMetadataKey: ConsumerGroup._epoch,
    r.ConsumerGroupPartitionMetadataKey: ConsumerGroup._partition_metadata,
    r.ConsumerGroupMemberMetadataKey: ConsumerGroup._subscription,
    r.ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._target_epoch,
    r.ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._target,
    r.ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._current,
    r.ConsumerGroupRegularExpressionKey: ConsumerGroup._regular_expression,
}
KEYS = tuple(_REPLAY)  # of records that make a consumer group
