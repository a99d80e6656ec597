"""What a group's description says of who reads what."""

from isthmus.console.groups import assigned, in_words
from isthmus.protocol.messages import consumer_protocol as wire


def test_a_members_partitions_are_those_its_leader_gave_it():
    parts = [wire.TopicPartition(topic="b", partitions=[2, 0]), wire.TopicPartition(topic="a", partitions=[1])]
    data = wire.encode_assignment(wire.Assignment(assigned_partitions=parts), 1)
    assert assigned(data) == {"a": [1], "b": [0, 2]}
    assert in_words(assigned(data)) == "a:1 b:0,2"


def test_an_assignment_that_cannot_be_read_is_left_out():
    assert assigned(b"") == assigned(b"\x00") == assigned(b"\x00\x01\xff\xff") == {}
    assert in_words({}) == ""
