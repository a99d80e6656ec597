"""Subscriptions by regular expression: when topics are to be matched anew, and what the matches come to. Pure.

Patterns are matched apart from requests: a request only finds out that it is time to. Kafka does it no more often than
every 10 s for a group, when a pattern is new, when there are new topics, or when the last time is long ago.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from ....protocol.errors import ErrorCode, KafkaError
from ..patterns import Pattern, PatternError
from . import counts, records
from .decision import Decision, Rules
from .group import NOTHING, ConsumerGroup, Resolved
from .member import Member

MIN_INTERVAL_MS = 10_000  # between two times that a group's patterns are matched
MAX_INTERVAL_MS = 600_000


class Change(Enum):
    """What a request does to the pattern of its member."""

    NONE = "the same pattern"
    PENDING = "a new one, whose topics are not known yet"
    RESOLVED = "another one, whose topics are known, or none any more"


def change_of_pattern(
    group: ConsumerGroup, member: Member, updated: Member, rules: Rules, decision: Decision
) -> Change:  # fmt: skip
    """Adds to the decision which patterns are to be matched. Raises KafkaError, INVALID_REGULAR_EXPRESSION."""
    old, new = member.topic_regex, updated.topic_regex
    change, is_new = Change.NONE, False
    if old != new:
        change = Change.PENDING
        if old and group.patterns.get(old) == 1:
            decision.records.append(records.no_regular_expression(group.group_id, old))
        if new and new not in group.patterns:
            _check(new)
            is_new = True
        elif (new and new in group.resolved) or (not new and old):
            change = Change.RESOLVED
    if is_new or group.patterns:
        decision.patterns = _to_match(group, old, new, is_new, rules)
    return change


def _check(pattern: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION, with Kafka's message."""
    try:
        Pattern(pattern)
    except PatternError as error:
        message = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}."
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _to_match(
    group: ConsumerGroup, old: str | None, new: str | None, is_new: bool, rules: Rules
) -> tuple[str, ...]:  # fmt: skip
    """The patterns of the group, if it is time to match them."""
    last = next(iter(group.resolved.values()), None)
    now_ms = rules.wall_ms()
    if last is not None and 0 <= now_ms - last.at_ms <= MIN_INTERVAL_MS:  # not below by a clock that was wrong
        return ()
    patterns = dict(group.patterns)
    counts.add(patterns, (old,) if old else (), -1)
    counts.add(patterns, (new,) if new else (), 1)
    is_time = (
        is_new
        or last is None
        or len(patterns) != len(group.resolved)
        or last.version < rules.topics.new_topics_at
        or now_ms > last.at_ms + MAX_INTERVAL_MS
    )
    return tuple(patterns) if is_time else ()


def matched(group: ConsumerGroup, found: Mapping[str, Resolved], rules: Rules) -> Decision:
    """The patterns' topics are known: records of them, and a higher epoch of the group if that changes anything."""
    decision = Decision()
    topics = dict(group.matched)
    bumps = False
    for pattern, resolved in found.items():
        if pattern not in group.patterns:
            continue  # nobody wants it any more
        is_new = pattern not in group.resolved
        before = frozenset() if is_new else group.resolved[pattern].topics
        if before != resolved.topics or (is_new and _leaves_partitions(group, pattern, rules)):
            bumps = True
            counts.add(topics, before, -1)
            counts.add(topics, resolved.topics, 1)
        decision.records.append(
            records.regular_expression(group.group_id, pattern, resolved.topics, resolved.version, resolved.at_ms)
        )
    metadata_hash = rules.topics.hash_of(group.names.keys() | topics.keys())
    if bumps or metadata_hash != group.metadata_hash:
        decision.records.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
        decision.refreshed_at = rules.topics.changes
    return decision


def _leaves_partitions(group: ConsumerGroup, pattern: str, rules: Rules) -> bool:
    """Whether members that changed to a pattern without topics were to have others, which they do not want any more:
    nobody would have them until the group's epoch is raised."""
    return any(
        not group.targets.get(member.member_id, NOTHING).keys() <= rules.topics.ids_of(member.topic_names)
        for member in group.members.values()
        if member.topic_regex == pattern
    )


def without_patterns(group: ConsumerGroup, leaving: Sequence[Member], decision: Decision) -> frozenset[str]:
    """Remove the patterns that nobody wants once some members have left; gives them."""
    left: dict[str, int] = {}
    for member in leaving:
        counts.add(left, (member.topic_regex,) if member.topic_regex else (), 1)
    gone = [pattern for pattern, count in left.items() if group.patterns.get(pattern) == count]
    decision.records += [records.no_regular_expression(group.group_id, pattern) for pattern in gone]
    return frozenset(gone)
