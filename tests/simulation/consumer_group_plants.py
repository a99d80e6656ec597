"""Planted bugs of consumer groups: rules of KIP-848 taken out; see `controls.py`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

Plant = Callable[[contextlib.ExitStack], None]


def _replace(stack: contextlib.ExitStack, target: object, attribute: str, value: object) -> None:
    stack.enter_context(mock.patch.object(target, attribute, value))


# --- What a coordinator decides ---------------------------------------------------------------------------------------


def assigned_before_they_are_revoked(stack: contextlib.ExitStack) -> None:
    """A member is given its target at once, whoever still has partitions of it."""
    from isthmus.core_broker.coordinators.consumer_groups import reconciliation

    _replace(stack, reconciliation._Step, "_is_free", lambda self, topic_id, partition: True)


def what_is_given_back_is_free(stack: contextlib.ExitStack) -> None:
    """A coordinator does not read which partitions a member is still to give back."""
    from isthmus.core_broker.coordinators.consumer_groups import records

    real = records.with_current

    def with_current(member: Any, value: Any) -> Any:
        return replace(real(member, value), pending_revocation={})

    _replace(stack, records, "with_current", with_current)


def silent_members_stay(stack: contextlib.ExitStack) -> None:
    """Session timeouts are not counted."""
    from isthmus.core_broker.coordinators.consumer_groups.host import ConsumerGroups
    from isthmus.core_broker.coordinators.effects import SESSION

    real = ConsumerGroups._schedule

    def schedule(self: Any, shard: Any, group_id: str, timer: Any, delay_ms: int) -> None:
        if timer[0] != SESSION:
            real(self, shard, group_id, timer, delay_ms)

    _replace(stack, ConsumerGroups, "_schedule", schedule)


def commits_of_any_member(stack: contextlib.ExitStack) -> None:
    """Whoever says that it is a member may commit, though others own the partition now."""
    from isthmus.core_broker.coordinators import offset_requests

    _replace(stack, offset_requests, "check_commit", lambda *_: None)


def member_epochs_are_not_checked(stack: contextlib.ExitStack) -> None:
    from isthmus.core_broker.coordinators.consumer_groups import heartbeat

    _replace(stack, heartbeat, "check_epoch", lambda member, epoch, owned: None)


def static_members_do_not_wait(stack: contextlib.ExitStack) -> None:
    """A static member takes the place of one that is still there."""
    from isthmus.core_broker.coordinators.consumer_groups import heartbeat

    real = heartbeat.static_to_join

    def static_to_join(*args: Any, is_classic: bool = False) -> Any:
        return real(*args, is_classic=True)

    _replace(stack, heartbeat, "static_to_join", static_to_join)


def topics_grow_unseen(stack: contextlib.ExitStack) -> None:
    """A group does not look at its topics again."""
    from isthmus.core_broker.coordinators.consumer_groups import heartbeat

    _replace(stack, heartbeat, "must_refresh", lambda group, rules: group.refreshed_at < 0)


def patterns_are_matched_once(stack: contextlib.ExitStack) -> None:
    """A new topic does not count for regular expressions that were there before."""
    from isthmus.core_broker.coordinators.consumer_groups import matching

    real = matching._to_match

    def to_match(group: Any, old: Any, new: Any, is_new: bool, rules: Any) -> tuple[str, ...]:
        return real(group, old, new, is_new, rules) if is_new or not group.resolved else ()

    _replace(stack, matching, "_to_match", to_match)


# --- Members that keep what they are to give back; groups that go over ------------------------------------------------


def members_may_keep_what_they_have(stack: contextlib.ExitStack) -> None:
    """Rebalance timeouts are not counted."""
    from isthmus.core_broker.coordinators.consumer_groups.host import ConsumerGroups

    real = ConsumerGroups._schedule

    def schedule(self: Any, shard: Any, group_id: str, timer: Any, delay_ms: int) -> None:
        if timer[0] != "rebalance":
            real(self, shard, group_id, timer, delay_ms)

    _replace(stack, ConsumerGroups, "_schedule", schedule)


def conversions_forget_what_members_have(stack: contextlib.ExitStack) -> None:
    """Members of a classic group that becomes a consumer group have nothing."""
    from isthmus.core_broker.coordinators.consumer_groups import migration

    real = migration._from_classic

    def from_classic(*args: Any) -> Any:
        return replace(real(*args), assigned={})

    _replace(stack, migration, "_from_classic", from_classic)


def classic_members_give_back_at_once(stack: contextlib.ExitStack) -> None:
    """Of what a classic member is to give back nobody knows that it still has it."""
    from isthmus.core_broker.coordinators.consumer_groups import classic_members

    real = classic_members.reconcile

    def reconcile(group: Any, member: Any, *rest: Any) -> Any:
        target_epoch, target, changed, _, rules, decision = rest
        return real(group, member, target_epoch, target, changed, {}, rules, decision)

    _replace(stack, classic_members, "reconcile", reconcile)


# --- What is told and what is read ------------------------------------------------------------------------------------


def heartbeats_answered_before_they_count(stack: contextlib.ExitStack) -> None:
    """A member is told what it is given before that is committed."""
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime
    from isthmus.protocol.errors import ErrorCode

    real = CoordinatorRuntime.answer

    def answer(self: Any, shard: Any, respond: Any, timeout_ms: int) -> Any:
        if respond.__qualname__.startswith("ConsumerGroupRequests.heartbeat"):
            return respond(ErrorCode.NONE)
        return real(self, shard, respond, timeout_ms)

    _replace(stack, CoordinatorRuntime, "answer", answer)


def _reading(stack: contextlib.ExitStack, kind: str, change: Callable[[Any], Any]) -> None:
    """What a coordinator that begins reads of records of a kind is another value; None: it leaves them out."""
    from isthmus.core_broker.coordinators.group_shard import GroupShard
    from isthmus.core_broker.coordinators.runtime import CoordinatorRuntime

    real = CoordinatorRuntime._replay_one

    def replay_one(self: Any, shard: Any, record: Any, producer_id: int) -> None:
        decode = GroupShard.decode

        def changed(state: Any, key: Any, value: Any) -> Any:
            found = decode(state, key, value)
            if found is None or type(found[0]).__name__ != kind or found[1] is None:
                return found
            new = change(found[1])
            return None if new is None else (found[0], new)

        with mock.patch.object(GroupShard, "decode", changed):
            real(self, shard, record, producer_id)

    _replace(stack, CoordinatorRuntime, "_replay_one", replay_one)


def moves_forget_what_members_have(stack: contextlib.ExitStack) -> None:
    _reading(stack, "ConsumerGroupCurrentMemberAssignmentKey", lambda value: None)


def moves_forget_the_last_epoch(stack: contextlib.ExitStack) -> None:
    """A coordinator that begins reads the epoch of a group less one."""

    def less(value: Any) -> Any:
        value.epoch -= 1
        return value

    _reading(stack, "ConsumerGroupMetadataKey", less)


def moves_forget_who_is_silent(stack: contextlib.ExitStack) -> None:
    """A coordinator that begins counts no session until a member is heard."""
    from isthmus.core_broker.coordinators.consumer_groups.host import ConsumerGroups

    _replace(stack, ConsumerGroups, "loaded", lambda self, shard: None)


def cut_off_coordinators_hear_members(stack: contextlib.ExitStack) -> None:
    """A coordinator answers members for which there is another one by now."""
    from isthmus.core_broker.coordinators.group_host import GroupHost

    _replace(stack, GroupHost, "sure_shard_of", GroupHost.shard_of)


PLANTS: dict[str, Plant] = {
    "assigned-before-they-are-revoked": assigned_before_they_are_revoked,
    "classic-members-give-back-at-once": classic_members_give_back_at_once,
    "commits-of-any-member": commits_of_any_member,
    "conversions-forget-what-members-have": conversions_forget_what_members_have,
    "cut-off-coordinators-hear-members": cut_off_coordinators_hear_members,
    "heartbeats-answered-before-they-count": heartbeats_answered_before_they_count,
    "member-epochs-are-not-checked": member_epochs_are_not_checked,
    "members-may-keep-what-they-have": members_may_keep_what_they_have,
    "moves-forget-the-last-epoch": moves_forget_the_last_epoch,
    "moves-forget-what-members-have": moves_forget_what_members_have,
    "moves-forget-who-is-silent": moves_forget_who_is_silent,
    "patterns-are-matched-once": patterns_are_matched_once,
    "silent-members-stay": silent_members_stay,
    "static-members-do-not-wait": static_members_do_not_wait,
    "topics-grow-unseen": topics_grow_unseen,
    "what-is-given-back-is-free": what_is_given_back_is_free,
}
