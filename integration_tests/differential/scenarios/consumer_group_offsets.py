"""OffsetCommit (8), OffsetFetch (9) and TxnOffsetCommit (28) by members of consumer groups, by their epochs."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import txn_offset_commit

from ..consumers import ASSIGNING, EMPTY, LATE, ONE, RECONCILING, STABLE, STATES, STATIC, TELLS_INSTANCE, TWO, Consumers
from ..peer import Case, Scenarios
from ..transactional import Producer
from .offset_commit import see_offsets
from .offset_fetch import one_order
from .txn_offset_commit import see_offsets as see_pending

SCENARIOS = Scenarios()
BY_EPOCH_COMMIT, BY_EPOCH_FETCH, BY_EPOCH_TXN = 9, 9, 3  # the versions that know of a member's epoch
WITH_MEMBERS = (ASSIGNING, RECONCILING, STABLE)


def strangers(group: Consumers, name: str, *, instances: bool = True) -> list[dict[str, Any]]:
    """Fields of a commit that say that another member than this one commits, or at another time."""
    epoch = group[name].epoch
    fields: list[dict[str, Any]] = [
        {"generation_id_or_member_epoch": epoch + 1},
        {"generation_id_or_member_epoch": epoch - 1},
        {"generation_id_or_member_epoch": 0},
        {"generation_id_or_member_epoch": -1},
        {"member_id": "nobody"},
        {"member_id": "nobody", "generation_id_or_member_epoch": -1},
        {"member_id": ""},
        {"member_id": "", "generation_id_or_member_epoch": -1},
    ]
    return [*fields, {"group_instance_id": "nobody"}, {"group_instance_id": STATIC}] if instances else fields


@SCENARIOS.success(8, each=WITH_MEMBERS)
def members_of_a_consumer_group_commit(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for offset, name in enumerate((ONE, STATIC, LATE) if state != STABLE else (ONE, STATIC)):
        case.compare(group.commit_request(name, offset))
    see_offsets(case)


@SCENARIOS.error(8, each=STATES)
def others_than_members_commit_to_a_consumer_group(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    for offset, fields in enumerate(strangers(group, ONE, instances=case.version >= TELLS_INSTANCE)):
        case.compare(group.commit_request(ONE, offset, **fields))
        see_offsets(case)


@SCENARIOS.success(8, ends=True)
def commits_while_partitions_are_given_up(case: Case) -> None:
    """In the epoch that the member has until it has given them up."""
    group = Consumers(case)
    group.join(ONE)
    group.settle()
    group.join(TWO)
    case.compare(group.commit_request(ONE, 5))
    group.beat(ONE)
    case.compare(group.commit_request(ONE, 6))
    before = group[ONE].epoch
    group.settle()
    case.compare(group.commit_request(ONE, 7))
    case.compare(group.commit_request(ONE, 8, generation_id_or_member_epoch=before))
    see_offsets(case)


@SCENARIOS.success(8, ends=True)
def a_member_that_left_commits(case: Case) -> None:
    group = Consumers(case).bring(STABLE)
    one, static = group.commit_request(ONE, 5), group.commit_request(STATIC, 6)
    group.leave(ONE)
    group.beat(STATIC, group.beat_request(STATIC, member_epoch=-2))
    for request in (one, static):
        case.compare(request)
    see_offsets(case)


@SCENARIOS.success(9, each=WITH_MEMBERS)
def members_of_a_consumer_group_read_offsets(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    assert case.prepare(group.commit_request(ONE)).topics[0].partitions[0].error_code == 0
    for name in (ONE, STATIC):
        case.compare(group.fetch_request(name), only=one_order)


@SCENARIOS.error(9, since=BY_EPOCH_FETCH, each=STATES)
def others_than_members_read_offsets(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    epoch = group[ONE].epoch
    wrong: list[dict[str, Any]] = [
        {"member_epoch": epoch + 1},
        {"member_epoch": epoch - 1},
        {"member_epoch": 0},
        {"member_epoch": -1},
        {"member_id": "nobody"},
        {"member_id": "nobody", "member_epoch": -1},
        {"member_id": ""},
        {"member_id": None},
        {"member_id": None, "member_epoch": -1},
        {"group_id": case.name + "-unknown"},
    ]
    for fields in wrong:
        case.compare(group.fetch_request(ONE, **fields), only=one_order)


def pending_request(group: Consumers, producer: Producer, name: str, **fields: Any) -> txn_offset_commit.Request:
    member = group[name]
    settings: dict[str, Any] = {
        "generation_id_or_member_epoch": member.epoch,
        "member_id": member.member_id,
        "group_instance_id": member.instance,
    }
    return producer.offsets_request(**{**settings, **fields})


@SCENARIOS.success(28, since=BY_EPOCH_TXN, each=WITH_MEMBERS)
def members_of_a_consumer_group_commit_in_a_transaction(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    producer = Producer(case, old=case.version < 5).begin()
    if producer.old:
        case.prepare(producer.add_offsets_request())
    for name in (ONE, STATIC):
        case.compare(pending_request(group, producer, name))
        see_pending(case)
    producer.end()
    see_pending(case)


@SCENARIOS.error(28, since=BY_EPOCH_TXN, each=STATES)
def others_than_members_of_a_consumer_group_commit_in_a_transaction(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    producer = Producer(case, old=case.version < 5).begin()
    if producer.old:
        case.prepare(producer.add_offsets_request())
    for fields in strangers(group, ONE):
        case.compare(pending_request(group, producer, ONE, **fields))
        see_pending(case)


@SCENARIOS.success(28, until=2)
def a_producer_that_knows_no_members_commits_to_a_consumer_group(case: Case) -> None:
    Consumers(case).bring(STABLE)
    producer = Producer(case, old=True).begin()
    case.prepare(producer.add_offsets_request())
    case.compare(producer.offsets_request())
    see_pending(case)
    producer.end()
    see_pending(case)


@SCENARIOS.success(8, ends=True, each=(EMPTY, STABLE))
def nobody_commits_to_a_consumer_group(case: Case, state: str) -> None:
    group = Consumers(case).bring(state)
    fields: dict[str, Any] = {"member_id": "", "generation_id_or_member_epoch": -1, "group_instance_id": None}
    case.compare(group.commit_request(ONE, 5, **fields))
    see_offsets(case)
