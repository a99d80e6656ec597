"""Members of a consumer group join, follow and leave: what they are answered, and which records that makes."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.coordinators.consumer_groups.group import GroupState
from isthmus.core_broker.coordinators.consumer_groups.member import MemberState
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import consumer_group_records as r

from .table import REBALANCE_MS, SESSION_MS, Cluster, Table

ALL = {"t": [0, 1, 2, 3]}


def refused(table: Table, *asked: Any, **fields: Any) -> E:
    """The code that a heartbeat is refused with; it leaves no trace."""
    before = list(table.log)
    with pytest.raises(KafkaError) as caught:
        table.beat(*asked, **fields)
    assert table.log == before
    return E(caught.value.code)


def two_members() -> Table:
    """The second has joined, and nothing is given back to it yet."""
    table = Table()
    table.join("a")
    table.join("b")
    return table


def test_the_first_member_is_given_everything_at_once():
    table = Table()
    answer = table.join("a")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert table.told(answer) == ALL
    assert table.kinds() == [
        "MemberMetadata", "Metadata", "TargetAssignmentMember", "TargetAssignmentMetadata", "CurrentMemberAssignment",
    ]  # fmt: skip
    assert table.group.state is GroupState.STABLE
    assert table.timers == {("session", "a"): table.now_ms + SESSION_MS}


def test_a_member_that_has_nothing_new_to_say_is_told_nothing_and_nothing_is_written():
    table = Table()
    table.join("a")
    written = len(table.log)
    answer = table.beat("a", 2)
    assert (answer.member_epoch, answer.assignment, len(table.log)) == (2, None, written)
    assert table.only_stayed
    whole = table.beat("a", 2, has=ALL, subscribed_topic_names=["t"], rebalance_timeout_ms=REBALANCE_MS)
    assert table.told(whole) == ALL and len(table.log) == written  # it says all, as after a lost answer


@pytest.mark.parametrize(
    "said",
    [
        {"has": ALL}, {"subscribed_topic_names": ["t"]}, {"subscribed_topic_regex": ""}, {"server_assignor": "range"},
        {"rack_id": "r"}, {"rebalance_timeout_ms": REBALANCE_MS}, {"instance_id": "i"},
    ],
)  # fmt: skip
def test_a_member_that_says_something_is_looked_at(said: dict[str, Any]):
    table = Table()
    table.join("a")
    try:
        table.beat("a", 2, **said)
    except KafkaError as error:
        assert error.code == E.UNKNOWN_MEMBER_ID and "instance_id" in said
    assert not table.only_stayed


def test_a_member_is_looked_at_while_its_group_goes_on():
    table = two_members()
    table.beat("a", 2)
    assert not table.only_stayed  # there is a newer target
    table.beat("a", 2, has={"t": [0, 1]})
    table.beat("a", 3)
    assert table.only_stayed
    table.beat("b", 3)
    assert not table.only_stayed  # it gets what the first has given back
    table.cluster.grow("t", 6)
    table.beat("a", 3)
    assert not table.only_stayed


def test_an_id_is_made_for_a_member_that_has_none():
    table = Table()
    assert table.join("").member_id == "made"
    assert list(table.group.members) == ["made"]


def test_partitions_change_hands_only_when_they_are_given_back():
    table = Table()
    table.join("a")
    assert table.told(table.join("b")) == {}
    assert (table.member("b").state, table.group.state) == (MemberState.UNRELEASED_PARTITIONS, GroupState.RECONCILING)
    answer = table.beat("a", 2, has=ALL)
    assert (answer.member_epoch, table.told(answer)) == (2, {"t": [0, 1]})  # its epoch waits for what it gives back
    assert table.timers["rebalance", "a"] == table.now_ms + REBALANCE_MS
    assert table.told(table.beat("b", 3)) is None
    answer = table.beat("a", 2, has={"t": [0, 1]})
    assert (answer.member_epoch, table.told(answer)) == (3, None)
    assert ("rebalance", "a") not in table.timers
    assert table.told(table.beat("b", 3)) == {"t": [2, 3]}
    assert table.group.state is GroupState.STABLE


def test_who_says_that_it_has_nothing_gives_all_back_in_one_step():
    table = two_members()
    assert table.beat("a", 2, has={}).member_epoch == 3
    assert table.told(table.beat("b", 3)) == {"t": [2, 3]}


def test_a_member_that_does_not_give_back_in_time_is_removed():
    table = two_members()
    table.beat("a", 2)
    table.pass_ms(SESSION_MS - 1)
    table.beat("a", 2)
    table.beat("b", 3)
    table.pass_ms(REBALANCE_MS - SESSION_MS)
    table.beat("b", 3)
    table.pass_ms(1)
    assert list(table.group.members) == ["b"]
    assert table.told(table.beat("b", 3)) == ALL


def test_a_silent_member_is_removed_when_its_session_ends():
    table = two_members()
    table.pass_ms(SESSION_MS - 1)
    table.beat("b", 3)
    table.pass_ms(1)
    assert list(table.group.members) == ["b"]
    assert refused(table, "a", 2) == E.UNKNOWN_MEMBER_ID


def test_the_epoch_before_is_good_while_the_answer_with_the_new_one_may_be_lost():
    table = two_members()
    table.beat("a", 2)  # it must give back [2, 3]
    table.beat("a", 2, has={"t": [0, 1]})
    assert table.member("a").epoch == 3
    assert table.beat("a", 2, has={"t": [0, 1]}).member_epoch == 3
    assert refused(table, "a", 2) == E.FENCED_MEMBER_EPOCH  # it does not say what it has
    assert refused(table, "a", 2, has=ALL) == E.FENCED_MEMBER_EPOCH  # it has what it gave back
    assert refused(table, "a", 1, has={}) == E.FENCED_MEMBER_EPOCH
    assert refused(table, "a", 4) == E.FENCED_MEMBER_EPOCH


def test_a_member_that_comes_back_with_nothing_keeps_its_place():
    table = two_members()
    table.beat("a", 2, has={"t": [0, 1]})
    answer = table.join("a")
    assert (answer.member_epoch, table.told(answer)) == (3, {"t": [0, 1]})
    assert len(table.group.members) == 2


def test_a_member_that_leaves_makes_room_at_once():
    table = two_members()
    assert table.beat("a", -1).member_epoch == -1
    answer = table.beat("b", 3)
    assert (answer.member_epoch, table.told(answer)) == (4, ALL)
    assert refused(table, "a", -1) == E.UNKNOWN_MEMBER_ID
    table.beat("b", -1)
    assert (table.group.state, table.group.epoch, table.group.assignment_epoch) == (GroupState.EMPTY, 5, 5)
    assert not table.timers


def test_what_a_member_does_not_want_any_more_is_given_back_without_waiting_for_an_assignment():
    table = Table()
    table.set_options(assignment_interval_ms=10_000)
    table.join("a", ["t", "u"])
    table.now_ms += 1
    answer = table.beat("a", 2, subscribed_topic_names=["u"])
    assert (answer.member_epoch, table.told(answer)) == (2, {"u": [0, 1]})
    assert (table.group.epoch, table.group.assignment_epoch) == (3, 2)
    assert table.beat("a", 2, has={"u": [0, 1]}).member_epoch == 2
    table.now_ms += 10_000
    assert table.beat("a", 2, has={"u": [0, 1]}).member_epoch == 3


def test_assignments_are_made_no_more_often_than_the_interval_allows():
    table = Table()
    table.set_options(assignment_interval_ms=1_000)
    table.join("a")
    table.now_ms += 999
    answer = table.join("b")
    assert (answer.member_epoch, table.group.state) == (2, GroupState.ASSIGNING)
    table.now_ms += 1
    assert table.beat("b", 2).member_epoch == 3
    assert table.group.epoch == table.group.assignment_epoch == 3


def test_an_assignment_of_a_coordinator_whose_clock_was_ahead_holds_up_no_other():
    table = Table()
    table.set_options(assignment_interval_ms=1_000)
    table.now_ms += 10_000_000
    table.join("a")
    table.now_ms -= 10_000_000
    assert table.join("b").member_epoch == 3


def test_most_members_choose_the_assignor():
    table = Table()
    table.join("a", server_assignor="range")
    assert table.group.preferred_assignor() == "range"
    epoch = table.group.epoch
    table.join("b", server_assignor="range")
    table.join("c", server_assignor="uniform")
    assert (table.group.epoch, table.group.preferred_assignor()) == (epoch + 2, "range")
    table.beat("c", epoch + 2, server_assignor="range")
    assert table.group.epoch == epoch + 2  # the same choice
    table.beat("b", table.member("b").epoch, server_assignor="uniform")
    table.beat("c", table.member("c").epoch, server_assignor="uniform")
    assert (table.group.epoch, table.group.preferred_assignor()) == (epoch + 3, "uniform")


def test_a_full_group_takes_nobody_but_those_that_are_in_it():
    table = Table(max_size=1)
    table.join("a", instance_id="s")
    assert refused(table, "b", 0, rebalance_timeout_ms=1, subscribed_topic_names=[]) == E.GROUP_MAX_SIZE_REACHED
    table.beat("a", -2, instance_id="s")
    assert table.join("b", instance_id="s").member_epoch == 2


def test_an_unknown_state_of_a_newer_coordinator_is_left_with_nothing_only():
    table = Table()
    table.join("a")
    key, value = table.log[-1]
    value.state = 9
    table.restart()
    assert table.member("a").state is MemberState.UNKNOWN
    assert refused(table, "a", 2, has=ALL) == E.FENCED_MEMBER_EPOCH
    assert table.beat("a", 2, has={}).error_code == 0
    assert table.member("a").state is MemberState.STABLE


# --- Static members ---------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_under_another_id_to_the_partitions_it_had():
    table = Table()
    table.join("a", instance_id="s")
    table.join("b")
    table.beat("a", 2, has={"t": [0, 1]}, instance_id="s")
    table.beat("b", 3)
    assert table.beat("a", -2, instance_id="s").member_epoch == -2
    epoch, written = table.group.epoch, len(table.log)
    answer = table.join("c", instance_id="s")
    assert (answer.member_epoch, table.told(answer)) == (3, {"t": [0, 1]})
    assert (list(table.group.members), table.group.epoch) == (["b", "c"], epoch)  # nobody else is disturbed
    assert table.kinds(written)[:3] == ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata"]
    assert ("session", "a") not in table.timers


def test_a_static_member_whose_process_is_still_there_is_not_replaced():
    table = Table()
    table.join("a", instance_id="s")
    join = {"rebalance_timeout_ms": 1, "subscribed_topic_names": ["t"], "has": {}}
    assert refused(table, "b", 0, instance_id="s", **join) == E.UNRELEASED_INSTANCE_ID
    assert refused(table, "b", 2, instance_id="s") == E.FENCED_INSTANCE_ID
    assert refused(table, "b", -1, instance_id="s") == E.FENCED_INSTANCE_ID
    assert refused(table, "a", 2, instance_id="other") == E.UNKNOWN_MEMBER_ID
    assert refused(table, "a", -2, instance_id="other") == E.UNKNOWN_MEMBER_ID


def test_while_a_static_member_is_away_its_partitions_are_nobody_elses_until_its_session_ends():
    table = Table()
    table.join("a", instance_id="s")
    table.beat("a", -2, instance_id="s")
    table.join("b")
    assert table.has("b") == {}
    assert refused(table, "a", 2, instance_id="s") == E.FENCED_MEMBER_EPOCH
    table.pass_ms(SESSION_MS - 1)
    table.beat("b", 3)
    assert table.has("b") == {}
    table.pass_ms(1)
    assert table.told(table.beat("b", 3)) == ALL


def test_a_static_member_that_left_while_it_had_to_give_back_is_not_removed_for_that():
    table = Table()
    table.join("a", instance_id="s", rebalance_timeout_ms=1_000)
    table.join("b")
    table.beat("a", 2, instance_id="s")
    table.beat("a", -2, instance_id="s")
    table.pass_ms(1_000)
    assert "a" in table.group.members


# --- Topics -----------------------------------------------------------------------------------------------------------


def test_new_partitions_and_new_topics_are_assigned_at_the_next_heartbeat():
    cluster = Cluster(t=1)
    table = Table(cluster)
    table.join("a", ["t", "later"])
    cluster.grow("t", 2)
    assert table.told(table.beat("a", 2)) == {"t": [0, 1]}
    cluster.create("later", 1)
    assert table.told(table.beat("a", 3)) == {"t": [0, 1], "later": [0]}
    epoch, written = table.group.epoch, len(table.log)
    cluster.create("other", 1)
    table.beat("a", epoch)
    assert (table.group.epoch, len(table.log)) == (epoch, written)


def test_a_deleted_topic_is_taken_from_its_members():
    cluster = Cluster(t=1, u=1)
    table = Table(cluster)
    table.join("a", ["t", "u"])
    cluster.delete("u")
    answer = table.beat("a", 2)
    assert table.told(answer) == {"t": [0]}
    assert table.beat("a", 2, has={"t": [0]}).member_epoch == 3


def test_records_of_partitions_from_before_kafka_4_1_are_removed():
    table = Table()
    key = r.ConsumerGroupPartitionMetadataKey(group_id="g")
    table.group.replay(key, r.ConsumerGroupPartitionMetadataValue())
    table.join("a")
    assert (key, None) in table.log
    assert not table.group.has_partition_metadata
