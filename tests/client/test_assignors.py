"""The assignors' answers, as those of Kafka's RangeAssignor and RoundRobinAssignor, and what a sticky one promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from isthmus.client import TopicPartition
from isthmus.client.assignors import Member, by_cooperation, by_range, by_sticking, by_turns


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


def members(**members: Member) -> dict[str, Member]:
    return members


def tps(topic: str, *partitions: int) -> list[TopicPartition]:
    return [TopicPartition(topic, each) for each in partitions]


def test_sticky_keeps_what_members_have_and_moves_as_few_as_it_must() -> None:
    found = by_sticking(
        members(a=Member(["t"], tps("t", 0, 2, 4), 3), b=Member(["t"], tps("t", 1, 3, 5), 3), c=Member(["t"])), {"t": 6}
    )
    assert {name: len(each["t"]) for name, each in found.items()} == {"a": 2, "b": 2, "c": 2}
    assert set(found["a"]["t"]) < {0, 2, 4} and set(found["b"]["t"]) < {1, 3, 5}


def test_sticky_deals_what_nobody_has_and_forgets_what_is_not_there() -> None:
    gone = [*tps("t", 7), *tps("u", 0)]
    found = by_sticking(members(a=Member(["t"], [*tps("t", 0), *gone], 1), b=Member(["t"])), {"t": 4})
    assert found == {"a": {"t": [0, 2]}, "b": {"t": [1, 3]}}


def test_of_two_that_claim_a_partition_the_later_generation_has_it_and_of_equals_neither() -> None:
    older, newer = Member(["t"], tps("t", 1), 4), Member(["t"], tps("t", 1), 5)
    assert by_sticking(members(a=older, b=newer), {"t": 2}) == {"a": {"t": [0]}, "b": {"t": [1]}}
    assert by_sticking(members(a=newer, b=older), {"t": 2}) == {"a": {"t": [1]}, "b": {"t": [0]}}
    equal = members(a=Member(["t"], tps("t", 1), 5), b=Member(["t"], tps("t", 1), 5))
    assert by_sticking(equal, {"t": 2}) == {"a": {"t": [0]}, "b": {"t": [1]}}
    assert by_cooperation(equal, {"t": 2}) == {"a": {"t": [0]}, "b": {}}


def test_cooperation_withholds_what_another_still_has() -> None:
    before = members(a=Member(["t"], tps("t", 0, 1, 2), 1), b=Member(["t"]))
    assert by_cooperation(before, {"t": 4}) == {"a": {"t": [0, 1]}, "b": {"t": [3]}}
    after = members(a=Member(["t"], tps("t", 0, 1), 2), b=Member(["t"], tps("t", 3), 2))
    assert by_cooperation(after, {"t": 4}) == {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}


@given(st.data())
def test_however_members_come_and_go_a_partition_has_one_owner_and_shares_become_even(data: st.DataObject) -> None:
    """Rounds of a cooperative group: each member gives up what it was not assigned, then takes the rest."""
    topics = {name: data.draw(st.integers(0, 5), name) for name in "xyz"}
    owned: dict[str, set[TopicPartition]] = {}
    wanted: dict[str, list[str]] = {}
    for generation in range(data.draw(st.integers(1, 5), "changes")):
        name = data.draw(st.sampled_from("abcd"), "member")
        if name in wanted:
            del wanted[name], owned[name]
        else:
            wanted[name] = data.draw(st.lists(st.sampled_from("xyz"), min_size=1, unique=True), "topics")
            owned[name] = set()
        for _ in range(4):
            shares = by_cooperation({m: Member(wanted[m], owned[m], generation) for m in wanted}, topics)
            assigned = {m: {TopicPartition(t, p) for t, ps in share.items() for p in ps} for m, share in shares.items()}
            for member, others in assigned.items():
                for other in owned:
                    assert other == member or not others & owned[other], "nobody has given it up"
            settled, owned = owned == assigned, assigned
            if settled:
                break
        else:
            raise AssertionError("it goes on for ever")
        for has in owned.values():
            for taker, some in owned.items():
                assert len(has) - len(some) < 2 or not any(tp.topic in wanted[taker] for tp in has)
        readable = {TopicPartition(t, p) for each in wanted.values() for t in each for p in range(topics[t])}
        assert set().union(*owned.values()) == readable
