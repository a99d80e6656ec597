"""What a coordinator's answers say of a group, in the same words for both types."""

from __future__ import annotations

from isthmus.client.groups import GroupMember, of_classic_group, of_consumer_group
from isthmus.protocol.messages import consumer_group_describe as modern
from isthmus.protocol.messages import consumer_protocol as wire
from isthmus.protocol.messages import describe_groups as classic


def given(**topics: list[int]) -> modern.Assignment:
    return modern.Assignment(
        topic_partitions=[
            modern.TopicPartitions(topic_id=bytes(16), topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
    )


def test_a_consumer_group():
    member = modern.Member(
        member_id="m", instance_id="i", rack_id="r", member_epoch=6, client_id="c", client_host="/h",
        subscribed_topic_names=["b", "a"], subscribed_topic_regex="", assignment=given(b=[2, 0], a=[1]),
        target_assignment=given(b=[0]), member_type=1,
    )  # fmt: skip
    group = of_consumer_group(
        modern.DescribedGroup(
            group_id="g", group_state="Reconciling", group_epoch=7, assignment_epoch=6, assignor_name="uniform",
            members=[member],
        )
    )  # fmt: skip
    assert (group.type, group.state, group.assignor, group.epoch, group.assignment_epoch) == (
        *("consumer", "Reconciling", "uniform"),
        *(7, 6),
    )
    assert group.members == (
        GroupMember(
            "m", "i", "c", "/h", {"a": (1,), "b": (0, 2)}, is_classic=False, rack_id="r", epoch=6, topics=("a", "b"),
            pattern=None, target={"b": (0,)},
        ),
    )  # fmt: skip


def classic_member(assignment: bytes) -> classic.DescribedGroupMember:
    return classic.DescribedGroupMember(member_id="m", client_id="c", client_host="/h", member_assignment=assignment)


def test_a_classic_group_has_what_its_leader_gave_out():
    parts = [wire.TopicPartition(topic="b", partitions=[2, 0]), wire.TopicPartition(topic="a", partitions=[1])]
    data = wire.encode_assignment(wire.Assignment(assigned_partitions=parts), 1)
    described = classic.DescribedGroup(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol_data="range",
        members=[classic_member(data)],
    )  # fmt: skip
    group = of_classic_group(described)
    assert (group.type, group.assignor, group.epoch) == ("classic", "range", None)
    assert group.members == (GroupMember("m", None, "c", "/h", {"a": (1,), "b": (0, 2)}),)
    described.protocol_type = "connect"
    assert of_classic_group(described).members[0].assigned == {}


def test_an_assignment_that_cannot_be_read_is_left_out():
    members = [classic_member(data) for data in (b"", b"\x00", b"\x00\x01\xff\xff")]
    group = of_classic_group(classic.DescribedGroup(protocol_type="consumer", members=members))
    assert [each.assigned for each in group.members] == [{}, {}, {}]
