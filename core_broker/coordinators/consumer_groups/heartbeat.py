"""ConsumerGroupHeartbeat of members that join or stay: which records follow, and what is answered. Pure.

In the order of Kafka 4.4: who asks is checked, its subscription is taken, the group's epoch is raised if that or its
topics have changed, a new target is made where there is a newer epoch, and the member goes one step towards it.
`leaving.py` has how members go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import consumer_group_heartbeat as chb
from ..effects import Caller, Cancel, Schedule, session
from . import records
from .decision import Decision, Rules, join_timer, rebalance_timer, sync_timer, timers_of
from .group import ConsumerGroup
from .matching import Change, change_of_pattern
from .member import JOINING_EPOCH, PAUSED_EPOCH, Member, MemberState, Target
from .reconciliation import Owned, next_step
from .target_assignment import Subscriptions, assign_anew, may_assign


def only_stays(group: ConsumerGroup, request: chb.Request, caller: Caller, rules: Rules) -> bool:
    """Whether a heartbeat says nothing but that its member is there, which has all that it is to have: `heartbeat`
    would write nothing, and tell it nothing new."""
    member = group.members.get(request.member_id)
    return (
        member is not None
        and 0 < request.member_epoch == member.epoch
        and request.topic_partitions is None
        and request.subscribed_topic_names is None
        and request.subscribed_topic_regex is None
        and request.server_assignor is None
        and request.rack_id is None
        and request.rebalance_timeout_ms == -1
        and request.instance_id == member.instance_id
        and caller.client_id == member.client_id
        and caller.client_host == member.client_host
        and member.classic is None
        and not group.patterns
        and group.refreshed_at == rules.topics.changes
        and group.epoch <= group.assignment_epoch
        and member.is_reconciled_to(group.assignment_epoch)
    )


def heartbeat(
    group: ConsumerGroup, request: chb.Request, caller: Caller, rules: Rules, decision: Decision
) -> None:  # fmt: skip
    """Add to the decision what the request comes to. Raises KafkaError; the decision is void then.

    group: one without records where the member's join makes it.
    """
    is_joining = request.member_epoch == JOINING_EPOCH
    check_size(group, request.member_id, request.instance_id, rules)
    member_id = request.member_id or rules.new_id()
    owned = owned_by(request)
    if request.instance_id is None:
        member = _dynamic(group, member_id, is_joining)
        check_epoch(member, request.member_epoch, owned)
    elif is_joining:
        member = static_to_join(group, member_id, request.instance_id, decision)
    else:
        member = known_static(group, member_id, request.instance_id)
        check_epoch(member, request.member_epoch, owned)
    updated = _updated(member, request, caller)

    names_changed = take_subscription(group, member, updated, decision)
    change = change_of_pattern(group, member, updated, rules, decision)
    epoch = group.epoch
    bumps = names_changed or change is Change.RESOLVED or _changes_assignor(group, member, updated, rules)
    if bumps or must_refresh(group, rules):
        epoch = refresh(group, bumps, member, updated, rules, decision)
    target_epoch, target = target_for(group, epoch, member, updated, rules, decision)
    has_new_subscription = names_changed or change is not Change.NONE
    updated = reconcile(group, updated, target_epoch, target, has_new_subscription, owned, rules, decision)

    options = rules.options(group.group_id)
    if member.classic is not None:  # it speaks this protocol from now on
        decision.effects += [Cancel(join_timer(member_id)), Cancel(sync_timer(member_id))]
    decision.effects.append(Schedule(session(member_id), options.session_timeout_ms))
    is_told = is_joining or _is_full(request) or updated.assigned != member.assigned
    decision.response = chb.Response(
        member_id=member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=options.heartbeat_interval_ms,
        assignment=_assignment(updated) if is_told else None,
    )


# --- Who asks ---------------------------------------------------------------------------------------------------------


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None, rules: Rules) -> None:
    """Raises KafkaError, GROUP_MAX_SIZE_REACHED, for one member too many."""
    if len(group.members) < rules.max_size or instance_id in group.static or member_id in group.members:
        return
    raise KafkaError(
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        f"The consumer group has reached its maximum capacity of {rules.max_size} members.",
    )


def _dynamic(group: ConsumerGroup, member_id: str, is_joining: bool) -> Member:
    member = group.members.get(member_id)
    if member is None and not is_joining:
        raise unknown(group, member_id)
    return Member(member_id) if member is None else member


def unknown(group: ConsumerGroup, member_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )  # fmt: skip


def static_to_join(
    group: ConsumerGroup, member_id: str, instance_id: str, decision: Decision, *, is_classic: bool = False
) -> Member:
    """The static member as it begins. One that left for a while is replaced; it may have another member id now.

    Raises KafkaError, UNRELEASED_INSTANCE_ID, while the old one is there; a classic one may always be replaced.
    """
    old = group.static_member(instance_id)
    if old is None:
        return group.members.get(member_id) or Member(member_id)
    if not is_classic and old.classic is None and old.epoch != PAUSED_EPOCH:
        raise KafkaError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {old.member_id} member.",
        )
    new = replace(old, member_id=member_id, epoch=JOINING_EPOCH, previous_epoch=JOINING_EPOCH)
    decision.records += [
        *records.no_member(group.group_id, old.member_id),
        records.subscription(group.group_id, new),
        records.target(group.group_id, member_id, group.target_of(old.member_id, None)),
        records.current(group.group_id, new),
    ]
    if old.member_id != member_id:
        decision.effects += [Cancel(timer) for timer in timers_of(old.member_id)]
    return new


def known_static(group: ConsumerGroup, member_id: str, instance_id: str) -> Member:
    """Raises KafkaError: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    check_fenced(member, member_id, instance_id)
    return member


def check_fenced(member: Member, member_id: str, instance_id: str) -> None:
    """Raises KafkaError, FENCED_INSTANCE_ID, where another member has the instance."""
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )


def check_epoch(member: Member, epoch: int, owned: Owned | None) -> None:
    """Raises KafkaError, FENCED_MEMBER_EPOCH. An epoch is lost with an answer: the one before is good, too, as long as
    the member has nothing that it was not given."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch < member.epoch and epoch == member.previous_epoch and _is_within(owned, member):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    raise KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group coordinator "
        f"({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _is_within(owned: Owned | None, member: Member) -> bool:
    if owned is None:
        return False
    return all(
        topic_id in member.assigned and partitions <= member.assigned[topic_id].keys()
        for topic_id, partitions in owned.items()
    )


def owned_by(request: chb.Request) -> Owned | None:
    if request.topic_partitions is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for each in request.topic_partitions:
        owned[each.topic_id] = owned.get(each.topic_id, frozenset()).union(each.partitions)
    return owned


def _updated(member: Member, request: chb.Request, caller: Caller) -> Member:
    """The member with what the request says anew; what is null there has not changed."""
    said: dict[str, Any] = {"client_id": caller.client_id, "client_host": caller.client_host, "classic": None}
    if request.instance_id is not None:
        said["instance_id"] = request.instance_id
    if request.rack_id is not None:
        said["rack_id"] = request.rack_id
    if request.rebalance_timeout_ms != -1:
        said["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if request.server_assignor is not None:
        said["server_assignor"] = request.server_assignor
    if request.subscribed_topic_names is not None:
        said["topic_names"] = frozenset(request.subscribed_topic_names)
    if request.subscribed_topic_regex is not None:
        said["topic_regex"] = request.subscribed_topic_regex
    changed = {name: value for name, value in said.items() if getattr(member, name) != value}
    return replace(member, **changed) if changed else member


def _is_full(request: chb.Request) -> bool:
    """Whether the member says all about itself, as it does when it has lost an answer."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None


def _assignment(member: Member) -> chb.Assignment:
    return chb.Assignment(
        topic_partitions=[
            chb.TopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in member.assigned.items()
        ]
    )


# --- From subscription to target --------------------------------------------------------------------------------------


def take_subscription(group: ConsumerGroup, member: Member, updated: Member, decision: Decision) -> bool:
    """Whether the member wants other topics by name than before. Whatever else is new is recorded, too."""
    if updated is member:
        return False
    if updated != member:
        decision.records.append(records.subscription(group.group_id, updated))
    return updated.topic_names != member.topic_names


def _changes_assignor(group: ConsumerGroup, member: Member, updated: Member, rules: Rules) -> bool:
    if member.server_assignor == updated.server_assignor:
        return False
    now, then = group.preferred_assignor(), group.preferred_assignor([(member, updated)])
    return (now or rules.default_assignor) != (then or rules.default_assignor)


def must_refresh(group: ConsumerGroup, rules: Rules) -> bool:
    """Whether topics that members want have changed, or may have."""
    if group.refreshed_at == rules.topics.changes:
        return False
    if group.refreshed_at < 0:
        return True
    if rules.topics.have_changed(group.subscribed_names(), group.refreshed_at):
        return True
    group.refreshed_at = rules.topics.changes
    return False


def refresh(
    group: ConsumerGroup, bumps: bool, member: Member, updated: Member, rules: Rules, decision: Decision
) -> int:  # fmt: skip
    """The epoch of the group: raised if that is asked for, or if its topics are others now."""
    epoch = group.epoch
    metadata_hash = rules.topics.hash_of(Subscriptions.after(group, member, updated).topics)
    if bumps or metadata_hash != group.metadata_hash:
        epoch += 1
        decision.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
    decision.refreshed_at = rules.topics.changes
    if group.has_partition_metadata:
        decision.records.append(records.no_partition_metadata(group.group_id))
    return epoch


def target_for(
    group: ConsumerGroup, epoch: int, member: Member, updated: Member, rules: Rules, decision: Decision
) -> tuple[int, Target]:  # fmt: skip
    """The epoch and the member's part of the target: of a new one where the present one is behind the group's epoch."""
    if group.assignment_epoch >= epoch or not may_assign(group, rules):
        return group.assignment_epoch, group.target_of(updated.member_id, updated.instance_id)
    target, made = assign_anew(group, epoch, member, updated, rules)
    decision.records += made
    return epoch, target


def reconcile(
    group: ConsumerGroup,
    member: Member,
    target_epoch: int,
    target: Target,
    has_new_subscription: bool,
    owned: Owned | None,
    rules: Rules,
    decision: Decision,
) -> Member:
    """The member after its next step. One that has to give partitions back has its rebalance timeout for that."""
    if not has_new_subscription and member.is_reconciled_to(target_epoch):
        return member
    subscribed = rules.topics.ids_of(group.names_wanted_by(member))
    after = next_step(
        member, target_epoch, target, subscribed, group.partition_epoch, owned, has_new_subscription
    )  # fmt: skip
    if after == member:
        return member
    decision.records.append(records.current(group.group_id, after))
    if after.classic is None:
        timer = rebalance_timer(after.member_id)
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            decision.effects.append(Schedule(timer, after.rebalance_timeout_ms))
        else:
            decision.effects.append(Cancel(timer))
    return after
