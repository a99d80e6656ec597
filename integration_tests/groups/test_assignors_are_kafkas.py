"""The server-side assignors of KIP-848 beside Kafka's own classes: the same shares through many histories."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from integration_tests.protocol.kafkas_messages import ask
from isthmus.core_broker.coordinators.consumer_groups.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSubscription,
    TopicDescriber,
    is_homogeneous,
)
from isthmus.protocol.primitives import uuid_to_str

KAFKAS_GROUPS = Path(__file__).with_name("Groups.java")
HISTORIES = 150
CHANGES = 12  # of a history
MOST_AT_ONCE = 8  # members that come in one change


@dataclass
class Group:
    """A group that lives: members come, go and change their minds, topics grow, and each has what it got last."""

    chance: random.Random
    is_mixed: bool  # members do not all read the same
    topics: dict[bytes, int] = field(default_factory=dict)
    members: dict[str, MemberSubscription] = field(default_factory=dict)

    def begin(self) -> None:
        for _ in range(self.chance.randint(1, 5)):
            self._new_topic()
        self._comes()

    def change(self) -> None:
        kinds = [self._comes, self._comes, self._goes, self._grows, self._new_topic, self._changes_its_mind]
        for kind in self.chance.choices(kinds, k=self.chance.randint(1, 3)):
            kind()

    def _id(self) -> str:
        return uuid_to_str(self.chance.randbytes(16))

    def _comes(self) -> None:
        wanted = self._wanted()
        for _ in range(self.chance.randint(1, MOST_AT_ONCE)):
            instance = self.chance.choice([None, None, self._id()])
            rack = self.chance.choice([None, "a", "b"])
            self.members[self._id()] = MemberSubscription(rack, instance, wanted, {})
            wanted = self._wanted() if self.is_mixed else wanted

    def _wanted(self) -> frozenset[bytes]:
        if not self.is_mixed:
            return next((each.topic_ids for each in self.members.values()), frozenset(self.topics))
        return frozenset(self.chance.sample(sorted(self.topics), self.chance.randint(0, len(self.topics))))

    def _goes(self) -> None:
        for member_id in self.chance.sample(sorted(self.members), self.chance.randint(0, len(self.members) // 2)):
            del self.members[member_id]

    def _grows(self) -> None:
        for topic_id in self.topics:
            self.topics[topic_id] += self.chance.choice([0, 0, 1, 5])

    def _new_topic(self) -> None:
        self.topics[self.chance.randbytes(16)] = self.chance.choice([1, 2, 3, 7, 16, 40])

    def _changes_its_mind(self) -> None:
        wanted = frozenset(self.topics)
        for member_id, member in self.members.items():
            self.members[member_id] = member._replace(topic_ids=self._wanted() if self.is_mixed else wanted)

    def take(self, assigned: Mapping[str, Assignment]) -> None:
        for member_id, topics in assigned.items():
            current = {topic_id: frozenset(partitions) for topic_id, partitions in topics.items()}
            self.members[member_id] = self.members[member_id]._replace(current=current)


def question(assignor: str, group: Group) -> dict[str, Any]:
    """Sorted, since in a slot of Kafka's hash maps, and only there, the order of insertion decides."""
    return {
        "ask": assignor,
        "homogeneous": is_homogeneous(group.members),
        "topics": {uuid_to_str(topic_id): count for topic_id, count in group.topics.items()},
        "members": {
            member_id: {
                "rack": member.rack_id,
                "instance": member.instance_id,
                "topics": [uuid_to_str(topic_id) for topic_id in sorted(member.topic_ids)],
                "current": {uuid_to_str(topic_id): sorted(held) for topic_id, held in sorted(member.current.items())},
            }
            for member_id, member in sorted(group.members.items())
        },
    }


def shares(assigned: Mapping[str, Assignment]) -> dict[str, dict[str, list[int]]]:
    """As the answers of Groups.java; those without a share are left out, as Kafka does at times."""
    named = {
        member_id: {uuid_to_str(topic_id): list(partitions) for topic_id, partitions in topics.items()}
        for member_id, topics in assigned.items()
    }
    return {member_id: topics for member_id, topics in named.items() if topics}


@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_shares_through_a_history(assignor: str, is_mixed: bool) -> None:
    asked: list[dict[str, Any]] = []
    ours: list[dict[str, dict[str, list[int]]]] = []
    for seed in range(HISTORIES):
        group = Group(random.Random(seed), is_mixed)
        group.begin()
        for _ in range(CHANGES):
            topics = {topic_id: TopicDescriber(count) for topic_id, count in group.topics.items()}
            assigned = ASSIGNORS[assignor](group.members, topics)
            asked.append(question(assignor, group))
            ours.append(shares(assigned))
            group.take(assigned)
            group.change()
    assert sum(map(bool, ours)) > len(ours) // 2  # most groups have something to share
    for at, answer in enumerate(ask(asked, KAFKAS_GROUPS)):
        theirs = {member_id: topics for member_id, topics in answer.get("members", {}).items() if topics}
        assert ours[at] == theirs, asked[at]
