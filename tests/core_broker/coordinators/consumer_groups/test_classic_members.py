"""Members of a consumer group that speak the classic protocol: each joins, syncs and beats by itself."""

from __future__ import annotations

from typing import Any

import pytest

from isthmus.core_broker.coordinators.consumer_groups.decision import Policy
from isthmus.core_broker.coordinators.consumer_groups.member import MemberState
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.consumer_protocol import decode_assignment
from isthmus.protocol.messages.leave_group import MemberIdentity

from .table import CLASSIC_SESSION_MS, REBALANCE_MS, Table

ALL = {"t": [0, 1, 2, 3]}


def told(response: sg.Response) -> dict[str, list[int]]:
    assert response.error_code == E.NONE
    assigned = decode_assignment(response.assignment).assigned_partitions
    return {each.topic: each.partitions for each in assigned}


def code(asked: Any) -> E:
    with pytest.raises(KafkaError) as caught:
        asked()
    return E(caught.value.code)


def mixed() -> Table:
    """A consumer has half of the topic, and a classic member, who has joined, the other half."""
    table = Table()
    table.join("a")
    table.join_classic("c")
    table.beat("a", 2, has=ALL)
    table.beat("a", 2, has={"t": [0, 1]})
    return table


def test_a_classic_member_joins_without_a_leader_and_is_given_what_is_free():
    table = Table()
    table.join("a")
    answer = table.join_classic("c", protocols=("range", "sticky"))
    assert (answer.error_code, answer.member_id, answer.generation_id) == (E.NONE, "c", 3)
    assert (answer.protocol_type, answer.protocol_name, answer.leader, answer.members) == ("consumer", "range", "", [])
    assert table.timers["session", "c"] == table.now_ms + CLASSIC_SESSION_MS
    assert table.timers["sync", "c"] == table.now_ms + REBALANCE_MS
    assert told(table.sync_classic("c", 3, protocol_type="consumer", protocol_name="range")) == {}
    assert ("sync", "c") not in table.timers
    member = table.member("c")
    assert member.classic is not None and [each.name for each in member.classic.supported_protocols] == [
        "range", "sticky"
    ]  # fmt: skip


def test_a_new_classic_member_is_told_its_id_first():
    table = Table()
    table.join("a")
    written = len(table.log)
    answer = table.join_classic("")
    assert (answer.error_code, answer.member_id, len(table.log)) == (E.MEMBER_ID_REQUIRED, "made", written)
    assert table.join_classic("", version=3).generation_id == 3  # before KIP-394
    assert list(table.group.members) == ["a", "made"]


def test_a_classic_member_is_told_to_join_again_when_there_is_something_for_it():
    table = mixed()
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS  # what it waited for is free
    deadline = table.timers["join", "c"]
    table.now_ms += 5
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS
    assert table.timers["join", "c"] == deadline
    assert table.join_classic("c").generation_id == 3
    assert ("join", "c") not in table.timers
    assert told(table.sync_classic("c", 3)) == {"t": [2, 3]}
    assert table.beat_classic("c", 3) == E.NONE


def test_a_classic_member_that_waits_for_others_is_left_in_peace():
    table = Table()
    table.join("a")
    table.join_classic("c")
    assert table.beat_classic("c", 3) == E.NONE
    assert table.member("c").state is MemberState.UNRELEASED_PARTITIONS


def test_a_classic_member_gives_back_by_joining_without_it():
    table = mixed()
    table.join_classic("c")
    table.join("b")
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS
    answer = table.join_classic("c", has={"t": [2, 3]})
    assert answer.generation_id == 3  # it is to give one back first
    assert told(table.sync_classic("c", 3)) == {"t": [2]}
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS
    assert table.join_classic("c", has={"t": [2]}).generation_id == 4
    assert told(table.sync_classic("c", 4)) == {"t": [2]}
    assert table.told(table.beat("b", 4)) == {"t": [3]}


def test_a_sync_that_is_too_late_is_told_to_join_again():
    table = mixed()
    table.join_classic("c")
    table.join("b")
    assert table.sync_classic("c", 3).error_code == E.REBALANCE_IN_PROGRESS
    assert ("join", "c") in table.timers


@pytest.mark.parametrize("timer", ["session", "join", "sync"])
def test_a_classic_member_that_is_silent_is_removed(timer: str):
    table = mixed()
    table.beat("a", 3)
    for each in ("session", "join", "sync"):
        table.timers.pop((each, "c"), None)
    table.timers[timer, "c"] = table.now_ms + 5
    table.pass_ms(5)
    assert list(table.group.members) == ["a"]


def test_what_a_classic_member_is_refused():
    table = mixed()
    assert code(lambda: table.beat_classic("x", 3)) == E.UNKNOWN_MEMBER_ID
    assert code(lambda: table.beat_classic("a", 3)) == E.UNKNOWN_MEMBER_ID  # a consumer
    assert code(lambda: table.beat_classic("c", 2)) == E.ILLEGAL_GENERATION
    assert code(lambda: table.beat_classic("c", 3, "s")) == E.UNKNOWN_MEMBER_ID
    assert code(lambda: table.sync_classic("c", 4)) == E.ILLEGAL_GENERATION
    assert code(lambda: table.sync_classic("c", 3, protocol_type="connect")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert code(lambda: table.sync_classic("c", 3, protocol_name="sticky")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert code(lambda: table.join_classic("d", protocols=("sticky",))) == E.INCONSISTENT_GROUP_PROTOCOL
    assert code(lambda: table.join_classic("d", protocols=())) == E.INCONSISTENT_GROUP_PROTOCOL
    assert code(lambda: table.join_classic("d", kind="connect")) == E.INCONSISTENT_GROUP_PROTOCOL


def test_a_subscription_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch):
    table = mixed()
    from tests.core_broker.coordinators.consumer_groups import table as module

    monkeypatch.setattr(module, "encode_subscription", lambda subscription: b"\0\3\0\0")
    assert code(lambda: table.join_classic("d")) == E.INCONSISTENT_GROUP_PROTOCOL


def test_classic_members_do_not_join_where_groups_are_not_to_change():
    table = Table(migration=Policy.DISABLED)
    table.join("a")
    assert code(lambda: table.join_classic("c")) == E.INCONSISTENT_GROUP_PROTOCOL


def test_a_full_group_takes_no_classic_member():
    table = Table(max_size=1)
    table.join("a")
    assert code(lambda: table.join_classic("c")) == E.GROUP_MAX_SIZE_REACHED


def test_members_leave_by_name_and_by_instance_whatever_they_speak():
    table = mixed()
    table.join_classic("", version=9, group_instance_id="s")
    table.join("d")
    leaving = [
        MemberIdentity(member_id="c"),
        MemberIdentity(member_id="x"),
        MemberIdentity(member_id="", group_instance_id="s"),
        MemberIdentity(member_id="", group_instance_id="other"),
    ]
    assert table.leave_classic(MemberIdentity(member_id="x", group_instance_id="s")) == [E.FENCED_INSTANCE_ID]
    assert table.leave_classic(*leaving) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.NONE, E.UNKNOWN_MEMBER_ID]
    assert list(table.group.members) == ["a", "d"]


def test_a_static_member_changes_from_one_protocol_to_the_other_and_keeps_what_it_has():
    table = Table()
    table.join("a", instance_id="s")
    table.join("b")
    table.beat("a", 2, has={"t": [0, 1]}, instance_id="s")
    answer = table.join_classic("", group_instance_id="s", has={"t": [0, 1]})
    assert (answer.error_code, answer.member_id, answer.generation_id) == (E.NONE, "made", 3)
    assert told(table.sync_classic("made", 3, group_instance_id="s")) == {"t": [0, 1]}
    assert sorted(table.group.members) == ["b", "made"]
    back = table.join("e", instance_id="s")  # without leaving first, as classic members do not leave
    assert (back.member_epoch, table.told(back)) == (3, {"t": [0, 1]})
    assert table.member("e").classic is None


def test_a_rack_is_kept_and_a_pattern_is_given_up():
    table = Table()
    table.join("a")
    table.join("b", None, subscribed_topic_regex="t", rack_id="r")
    table.join_classic("b")
    assert (table.member("b").rack_id, table.member("b").topic_regex) == ("r", "")


def all_classic() -> Table:
    """Two classic members are left in a group that may not be a classic one again, and share what the last consumer
    had."""
    table = Table(migration=Policy.UPGRADE)
    table.join("a")
    table.join_classic("c")
    table.join_classic("d")
    table.beat("a", -1)
    settle(table)
    return table


def settle(table: Table) -> None:
    """Its members do as they are told by their heartbeats."""
    for _ in range(3):
        for each in "cd":
            if table.beat_classic(each, table.member(each).epoch) == E.REBALANCE_IN_PROGRESS:
                table.join_classic(each, has=table.has(each))


def count(table: Table) -> list[int]:
    return [len(table.has(each)["t"]) for each in "cd"]


def test_classic_members_by_themselves_share_what_the_last_consumer_had():
    assert count(all_classic()) == [2, 2]


def test_classic_members_by_themselves_follow_a_topic_that_grows_and_no_other():
    table = all_classic()
    table.cluster.grow("u", 3)
    table.restart()
    epoch = table.group.epoch
    settle(table)
    assert table.group.epoch == epoch
    table.cluster.grow("t", 6)
    settle(table)
    assert count(table) == [3, 3]


def test_a_static_member_that_is_away_for_a_while_assigns_nothing():
    table = Table(migration=Policy.UPGRADE)
    table.join("a", instance_id="s")
    table.join_classic("c")
    table.join_classic("d")
    table.beat("a", 2, has=ALL, instance_id="s")
    table.beat("a", -2, instance_id="s")
    table.leave_classic(MemberIdentity(member_id="d"))
    assert table.group.assignment_epoch < table.group.epoch
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS


def test_timers_of_the_protocol_that_a_member_has_left_do_not_remove_it():
    table = mixed()
    assert table.beat_classic("c", 3) == E.REBALANCE_IN_PROGRESS
    assert ("join", "c") in table.timers and ("sync", "c") in table.timers
    table.join("c")
    assert sorted(timer for timer, member_id in table.timers if member_id == "c") == ["session"]
    table.join("b")
    table.beat("c", 3)
    assert ("rebalance", "c") in table.timers
    table.join_classic("c", has={"t": [2, 3]})
    assert sorted(timer for timer, member_id in table.timers if member_id == "c") == ["session", "sync"]
