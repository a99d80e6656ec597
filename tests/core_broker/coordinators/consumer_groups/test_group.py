"""A consumer group is the replay of its records."""

from __future__ import annotations

from isthmus.core_broker.coordinators.consumer_groups.group import ConsumerGroup, GroupState
from isthmus.core_broker.coordinators.consumer_groups.member import Member
from isthmus.protocol.messages import consumer_group_records as r

from .table import Table

T = b"t" * 16


def seen(group: ConsumerGroup) -> dict[str, object]:
    """All that is known, but what is no part of the records."""
    known = dict(vars(group), _state=group.state)
    del known["refreshed_at"]
    return known


def test_another_coordinator_makes_the_same_group_of_the_records():
    table = Table()
    table.join("a", ["t", "u"], instance_id="s", server_assignor="range")
    table.join("b", None, subscribed_topic_regex="[tu]")
    table.match(**{"[tu]": ["t", "u"]})
    table.beat("a", 2, instance_id="s")
    table.beat("a", -2, instance_id="s")
    table.join("c", ["u"], instance_id="s")
    before = seen(table.group)
    table.restart()
    assert seen(table.group) == before


def test_removed_members_leave_no_trace():
    table = Table()
    table.join("a", None, subscribed_topic_regex="t")
    table.match(t=["t"])
    table.beat("a", 1)
    table.join("b", ["u"], instance_id="s", server_assignor="range")
    for member, static in (("a", None), ("b", "s")):
        table.beat(member, -1, instance_id=static)
    empty = ConsumerGroup("g")
    for name in ("members", "static", "targets", "resolved", "names", "matched", "patterns", "assignors"):
        assert getattr(table.group, name) == getattr(empty, name), name
    assert table.group.partition_epoch(table.id_of("t"), 0) == -1
    assert table.group.state is GroupState.EMPTY


def test_tombstones_of_a_group_take_everything_away():
    table = Table()
    table.join("a", None, subscribed_topic_regex="t")
    table.match(t=["t"])
    table.beat("a", 1)
    for key, value in table.group.tombstones():
        assert value is None
        table.group.replay(key, value)
    assert type(table.group.tombstones()[-1][0]) is r.ConsumerGroupMetadataKey
    assert not table.group.members and not table.group.targets and not table.group.resolved
    assert table.group.assignment_epoch == -1


def test_tombstones_of_what_is_not_known_are_nothing():
    group = ConsumerGroup("g")
    before = seen(group)
    for key in (
        r.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"),
        r.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="a"),
        r.ConsumerGroupMemberMetadataKey(group_id="g", member_id="a"),
        r.ConsumerGroupRegularExpressionKey(group_id="g", regular_expression="x"),
        r.ConsumerGroupPartitionMetadataKey(group_id="g"),
    ):
        group.replay(key, None)
    assert seen(group) == before


def test_partitions_of_records_from_before_kafka_4_4_have_the_members_epoch():
    group = ConsumerGroup("g")
    key = r.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a")
    for epoch, given in ((7, 7), (-2, 0)):
        old = r.CurrentPartitions(topic_id=T, partitions=[0, 1], assignment_epochs=None)
        torn = r.CurrentPartitions(topic_id=T, partitions=[3], assignment_epochs=[1, 2])
        group.replay(
            key,
            r.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=epoch, assigned_partitions=[old], partitions_pending_revocation=[torn]
            ),
        )
        member = group.members["a"]
        assert (member.given_at(T, 1), member.given_at(T, 3), member.given_at(T, 4)) == (given, given, None)


def test_a_partition_is_its_next_owners_though_the_record_of_the_last_one_comes_late():
    """Of a log that was compacted: the newer owner's record may come first."""
    group = ConsumerGroup("g")

    def has(member_id: str, epoch: int, *partitions: int) -> None:
        given = [r.CurrentPartitions(topic_id=T, partitions=list(partitions))] if partitions else []
        value = r.ConsumerGroupCurrentMemberAssignmentValue(member_epoch=epoch, assigned_partitions=given)
        group.replay(r.ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member_id), value)

    has("b", 5, 0)
    has("a", 3, 0)
    assert group.partition_epoch(T, 0) == 5
    has("a", 6)
    assert group.partition_epoch(T, 0) == 5
    has("b", 7)
    assert group.partition_epoch(T, 0) == -1


def test_a_static_member_is_known_by_its_instance():
    table = Table()
    table.join("a", instance_id="s")
    assert table.group.static_member("s") == table.member("a")
    assert table.group.static_member(None) is None and table.group.static_member("x") is None
    assert table.group.target_of("whatever", "s") == table.group.target_of("a", None) != {}


def test_a_member_that_is_made_of_nothing_is_at_kafkas_defaults():
    assert Member("m") == Member("m", epoch=0, previous_epoch=-1, rebalance_timeout_ms=-1, topic_regex="")
