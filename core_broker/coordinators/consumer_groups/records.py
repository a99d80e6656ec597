"""Records of consumer groups, made from members and assignments, and members made from records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ....protocol.messages import consumer_group_records as r
from ..runtime import Record
from .member import Assigned, Member, MemberState, Target

# --- Records ----------------------------------------------------------------------------------------------------------


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> Record:
    return r.ConsumerGroupMetadataKey(group_id=group_id), r.ConsumerGroupMetadataValue(
        epoch=epoch, metadata_hash=metadata_hash
    )


def no_partition_metadata(group_id: str) -> Record:
    """A tombstone of what Kafka kept before 4.1."""
    return r.ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def subscription(group_id: str, member: Member) -> Record:
    value = r.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.topic_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=member.classic,
    )
    return r.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def target_epoch(group_id: str, epoch: int, made_at_ms: int) -> Record:
    """The end of a target assignment; its members' parts come before."""
    value = r.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=made_at_ms)
    return r.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def target(group_id: str, member_id: str, partitions: Mapping[bytes, Iterable[int]]) -> Record:
    value = r.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            r.TargetPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
        ]
    )
    return r.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value


def current(group_id: str, member: Member) -> Record:
    value = r.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_partitions(member.assigned),
        partitions_pending_revocation=_partitions(member.pending_revocation),
    )
    return r.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value


def _partitions(assigned: Assigned) -> list[r.CurrentPartitions]:
    return [
        r.CurrentPartitions(
            topic_id=topic_id,
            partitions=sorted(partitions),
            assignment_epochs=[partitions[index] for index in sorted(partitions)],
        )
        for topic_id, partitions in assigned.items()
    ]


def regular_expression(group_id: str, pattern: str, topics: Iterable[str], version: int, at_ms: int) -> Record:
    value = r.ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=version, timestamp=at_ms)
    return r.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value


def no_regular_expression(group_id: str, pattern: str) -> Record:
    return r.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None


def no_member(group_id: str, member_id: str) -> list[Record]:
    """Tombstones of all that is known of a member."""
    return [
        (r.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (r.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (r.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def no_group(group_id: str, member_ids: Sequence[str], patterns: Iterable[str]) -> list[Record]:
    """Tombstones of all that is known of a group, in the order in which they can be replayed."""
    return [
        *((r.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=each), None) for each in member_ids),
        *((r.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=each), None) for each in member_ids),
        (r.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None),
        *((r.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=each), None) for each in member_ids),
        *(no_regular_expression(group_id, each) for each in patterns),
        no_partition_metadata(group_id),
        (r.ConsumerGroupMetadataKey(group_id=group_id), None),
    ]


# --- Members from records ---------------------------------------------------------------------------------------------


def with_subscription(member: Member, value: r.ConsumerGroupMemberMetadataValue) -> Member:
    return replace(
        member,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=value.classic_member_metadata,
    )


def with_current(member: Member, value: r.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
    return replace(
        member,
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state),
        assigned=_assigned(value.assigned_partitions, value.member_epoch),
        pending_revocation=_assigned(value.partitions_pending_revocation, value.member_epoch),
    )


def _assigned(found: Iterable[r.CurrentPartitions], member_epoch: int) -> Assigned:
    """Partitions whose epochs are not in the record, as it is with those of Kafka before 4.4, have the member's."""
    assigned = {}
    for each in found:
        epochs = each.assignment_epochs
        if epochs is None or len(epochs) != len(each.partitions):
            epochs = [max(member_epoch, 0)] * len(each.partitions)
        assigned[each.topic_id] = dict(zip(each.partitions, epochs, strict=True))
    return assigned


def target_of(value: r.ConsumerGroupTargetAssignmentMemberValue) -> Target:
    return {each.topic_id: frozenset(each.partitions) for each in value.topic_partitions}
