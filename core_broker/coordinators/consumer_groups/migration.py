"""From a classic group to a consumer group and back, while its members read on (KIP-848). Pure.

A classic group becomes a consumer group when the first member joins by ConsumerGroupHeartbeat. Those that speak the
classic protocol stay in it, and are told generations in place of epochs (`classic_members.py`). It becomes a classic
group again when its last member of the other kind goes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from ....protocol.errors import DecodeError, ErrorCode, KafkaError
from ....protocol.messages import consumer_protocol
from ....protocol.messages.consumer_group_records import ClassicMemberMetadata, ClassicProtocol
from ....protocol.messages.consumer_protocol import Assignment, Subscription, TopicPartition
from ....protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue
from ..effects import Cancel, Schedule, session
from ..generation import CONSUMER
from ..group import Group
from ..members import Member as ClassicMember
from ..members import Members, Protocols
from ..runtime import Record
from . import records
from .decision import Decision, Rules, timers_of
from .group import ConsumerGroup
from .member import Assigned, Member, Target
from .metadata_hash import NO_TOPICS
from .topics import Topics

# --- Upgrade ----------------------------------------------------------------------------------------------------------


def upgraded(classic: Group, rules: Rules, decision: Decision) -> ConsumerGroup:
    """The consumer group that a classic one becomes; the decision has the records of it.

    Where the classic group has not assigned all that there is, as the topics are newer, it is as if the group had no
    topics yet, so that a new target is made. (Kafka 4.4 counts on a join that changes the subscriptions, which that of
    a static member need not do: what is new is nobody's then.)

    Raises KafkaError, GROUP_ID_NOT_FOUND, where it cannot be one.
    """
    _check_upgrade(classic, rules)
    group_id, epoch = classic.group_id, classic.generation.number
    try:
        members = [_from_classic(each, classic, rules.topics) for each in classic.members]
    except DecodeError:
        raise _not_upgraded(classic, "because the embedded consumer protocol is malformed") from None
    metadata_hash = NO_TOPICS
    if _all_is_assigned(members, rules.topics):
        metadata_hash = rules.topics.hash_of({name for member in members for name in member.topic_names})
    made: list[Record] = [
        *(records.subscription(group_id, member) for member in members),
        records.group_epoch(group_id, epoch, metadata_hash),
        *(records.target(group_id, member.member_id, member.assigned) for member in members),
        records.target_epoch(group_id, epoch, 0),
        *(records.current(group_id, member) for member in members),
    ]
    group = ConsumerGroup(group_id)
    for key, value in made:
        group.replay(key, value)
    decision.records += [(GroupMetadataKey(group=group_id), None), *made]
    decision.effects += [Schedule(session(each.member_id), each.session_timeout_ms) for each in classic.members]
    return group


def _all_is_assigned(members: Iterable[Member], topics: Topics) -> bool:
    """Whether each partition of the topics that members want has an owner."""
    counts: Counter[bytes] = Counter()
    wanted: set[bytes] = set()
    for member in members:
        wanted |= topics.ids_of(member.topic_names)
        counts.update({topic_id: len(partitions) for topic_id, partitions in member.assigned.items()})
    return all(counts[topic_id] >= topics.describer(topic_id).num_partitions for topic_id in wanted)


def _check_upgrade(classic: Group, rules: Rules) -> None:
    reason = ""
    if not rules.migration.upgrades:
        reason = "because online upgrade is disabled"
    elif classic.generation.protocol_type != CONSUMER:
        reason = "because the group does not use the consumer embedded protocol"
    elif len(classic.members) > rules.max_size:
        reason = "because the group size exceeds the consumer group maximum size"
    if reason:
        raise _not_upgraded(classic, reason)
    if classic.generation.protocol_name is None:  # in its first rebalance: Kafka has no answer to that
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Group {classic.group_id} has had no generation yet")


def _not_upgraded(classic: Group, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"Cannot upgrade classic group {classic.group_id} to consumer group {reason}."
    )


def _from_classic(old: ClassicMember, classic: Group, topics: Topics) -> Member:
    """Raises DecodeError; KafkaError for an assignor of the user's own, whose data would be lost."""
    assignment = consumer_protocol.decode_assignment(old.assignment)
    if assignment.user_data:
        raise _not_upgraded(
            classic,
            "because an unsupported custom assignor is in use. Please refer to the documentation or switch to a "
            "default assignor before re-attempting the upgrade",
        )
    # One that has joined for the next generation may not support the protocol of this one any more.
    subscription = consumer_protocol.decode_subscription(
        old.metadata(classic.generation.protocol_name) or old.protocols[0][1]
    )
    epoch = classic.generation.number
    has: Assigned = {
        topic_id: dict.fromkeys(indexes, epoch)
        for topic_id, indexes in by_id(assignment.assigned_partitions, topics).items()
    }
    return Member(
        old.member_id,
        epoch,
        epoch,
        instance_id=old.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        client_id=old.client_id,
        client_host=old.client_host,
        topic_names=frozenset(subscription.topics),
        assigned=has,
        classic=spoken(old.session_timeout_ms, old.protocols),
    )


def spoken(session_timeout_ms: int, protocols: Protocols) -> ClassicMemberMetadata:
    """What a member that speaks the classic protocol has said in JoinGroup."""
    return ClassicMemberMetadata(
        session_timeout_ms=session_timeout_ms,
        supported_protocols=[ClassicProtocol(name=name, metadata=metadata) for name, metadata in protocols],
    )


def by_id(partitions: Collection[TopicPartition], topics: Topics) -> dict[bytes, frozenset[int]]:
    """Partitions of topics that exist."""
    named = [(topics.id_of(each.topic), each.partitions) for each in partitions]
    return {topic_id: frozenset(indexes) for topic_id, indexes in named if topic_id is not None}


# --- Downgrade --------------------------------------------------------------------------------------------------------


def leaves_classic_members_alone(group: ConsumerGroup, leaving: Collection[Member], rules: Rules) -> bool:
    """Whether only members that speak the classic protocol are left, and they may be a classic group again."""
    left = len(group.members) - len(leaving)
    others = sum(member.classic is not None for member in leaving)
    return left > 0 and group.classic_members - others == left and _may_be_classic(left, rules)


def replaces_the_last_other(group: ConsumerGroup, replaced: Member | None, rules: Rules) -> bool:
    """The same where a classic member takes the place of the last one that is not."""
    if replaced is None or replaced.classic is not None or group.classic_members != len(group.members) - 1:
        return False
    return _may_be_classic(len(group.members), rules)


def _may_be_classic(size: int, rules: Rules) -> bool:
    return rules.migration.downgrades and size <= rules.classic_max_size


class Joining(NamedTuple):
    """The static member that joins in the place of another one."""

    member: Member
    replaced_id: str


def downgrade(
    group: ConsumerGroup,
    leaving: Collection[Member],
    joining: Joining | None,
    rules: Rules,
    decision: Decision,
) -> None:  # fmt: skip
    """Add the records that make a classic group of a consumer group. Its members are to join again.

    (In Kafka 4.4 they are not where a static member takes the place of the last other one and the target is new: the
    leader does not know then that it leads, and what is new is nobody's, nor do members wait for what others have.)
    """
    gone = {member.member_id for member in leaving}
    ids = list(group.members)
    if joining is not None:
        gone.add(joining.replaced_id)
        ids = [joining.member.member_id if each == joining.replaced_id else each for each in ids]
    staying = [member for member in group.members.values() if member.member_id not in gone]
    members = Members()
    assignments: dict[str, Target] = {each.member_id: group.target_of(each.member_id, None) for each in staying}
    if joining is not None:
        staying.append(joining.member)
        assignments[joining.member.member_id] = group.target_of(joining.replaced_id, None)
    for each in staying:
        members.add(_to_classic(each))
    protocol = members.select_protocol()
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=members.leader,
        current_state_timestamp=rules.wall_ms(),
        members=[
            each.record(protocol, told(assignments[each.member_id], each.metadata(protocol), rules.topics))
            for each in members
        ],
    )
    decision.records += [
        *records.no_group(group.group_id, ids, list(group.resolved)),
        (GroupMetadataKey(group=group.group_id), value),
    ]
    decision.effects += [Cancel(timer) for each in (*group.members, *ids) for timer in timers_of(each)]
    decision.classic = {each.member_id: each.protocols for each in members}


def _to_classic(member: Member) -> ClassicMember:
    assert member.classic is not None
    return ClassicMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        tuple((each.name, bytes(each.metadata)) for each in member.classic.supported_protocols),
    )


def told(partitions: Mapping[bytes, Collection[int]], metadata: bytes, topics: Topics) -> bytes:
    """An assignment as classic consumers read it, in the version of a member's own subscription."""
    named = [(topics.name_of(topic_id), indexes) for topic_id, indexes in partitions.items()]
    assigned = [
        TopicPartition(topic=name, partitions=sorted(indexes)) for name, indexes in named if name is not None
    ]  # fmt: skip
    version = min(int.from_bytes(metadata[:2], "big", signed=True), consumer_protocol.NEWEST_VERSION)
    return consumer_protocol.encode_assignment(Assignment(assigned_partitions=assigned), max(version, 0))


def subscription_of(protocols: Protocols) -> Subscription:
    """What a classic consumer subscribes to, by the first of its protocols.

    Raises KafkaError, INCONSISTENT_GROUP_PROTOCOL, where that cannot be read.
    """
    try:
        return consumer_protocol.decode_subscription(protocols[0][1])
    except DecodeError:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            "Malformed embedded consumer protocol in subscription deserialization.",
        ) from None
