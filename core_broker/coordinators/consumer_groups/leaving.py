"""How members of a consumer group go: they leave, leave for a while, or are removed when a timeout ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....protocol.messages import consumer_group_heartbeat as chb
from ..effects import Cancel, Timer
from . import counts, records
from .decision import Decision, Rules, rebalance_timer, timers_of
from .group import ConsumerGroup
from .heartbeat import known_static, unknown
from .matching import without_patterns
from .member import PAUSED_EPOCH, Member, MemberState
from .migration import downgrade, leaves_classic_members_alone


def leave(group: ConsumerGroup, request: chb.Request, rules: Rules) -> Decision:
    """The decision about a ConsumerGroupHeartbeat of a member that goes. Raises KafkaError."""
    response = chb.Response(member_id=request.member_id, member_epoch=request.member_epoch)
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown(group, request.member_id)
        return remove(group, [member], rules, response)
    member = known_static(group, request.member_id, request.instance_id)
    if request.member_epoch == PAUSED_EPOCH:
        return Decision(
            [records.current(group.group_id, member.paused())], [Cancel(rebalance_timer(member.member_id))], response
        )  # fmt: skip
    return remove(group, [member], rules, response)


def remove(group: ConsumerGroup, leaving: Sequence[Member], rules: Rules, response: Any = None) -> Decision:
    """The group goes on without these members, under a new epoch, or as a classic group where only such are left."""
    decision = Decision(response=response)
    if leaves_classic_members_alone(group, leaving, rules):
        downgrade(group, leaving, None, rules, decision)
        return decision
    names, matched = dict(group.names), dict(group.matched)
    for member in leaving:
        decision.records += records.no_member(group.group_id, member.member_id)
        counts.add(names, member.topic_names, -1)
    for pattern in without_patterns(group, leaving, decision):
        counts.add(matched, group.resolved[pattern].topics if pattern in group.resolved else (), -1)
    epoch = group.epoch + 1
    metadata_hash = rules.topics.hash_of(names.keys() | matched.keys())
    decision.records.append(records.group_epoch(group.group_id, epoch, metadata_hash))
    if len(leaving) == len(group.members):
        decision.records.append(records.target_epoch(group.group_id, epoch, 0))
    for member in leaving:
        decision.effects += [Cancel(timer) for timer in timers_of(member.member_id)]
    return decision


def fired(group: ConsumerGroup, timer: Timer, rules: Rules) -> Decision | None:
    """The decision when a member's timer has expired; None where nothing follows."""
    member = group.members.get(timer[1])
    if member is None:
        return None
    if timer == rebalance_timer(member.member_id) and member.state is not MemberState.UNREVOKED_PARTITIONS:
        return None
    return remove(group, [member], rules)
