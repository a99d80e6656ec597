"""Plans that even out replicas and leaders: what holds of each, whatever the cluster looks like."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from isthmus.client import TopicPartition
from isthmus.client.balance import balanced
from isthmus.client.moves import Broker, Placed


def cluster(chance: random.Random, racks: tuple[str | None, ...]) -> tuple[dict[TopicPartition, Placed], list[Broker]]:
    """Partitions anywhere, the first brokers with most of them; few brokers down or cordoned."""
    count = chance.randint(2, 7)
    brokers = [
        Broker(n, chance.choice(racks), chance.random() > 0.15, chance.random() < 0.15) for n in range(1, count + 1)
    ]
    ids = [each.id for each in brokers]
    placed = {}
    for index in range(chance.randint(0, 40)):
        factor = chance.randint(1, min(3, count))
        pool = ids if chance.random() < 0.4 else ids[: max(factor, count // 2)]
        replicas = tuple(chance.sample(pool, factor))
        placed[TopicPartition("t", index)] = Placed(replicas, replicas, chance.randint(0, 1000))
    return placed, brokers


def after(placed: dict[TopicPartition, Placed], brokers: list[Broker]) -> dict[TopicPartition, tuple[int, ...]]:
    plan = balanced(placed, brokers)
    return {tp: tuple(plan.get(tp, each.replicas)) for tp, each in placed.items()}


def spread(nodes: tuple[int, ...], brokers: list[Broker]) -> int:
    racks = {each.id: each.rack for each in brokers}
    return len({racks[node] or node for node in nodes})


def counts(where: dict[TopicPartition, tuple[int, ...]], nodes: list[int]) -> tuple[list[int], list[int]]:
    """Replicas and preferred leaders of each of these brokers."""
    held = Counter(node for each in where.values() for node in each)
    leads = Counter(each[0] for each in where.values())
    return [held[node] for node in nodes], [leads[node] for node in nodes]


@pytest.mark.parametrize("racks", [(None,), ("a", "b", "c"), (None, "a", "b")])
def test_what_holds_of_every_plan(racks: tuple[str | None, ...]) -> None:
    for seed in range(150):
        placed, brokers = cluster(random.Random(seed), racks)
        before = {tp: each.replicas for tp, each in placed.items()}
        now = after(placed, brokers)
        closed = {each.id for each in brokers if not each.is_alive or each.is_cordoned}
        usable = [each.id for each in brokers if each.id not in closed]
        for tp, nodes in now.items():
            assert len(set(nodes)) == len(nodes) == len(before[tp])
            assert spread(nodes, brokers) >= spread(before[tp], brokers)
            assert {*before[tp]} & closed == {*nodes} & closed  # what is there stays, and nothing comes
        again = {tp: Placed(nodes, nodes, placed[tp].size_bytes) for tp, nodes in now.items()}
        assert balanced(again, brokers) == {}
        held_before, held = (counts(each, usable)[0] for each in (before, now))
        assert max(held, default=0) <= max(held_before, default=0)
        if racks == (None,):  # nothing is in the way
            assert max(held, default=0) - min(held, default=0) <= 1
            moved = sum(len({*now[tp]} - {*before[tp]}) for tp in now)
            total, each = sum(held), len(usable)
            wanted = sorted((total // each + (n < total % each) for n in range(each)), reverse=True) if each else []
            assert moved == sum(max(0, a - b) for a, b in zip(sorted(held_before, reverse=True), wanted, strict=True))


def test_a_new_broker_gets_its_share_and_leads_as_much_as_the_others() -> None:
    placed = {TopicPartition("t", n): Placed((1 + n % 2, 2 - n % 2), (), 1) for n in range(12)}
    now = after(placed, [Broker(1), Broker(2), Broker(3)])
    assert counts(now, [1, 2, 3]) == ([8, 8, 8], [4, 4, 4])


def test_leaders_alone_change_without_copies_and_through_others() -> None:
    """1 leads all that it has with 2, and 2 shares with 3: leaders go from 1 to 3 by way of 2."""
    placed = {TopicPartition("t", n): Placed((1, 2), (), 1) for n in range(4)}
    placed |= {TopicPartition("t", 4 + n): Placed((2, 3), (), 1) for n in range(2)}
    placed |= {TopicPartition("u", n): Placed((each,), (), 1) for n, each in enumerate((3, 3))}
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "a")]
    now = after(placed, brokers)
    assert max(counts(now, [1, 2, 3])[1]) - min(counts(now, [1, 2, 3])[1]) <= 1


def test_a_rack_is_not_left_for_the_sake_of_counts() -> None:
    placed = {TopicPartition("t", n): Placed((1, 2 + n % 2), (), 1) for n in range(6)}
    brokers = [Broker(1, "a"), Broker(2, "b"), Broker(3, "b")]
    now = after(placed, brokers)
    assert counts(now, [1, 2, 3]) == ([6, 3, 3], [2, 2, 2])
    assert all(1 in nodes for nodes in now.values())


def test_sole_replicas_and_others_are_mixed_so_that_leaders_are_even_too() -> None:
    """Broker 2 was drained: it gets some of what is led elsewhere, and some followers."""
    for seed in range(200):
        chance = random.Random(seed)
        sole = {
            TopicPartition("sole", n): Placed((chance.choice((1, 3)) if n == 8 else 1 + 2 * (n % 2),)) for n in range(9)
        }
        placed = sole | {TopicPartition("t", n): Placed(tuple(chance.sample((1, 3), 2)), (), 1) for n in range(6)}
        assert counts(after(placed, [Broker(1), Broker(2), Broker(3)]), [1, 2, 3]) == ([7, 7, 7], [5, 5, 5]), seed
