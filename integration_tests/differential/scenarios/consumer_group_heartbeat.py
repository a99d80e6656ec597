"""ConsumerGroupHeartbeat (68): members join, take and give up partitions, and leave."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import consumer_group_heartbeat as m
from isthmus.protocol.messages import create_partitions

from ..consumers import (
    ASSIGNING,
    CHOOSES_ID,
    EMPTY,
    INTERVAL,
    LATE,
    LEAVE,
    LEAVE_FOR_NOW,
    NEVER_MS,
    ONE,
    RECONCILING,
    STABLE,
    STATES,
    STATIC,
    TWO,
    Consumers,
)
from ..peer import NO_SUCH_ID, Case, Scenarios

SCENARIOS = Scenarios()
WITH_MEMBERS = (ASSIGNING, RECONCILING, STABLE)


# --- Members come and go --------------------------------------------------------------------------------------------


@SCENARIOS.success(68)
def joins_a_new_consumer_group(case: Case) -> None:
    group = Consumers(case)
    group.ask(ONE, group.join_request(ONE))
    group.see()
    group.ask(ONE)
    group.ask(ONE, group.owned_request(ONE))
    group.see()


@SCENARIOS.success(68, each=STATES)
def joins_a_consumer_group_in_each_state(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    group.ask("new", group.join_request("new"))
    group.see()


@SCENARIOS.success(68)
def partitions_are_given_up_before_they_are_given(case: Case) -> None:
    group = Consumers(case)
    group.ask(ONE, group.join_request(ONE))
    group.ask(ONE, group.owned_request(ONE))
    group.ask(TWO, group.join_request(TWO))
    group.see()
    group.ask(TWO)
    group.ask(ONE)  # is told what to give up
    group.ask(TWO)
    group.ask(ONE)  # is still at it
    group.see()
    group.ask(ONE, group.owned_request(ONE))
    group.see()
    group.ask(TWO)
    group.ask(TWO, group.owned_request(TWO))
    group.see()


@SCENARIOS.success(68)
def three_members_and_four_partitions(case: Case) -> None:
    group = Consumers(case, partitions=4)
    for name in ("a", "b", "c"):
        group.ask(name, group.join_request(name))
    group.settle()
    group.see()
    group.leave("b")
    group.settle()
    group.see()


@SCENARIOS.success(68, ends=True)
def more_members_than_partitions(case: Case) -> None:
    group = Consumers(case, partitions=2)
    for name in ("a", "b", "c", "d"):
        group.join(name)
    group.settle()
    group.see()
    for name in ("a", "b"):
        group.leave(name)
    group.settle()
    group.see()
    group.ask("c")


@SCENARIOS.success(68, each=WITH_MEMBERS)
def members_leave(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for name in (TWO, ONE):
        group.ask(name, group.beat_request(name, member_epoch=LEAVE))
        group.see()


@SCENARIOS.success(68)
def the_last_member_leaves(case: Case) -> None:
    group = Consumers(case)
    group.join(ONE)
    group.ask(ONE, group.beat_request(ONE, member_epoch=LEAVE))
    group.see()
    group.ask(ONE, group.join_request(ONE))
    group.see()


@SCENARIOS.success(68, each=WITH_MEMBERS)
def a_member_joins_again(case: Case, state: str) -> None:
    """Under its id, as if it were new."""
    group = Consumers(case).bring(state)
    group.ask(ONE, group.join_request(ONE))
    group.see()
    group.ask(ONE)


@SCENARIOS.success(68)
def a_heartbeat_with_all_that_there_is_to_tell(case: Case) -> None:
    """As after an answer that was lost: the assignment is told again."""
    group = Consumers(case).bring(STABLE)
    owned = group[ONE].owns()
    group.ask(ONE, group.join_request(ONE, member_epoch=group[ONE].epoch, topic_partitions=owned))
    group.ask(ONE, group.join_request(ONE, member_epoch=group[ONE].epoch))
    group.see()


@SCENARIOS.success(68, until=0)
def a_member_is_given_its_id(case: Case) -> None:
    """Version 0 alone; its id is made at random."""
    group = Consumers(case)
    case.group_logs.clear()
    answer = case.prepare(group.join_request(ONE, member_id=""), 0)
    assert answer.error_code == 0 and len(answer.member_id) == 22, answer
    group[ONE].member_id, group[ONE].epoch = answer.member_id, answer.member_epoch
    case.compare(group.beat_request(ONE), only=lambda kept: {**kept, "member_id": "<given>"})
    case.compare(group.beat_request(ONE, member_epoch=LEAVE), only=lambda kept: {**kept, "member_id": "<given>"})


# --- Epochs ---------------------------------------------------------------------------------------------------------


@SCENARIOS.error(68, each=WITH_MEMBERS)
def epochs_that_a_member_has_not(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    epoch = group[ONE].epoch
    for wrong in (epoch + 1, epoch - 1, epoch + 100, 1):
        group.ask(ONE, group.beat_request(ONE, member_epoch=wrong))
        group.ask(ONE, group.owned_request(ONE, member_epoch=wrong))
    group.see()


@SCENARIOS.success(68)
def the_epoch_before_is_taken_once_more(case: Case) -> None:
    """When the answer with the next one may have been lost; not with more partitions than the member has."""
    group = Consumers(case)
    group.join(ONE)
    group.settle()
    before = group[ONE].epoch
    group.join(TWO)
    group.settle()
    group.ask(ONE, group.owned_request(ONE, member_epoch=before))
    group.ask(ONE, group.owned_request(ONE, 0, 1, 2, member_epoch=before))
    group.ask(ONE, group.beat_request(ONE, member_epoch=before))
    group.see()


@SCENARIOS.error(68, each=STATES)
def heartbeats_of_unknown_members(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for epoch in (1, 5, LEAVE, LEAVE_FOR_NOW):
        group.ask("nobody", group.beat_request("nobody", member_epoch=epoch))
    group.ask("static nobody", group.beat_request("static nobody", member_epoch=5))
    group.ask("static nobody", group.beat_request("static nobody", member_epoch=LEAVE_FOR_NOW))
    group.see()


@SCENARIOS.error(68)
def heartbeats_in_groups_that_are_not_there(case: Case) -> None:
    group = Consumers(case)
    for epoch in (1, LEAVE):
        group.ask(ONE, group.beat_request(ONE, member_epoch=epoch))
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    group.see()


# --- Requests that are refused --------------------------------------------------------------------------------------


@SCENARIOS.error(68)
def joins_with_what_a_consumer_group_refuses(case: Case) -> None:
    group = Consumers(case)
    wrong: list[dict[str, Any]] = [
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"rebalance_timeout_ms": 0},
        {"rebalance_timeout_ms": -5},
        {"topic_partitions": None},
        {"topic_partitions": [m.TopicPartitions(topic_id=NO_SUCH_ID, partitions=[0])]},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"server_assignor": "no such assignor"},
        {"server_assignor": ""},
        {"member_epoch": -3},
        {"member_epoch": LEAVE_FOR_NOW},
        {"member_epoch": LEAVE, "member_id": ""},
        {"member_epoch": 3, "member_id": ""},
    ]
    for number, fields in enumerate(wrong):
        group.ask(f"m{number}", group.join_request(f"m{number}", **fields))
    group.see()


@SCENARIOS.error(68, since=CHOOSES_ID)
def joins_with_patterns_that_are_refused(case: Case) -> None:
    group = Consumers(case)
    patterns = ["(", "[a", "*", "(?=a)", r"(a)\1", "a{1001}", "\\", "(?<n"]
    for number, pattern in enumerate(patterns):
        fields: dict[str, Any] = {"subscribed_topic_names": None, "subscribed_topic_regex": pattern}
        group.ask(f"m{number}", group.join_request(f"m{number}", **fields))
    group.ask("empty id", group.join_request("empty id", member_id=""))
    group.see()


@SCENARIOS.error(68)
def partitions_that_a_member_cannot_have(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    group.ask(ONE, group.owned_request(ONE, 0, 1, 2))
    group.ask(ONE, group.owned_request(ONE, 7))
    group.ask(ONE, group.beat_request(ONE, topic_partitions=[]))
    unknown = [m.TopicPartitions(topic_id=NO_SUCH_ID, partitions=[0])]
    group.ask(ONE, group.beat_request(ONE, topic_partitions=unknown))
    group.see()


# --- Static members -------------------------------------------------------------------------------------------------


@SCENARIOS.success(68)
def a_static_member_goes_and_comes_back(case: Case) -> None:
    """Under another id, and has its partitions again."""
    group = Consumers(case).bring(STABLE)
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    group.see()
    group.ask(ONE)
    group.ask(STATIC, group.join_request(STATIC, member_id="another id"))
    group.see()
    group[STATIC].member_id = "another id"
    group.ask(STATIC, group.owned_request(STATIC))
    group.see()


@SCENARIOS.success(68)
def a_static_member_comes_back_with_another_subscription(case: Case) -> None:
    case.topic("-other")
    group = Consumers(case).bring(STABLE)
    case.group_logs.clear()  # topics are in no order
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    names = [case.name, case.name + "-other"]
    group.ask(STATIC, group.join_request(STATIC, member_id="another id", subscribed_topic_names=names))
    group.see()


@SCENARIOS.success(68)
def a_static_member_leaves_for_good(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE))
    group.see()
    group.ask(STATIC, group.join_request(STATIC))
    group.see()


@SCENARIOS.error(68)
def a_place_that_a_static_member_has(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    group.ask("thief", group.join_request("thief", instance_id=STATIC))
    group.ask("thief", group.beat_request("thief", instance_id=STATIC, member_epoch=group[STATIC].epoch))
    group.ask("thief", group.beat_request("thief", instance_id=STATIC, member_epoch=LEAVE))
    group.ask("thief", group.beat_request("thief", instance_id=STATIC, member_epoch=LEAVE_FOR_NOW))
    group.ask(STATIC, group.beat_request(STATIC, instance_id="stranger"))
    group.see()


@SCENARIOS.error(68)
def a_static_member_whose_place_was_taken(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    group.beat(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    group.beat("new", group.join_request("new", instance_id=STATIC))
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=3))
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE))
    group.ask(STATIC, group.join_request(STATIC))
    group.see()


@SCENARIOS.success(68)
def a_static_member_leaves_for_now_in_a_wrong_epoch(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW, instance_id=None))
    group.ask(ONE, group.beat_request(ONE, member_epoch=LEAVE_FOR_NOW))
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    group.ask(STATIC, group.beat_request(STATIC, member_epoch=LEAVE_FOR_NOW))
    group.see()


# --- Subscriptions --------------------------------------------------------------------------------------------------


@SCENARIOS.success(68)
def a_member_subscribes_to_other_topics(case: Case) -> None:
    case.topic("-other", partitions=2)
    group = Consumers(case)
    case.group_logs.clear()
    group.join(ONE)
    group.join(TWO)
    group.settle()
    for names in ([case.name, case.name + "-other"], [case.name + "-other"], [case.name + "-unknown"], []):
        group.ask(ONE, group.beat_request(ONE, subscribed_topic_names=names))
        group.see()
    group.settle()
    group.see()


@SCENARIOS.success(68)
def topics_that_are_made_and_deleted_later(case: Case) -> None:
    group = Consumers(case)
    case.group_logs.clear()
    other = case.name + "-other"
    group.ask(ONE, group.join_request(ONE, subscribed_topic_names=[other]))
    group.see()
    case.topic("-other", partitions=2)
    case.wait_until(lambda: group.beat(ONE).assignment is not None, "the partitions of the new topic")
    group.settle()
    group.see()
    case.delete_topic("-other")
    case.wait_until(lambda: group.beat(ONE).assignment is not None, "the topic is taken away")
    group.settle()
    group.see()


@SCENARIOS.success(68)
def a_topic_gets_more_partitions(case: Case) -> None:
    group = Consumers(case, partitions=1)
    group.join(ONE)
    group.settle()
    wanted = create_partitions.CreatePartitionsTopic(name=case.name, count=3, assignments=None)
    case.prepare(create_partitions.Request(topics=[wanted], timeout_ms=10_000))
    case.await_topic(case.name, 3)
    case.wait_until(lambda: group.beat(ONE).assignment is not None, "the new partitions")
    group.settle()
    group.see()


@SCENARIOS.success(68, ends=True)
def members_with_different_subscriptions(case: Case) -> None:
    case.topic("-other", partitions=3)
    group = Consumers(case)
    case.group_logs.clear()
    group.join("a", subscribed_topic_names=[case.name])
    group.join("b", subscribed_topic_names=[case.name, case.name + "-other"])
    group.join("c", subscribed_topic_names=[case.name + "-other"])
    group.settle()
    group.see()
    group.ask("b")


@SCENARIOS.success(68, since=CHOOSES_ID)
def subscribes_by_a_pattern(case: Case) -> None:
    for suffix in ("-a1", "-a2", "-b"):
        case.topic(suffix)
    group = Consumers(case)
    case.group_logs.clear()
    pattern = f"{case.name}-a.*"
    request = group.join_request(ONE, subscribed_topic_names=None, subscribed_topic_regex=pattern)
    group.beat(ONE, request)
    case.wait_until(lambda: group.beat(ONE).assignment is not None, "the topics of the pattern")
    group.settle()
    group.ask(ONE)
    group.see()


@SCENARIOS.success(68, since=CHOOSES_ID)
def a_pattern_and_names_together(case: Case) -> None:
    for suffix in ("-a1", "-b"):
        case.topic(suffix)
    group = Consumers(case)
    case.group_logs.clear()
    pattern = f"{case.name}-a.*"
    group.beat(ONE, group.join_request(ONE, subscribed_topic_names=[case.name + "-b"], subscribed_topic_regex=pattern))
    case.wait_until(lambda: sum(map(len, group.beat(ONE) and group[ONE].owned.values())) == 2, "both topics")
    group.settle()
    group.see()
    group.ask(ONE, group.beat_request(ONE, subscribed_topic_regex=""))
    group.settle()
    group.see()


@SCENARIOS.success(68, since=CHOOSES_ID)
def a_pattern_that_matches_nothing(case: Case) -> None:
    group = Consumers(case)
    pattern = f"{case.name}-nothing"
    group.ask(ONE, group.join_request(ONE, subscribed_topic_names=None, subscribed_topic_regex=pattern))
    group.settle()
    group.ask(ONE)
    group.see()


# --- Assignors ------------------------------------------------------------------------------------------------------


@SCENARIOS.success(68, each=("uniform", "range"))
def an_assignor_of_the_members_choice(case: Case, assignor: str) -> None:
    """Of two topics that all members read, `uniform` takes the one first whose id, made at random, comes first."""
    names = [case.name]
    if assignor == "range":
        case.topic("-other", partitions=3)
        names.append(case.name + "-other")
    group = Consumers(case)
    if assignor == "range":
        case.group_logs.clear()
    for name in ("a", "b"):
        group.ask(name, group.join_request(name, server_assignor=assignor, subscribed_topic_names=names))
    group.settle()
    group.see()
    group.ask("b", group.beat_request("b", member_epoch=LEAVE))
    group.members.pop("b")
    group.settle()
    group.see()


@SCENARIOS.success(68, ends=True)
def the_assignor_that_most_members_like(case: Case) -> None:
    group = Consumers(case)
    likes = {"a": "range", "b": "range", "c": "uniform", "d": None}
    for name, assignor in likes.items():
        group.join(name, server_assignor=assignor)
        group.settle()
        group.see()
    group.ask("b", group.beat_request("b", server_assignor="uniform"))
    group.settle()
    group.see()


@SCENARIOS.success(68)
def two_assignors_that_equally_many_like(case: Case) -> None:
    group = Consumers(case)
    case.group_logs.clear()
    group.join("a", server_assignor="range")
    group.join("b", server_assignor="uniform")
    for name in ("a", "b", "a", "b"):
        group.ask(name, group.owned_request(name))
    group.see()


@SCENARIOS.success(68, ends=True)
def members_tell_their_racks(case: Case) -> None:
    group = Consumers(case)
    for name, rack in (("a", "r1"), ("b", "r2"), ("c", None)):
        group.ask(name, group.join_request(name, rack_id=rack))
    group.settle()
    group.see()
    group.ask("a", group.beat_request("a", rack_id="r9"))
    group.see()


@SCENARIOS.success(68)
def a_target_assignment_waits_its_time(case: Case) -> None:
    """The first one is computed at once, the next one not before consumer.assignment.interval.ms is over."""
    group = Consumers(case, interval_ms=NEVER_MS)
    group.ask(ONE, group.join_request(ONE))
    group.ask(TWO, group.join_request(TWO))
    group.see()
    group.ask(ONE, group.owned_request(ONE))
    group.ask(TWO)
    group.set_option(INTERVAL, 0)
    group.ask(TWO)
    group.see()


@SCENARIOS.success(68, ends=True)
def a_member_comes_while_partitions_are_given_up(case: Case) -> None:
    group = Consumers(case).bring(RECONCILING)
    group.ask("new", group.join_request("new"))
    for name in (LATE, ONE):
        group.ask(name)
    group.see()
    group.settle()
    group.see()


@SCENARIOS.success(68, ends=True)
def a_member_leaves_while_it_gives_up_partitions(case: Case) -> None:
    group = Consumers(case)
    group.join(ONE)
    group.settle()
    group.join(TWO)
    group.beat(ONE)
    group.see()
    group.leave(ONE)
    group.ask(TWO)
    group.see()


@SCENARIOS.success(68, ends=True)
def an_empty_group_is_joined_again(case: Case) -> None:
    group = Consumers(case).bring(EMPTY)
    group.see()
    group.ask(TWO, group.join_request(TWO))
    group.see()
