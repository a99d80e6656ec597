"""Plans that move replicas: racks stay apart, load is spread, and nothing moves without a reason."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.client.moves import NoPlace, drain, rebalance

THREE_RACKS = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}


def after(partitions, plan):
    return {key: plan.get(key, list(replicas)) for key, replicas in partitions.items()}


def test_a_drained_broker_is_replaced_in_its_place_by_one_of_its_rack():
    partitions = {("t", index): [1, 3, 5] if index % 2 else [4, 6, 1] for index in range(6)}
    plan = drain(THREE_RACKS, partitions, 1)
    assert plan == {("t", index): [2, 3, 5] if index % 2 else [4, 6, 2] for index in range(6)}
    assert drain(THREE_RACKS, partitions, 2) == {}


def test_replicas_of_a_drained_broker_are_spread():
    racks = dict.fromkeys([1, 2, 3, 4])
    plan = drain(racks, {("t", index): [1, 2] for index in range(30)}, 1)
    assert Counter(replicas[0] for replicas in plan.values()) == {3: 15, 4: 15}


def test_a_broker_that_does_not_live_can_be_drained():
    assert drain({1: None, 2: None}, {("t", 0): [9, 1]}, 9) == {("t", 0): [2, 1]}


def test_a_replica_that_has_nowhere_to_go_is_named():
    with pytest.raises(NoPlace, match="t-3 has 2 replicas, and besides broker 1 only 1 live: add a broker"):
        drain({1: None, 2: None}, {("t", 3): [1, 2]}, 1)


def test_a_new_broker_gets_its_share_of_replicas_and_leaders():
    partitions = {("t", index): [1 + index % 3, 1 + (index + 1) % 3] for index in range(120)}
    found = after(partitions, rebalance(dict.fromkeys([1, 2, 3, 4]), partitions))
    assert all(56 <= count <= 64 for count in Counter(each for ids in found.values() for each in ids).values())
    assert all(28 <= count <= 32 for count in Counter(ids[0] for ids in found.values()).values())


def test_load_counts_not_the_number_of_partitions():
    partitions = {("big", 0): [1], ("big", 1): [1], **{("small", index): [2] for index in range(10)}}
    loads = {("big", 0): 100.0, ("big", 1): 100.0}
    plan = rebalance(dict.fromkeys([1, 2]), partitions, loads)
    assert plan["big", 0] == [2] and ("big", 1) not in plan


def test_racks_are_not_given_up_for_load():
    partitions = {("t", index): [1, 3] for index in range(10)}
    found = after(partitions, rebalance({1: "a", 2: "b", 3: "b"}, partitions))
    assert all(1 in replicas for replicas in found.values())
    assert Counter(each for ids in found.values() for each in ids)[2] == 5


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_plan_keeps_factors_and_racks_and_ends(data):
    ids = list(range(1, data.draw(st.integers(2, 7)) + 1))
    racks = {each: data.draw(st.sampled_from(["a", "b", "c", None])) for each in ids}
    partitions = {
        ("t", index): data.draw(st.lists(st.sampled_from(ids), min_size=1, max_size=3, unique=True))
        for index in range(data.draw(st.integers(0, 25)))
    }
    loads = {key: data.draw(st.floats(0, 100)) for key in partitions}

    def crowd(replicas):
        counts = Counter(racks[each] for each in replicas if racks[each] is not None)
        return sum(count - 1 for count in counts.values())

    found = after(partitions, rebalance(racks, partitions, loads))
    for key, replicas in found.items():
        assert len(set(replicas)) == len(partitions[key]) and crowd(replicas) <= crowd(partitions[key])

    def spread(placed):
        load = Counter(dict.fromkeys(ids, 0.0))
        for key, replicas in placed.items():
            load.update(dict.fromkeys(replicas, loads[key]))
        return max(load.values()) - min(load.values())

    assert spread(found) <= spread(partitions) + 1e-6
    gone = data.draw(st.sampled_from(ids))
    try:
        drained = after(partitions, drain(racks, partitions, gone))
    except NoPlace:
        assert any(gone in replicas and len(replicas) == len(ids) for replicas in partitions.values())
    else:
        assert all(
            gone not in replicas and len(set(replicas)) == len(partitions[key]) for key, replicas in drained.items()
        )
