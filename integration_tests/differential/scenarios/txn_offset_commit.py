"""TxnOffsetCommit (28): offsets that count once their transaction commits, by members of groups and by nobody."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import offset_fetch
from isthmus.protocol.messages import txn_offset_commit as m

from ..crew import COMPLETING, FOLLOWER, LEADER, PREPARING, STABLE, STATIC, Crew
from ..crew import EMPTY as EMPTY_GROUP
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..transactional import (
    EMPTY,
    OLD_OFFSETS,
    ONGOING,
    PREPARED,
    STATES,
    UNKNOWN_ID,
    Producer,
    describe_request,
    one_order,
    strangers,
)
from .offset_fetch import committed
from .offset_fetch import one_order as offsets_in_order

SCENARIOS = Scenarios()
ADDS, MEMBERS, IDS = 5, 3, 6  # versions: adds the group to the transaction, tells the member, has topic ids
KINDS = ("commit", "abort")
COMMIT = "commit"


def begun(case: Case, state: str = EMPTY, group: str = "") -> Producer:
    """A transaction that the version under test may commit offsets in."""
    case.coordinator(group or case.name)
    case.group_logs[group or case.name] = None
    producer = Producer(case, old=case.version < ADDS).bring(state)
    if producer.old and state not in PREPARED:
        assert case.prepare(producer.add_offsets_request(group)).error_code == 0
    return producer


def see_offsets(case: Case, group: str = "") -> None:
    """All offsets of a group, those that are stable, and those that there are."""
    for stable in (True, False):
        wanted = offset_fetch.OffsetFetchRequestGroup(group_id=group or case.name, topics=None)
        case.see(offset_fetch.Request(groups=[wanted], require_stable=stable), only=offsets_in_order)


def ask(case: Case, request: Any, group: str = "") -> Any:
    answer = case.compare(request, only=one_order)
    see_offsets(case, group)
    return answer


@SCENARIOS.success(28, each=KINDS)
def offsets_in_a_transaction(case: Case, kind: str) -> None:
    producer = begun(case)
    for offset, partition in ((40, 0), (41, 1), (42, 0)):
        ask(case, producer.offsets_request(offset, partition=partition))
    case.see(describe_request(producer.id), only=one_order)
    producer.end(kind == COMMIT)
    see_offsets(case)


@SCENARIOS.success(28, each=KINDS)
def offsets_in_a_transaction_after_others(case: Case, kind: str) -> None:
    """There are committed ones, and more are committed meanwhile, outside of the transaction."""
    producer = begun(case)
    topic_id = case.id_of(case.name)
    committed(case, 7, topic_id=topic_id)
    ask(case, producer.offsets_request(40))
    committed(case, 50, topic_id=topic_id)
    see_offsets(case)
    producer.end(kind == COMMIT)
    see_offsets(case)


@SCENARIOS.success(28, each=STATES)
def offsets_in_each_state(case: Case, state: str) -> None:
    producer = begun(case, state)
    ask(case, producer.offsets_request(40))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(28, until=OLD_OFFSETS, each=(EMPTY, ONGOING))
def offsets_of_a_group_that_was_not_added(case: Case, state: str) -> None:
    case.coordinator()
    producer = Producer(case, old=True).bring(state)
    ask(case, producer.offsets_request(40))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(28, ends=True)
def offsets_of_two_groups(case: Case) -> None:
    other = case.name + "-other"
    producer = begun(case)
    case.coordinator(other)
    if producer.old:
        case.prepare(producer.add_offsets_request(other))
    for group in (case.name, other):
        ask(case, producer.offsets_request(40, group), group)
    producer.end()
    for group in (case.name, other):
        see_offsets(case, group)


@SCENARIOS.success(28, ends=True, each=KINDS)
def two_transactions_with_one_group(case: Case, kind: str) -> None:
    first = begun(case)
    second = Producer(case, "-second", old=first.old).begin()
    if second.old:
        case.prepare(second.add_offsets_request())
    ask(case, first.offsets_request(40))
    ask(case, second.offsets_request(50))
    first.end(kind == COMMIT)
    see_offsets(case)
    second.end(kind != COMMIT)
    see_offsets(case)


@SCENARIOS.success(28, ends=True)
def offsets_of_no_topic(case: Case) -> None:
    producer = begun(case)
    ask(case, producer.offsets_request(topics=[]))
    topic = m.TxnOffsetCommitRequestTopic(name=case.name, topic_id=case.id_of(case.name), partitions=[])
    ask(case, producer.offsets_request(topics=[topic]))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(28)
def offsets_of_topics_that_are_not_there(case: Case) -> None:
    producer = begun(case)
    [known] = producer.offsets_request(40).topics
    unknown = m.TxnOffsetCommitRequestTopic(
        name=case.name + "-unknown", topic_id=NO_SUCH_ID, partitions=known.partitions
    )
    ask(case, producer.offsets_request(40, partition=7))
    ask(case, producer.offsets_request(topics=[unknown, known]))
    ask(case, producer.offsets_request(topics=[unknown]))
    nameless = m.TxnOffsetCommitRequestTopic(name="", topic_id=bytes(16), partitions=known.partitions)
    ask(case, producer.offsets_request(topics=[nameless]))


@SCENARIOS.error(28)
def offsets_with_too_much_metadata(case: Case) -> None:
    producer = begun(case)
    ask(case, producer.offsets_request(40, metadata="x" * 4097))
    ask(case, producer.offsets_request(40, metadata="x" * 4096))
    ask(case, producer.offsets_request(40, metadata=None))
    ask(case, producer.offsets_request(-1))


@SCENARIOS.error(28, each=(EMPTY, ONGOING, *PREPARED))
def offsets_by_another_producer(case: Case, state: str) -> None:
    producer = begun(case, state)
    for fields in strangers(producer):
        ask(case, producer.offsets_request(40, **fields))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(28)
def offsets_in_no_transaction(case: Case) -> None:
    producer = begun(case)
    ask(case, producer.offsets_request(40, transactional_id=case.name + "-unknown"))
    ask(case, producer.offsets_request(40, transactional_id=""))
    ask(case, producer.offsets_request(40, group_id=""), case.name)


@SCENARIOS.error(28, ends=True)
def a_fenced_producer_commits_offsets(case: Case) -> None:
    older = begun(case)
    newer = Producer(case, old=older.old).begin()
    ask(case, older.offsets_request(40))
    newer.commit_offset(50)
    ask(case, older.offsets_request(41))
    newer.end()
    see_offsets(case)


@SCENARIOS.error(28, ends=True)
def a_producer_commits_offsets_after_the_end(case: Case) -> None:
    """In the epoch of the transaction that has ended."""
    producer = begun(case)
    request = producer.offsets_request(40)
    ask(case, request)
    producer.end()
    ask(case, request)


# --- Members --------------------------------------------------------------------------------------------------------


def by_member(crew: Crew, name: str, producer: Producer, offset: int = 40, **fields: Any) -> m.Request:
    member = crew[name]
    settings: dict[str, Any] = {
        "generation_id_or_member_epoch": member.generation,
        "member_id": member.member_id,
        "group_instance_id": member.instance,
    }
    return producer.offsets_request(offset, **{**settings, **fields})


@SCENARIOS.success(28, since=MEMBERS, each=(PREPARING, COMPLETING, STABLE))
def members_commit_in_a_transaction(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        producer = begun(case)
        for name in (LEADER, FOLLOWER, STATIC):
            ask(case, by_member(crew, name, producer))
        producer.end()
        see_offsets(case)


@SCENARIOS.error(28, since=MEMBERS, each=(EMPTY_GROUP, PREPARING, COMPLETING, STABLE))
def others_than_members_commit_in_a_transaction(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        producer = begun(case)
        generation = max(crew[LEADER].generation, 0)
        for fields in (
            {"member_id": "nobody"},
            {"member_id": "nobody", "generation_id_or_member_epoch": -1},
            {"member_id": "", "generation_id_or_member_epoch": generation},
            {"generation_id_or_member_epoch": generation + 1},
            {"generation_id_or_member_epoch": generation - 1},
            {"generation_id_or_member_epoch": -1},
            {"group_instance_id": "nobody"},
            {"group_instance_id": STATIC},
            {"member_id": "", "generation_id_or_member_epoch": -1, "group_instance_id": STATIC},
        ):
            ask(case, by_member(crew, LEADER, producer, **fields))


@SCENARIOS.success(28, each=(EMPTY_GROUP, PREPARING, COMPLETING, STABLE))
def nobody_commits_in_a_transaction(case: Case, state: str) -> None:
    """Without a member: so do producers that know only the group's name."""
    with Crew(case).bring(state):
        producer = begun(case)
        ask(case, producer.offsets_request(40))


@SCENARIOS.error(28, since=MEMBERS)
def members_of_groups_that_are_not_there(case: Case) -> None:
    producer = begun(case)
    members: list[dict[str, Any]] = [
        {"generation_id_or_member_epoch": 0, "member_id": "nobody"},
        {"generation_id_or_member_epoch": 5, "member_id": ""},
        {"generation_id_or_member_epoch": -1, "member_id": "nobody"},
        {"generation_id_or_member_epoch": -1, "member_id": "nobody", "group_instance_id": "nobody"},
    ]
    for fields in members:
        ask(case, producer.offsets_request(40, **fields))
    producer.end()


@SCENARIOS.success(28, ends=True)
def an_idempotent_producer_commits_offsets_as_another(case: Case) -> None:
    """Its id belongs to no transaction: what it commits never counts."""
    producer = begun(case)
    other = Producer(case, "-other").begin()
    ask(case, producer.offsets_request(40, producer_id=other.producer_id))
    ask(case, producer.offsets_request(40, producer_id=UNKNOWN_ID, producer_epoch=0))
