"""Metadata, control and group records and the consumer protocol, some of them as Kafka 4.4.0 wrote them to its log."""

import pytest

from isthmus.protocol.errors import DecodeError
from isthmus.protocol.messages import consumer_protocol, control_records, envelope, group_records, metadata_records
from isthmus.protocol.messages.consumer_group_records import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from isthmus.protocol.messages.consumer_protocol import Assignment, Subscription, TopicPartition
from isthmus.protocol.messages.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from isthmus.protocol.messages.metadata_records import (
    CODECS,
    FeatureLevelRecord,
    MirrorLinkRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

TOPIC_ID = bytes(range(16))


def test_metadata_records_carry_frame_type_and_version():
    record = FeatureLevelRecord(name="metadata.version", feature_level=33)
    assert metadata_records.encode(record) == b"\1\x0c\0\x11metadata.version\0\x21\0"
    assert metadata_records.decode(b"\1\x0c\0\x11metadata.version\0\x21\0") == record
    assert metadata_records.encode(MirrorLinkRecord(link_id="ewr", link_epoch=2))[:4] == b"\1\x90\x4e\0"


def test_metadata_records_round_trip():
    for record in (
        TopicRecord(name="flights", topic_id=TOPIC_ID),
        PartitionRecord(partition_id=2, topic_id=TOPIC_ID, replicas=[1], isr=[1], leader=1, directories=[TOPIC_ID]),
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC_ID, isr=[1], leader=1, last_known_elr=[]),
        MirrorLinkRecord(link_id="ewr", source_cluster_id="c", link_epoch=4),
        *(codec.struct() for codec in CODECS.values()),
    ):
        assert metadata_records.decode(metadata_records.encode(record)) == record


def test_a_partition_change_carries_only_what_changed():
    change = PartitionChangeRecord(partition_id=1, topic_id=TOPIC_ID, leader=3)
    assert metadata_records.encode(change) == b"\1\5\2\0\0\0\1" + TOPIC_ID + b"\1\1\4\0\0\0\3"
    assert metadata_records.decode(metadata_records.encode(change)).isr is None


@pytest.mark.parametrize(
    "value", [b"", b"\1", b"\2\2\0", b"\1\x7f\0", b"\1\2\x09", b"\1\x0c\0\2a\0\1\0-", b"\1\x0c\0\2a"]
)
def test_metadata_records_that_cannot_be_read_are_decode_errors(value):
    with pytest.raises(DecodeError):
        metadata_records.decode(value)


def test_control_records_say_their_type_in_the_key_and_their_version_in_the_value():
    header = control_records.SnapshotHeaderRecord(last_contained_log_timestamp=258)
    leader = control_records.LeaderChangeMessage(leader_id=3, voters=[control_records.LeaderVoter(voter_id=3)])
    voter = control_records.Voter(voter_id=1, voter_directory_id=TOPIC_ID)
    for record, key, value in (
        (header, b"\0\0\0\3", b"\0\0" + bytes(6) + b"\1\2\0"),
        (leader, b"\0\0\0\2", b"\0\0\0\0\0\3\2\0\0\0\3\0\1\0"),
        (control_records.KRaftVersionRecord(kraft_version=1), b"\0\0\0\5", b"\0\0\0\1\0"),
        (control_records.VotersRecord(voters=[voter]), b"\0\0\0\6", b"\0\0\2\0\0\0\1" + TOPIC_ID + b"\1" + bytes(7)),
    ):
        assert control_records.encode(record) == (key, value)
        assert control_records.decode(key, value) == record
    leader.version, leader.voters[0].voter_directory_id = 1, TOPIC_ID
    assert control_records.encode(leader)[1] == b"\0\1\0\0\0\3\2\0\0\0\3" + TOPIC_ID + b"\0\1\0"
    assert control_records.decode(*control_records.encode(leader)) == leader


def test_control_records_that_cannot_be_read():
    assert control_records.decode(b"\0\0\0\7", b"whatever") is None
    for key, value in (
        (None, b""),
        (b"\0\0\0", b""),
        (b"\0\0\0\4", None),
        (b"\0\0\0\4", b"\0"),
        (b"\0\0\0\4", b"\0\1\0"),
    ):
        with pytest.raises(DecodeError):
            control_records.decode(key, value)
    with pytest.raises(DecodeError, match="1 bytes follow"):
        control_records.decode(b"\0\0\0\4", b"\0\0\0\0")


def test_a_principal_begins_with_its_version():
    principal = envelope.Principal(type="User", name="a")
    assert envelope.encode_principal(principal) == b"\0\0\5User\2a\0\0"
    assert envelope.decode_principal(b"\0\0\5User\2a\0\0") == principal
    for data in (b"", b"\0\1\5User\2a\0\0", b"\0\0\5Us"):
        with pytest.raises(DecodeError):
            envelope.decode_principal(data)


def test_group_keys_and_values_as_kafka_writes_them():
    key = OffsetCommitKey(group="gg", topic="flights", partition=0)
    raw = b"\0\1\0\2gg\0\7flights\0\0\0\0"
    assert group_records.encode_key(key) == raw
    assert group_records.decode_key(raw) == key
    assert group_records.decode_key(b"\0\0" + raw[2:]) == key
    value = OffsetCommitValue(offset=10, leader_epoch=0, commit_timestamp=1795234894708, topic_id=TOPIC_ID)
    raw = b"\0\4" + (10).to_bytes(8, "big") + b"\0\0\0\0\1\0\0\x01\xa1\xfc\xe6\x76\x34\1\0\x10" + TOPIC_ID
    raw = raw[:15] + value.commit_timestamp.to_bytes(8, "big") + b"\1\0\x10" + TOPIC_ID
    assert group_records.encode_value(value) == raw
    assert group_records.decode_value(key, raw) == value
    assert group_records.decode_value(key, None) is None


def test_group_metadata_round_trips_in_every_version():
    key = GroupMetadataKey(group="gg")
    assert group_records.decode_key(group_records.encode_key(key)) == key
    member = MemberMetadata(
        member_id="m", client_id="c", client_host="/127.0.0.1", session_timeout=10, subscription=b"s"
    )
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="range", leader="m", members=[member])
    for version in range(5):
        assert group_records.decode_value(key, group_records.encode_value(value, version)) == value
    assert group_records.encode_value(value)[:2] == b"\0\3"


def test_a_consumer_groups_member_says_whether_it_speaks_the_classic_protocol():
    """In Kafka's records a null is a tagged field of one byte, 0, and what is at its defaults is left out."""
    null = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    raw = group_records.encode_value(null)
    assert raw == b"\0\0" + b"\1\1\1\1\1\1\xff\xff\xff\xff\1" + b"\1\0\1\0"
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    assert group_records.encode_key(key) == b"\0\5\0\1g\0\1m"
    assert group_records.decode_value(key, raw) == null
    assert group_records.decode_value(key, raw[:13] + b"\0").classic_member_metadata == ClassicMemberMetadata()
    spoken = ConsumerGroupMemberMetadataValue(classic_member_metadata=ClassicMemberMetadata(session_timeout_ms=5))
    assert group_records.encode_value(spoken)[13:] == b"\1\0\x07\1\0\0\0\5\1\0"
    assert group_records.decode_value(key, group_records.encode_value(spoken)) == spoken


def test_unknown_group_records_are_passed_over_and_short_ones_refused():
    assert group_records.decode_key(b"\0\x09\0\2gg") is None
    for raw in (b"", b"\0", b"\0\1\0\2gg"):
        with pytest.raises(DecodeError):
            group_records.decode_key(raw)
    with pytest.raises(DecodeError):
        group_records.decode_value(GroupMetadataKey(), b"\0\x09")


def test_consumer_protocol_reads_newer_versions_as_its_own():
    subscription = Subscription(topics=["a", "b"], owned_partitions=[TopicPartition(topic="a", partitions=[0, 2])])
    raw = consumer_protocol.encode_subscription(subscription)
    assert raw[:2] == b"\0\3"
    assert consumer_protocol.decode_subscription(raw) == subscription
    assert consumer_protocol.decode_subscription(b"\0\x09" + raw[2:] + b"more") == subscription
    assert consumer_protocol.decode_subscription(b"\0\0\0\0\0\1\0\1a\xff\xff\xff\xff") == Subscription(topics=["a"])
    with pytest.raises(DecodeError):
        consumer_protocol.decode_subscription(b"\xff\xff" + raw[2:])
    with pytest.raises(DecodeError):
        consumer_protocol.decode_subscription(raw[:-1])


def test_assignments_round_trip_and_may_be_no_bytes():
    assignment = Assignment(assigned_partitions=[TopicPartition(topic="a", partitions=[1])], user_data=b"u")
    assert consumer_protocol.decode_assignment(consumer_protocol.encode_assignment(assignment)) == assignment
    assert consumer_protocol.decode_assignment(b"") == Assignment()


def test_an_offset_that_says_how_long_it_lives_is_written_in_the_version_that_can():
    value = OffsetCommitValue(offset=10, commit_timestamp=5, expire_timestamp=9)
    raw = group_records.encode_value(value)
    assert raw[:2] == b"\0\1"
    assert group_records.decode_value(OffsetCommitKey(group="g", topic="t", partition=0), raw) == value
