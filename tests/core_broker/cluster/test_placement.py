"""Where replicas of new partitions go: racks first, brokers by turns, fenced ones last, as Kafka's placer does."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.cluster.controller import CreatePartitions, CreatePartitionsTopic, new_topic
from isthmus.core_broker.cluster.controller.placement import racks_of
from isthmus.core_broker.cluster.image import Endpoint
from isthmus.protocol.errors import ErrorCode

from .support import Cluster


def racked(*racks: str | None, fenced: tuple[int, ...] = ()) -> Cluster:
    """Brokers 1, 2, ... in these racks."""
    cluster = Cluster(brokers=0)
    for broker_id, rack in enumerate(racks, 1):
        if broker_id in fenced:
            cluster.register(broker_id, rack=rack)
        else:
            cluster.start(broker_id, rack=rack)
    return cluster


def placed(cluster: Cluster, partitions: int, factor: int) -> list[tuple[int, ...]]:
    (item,) = cluster.create(new_topic("t", partitions, factor))
    assert not item.error_code, item
    return [each.replicas for each in cluster.image.topics["t"].partitions.values()]


def test_each_replica_is_in_a_rack_of_its_own():
    racks = "aaabbbccc"
    replicas = placed(racked(*racks), 90, 3)
    assert all(sorted(racks[each - 1] for each in ids) == ["a", "b", "c"] for ids in replicas)
    assert set(Counter(racks[ids[0] - 1] for ids in replicas).values()) == {30}
    assert set(Counter(each for ids in replicas for each in ids).values()) == {30}
    assert len(set(replicas)) > 20  # not the same sets again and again


def test_more_replicas_than_racks_fill_them_by_turns():
    racks = "aaab"
    for ids in placed(racked(*racks), 20, 3):
        assert Counter(racks[each - 1] for each in ids) == {"a": 2, "b": 1}


def test_brokers_without_a_rack_are_one_rack():
    assert {tuple(sorted(ids)) for ids in placed(racked(None, None, "a"), 12, 2)} == {(1, 3), (2, 3)}


def test_a_machine_with_several_brokers_is_a_rack():
    cluster = Cluster(brokers=0)
    hosts = "aabbc"
    for broker_id, host in enumerate(hosts, 1):
        cluster.start(broker_id, endpoints={"PLAINTEXT": Endpoint(host, 9092)})
    for ids in placed(cluster, 50, 3):
        assert sorted(hosts[each - 1] for each in ids) == ["a", "b", "c"]


@pytest.mark.parametrize("hosts", ["aaa", "abc"])
def test_where_all_have_a_machine_of_their_own_or_one_there_are_no_racks(hosts):
    cluster = Cluster(brokers=0)
    for broker_id, host in enumerate(hosts, 1):
        cluster.start(broker_id, endpoints={"PLAINTEXT": Endpoint(host, 9092)})
    assert dict.fromkeys(racks_of(list(cluster.image.brokers.values())).values()) == {"": None}


def test_a_fenced_broker_never_leads_and_gets_replicas_only_if_there_are_too_few_others():
    assert all(3 not in ids for ids in placed(racked(None, None, None, fenced=(3,)), 10, 2))
    cluster = racked(None, None, None, fenced=(3,))
    replicas = placed(cluster, 10, 3)
    assert all(ids[-1] == 3 for ids in replicas)
    assert all(3 not in each.isr for each in cluster.image.topics["t"].partitions.values())


def test_a_rack_comes_before_a_broker_that_is_not_fenced():
    """Kafka prefers the fenced broker of another rack to a second one of the same."""
    assert {tuple(sorted(ids)) for ids in placed(racked("a", "a", "b", fenced=(3,)), 8, 2)} == {(1, 3), (2, 3)}


@pytest.mark.parametrize(
    ("brokers", "fenced", "reason"),
    [
        (2, (), "The target replication factor of 3 cannot be reached because only 2 broker(s) are registered or some "
         "brokers have all their log directories cordoned."),
        (3, (1, 2, 3), "All brokers are currently fenced, or have all their log directories cordoned."),
    ],
)  # fmt: skip
def test_too_few_brokers_are_told_as_kafka_tells_it(brokers, fenced, reason):
    (item,) = racked(*[None] * brokers, fenced=fenced).create(new_topic("t", 1, 3))
    assert item.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert item.error_message == f"Unable to replicate the partition 3 time(s): {reason}"


def test_more_partitions_are_refused_without_that_beginning():
    cluster = Cluster(brokers=2)
    cluster.create(new_topic("t", 1, 2))
    cluster.fence(1, 2)
    (item,) = cluster.run(CreatePartitions([CreatePartitionsTopic(name="t", count=2, assignments=None)])).items
    assert item.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert item.error_message == "All brokers are currently fenced, or have all their log directories cordoned."


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=9), st.data())
def test_replicas_are_different_and_spread_over_racks_as_far_as_there_are_any(racks, data):
    fenced = data.draw(st.sets(st.integers(1, len(racks)), max_size=len(racks) - 1))
    factor = data.draw(st.integers(1, len(racks)))
    sizes = Counter(racks)
    for ids in placed(racked(*racks, fenced=tuple(fenced)), 7, factor):
        assert len(set(ids)) == factor and ids[0] not in fenced
        used = Counter(racks[each - 1] for each in ids)
        # No rack has two more than another that still has a broker without a replica.
        assert all(used[one] <= used[other] + 1 or used[other] == sizes[other] for one in used for other in sizes)
