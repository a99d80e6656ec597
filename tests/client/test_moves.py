"""Plans for replicas that move: where they go, and what cannot be."""

from __future__ import annotations

import pytest

from isthmus.client import TopicPartition
from isthmus.client.moves import FOLLOWERS, LEADERS, Broker, Placed, PlanError, drained, throttled, with_factors

BROKERS = [Broker(1, "a"), Broker(2, "a"), Broker(3, "b"), Broker(4, "b"), Broker(5, "c")]


def partitions(*replicas: tuple[int, ...], size_bytes: int = 10) -> dict[TopicPartition, Placed]:
    return {TopicPartition("t", i): Placed(each, each, size_bytes) for i, each in enumerate(replicas)}


def test_a_drain_keeps_racks_apart_and_each_replica_its_place() -> None:
    plan = drained(partitions((1, 3), (3, 1), (3, 4)), BROKERS, [1])
    # Neither 4, which is in the rack of 3, nor 2 again: the second goes where nothing is yet.
    assert plan == {TopicPartition("t", 0): [2, 3], TopicPartition("t", 1): [3, 5]}


def test_a_drain_of_several_brokers_moves_each_replica_once() -> None:
    plan = drained(partitions((1, 2, 3), (3, 1, 4)), [Broker(each) for each in range(1, 7)], [1, 2, 3])
    assert plan == {TopicPartition("t", 0): [5, 6, 4], TopicPartition("t", 1): [5, 6, 4]}


def test_the_largest_is_placed_first_and_load_counts_what_was_planned_before() -> None:
    placed = {
        TopicPartition("t", 0): Placed((1,), (1,), 10),
        TopicPartition("t", 1): Placed((1,), (1,), 500),
        TopicPartition("t", 2): Placed((1,), (1,), 20),
    }
    nodes = [Broker(1), Broker(2), Broker(3)]
    assert drained(placed, nodes, [1]) == {
        TopicPartition("t", 1): [2],
        TopicPartition("t", 2): [3],
        TopicPartition("t", 0): [3],
    }


def test_nothing_goes_to_a_broker_that_is_down() -> None:
    nodes = [Broker(1), Broker(2, is_alive=False), Broker(3)]
    assert drained(partitions((1,)), nodes, [1]) == {TopicPartition("t", 0): [3]}
    with pytest.raises(
        PlanError, match=r"t-0 has 2 replicas, and 1 brokers live beside broker 1: add one, or .* t --fac"
    ):
        drained(partitions((1, 3)), nodes, [1])
    with pytest.raises(PlanError, match=r"that were drained \(`isthmus broker drain 2 --undo`\)"):
        drained(partitions((1, 3)), [Broker(1), Broker(2, is_cordoned=True), Broker(3)], [1])


def test_a_factor_grows_into_other_racks_and_balances() -> None:
    placed = partitions((1,), (2,), (5,))
    plan = with_factors(dict.fromkeys(placed, 2), placed, BROKERS)
    assert plan == {TopicPartition("t", 0): [1, 3], TopicPartition("t", 1): [2, 4], TopicPartition("t", 2): [5, 1]}
    every = with_factors(dict.fromkeys(placed, 5), placed, BROKERS)
    assert all(sorted(nodes) == [1, 2, 3, 4, 5] for nodes in every.values())
    with pytest.raises(PlanError, match=r"t-0 cannot have 6 replicas: 5 brokers live; choose --factor 5 or less"):
        with_factors(dict.fromkeys(placed, 6), placed, BROKERS)


def test_a_factor_shrinks_by_what_is_not_in_sync_then_by_shared_racks() -> None:
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    placed = {first: Placed((1, 3, 5), (1, 5)), second: Placed((1, 2, 3), (1, 2, 3))}
    assert with_factors(dict.fromkeys(placed, 2), placed, BROKERS) == {first: [1, 5], second: [1, 3]}
    assert with_factors(dict.fromkeys(placed, 1), placed, BROKERS) == {
        first: [1],
        second: [1],
    }  # the preferred leaders stay
    assert with_factors(dict.fromkeys(placed, 3), placed, BROKERS) == {}


def test_a_throttle_names_who_serves_a_copy_and_who_fetches_it() -> None:
    placed = partitions((1, 2), (2, 3), (3, 1))
    plan = {TopicPartition("t", 1): [4, 3], TopicPartition("t", 0): [2, 1, 5], TopicPartition("t", 2): [1, 3]}
    assert throttled(plan, placed) == {"t": {LEADERS: "0:1,0:2,1:2,1:3", FOLLOWERS: "0:5,1:4"}}
    assert throttled({TopicPartition("t", 2): [1]}, placed) == {}
