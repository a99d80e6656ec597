"""The assignors' answers, as those of Kafka's RangeAssignor and RoundRobinAssignor."""

from __future__ import annotations

from isthmus.client.assignors import by_range, by_turns


def test_range_cuts_each_topic_in_runs_and_gives_the_rest_to_the_first() -> None:
    found = by_range({"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert found == {"a": {"t": [0, 1], "u": [0, 1]}, "b": {"t": [2], "u": [2]}}


def test_range_cuts_topics_with_equally_many_partitions_alike() -> None:
    found = by_range({m: ["x", "y", "z"] for m in "abc"}, {"x": 7, "y": 7, "z": 7})
    for each in found.values():
        assert each["x"] == each["y"] == each["z"]


def test_members_get_only_what_they_subscribe_to() -> None:
    wanted = {"a": ["t"], "b": ["t", "u"], "c": ["nowhere"]}
    for assign in (by_range, by_turns):
        found = assign(wanted, {"t": 2, "u": 2, "nowhere": 0, "unwanted": 4})
        assert sorted(p for each in found.values() for p in each.get("t", [])) == [0, 1]
        assert found["b"]["u"] == [0, 1]
        assert found["c"] == {}
        assert not any("unwanted" in each for each in found.values())


def test_roundrobin_deals_over_topics() -> None:
    found = by_turns({"a": ["t", "u"], "b": ["t", "u"]}, {"t": 3, "u": 3})
    assert found == {"a": {"t": [0, 2], "u": [1]}, "b": {"t": [1], "u": [0, 2]}}


def test_roundrobin_with_unequal_subscriptions_is_kafkas_example() -> None:
    found = by_turns({"C0": ["t0"], "C1": ["t0", "t1"], "C2": ["t0", "t1", "t2"]}, {"t0": 1, "t1": 2, "t2": 3})
    assert found == {"C0": {"t0": [0]}, "C1": {"t1": [0]}, "C2": {"t1": [1], "t2": [0, 1, 2]}}


def test_more_members_than_partitions_leaves_some_with_nothing() -> None:
    for assign in (by_range, by_turns):
        found = assign({m: ["t"] for m in "abcd"}, {"t": 2})
        assert [len(found[m].get("t", [])) for m in "abcd"] == [1, 1, 0, 0]
