"""The next target assignment of a group: what each member is to have, by the assignor that most of them ask for."""

from __future__ import annotations

from dataclasses import dataclass

from ..runtime import Record
from . import counts, records
from .assignors.types import MemberSubscription
from .decision import Rules
from .group import NOTHING, ConsumerGroup
from .member import Member, Target


@dataclass(slots=True, frozen=True)
class Subscriptions:
    """What the members of a group subscribe to once a member is as it will be.

    names, matched, patterns: as in `ConsumerGroup`. size: how many members there are then.
    """

    names: dict[str, int]
    matched: dict[str, int]
    patterns: dict[str, int]
    size: int

    @classmethod
    def after(cls, group: ConsumerGroup, old: Member, new: Member) -> Subscriptions:
        """old: the member as it is; one without a subscription where it is new."""
        names, matched, patterns = group.names, group.matched, group.patterns
        if old.topic_names != new.topic_names:
            names = dict(names)
            counts.add(names, old.topic_names, -1)
            counts.add(names, new.topic_names, 1)
        if (old.topic_regex or "") != (new.topic_regex or ""):
            patterns = dict(patterns)
            if old.topic_regex:
                counts.add(patterns, (old.topic_regex,), -1)
                if old.topic_regex not in patterns and old.topic_regex in group.resolved:
                    matched = dict(matched)
                    counts.add(matched, group.resolved[old.topic_regex].topics, -1)
            if new.topic_regex:
                counts.add(patterns, (new.topic_regex,), 1)
        is_known = new.member_id in group.members or new.instance_id in group.static
        return cls(names, matched, patterns, len(group.members) + (not is_known))

    @property
    def topics(self) -> set[str]:
        return self.names.keys() | self.matched.keys()

    @property
    def are_all_alike(self) -> bool:
        """Whether every member subscribes to the same: all by the same names, or all by the same pattern."""
        if not self.patterns:
            return all(count == self.size for count in self.names.values()) and not self.matched
        if next(iter(self.patterns.values())) != self.size:
            return False
        return not self.names and all(count == 1 for count in self.matched.values())


def assign_anew(
    group: ConsumerGroup, epoch: int, old: Member, new: Member, rules: Rules
) -> tuple[Target, list[Record]]:  # fmt: skip
    """The target of `new`, and the records of the whole assignment."""
    members, targets = dict(group.members), group.targets
    before = group.static.get(new.instance_id) if new.instance_id is not None else None
    if before is not None and before != new.member_id:  # a static member came back under another id
        del members[before]
        targets = {**targets, new.member_id: targets.get(before, NOTHING)}
    members[new.member_id] = new
    subscriptions = {
        each.member_id: MemberSubscription(
            each.rack_id,
            each.instance_id,
            rules.topics.ids_of(group.names_wanted_by(each)),
            targets.get(each.member_id, NOTHING),
        )
        for each in members.values()
    }
    topic_ids = frozenset[bytes]().union(*(each.topic_ids for each in subscriptions.values()))
    name = group.preferred_assignor([(old, new)]) or rules.default_assignor
    assigned = rules.assignors[name](
        subscriptions,
        {topic_id: rules.topics.describer(topic_id) for topic_id in topic_ids},
        Subscriptions.after(group, old, new).are_all_alike,
    )
    made: list[Record] = []
    own: Target = NOTHING
    for member_id in members:
        target = {topic_id: frozenset(partitions) for topic_id, partitions in assigned.get(member_id, {}).items()}
        if target != targets.get(member_id):
            made.append(records.target(group.group_id, member_id, target))
        if member_id == new.member_id:
            own = target
    made.append(records.target_epoch(group.group_id, epoch, rules.wall_ms()))
    return own, made


def may_assign(group: ConsumerGroup, rules: Rules) -> bool:
    """Whether the last assignment is old enough for another (KIP-1263), or later than now by a clock that was wrong."""
    interval_ms = rules.options(group.group_id).assignment_interval_ms
    if not group.assigned_at_ms or not interval_ms:
        return True
    return not 0 <= rules.wall_ms() - group.assigned_at_ms < interval_ms
