"""From a classic group to a consumer group and back: which records that makes, and what is refused."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups.decision import Decision, Policy
from isthmus.core_broker.coordinators.consumer_groups.group import ConsumerGroup, GroupState
from isthmus.core_broker.coordinators.consumer_groups.heartbeat import heartbeat
from isthmus.core_broker.coordinators.consumer_groups.migration import upgraded
from isthmus.core_broker.coordinators.effects import Caller, Limits
from isthmus.core_broker.coordinators.group import Group
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from isthmus.protocol.messages.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

from .table import CLASSIC_SESSION_MS, Cluster, Table

ALL = {"t": [0, 1, 2, 3]}


def member_row(
    member_id: str,
    has: list[int],
    *,
    instance: str | None = None,
    user_data: bytes | None = None,
    subscription: bytes | None = None,
) -> MemberMetadata:
    assigned = [TopicPartition(topic="t", partitions=has), TopicPartition(topic="gone", partitions=[0])]
    if subscription is None:
        subscription = encode_subscription(Subscription(topics=["t", "gone"], rack_id="r"))
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=instance,
        client_id="c",
        client_host="/h",
        rebalance_timeout=60_000,
        session_timeout=CLASSIC_SESSION_MS,
        subscription=subscription,
        assignment=encode_assignment(Assignment(assigned_partitions=assigned, user_data=user_data)),
    )


def classic_group(*rows: MemberMetadata, kind: str = "consumer", protocol: str | None = "range") -> Group:
    group = Group("g", Limits(10, 0), lambda: 0, lambda: "id")
    group.load(
        GroupMetadataValue(protocol_type=kind, generation=7, protocol=protocol, leader="m", members=list(rows))
    )  # fmt: skip
    return group


def refused(table: Table, classic: Group) -> tuple[E, str]:
    with pytest.raises(KafkaError) as caught:
        upgraded(classic, table.rules, Decision())
    return E(caught.value.code), caught.value.message


# --- Upgrade ----------------------------------------------------------------------------------------------------------


def test_members_of_a_classic_group_keep_what_they_have_and_their_generation():
    table = Table()
    decision = Decision()
    group = upgraded(
        classic_group(member_row("m", [0, 1]), member_row("n", [2, 3], instance="s")), table.rules, decision
    )
    table.take(decision)
    assert table.kinds()[0] == "-GroupMetadata"
    assert table.kinds()[1:] == [
        *["MemberMetadata"] * 2, "Metadata", *["TargetAssignmentMember"] * 2, "TargetAssignmentMetadata",
        *["CurrentMemberAssignment"] * 2,
    ]  # fmt: skip
    assert vars(group) == vars(table.group)
    assert (group.epoch, group.assignment_epoch, group.state) == (7, 7, GroupState.STABLE)
    one = table.member("m")
    assert (one.epoch, one.previous_epoch, one.rack_id, one.rebalance_timeout_ms) == (7, 7, "r", 60_000)
    assert table.has("m") == {"t": [0, 1]} and table.named(group.targets["n"]) == {"t": [2, 3]}
    assert one.classic is not None and one.classic.session_timeout_ms == CLASSIC_SESSION_MS
    assert table.timers == {("session", each): table.now_ms + CLASSIC_SESSION_MS for each in ("m", "n")}
    assert group.metadata_hash == table.rules.topics.hash_of(["t", "gone"]) != 0


def test_what_is_new_since_the_classic_group_was_assigned_is_given_to_a_static_member_that_upgrades_it():
    table = Table(Cluster(t=2))
    table.cluster.grow("t", 3)
    decision = Decision()
    group = upgraded(classic_group(member_row("m", [0, 1], instance="s")), table.rules, decision)
    request = chb.Request(
        group_id="g",
        member_id="a",
        instance_id="s",
        rack_id="r",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t", "gone"],
        topic_partitions=[],
    )
    heartbeat(group, request, Caller(1, "c", "/h"), table.rules, decision)
    table.take(decision)
    assert decision.response.member_epoch == 8 and table.told(decision.response) == {"t": [0, 1, 2]}


def test_the_consumer_that_upgrades_a_group_is_a_member_like_any_other():
    table = Table()
    decision = Decision()
    group = upgraded(classic_group(member_row("m", [0, 1, 2, 3])), table.rules, decision)
    request = chb.Request(
        group_id="g", member_id="a", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )  # fmt: skip
    heartbeat(group, request, Caller(1, "c", "/h"), table.rules, decision)
    table.take(decision)
    assert decision.response.member_epoch == 8 and table.has("a") == {}
    assert table.beat_classic("m", 7) == E.REBALANCE_IN_PROGRESS
    assert table.join_classic("m", ["t", "gone"], has=ALL).generation_id == 7
    assert table.join_classic("m", ["t", "gone"], has={"t": [0, 1]}).generation_id == 8
    assert table.told(table.beat("a", 8)) == {"t": [2, 3]}


@pytest.mark.parametrize(
    ("classic", "said"),
    [
        (classic_group(member_row("m", [0]), kind="connect"), "does not use the consumer embedded protocol"),
        (classic_group(member_row("m", [0]), member_row("n", [1]), member_row("o", [2])), "exceeds the consumer group"),
        (classic_group(member_row("m", [0], subscription=b"\0\3\0\0")), "embedded consumer protocol is malformed"),
        (classic_group(member_row("m", [0], user_data=b"x")), "an unsupported custom assignor is in use"),
    ],
)
def test_groups_that_cannot_be_upgraded(classic: Group, said: str):
    code, message = refused(Table(max_size=2), classic)
    assert code == E.GROUP_ID_NOT_FOUND and said in message


@pytest.mark.parametrize("policy", [Policy.DISABLED, Policy.DOWNGRADE])
def test_groups_are_not_upgraded_where_that_is_not_wanted(policy: Policy):
    code, message = refused(Table(migration=policy), classic_group(member_row("m", [0])))
    assert code == E.GROUP_ID_NOT_FOUND and "online upgrade is disabled" in message


def test_a_member_that_goes_over_to_another_assignor_meanwhile_keeps_what_it_has():
    classic = classic_group(member_row("m", [0, 1]), member_row("n", [2, 3]))
    member = classic.members.get("n")
    assert member is not None
    anew = ("sticky", encode_subscription(Subscription(topics=["u"])))
    classic.members.update(member, (anew,), 60_000, CLASSIC_SESSION_MS)
    table = Table()
    table.group = upgraded(classic, table.rules, Decision())
    assert table.has("n") == {"t": [2, 3]}
    assert table.member("n").topic_names == {"u"}


def test_a_group_in_its_first_rebalance_has_nothing_to_upgrade():
    assert refused(Table(), classic_group(member_row("m", [0]), protocol=None))[0] == E.UNKNOWN_SERVER_ERROR


# --- Downgrade --------------------------------------------------------------------------------------------------------


def mixed(**rules: object) -> Table:
    """A consumer has half of the topic, a classic member the other half."""
    table = Table(**rules)  # type: ignore[arg-type]
    table.join("a")
    table.join_classic("c", protocols=("range", "sticky"))
    table.beat("a", 2, has={"t": [0, 1]})
    table.join_classic("c", protocols=("range", "sticky"))
    return table


def test_when_the_last_consumer_goes_the_group_is_a_classic_one_again_and_rebalances():
    table = mixed()
    assert table.beat("a", -1).member_epoch == -1
    assert table.classic is not None
    assert (table.classic.protocol_type, table.classic.protocol, table.classic.leader) == ("consumer", "range", "c")
    assert (table.classic.generation, table.classic.current_state_timestamp) == (3, table.now_ms)
    [row] = table.classic.members
    assert (row.member_id, row.session_timeout, row.rebalance_timeout) == ("c", CLASSIC_SESSION_MS, 60_000)
    [had] = decode_assignment(row.assignment).assigned_partitions
    assert (had.topic, had.partitions) == ("t", [2, 3])
    assert table.converted is not None
    assert [name for name, _ in table.converted["c"]] == ["range", "sticky"]
    assert vars(table.group) == vars(ConsumerGroup("g"))  # its records are gone
    assert table.kinds()[-1] == "GroupMetadata" and isinstance(table.log[-1][0], GroupMetadataKey)
    assert not table.timers


def test_a_consumer_whose_session_ends_is_as_good_as_one_that_leaves():
    table = mixed()
    table.timers = {("session", "a"): table.now_ms}
    table.pass_ms(0)
    assert table.classic is not None


@pytest.mark.parametrize(
    "rules", [{"migration": Policy.UPGRADE}, {"classic_max_size": 0}, {"migration": Policy.BIDIRECTIONAL}]
)
def test_groups_that_stay_consumer_groups(rules: dict[str, object]):
    table = mixed(**rules)
    if rules == {"migration": Policy.BIDIRECTIONAL}:
        table.join("b")
    table.beat("a", -1)
    assert table.classic is None and "c" in table.group.members


def test_an_empty_group_is_no_classic_one():
    table = Table()
    table.join("a")
    table.beat("a", -1)
    assert table.classic is None and table.group.state is GroupState.EMPTY


def test_a_static_member_that_turns_classic_as_the_last_one_takes_the_group_along():
    table = Table()
    table.join("a", instance_id="s")
    answer = table.join_classic("", group_instance_id="s", has=ALL)
    assert (answer.error_code, answer.member_id, answer.generation_id) == (E.NONE, "made", 2)
    assert table.classic is not None and table.converted is not None
    [row] = table.classic.members
    assert (row.member_id, row.group_instance_id, table.classic.generation) == ("made", "s", 2)
    assert decode_assignment(row.assignment).assigned_partitions[0].partitions == [0, 1, 2, 3]
    assert vars(table.group) == vars(ConsumerGroup("g"))
