"""A generation by itself: its number and protocol, answers and records made from it, subscriptions."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.generation import Generation
from isthmus.core_broker.coordinators.members import Member, Members
from isthmus.protocol.messages.group_records import GroupMetadataValue

TOPIC_T = b"\0\0\0\0\0\1\0\1t\0\0\0\0"  # a consumer's subscription to topic t
TOPIC_U = b"\0\0\0\0\0\1\0\1u\0\0\0\0"


def member(name: str, *protocols: tuple[str, bytes]) -> Member:
    return Member(name, None, "client", "/host", 60_000, 10_000, protocols or (("range", TOPIC_T),))


def generation_of(*members: Member, kind: str | None = "consumer") -> Generation:
    """A generation that has not begun yet."""
    all_members = Members()
    for each in members:
        all_members.add(each)
    generation = Generation(all_members)
    generation.protocol_type = kind
    return generation


def test_the_next_generation_has_the_protocol_that_its_members_share():
    generation = generation_of(member("a", ("sticky", b""), ("range", b"")), member("b", ("range", b"")))
    assert (generation.number, generation.protocol_name) == (0, None)
    generation.begin_next()
    assert (generation.number, generation.protocol_name) == (1, "range")


def test_a_generation_without_members_has_no_protocol():
    members = Members()
    members.add(member("a"))
    generation = Generation(members)
    generation.protocol_type = "consumer"
    generation.begin_next()
    members.remove("a")
    generation.begin_next()
    assert (generation.number, generation.protocol_name, generation.subscribed_topics()) == (2, None, frozenset())


def test_only_some_answers_to_joins_have_the_members():
    generation = generation_of(member("a"), member("b"))
    generation.begin_next()
    answer = generation.join_response("b", False)
    assert (answer.member_id, answer.generation_id, answer.leader, answer.members) == ("b", 1, "a", [])
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    answer = generation.join_response("a", True, "another")
    assert [(each.member_id, each.metadata) for each in answer.members] == [("a", TOPIC_T), ("b", TOPIC_T)]
    assert answer.leader == "another"


def test_an_answer_to_a_sync_has_the_members_assignment():
    first = member("a")
    generation = generation_of(first)
    generation.begin_next()
    first.assignment = b"A"
    answer = generation.sync_response(first)
    assert (answer.assignment, answer.protocol_type, answer.protocol_name) == (b"A", "consumer", "range")


@pytest.mark.parametrize(
    ("protocol_type", "protocol_name", "contradicts"),
    [
        (None, None, False),
        ("consumer", "range", False),
        ("connect", "range", True),
        ("consumer", "sticky", True),
        (None, "sticky", True),
    ],
)
def test_a_request_may_name_no_other_protocol(protocol_type, protocol_name, contradicts):
    generation = generation_of(member("a"))
    assert not generation.contradicts(None, "any"), "there is no protocol yet"
    generation.begin_next()
    assert generation.contradicts(protocol_type, protocol_name) is contradicts


def test_a_record_is_read_as_it_was_written():
    first, second = member("a"), member("b")
    generation = generation_of(first, second)
    generation.begin_next()
    first.assignment = b"A"
    record = generation.record(77)
    assert (record.generation, record.protocol, record.leader, record.current_state_timestamp) == (1, "range", "a", 77)
    assert [each.assignment for each in record.members] == [b"A", b""]
    given = generation.record(77, {"b": b"B"})
    assert [each.assignment for each in given.members] == [b"", b"B"]
    read = generation_of(first, second, kind=None)
    read.load(record)
    assert (read.number, read.protocol_type, read.protocol_name) == (1, "consumer", "range")
    assert read.subscribed_topics() == {"t"}


def test_subscriptions_are_those_that_the_generation_began_with():
    first = member("a")
    members = Members()
    members.add(first)
    generation = Generation(members)
    generation.protocol_type = "consumer"
    assert generation.subscribed_topics() is None and generation.is_subscribed("any"), "unknown before the first"
    generation.begin_next()
    members.update(first, (("range", TOPIC_U),), 60_000, 10_000)
    assert generation.subscribed_topics() == {"t"}
    assert generation.is_subscribed("t") and not generation.is_subscribed("u")
    generation.begin_next()
    assert generation.subscribed_topics() == {"u"}


def test_subscriptions_of_a_record_between_two_generations_are_unknown():
    generation = generation_of(member("a"))
    generation.load(GroupMetadataValue(protocol_type="consumer", generation=4, protocol=None, leader=None))
    assert generation.number == 4 and generation.subscribed_topics() is None


def test_subscriptions_that_cannot_be_decoded_may_be_to_any_topic():
    generation = generation_of(member("a"), member("b", ("range", b"\0")))
    generation.begin_next()
    assert generation.subscribed_topics() is None and generation.is_subscribed("any")


def test_only_consumers_subscribe():
    generation = generation_of(member("a"), kind="connect")
    generation.begin_next()
    assert not generation.is_of_consumers
    assert generation.subscribed_topics() is None and not generation.is_subscribed("t")
