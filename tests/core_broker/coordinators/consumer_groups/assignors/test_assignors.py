"""What an assignor promises, and what it makes of shares that no assignor gave. That its choices are Kafka's is for
integration_tests/groups/test_assignors_are_kafkas.py."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.coordinators.consumer_groups.assignors import (
    ASSIGNORS,
    Assignment,
    MemberSubscription,
    TopicDescriber,
)

S, T = b"s" * 16, b"t" * 16
ALL = pytest.mark.parametrize("assignor", ASSIGNORS)
MEMBERS = [f"member-{number}" for number in range(9)]
TOPICS = st.dictionaries(st.binary(min_size=16, max_size=16), st.integers(0, 20), min_size=1, max_size=5)


def member(*topic_ids: bytes, current: Mapping[bytes, set[int]] | None = None) -> MemberSubscription:
    held = {topic_id: frozenset(partitions) for topic_id, partitions in (current or {}).items()}
    return MemberSubscription(None, None, frozenset(topic_ids), held)


def owners(assigned: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    return [(topic, index) for topics in assigned.values() for topic, held in topics.items() for index in held]


@ALL
@settings(max_examples=60, deadline=None)
@given(TOPICS, st.data())
def test_every_partition_that_anyone_reads_has_one_owner_who_reads_it(assignor, counts, data):
    some = st.sets(st.sampled_from(sorted(counts)))
    wanted = data.draw(st.dictionaries(st.sampled_from(MEMBERS), some, min_size=1))
    members = {name: member(*topic_ids) for name, topic_ids in wanted.items()}
    assigned = ASSIGNORS[assignor](members, {topic: TopicDescriber(count) for topic, count in counts.items()})
    read = set().union(*wanted.values())
    assert sorted(owners(assigned)) == sorted((topic, index) for topic in read for index in range(counts[topic]))
    assert all(set(topics) <= wanted[name] for name, topics in assigned.items()) and set(assigned) == set(members)
    assert all(held == tuple(sorted(held)) and held for topics in assigned.values() for held in topics.values())


@ALL
def test_the_order_in_which_members_and_topics_are_told_plays_no_part(assignor):
    members = {name: member(S, T) if at % 2 else member(T) for at, name in enumerate(MEMBERS)}
    topics = {S: TopicDescriber(5), T: TopicDescriber(13)}
    chance = random.Random(5)
    results = []
    for _ in range(5):
        shuffled = dict(chance.sample(sorted(members.items()), len(members)))
        results.append(ASSIGNORS[assignor](shuffled, dict(reversed(topics.items()))))
    assert all(each == results[0] for each in results)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 9), st.integers(0, 40), st.integers(1, 9), st.integers(0, 40))
def test_uniform_is_even_and_moves_no_more_than_evenness_asks_for(before, old, after, new):
    """One topic that grows, members that come and go: whoever stays keeps all up to the new quota."""
    topics = {T: TopicDescriber(old)}
    first = ASSIGNORS["uniform"]({name: member(T) for name in MEMBERS[:before]}, topics)
    current = {name: {T: set(given.get(T, ()))} for name, given in first.items()}
    partitions = max(old, new)
    members = {name: member(T, current=current.get(name)) for name in MEMBERS[:after]}
    second = ASSIGNORS["uniform"](members, {T: TopicDescriber(partitions)})
    sizes = [len(second[name].get(T, ())) for name in members]
    assert sum(sizes) == partitions and max(sizes) - min(sizes) <= 1
    least, longer = divmod(partitions, after)
    kept = {name: len(set(first.get(name, {}).get(T, ())) & set(second[name].get(T, ()))) for name in members}
    had = [len(first.get(name, {}).get(T, ())) for name in members]
    most = sum(min(held, least) for held in had) + min(longer, sum(held > least for held in had))
    assert sum(kept.values()) == most


def test_range_gives_the_same_partitions_of_topics_that_are_to_be_joined():
    members = {name: member(S, T) for name in MEMBERS[:4]}
    assigned = ASSIGNORS["range"](members, {S: TopicDescriber(10), T: TopicDescriber(10)})
    assert [assigned[name] for name in MEMBERS[:4]] == [
        {S: run, T: run} for run in ((0, 1, 2), (3, 4, 5), (6, 7), (8, 9))
    ]


@pytest.mark.parametrize("others", [(T,), (S, T)])  # all read the same; not all do
def test_shares_that_a_classic_leader_made_up_are_put_right(others):
    """After an upgrade members hold what the leader's bytes said: one partition twice, others that there are not."""
    members = {
        "a": member(T, current={T: {0, 1, 99}}),
        "b": member(*others, current={T: {1, 2}, S: {7}}),
    }
    assigned = ASSIGNORS["uniform"](members, {S: TopicDescriber(1), T: TopicDescriber(4)})
    assert Counter(owners(assigned)) == Counter([*((T, index) for index in range(4)), *((S, 0) for _ in others[1:])])
    assert {0, 1} <= set(assigned["a"][T])
