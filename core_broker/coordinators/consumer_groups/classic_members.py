"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members of a consumer group that speak the classic protocol.

Their generation is their epoch. There is no leader among them: each joins and syncs by itself, whenever the coordinator
has something for it to give back or to take. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import join_group as jg
from ....protocol.messages import sync_group as sg
from ....protocol.messages.leave_group import MemberIdentity, MemberResponse
from ..effects import Caller, Cancel, Ensure, Schedule, session
from ..members import NOBODY, protocols_of
from .decision import Decision, Policy, Rules, join_timer, rebalance_timer, sync_timer
from .group import ConsumerGroup
from .heartbeat import (
    check_fenced,
    check_size,
    known_static,
    must_refresh,
    reconcile,
    refresh,
    static_to_join,
    take_subscription,
    target_for,
    unknown,
)
from .leaving import remove
from .matching import Change, change_of_pattern
from .member import PAUSED_EPOCH, Member, MemberState
from .migration import (
    CONSUMER,
    Joining,
    by_id,
    downgrade,
    replaces_the_last_other,
    spoken,
    subscription_of,
    told,
)
from .target_assignment import may_assign

REBALANCE_SINCE = 1  # version of JoinGroup
IDS_FIRST_SINCE = 4  # version of JoinGroup in which a dynamic member is told its id first (KIP-394)


# --- JoinGroup --------------------------------------------------------------------------------------------------------


def join(group: ConsumerGroup, request: jg.Request, caller: Caller, rules: Rules) -> Decision:
    """The decision about a JoinGroup. Raises KafkaError."""
    if rules.migration is Policy.DISABLED:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"Cannot join the consumer group {group.group_id} with the classic protocol because the group migration is "
            "disabled.",
        )
    is_new = request.member_id == NOBODY
    member_id = rules.new_id() if is_new else request.member_id
    check_size(group, member_id, request.group_instance_id, rules)
    _check_protocols(group, member_id, request)
    if is_new and request.group_instance_id is None and caller.version >= IDS_FIRST_SINCE:
        return Decision(response=jg.Response(member_id=member_id, error_code=ErrorCode.MEMBER_ID_REQUIRED))
    decision = Decision()
    if request.group_instance_id is None:
        member = group.members.get(member_id) or Member(member_id)
    elif is_new:
        member = static_to_join(group, member_id, request.group_instance_id, decision, is_classic=True)
    else:
        member = known_static(group, member_id, request.group_instance_id)
    _take(group, member, request, caller, rules, decision)
    return decision


def _check_protocols(group: ConsumerGroup, member_id: str, request: jg.Request) -> None:
    """A classic member must share a protocol with all other classic ones, as in a classic group."""
    shared = [
        each.name for each in request.protocols if group.classic_protocols.get(each.name, 0) == group.classic_members
    ]
    if request.protocol_type != CONSUMER or not shared:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def _take(
    group: ConsumerGroup, member: Member, request: jg.Request, caller: Caller, rules: Rules, decision: Decision
) -> None:  # fmt: skip
    """Add to the decision what a join of this member comes to."""
    replaced = group.static_member(request.group_instance_id)
    is_last = replaces_the_last_other(group, replaced, rules)
    protocols = protocols_of(request.protocols)
    subscription = subscription_of(protocols)
    # Version 0 has one timeout for both.
    timeout_ms = request.rebalance_timeout_ms if caller.version >= REBALANCE_SINCE else request.session_timeout_ms
    updated = replace(
        member,
        instance_id=member.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=subscription.rack_id or member.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        topic_names=frozenset(subscription.topics),
        topic_regex="",
        client_id=caller.client_id,
        client_host=caller.client_host,
        classic=spoken(request.session_timeout_ms, protocols),
    )
    changed = take_subscription(group, member, updated, decision)
    changed |= change_of_pattern(group, member, updated, rules, decision) is not Change.NONE
    epoch = group.epoch
    if changed or must_refresh(group, rules):
        epoch = refresh(group, changed, member, updated, rules, decision)
    owned = by_id(subscription.owned_partitions, rules.topics)
    if not is_last:
        target_epoch, target = target_for(group, epoch, member, updated, rules, decision)
        updated = reconcile(group, updated, target_epoch, target, changed, owned, rules, decision)
        decision.effects += [
            Cancel(join_timer(updated.member_id)),
            Cancel(rebalance_timer(updated.member_id)),  # of a member that spoke the other protocol
            Schedule(session(updated.member_id), request.session_timeout_ms),
            Schedule(sync_timer(updated.member_id), timeout_ms),
        ]
    else:
        assert replaced is not None
        downgrade(group, (), Joining(updated, replaced.member_id), rules, decision)
        updated = replace(updated, epoch=group.epoch)
    decision.response = jg.Response(
        member_id=updated.member_id,
        generation_id=updated.epoch,
        protocol_type=CONSUMER,
        protocol_name=protocols[0][0],
        leader=NOBODY,
    )


# --- SyncGroup and Heartbeat ------------------------------------------------------------------------------------------


def sync(group: ConsumerGroup, request: sg.Request, rules: Rules) -> Decision:
    """The decision about a SyncGroup; the member may have to join again first. Raises KafkaError."""
    member = _member(group, request.member_id, request.group_instance_id, request.generation_id)
    assert member.classic is not None
    first = member.classic.supported_protocols[0]
    named = ((request.protocol_type, CONSUMER), (request.protocol_name, first.name))
    if any(name is not None and name != own for name, own in named):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return _again(member, sg.Response(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    return Decision(
        effects=[
            Cancel(sync_timer(member.member_id)),
            Schedule(session(member.member_id), member.classic.session_timeout_ms),
        ],
        response=sg.Response(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=told(member.assigned, bytes(first.metadata), rules.topics),
        ),
    )


def beat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int, response: Any, rules: Rules
) -> Decision:  # fmt: skip
    """The decision about a Heartbeat: the member is told to join again where there is something for it.

    response: what is answered, whose error code is set. Raises KafkaError.
    """
    member = _member(group, member_id, instance_id, generation)
    assert member.classic is not None
    has_news = (
        member.epoch < group.assignment_epoch
        or _must_assign(group, rules)
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
    )
    decision = Decision(response=response)
    if has_news:
        response.error_code = ErrorCode.REBALANCE_IN_PROGRESS
        decision = _again(member, response)
    decision.effects.append(Schedule(session(member.member_id), member.classic.session_timeout_ms))
    return decision


def _must_assign(group: ConsumerGroup, rules: Rules) -> bool:
    """Whether a join of a classic member is to make a new target, as no other kind of member is there whose heartbeats
    would. (Kafka 4.4 leaves what is free to nobody then.)"""
    if any(each.classic is None and each.epoch != PAUSED_EPOCH for each in group.members.values()):
        return False
    if must_refresh(group, rules):
        if rules.topics.hash_of(group.subscribed_names()) != group.metadata_hash:
            return True
        group.refreshed_at = rules.topics.changes
    return group.assignment_epoch < group.epoch and may_assign(group, rules)


def _again(member: Member, response: Any) -> Decision:
    """The member is to join again, and has its rebalance timeout for it."""
    return Decision(effects=[Ensure(join_timer(member.member_id), member.rebalance_timeout_ms)], response=response)


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int) -> Member:
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown(group, member_id)
    else:
        member = known_static(group, member_id, instance_id)
    if member.classic is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member.member_id} does not use the classic protocol."
        )  # fmt: skip
    if member.epoch != generation:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member


# --- LeaveGroup -------------------------------------------------------------------------------------------------------


def leave(
    group: ConsumerGroup, leaving: Sequence[MemberIdentity], rules: Rules
) -> tuple[Decision, list[MemberResponse]]:
    """The decision about a LeaveGroup, which may name members of either kind, and the answer to each."""
    gone: dict[str, Member] = {}
    answers = []
    for each in leaving:
        code = ErrorCode.NONE
        try:
            member = _leaving(group, each)
            gone[member.member_id] = member
        except KafkaError as error:
            code = ErrorCode(error.code)
        answers.append(
            MemberResponse(member_id=each.member_id, group_instance_id=each.group_instance_id, error_code=code)
        )
    return remove(group, list(gone.values()), rules) if gone else Decision(), answers


def _leaving(group: ConsumerGroup, named: MemberIdentity) -> Member:
    """An administrator may name a static member by its instance alone."""
    if named.group_instance_id is None:
        member = group.members.get(named.member_id)
        if member is None:
            raise unknown(group, named.member_id)
        return member
    member = group.static_member(named.group_instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {named.group_instance_id} is unknown.")
    if named.member_id != NOBODY:
        check_fenced(member, named.member_id, named.group_instance_id)
    return member
