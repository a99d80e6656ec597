"""Rare branches of the coordinator of consumer groups, by name; see `rare_states.py`."""

from __future__ import annotations

from typing import Any

from isthmus.core_broker.coordinators.consumer_groups import (
    classic_members,
    commits,
    heartbeat,
    host,
    leaving,
    requests,
)
from isthmus.core_broker.coordinators.consumer_groups.host import ConsumerGroups
from isthmus.core_broker.coordinators.consumer_groups.member import JOINING_EPOCH, PAUSED_EPOCH, MemberState
from isthmus.core_broker.coordinators.effects import SESSION
from isthmus.core_broker.coordinators.group_states import State
from isthmus.protocol.errors import ErrorCode, KafkaError

from .probes import Probes, Seen

_TIMERS = {  # by the kinds of timers
    SESSION: "group: a member is removed, as it was silent",
    "rebalance": "group: a member is removed, as it did not give back in time",
    "join": "group: a classic member is removed, as it did not join again",
    "sync": "group: a classic member is removed, as it did not ask for its assignment",
}
GROUPS = (
    *_TIMERS.values(),
    "group: a member is heard under its epoch before",
    "group: a member is fenced by its epoch",
    "group: a static member comes back",
    "group: a static member waits for its place",
    "group: a static member takes the place of one that may run",
    "group: a static member is told that another has its place",
    "group: a new topic matches a pattern",
    "group: a member has partitions of a topic that is gone",
    "group: a commit under an older epoch counts",
    "group: a commit is refused, as the partition was given later",
    "group: a decision cannot be written",
    "group: a new coordinator waits for what a member is to give back",
    "group: a new coordinator has classic members in a consumer group",
    "group: a classic group becomes a consumer group",
    "group: a classic group becomes a consumer group while it rebalances",
    "group: a classic group that has had no generation becomes no consumer group",
    "group: a consumer group becomes a classic group",
    "group: a consumer group becomes a classic group, as a static member turns classic",
    "group: a consumer group becomes a classic group while a member is to give back",
    "group: a group has gone over and back",
    "group: a classic member of a consumer group is to join again",
)


def watch_groups(probes: Probes) -> None:
    converted: dict[str, None] = {}  # groups that were made classic ones

    def fired(decision: Any, group: Any, timer: Any, rules: Any) -> Seen:
        yield decision is not None and _TIMERS[timer[0]]

    def epoch(error: Any, member: Any, given: int, owned: Any) -> Seen:
        yield isinstance(error, KafkaError) and "group: a member is fenced by its epoch"
        is_old = error is None and given not in (JOINING_EPOCH, member.epoch)
        yield is_old and "group: a member is heard under its epoch before"

    def joins(result: Any, group: Any, member_id: str, instance_id: str, *_: Any, **__: Any) -> Seen:
        old = group.static_member(instance_id)
        if isinstance(result, KafkaError):
            yield "group: a static member waits for its place"
        elif old is not None and old.epoch == PAUSED_EPOCH:
            yield "group: a static member comes back"
        elif old is not None:
            yield "group: a static member takes the place of one that may run"

    def replaced(error: Any, *_: Any) -> Seen:
        yield isinstance(error, KafkaError) and "group: a static member is told that another has its place"

    def matches(_: Any, group: Any, found: Any, rules: Any) -> Seen:
        known = group.resolved
        is_more = any(each in known and new.topics - known[each].topics for each, new in found.items())
        yield is_more and "group: a new topic matches a pattern"

    def reconciles(group: Any, member: Any, *rest: Any) -> Seen:
        rules = rest[-2]
        is_gone = any(rules.topics.name_of(topic_id) is None for topic_id in member.assigned)
        yield is_gone and "group: a member has partitions of a topic that is gone"

    def commits_late(error: Any, *_: Any) -> Seen:
        if error is None:
            yield "group: a commit under an older epoch counts"
        else:
            yield "group: a commit is refused, as the partition was given later"

    def loads(groups: Any, shard: Any) -> Seen:
        members = [each for group in shard.state.consumer_groups.values() for each in group.members.values()]
        gives_back = any(each.state is MemberState.UNREVOKED_PARTITIONS for each in members)
        yield gives_back and "group: a new coordinator waits for what a member is to give back"
        is_mixed = any(each.classic is not None for each in members)
        yield is_mixed and "group: a new coordinator has classic members in a consumer group"

    def upgrades(result: Any, classic: Any, *_: Any) -> Seen:
        if isinstance(result, KafkaError):
            is_new = result.code == ErrorCode.UNKNOWN_SERVER_ERROR
            yield is_new and "group: a classic group that has had no generation becomes no consumer group"
            return
        yield "group: a classic group becomes a consumer group"
        yield (
            classic.state is not State.STABLE and "group: a classic group becomes a consumer group while it rebalances"
        )
        yield classic.group_id in converted and "group: a group has gone over and back"

    def downgrades(group: Any, leaving: Any, joining: Any, *_: Any) -> Seen:
        yield "group: a consumer group becomes a classic group"
        yield (
            joining is not None and "group: a consumer group becomes a classic group, as a static member turns classic"
        )
        gives_back = any(each.state is MemberState.UNREVOKED_PARTITIONS for each in group.members.values())
        yield gives_back and "group: a consumer group becomes a classic group while a member is to give back"
        converted[group.group_id] = None

    def beats(decision: Any, *_: Any) -> Seen:
        is_told = not isinstance(decision, Exception) and decision.response.error_code
        yield bool(is_told) and "group: a classic member of a consumer group is to join again"

    probes.after(leaving, "fired", fired)
    probes.after(heartbeat, "check_epoch", epoch)
    probes.after(heartbeat, "static_to_join", joins)
    probes.after(classic_members, "static_to_join", joins)
    probes.after(heartbeat, "check_fenced", replaced)
    probes.after(host, "matched", matches)
    probes.before(heartbeat, "reconcile", reconciles)
    probes.before(classic_members, "reconcile", reconciles)
    probes.after(commits, "check_given", commits_late)
    probes.before(ConsumerGroups, "_go_on", lambda *_: ["group: a decision cannot be written"])
    probes.before(ConsumerGroups, "loaded", loads)
    probes.after(requests, "upgraded", upgrades)
    probes.before(leaving, "downgrade", downgrades)
    probes.before(classic_members, "downgrade", downgrades)
    probes.after(classic_members, "beat", beats)
