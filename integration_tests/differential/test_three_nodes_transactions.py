"""Transactions and consumer groups on three nodes: the same bytes to three of our brokers and to three of stock Kafka.

Coordinators and leaders move in the middle of transactions, and a broker hangs. What is told afterwards, and by whom,
is compared, and so are the records that are left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from integration_tests.waiting import until
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    describe_groups,
    describe_producers,
    fetch,
    list_offsets,
    list_transactions,
    offset_fetch,
    produce,
)

from .batches import split
from .consumers import REBALANCE_MS
from .peer import KEEPS
from .routed import TRANSACTION, RoutedCase
from .transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    LATER,
    NEVER_MS,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Producer,
    brokers_request,
    describe_request,
    one_order,
)
from .trios import SETTLE_S, Trio, both_after, differences

COMMITTED = 1  # isolation level
LEVELS = (0, COMMITTED)
ONE, TWO, THREE = 1, 2, 3
OLD_PRODUCE = range(3)  # versions of Produce for batches of other formats


# --- What is asked --------------------------------------------------------------------------------------------------


def offsets_of(group: str, stable: bool = True) -> offset_fetch.Request:
    wanted = offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
    return offset_fetch.Request(groups=[wanted], require_stable=stable)


def producers_of(case: RoutedCase, *indexes: int) -> describe_producers.Request:
    topic = describe_producers.TopicRequest(name=case.name, partition_indexes=list(indexes))
    return describe_producers.Request(topics=[topic])


def beat_request(group: str, member: str, epoch: int, topic: str = "") -> consumer_group_heartbeat.Request:
    if epoch:
        return consumer_group_heartbeat.Request(
            group_id=group, member_id=member, member_epoch=epoch, topic_partitions=None
        )  # fmt: skip
    return consumer_group_heartbeat.Request(
        group_id=group,
        member_id=member,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=[topic],
        topic_partitions=[],
    )


def keep_records(case: RoutedCase, what: str, *indexes: int) -> None:
    """What readers are told of partitions at their leaders, with the headers of batches."""
    for index in indexes or (0, 1):
        node = case.leader_of(case.name, index)
        for level in LEVELS:
            wanted = fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
            topic = fetch.FetchTopic(topic=case.name, topic_id=case.topic_id, partitions=[wanted])
            request = fetch.Request(
                max_wait_ms=0, max_bytes=1 << 20, session_epoch=-1, isolation_level=level, topics=[topic]
            )
            case.trio.keep(f"{what}: partition {index} at level {level}", node, request, only=headers)
            ends = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
            rows = list_offsets.ListOffsetsTopic(name=case.name, partitions=[ends])
            asked = list_offsets.Request(replica_id=-1, isolation_level=level, topics=[rows], timeout_ms=5_000)
            case.trio.keep(f"{what}: end {index} at level {level}", node, asked)


def headers(answer: Any) -> Any:
    """An answer without the bytes of records: markers tell the epoch of their coordinator, which is each cluster's own
    affair. So are leader epochs."""
    for topic in answer["responses"]:
        for row in topic["partitions"]:
            batches = split(row["records"] or b"")
            for each in batches:
                del each["records"], each["leader_epoch"], each["crc"]
            row["records"] = batches
    return answer


def keep_state(case: RoutedCase, what: str, producer: Producer, node: int) -> None:
    case.trio.keep(what, node, describe_request(producer.id), only=one_order)


# --- The history ----------------------------------------------------------------------------------------------------


def history(trio: Trio) -> dict[str, Any]:
    """What both are asked, in this order."""
    until(lambda: trio.alive() == [1, 2, 3], "all brokers are there", SETTLE_S)
    not_the_coordinator(trio)
    across_leaders(trio)
    for state in (EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT):
        a_coordinator_moves(trio, state)
    for state in (PREPARE_COMMIT, PREPARE_ABORT):
        a_coordinator_moves_while_markers_are_written(trio, state)
    a_leader_moves(trio)
    the_coordinator_of_a_group_moves(trio)
    a_consumer_groups_coordinator_moves(trio)
    a_leader_hangs(trio)
    a_coordinator_hangs(trio)
    return trio.answers


def not_the_coordinator(trio: Trio) -> None:
    """Every request of transactions and consumer groups at a broker that does not coordinate, nor lead."""
    case = RoutedCase(trio, "elsewhere")
    producer = Producer(case).bring(EMPTY)
    case.move_transactions(producer.id, ONE, TWO, THREE)
    case.move_group(case.name, ONE, TWO, THREE)
    what = "not the coordinator"
    for request, but in (
        (producer.init_request(), range(0)),
        (producer.add_request(0), range(4, 9)),
        (brokers_request(producer.added_row(0)), range(4)),
        (brokers_request(producer.added_row(0, verify_only=True)), range(4)),
        (producer.add_offsets_request(), range(0)),
        (producer.end_request(), range(0)),
        (producer.offsets_request(), range(0)),
        (describe_request(producer.id), range(0)),
        (beat_request(case.name, "one", 0, case.name), range(0)),
        (consumer_group_describe.Request(group_ids=[case.name]), range(0)),
    ):
        trio.every_version(what, TWO, request, but)
    trio.keep(what, TWO, list_transactions.Request(), only=lambda answer: own(answer, case.name))
    trio.every_version("not the leader", TWO, producer.marker_request())
    trio.every_version("not the leader", TWO, producer.produce_request(producer.batch()), OLD_PRODUCE)
    trio.keep("not the leader", TWO, producers_of(case, 0))


def own(answer: Any, name: str) -> Any:
    rows = [row for row in answer["transaction_states"] if row["transactional_id"].startswith(name)]
    return {**answer, "transaction_states": sorted(rows, key=lambda row: str(row["transactional_id"]))}


def across_leaders(trio: Trio) -> None:
    """Partitions of two leaders, neither of which coordinates, and offsets at a third broker."""
    case = RoutedCase(trio, "across")
    for old in (False, True):
        producer = Producer(case, f"-{old}", old=old).bring(EMPTY)
        case.move_transactions(producer.id, THREE, ONE, TWO)
        case.move_group(case.name, TWO, ONE, THREE)
        for committed in (True, False):
            producer.write(0, 2)
            producer.write(1)
            producer.commit_offset(40 + committed)
            keep_state(case, f"across leaders, {old}, {committed}", producer, THREE)
            trio.keep("pending across leaders", TWO, offsets_of(case.name))
            producer.end(committed)
            trio.keep("ended across leaders", TWO, offsets_of(case.name))
            keep_state(case, f"ended across leaders, {old}, {committed}", producer, THREE)
        keep_records(case, f"across leaders {old}")
        for index, node in ((0, ONE), (1, TWO)):
            trio.keep("producers across leaders", node, producers_of(case, index), only=without_epochs)


def without_epochs(answer: Any) -> Any:
    """Coordinators' epochs are the leader epochs of their partitions, of which each cluster keeps its own count."""
    for topic in answer["topics"]:
        for row in topic["partitions"]:
            rows = sorted(row["active_producers"], key=lambda each: (each["producer_epoch"], each["last_sequence"]))
            row["active_producers"] = [
                {**each, "coordinator_epoch": each["coordinator_epoch"] >= 0} for each in rows
            ]  # fmt: skip
    return answer


def a_coordinator_moves(trio: Trio, state: str) -> None:
    """The new one goes on where the old one was, which is asked too."""
    case = RoutedCase(trio, f"moves-{state}")
    producer = Producer(case).bring(EMPTY)
    case.move_transactions(producer.id, ONE, TWO, THREE)
    producer.bring(state)
    case.move_transactions(producer.id, TWO, ONE, THREE)
    what = f"the coordinator has moved in {state}"
    keep_state(case, what, producer, TWO)
    keep_state(case, what, producer, ONE)
    trio.keep(what, ONE, producer.end_request())
    producer.write(1)
    keep_state(case, f"{what}, and on", producer, TWO)
    producer.end()
    keep_state(case, f"{what}, and ended", producer, TWO)
    trio.keep(what, TWO, producer.bump_request())
    keep_records(case, what)


def a_coordinator_moves_while_markers_are_written(trio: Trio, state: str) -> None:
    """It was fenced at a partition, and so is the new one, which begins again with the markers."""
    case = RoutedCase(trio, f"moves-{state}")
    producer = Producer(case).bring(EMPTY)
    case.move_transactions(producer.id, ONE, TWO, THREE)
    producer.write()
    producer.write(1)
    case.prepare(producer.marker_request(coordinator_epoch=LATER))
    producer.given(case.prepare(producer.end_request(state == PREPARE_COMMIT)))
    what = f"the coordinator has moved in {state}"
    until(lambda: left(case, producer) == [(case.name, 0)], "the other partition is marked", SETTLE_S)
    keep_state(case, f"{what}: before", producer, ONE)
    case.move_transactions(producer.id, TWO, ONE, THREE)
    until(lambda: left(case, producer) == [(case.name, 0)], "the other partition is marked again", SETTLE_S)
    keep_state(case, what, producer, TWO)
    keep_records(case, what)
    trio.keep(what, TWO, producer.end_request(state == PREPARE_COMMIT, producer_epoch=producer.epoch - 1))


def left(case: RoutedCase, producer: Producer) -> list[tuple[str, int]]:
    """The partitions that have no marker yet."""
    [found] = case.prepare(describe_request(producer.id)).transaction_states
    return sorted((topic.topic, index) for topic in found.topics for index in topic.partitions)


def a_leader_moves(trio: Trio) -> None:
    """Of a partition with an open transaction, an aborted one and a committed one."""
    case = RoutedCase(trio, "leader")
    first, second = Producer(case, "-a").bring(EMPTY), Producer(case, "-b").bring(EMPTY)
    for committed in (False, True):
        first.write()
        first.end(committed)
    first.write()
    second.write()
    case.move(case.name, 0, TWO, ONE, THREE)
    until(lambda: knows_its_end(case, 0), "followers have fetched from the new leader", SETTLE_S)
    what = "the leader has moved"
    trio.keep(what, TWO, producers_of(case, 0), only=without_epochs)
    keep_records(case, what, 0)
    trio.keep(f"{what}: at the old one", ONE, first.produce_request(first.batch(1)))
    first.write()
    first.end(committed=False)
    keep_records(case, f"{what}, and one has ended", 0)
    second.end()
    keep_records(case, f"{what}, and both have ended", 0)


def knows_its_end(case: RoutedCase, index: int) -> bool:
    """Whether the leader of a partition knows what is committed."""
    ends = list_offsets.ListOffsetsPartition(partition_index=index, timestamp=-1)
    rows = list_offsets.ListOffsetsTopic(name=case.name, partitions=[ends])
    request = list_offsets.Request(replica_id=-1, topics=[rows], timeout_ms=5_000)
    answer = case.trio.ask(case.leader_of(case.name, index), request)
    return bool(answer.topics[0].partitions[0].error_code == 0)


def the_coordinator_of_a_group_moves(trio: Trio) -> None:
    """With an offset that is committed, and another one that is in a transaction."""
    case = RoutedCase(trio, "group")
    producer = Producer(case).bring(EMPTY)
    case.move_group(case.name, ONE, TWO, THREE)
    producer.commit_offset(40)
    producer.end()
    producer.commit_offset(50)
    case.move_group(case.name, TWO, ONE, THREE)
    what = "the coordinator of a group has moved"
    for stable in (True, False):
        trio.keep(f"{what}, stable {stable}", TWO, offsets_of(case.name, stable))
    trio.keep(what, ONE, offsets_of(case.name))
    producer.commit_offset(51)
    producer.end()
    trio.keep(f"{what}, and the transaction has ended", TWO, offsets_of(case.name))
    producer.commit_offset(60)
    producer.end(committed=False)
    trio.keep(f"{what}, and one was aborted", TWO, offsets_of(case.name))


def a_consumer_groups_coordinator_moves(trio: Trio) -> None:
    """Its members go on in their epochs, and keep their partitions."""
    case = RoutedCase(trio, "consumers")
    case.move_group(case.name, ONE, TWO, THREE)
    what = "a consumer group"
    joined = trio.keep(f"{what}: joins", ONE, beat_request(case.name, "one", 0, case.name))
    case.move_group(case.name, TWO, ONE, THREE)
    trio.keep(f"{what}: at the old coordinator", ONE, beat_request(case.name, "one", joined.member_epoch))
    for epoch in (joined.member_epoch, joined.member_epoch + 1):
        trio.keep(f"{what}: in epoch {epoch}", TWO, beat_request(case.name, "one", epoch))
    trio.keep(what, TWO, consumer_group_describe.Request(group_ids=[case.name]))
    trio.keep(what, TWO, describe_groups.Request(groups=[case.name]))
    trio.keep(f"{what}: leaves", TWO, beat_request(case.name, "one", -1))
    trio.keep(f"{what}: left", TWO, consumer_group_describe.Request(group_ids=[case.name]))


def a_leader_hangs(trio: Trio) -> None:
    """The only one of a partition: a transaction that has something there waits for its marker.

    It is back before it is fenced. A partition without a leader is forgotten by Kafka's coordinator, and has no marker
    ever; ours waits for one.
    """
    case = RoutedCase(trio, "hangs")
    producer = Producer(case).bring(EMPTY)
    case.move_transactions(producer.id, ONE, TWO)
    trio.elect_another_than(THREE)
    for topic, nodes in (("pair", [1, 2]), ("sole", [3])):
        producer.topic_ids[topic] = trio.create(topic, nodes, retention_ms=KEEPS, segment_ms=NEVER_MS)
        written = producer.produce_request(producer.batch(), topic=topic)

        def taken(node: int, request: produce.Request) -> bool:
            return bool(trio.ask(node, request).responses[0].partition_responses[0].error_code == 0)

        until(partial(taken, nodes[0], written), f"{topic} takes records", SETTLE_S)  # its leader may just begin
    trio.signal(THREE, signal.SIGSTOP)
    what = "a leader hangs"
    try:
        trio.keep(what, ONE, producer.end_request())
        until(lambda: left(case, producer) == [("sole", 0)], "the other marker is written", SETTLE_S)
        keep_state(case, what, producer, ONE)
        for request in (producer.init_request(), producer.end_request(), producer.add_offsets_request()):
            trio.keep(what, ONE, request)
        keep_end(trio, f"{what}: the other one", ONE, "pair")
    finally:
        trio.signal(THREE, signal.SIGCONT)
    producer.settle()
    keep_state(case, f"{what}: it is back", producer, ONE)
    keep_end(trio, f"{what}: it is back", THREE, "sole")
    until(lambda: trio.alive() == [1, 2, 3], "broker 3 is there", SETTLE_S)


def keep_end(trio: Trio, what: str, node: int, topic: str) -> None:
    ends = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    rows = list_offsets.ListOffsetsTopic(name=topic, partitions=[ends])
    for level in LEVELS:
        request = list_offsets.Request(replica_id=-1, isolation_level=level, topics=[rows], timeout_ms=5_000)
        trio.keep(f"{what}, level {level}", node, request)


def a_coordinator_hangs(trio: Trio) -> None:
    """Another one takes its transactions; it learns that it is none when it is back."""
    case = RoutedCase(trio, "zombie")
    producer = Producer(case).bring(EMPTY)
    case.move_transactions(producer.id, THREE, ONE, TWO)
    trio.elect_another_than(THREE)
    producer.write()
    producer.write(1)
    trio.signal(THREE, signal.SIGSTOP)
    what = "a coordinator hangs"
    try:
        until(lambda: trio.alive(1) == trio.alive(2) == [1, 2], "broker 3 is fenced", SETTLE_S)
        node = case.coordinator_of(TRANSACTION, producer.id)
        case.prepare(describe_request(producer.id))
        keep_state(case, what, producer, node)
        producer.end(committed=False)
        producer.write()
        keep_records(case, what)
    finally:
        trio.signal(THREE, signal.SIGCONT)
    until(lambda: trio.alive() == [1, 2, 3], "broker 3 is back", SETTLE_S)
    trio.keep(f"{what}: it is back", THREE, producer.init_request())
    producer.end()
    keep_records(case, f"{what}: it is back")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Trio, Trio]]:
    """Ours and stock Kafka's, after the history."""
    with both_after(history, tmp_path_factory.mktemp("three")) as made:
        yield made


def test_answers_are_equal(both: tuple[Trio, Trio]) -> None:
    assert list(both[0].answers) == list(both[1].answers)
    wrong = differences(*both)
    assert wrong == [], "\n".join(wrong)


CODES: dict[int, tuple[E, ...]] = {
    0: (E.NOT_LEADER_OR_FOLLOWER,),
    22: (E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS),
    24: (E.NOT_COORDINATOR,),
    25: (E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS),
    26: (E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS),
    27: (E.NOT_LEADER_OR_FOLLOWER,),
    28: (E.NOT_COORDINATOR,),
    65: (E.NOT_COORDINATOR,),
    68: (E.NOT_COORDINATOR,),
    69: (E.NOT_COORDINATOR,),
}


def test_these_codes_were_given(both: tuple[Trio, Trio]) -> None:
    given = dict.fromkeys(both[1].codes)
    assert [(key, code) for key, codes in CODES.items() for code in codes if (key, code) not in given] == []
