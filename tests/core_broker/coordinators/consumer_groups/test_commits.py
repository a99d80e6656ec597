"""Who may commit and fetch offsets of a consumer group, and under which epoch."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.consumer_groups import records
from isthmus.core_broker.coordinators.consumer_groups.commits import check_commit, check_fetch
from isthmus.core_broker.coordinators.consumer_groups.group import ConsumerGroup
from isthmus.core_broker.coordinators.consumer_groups.member import Member
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages.consumer_group_records import ClassicMemberMetadata

T = b"t" * 16
VERSION = 10


def group_of(*, is_classic: bool = False) -> ConsumerGroup:
    """One member at epoch 5: partition 0 since 3, partition 1 since 5, and partition 2, to give back, since 4."""
    group = ConsumerGroup("g")
    classic = ClassicMemberMetadata() if is_classic else None
    member = Member(
        "m", 5, 4, classic=classic, assigned={T: {0: 3, 1: 5}}, pending_revocation={T: {2: 4}}
    )  # fmt: skip
    group.replay(*records.subscription("g", member))
    group.replay(*records.current("g", member))
    return group


def code(check, *asked) -> E:
    try:
        check(*asked)
    except KafkaError as error:
        return E(error.code)
    return E.NONE


def commit(group: ConsumerGroup, member: str, epoch: int, *partitions: int, version: int | None = VERSION) -> E:
    return code(check_commit, group, member, None, epoch, [(T, index) for index in partitions], version)


def test_an_epoch_is_good_for_what_the_member_has_had_since():
    group = group_of()
    assert commit(group, "m", 5, 0, 1, 2, 9) == E.NONE  # under its own, whatever it is
    assert commit(group, "m", 4, 0, 2) == commit(group, "m", 3, 0) == E.NONE
    assert commit(group, "m", 4, 0, 1) == commit(group, "m", 3, 2) == commit(group, "m", 4, 9) == E.STALE_MEMBER_EPOCH
    assert commit(group, "m", 6, 0) == E.STALE_MEMBER_EPOCH
    assert commit(group, "x", 5, 0) == commit(group, "", -1, 0) == E.UNKNOWN_MEMBER_ID


def test_members_of_the_classic_protocol_are_told_of_generations():
    group = group_of(is_classic=True)
    assert commit(group, "m", 4, 0, version=8) == E.NONE
    assert commit(group, "m", 4, 1) == commit(group, "m", 6, 0) == commit(group, "m", 4, 9) == E.ILLEGAL_GENERATION
    assert code(check_fetch, group, "m", 4) == E.ILLEGAL_GENERATION


def test_a_version_without_epochs_is_refused():
    assert commit(group_of(), "m", 5, 0, version=8) == E.UNSUPPORTED_VERSION


def test_anybody_commits_for_a_group_that_nobody_is_in():
    assert commit(ConsumerGroup("g"), "", -1, 0) == E.NONE
    assert commit(ConsumerGroup("g"), "m", 3, 0) == E.UNKNOWN_MEMBER_ID


def test_a_transaction_of_a_producer_that_knows_no_member_is_let_through():
    assert commit(group_of(), "", -1, 0, version=None) == E.NONE
    assert commit(group_of(), "m", 4, 1, version=None) == E.STALE_MEMBER_EPOCH
    assert code(check_commit, group_of(), "", "s", -1, [], None) == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "expected"),
    [
        (None, -1, E.NONE),
        ("m", 5, E.NONE),
        ("m", 4, E.STALE_MEMBER_EPOCH),
        ("m", -1, E.STALE_MEMBER_EPOCH),
        ("x", 5, E.UNKNOWN_MEMBER_ID),
        ("", -1, E.UNKNOWN_MEMBER_ID),
        (None, 5, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_fetches(member, epoch, expected):
    assert code(check_fetch, group_of(), member, epoch) == expected
