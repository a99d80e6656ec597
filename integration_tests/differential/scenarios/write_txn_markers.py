"""WriteTxnMarkers (27): how transactions ended, told by a coordinator, or by an administrator in its place."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import describe_producers, write_txn_markers

from ..peer import Case, Scenarios
from ..transactional import (
    LATER,
    ONGOING,
    UNKNOWN_ID,
    Producer,
    describe_request,
    one_order,
)

SCENARIOS = Scenarios()
TELLS_VERSION = 2  # from here on a marker tells the version of transactions
KINDS = ("commit", "abort")
COMMIT = "commit"


def see(case: Case, *indexes: int) -> None:
    """What partitions of the case's topic know of producers."""
    topic = describe_producers.TopicRequest(name=case.name, partition_indexes=list(indexes or (0,)))
    case.see(describe_producers.Request(topics=[topic]), only=by_producer(case))


def by_producer(case: Case) -> Any:
    """Cuts an answer: Kafka's order of producers is that of a hash table."""

    def ordered(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: ordered(each) for key, each in value.items()}
        if not isinstance(value, list):
            return value
        rows = [ordered(each) for each in value]
        if rows and isinstance(rows[0], dict) and "producer_id" in rows[0]:
            rows.sort(key=lambda row: case.peer.producer_ids.get(row["producer_id"], ""))
        return rows

    return lambda answer: one_order(ordered(answer))


def ask(case: Case, request: Any, *indexes: int) -> None:
    case.compare(request, only=one_order)
    see(case, *indexes)


@SCENARIOS.success(27, each=KINDS)
def writes_markers(case: Case, kind: str) -> None:
    producer = Producer(case).bring(ONGOING)
    producer.write(1)
    ask(case, producer.marker_request(kind == COMMIT, {case.name: [0, 1]}), 0, 1)


@SCENARIOS.success(27, each=KINDS)
def a_coordinator_comes_after_an_administrator(case: Case, kind: str) -> None:
    """Both write their markers, of different ends."""
    producer = Producer(case).bring(ONGOING)
    ask(case, producer.marker_request(kind == COMMIT))
    producer.end(kind != COMMIT)
    see(case)


@SCENARIOS.success(27)
def marks_what_is_not_open(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    for partition in (0, 1):
        for committed in (True, False):
            ask(case, producer.marker_request(committed, {case.name: [partition]}), 0, 1)
    producer.write(1)
    see(case, 0, 1)


@SCENARIOS.success(27)
def marks_in_later_epochs(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    for epoch in (1, 5, 5, 32_767):
        ask(case, producer.marker_request(producer_epoch=epoch))
    case.see(producer.produce_request(producer.batch(1)))


@SCENARIOS.error(27)
def marks_in_an_epoch_that_is_over(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    ask(case, producer.marker_request(producer_epoch=3))
    for epoch in (2, 0, -1):
        ask(case, producer.marker_request(producer_epoch=epoch))


@SCENARIOS.error(27)
def coordinators_that_were_replaced(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    for epoch in (5, 4, 5, -1, 6, 2**31 - 1):
        ask(case, producer.marker_request(coordinator_epoch=epoch))
    ask(case, producer.marker_request(coordinator_epoch=0, topics={case.name: [1]}), 1)


@SCENARIOS.error(27, since=TELLS_VERSION)
def transactions_of_a_version(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    producer.write(1)
    for version in (2, 3, 1, 0, -1):
        ask(case, producer.marker_request(transaction_version=version))
    for version in (-1, 0):
        ask(case, producer.marker_request(topics={case.name: [1]}, transaction_version=version), 1)


@SCENARIOS.error(27, since=TELLS_VERSION)
def a_marker_of_the_second_version_in_the_same_epoch(case: Case) -> None:
    """Is refused while the transaction is open, and written when it is not, or in a later epoch."""
    producer = Producer(case).bring(ONGOING)
    for epoch in (0, 1, 1, 0, 2):
        ask(case, producer.marker_request(producer_epoch=epoch, transaction_version=2))
    producer.producer_id, producer.epoch = producer.producer_id, 2
    case.see(producer.produce_request(producer.batch()))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(27)
def marks_what_is_not_there(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    wanted: list[dict[str, list[int]]] = [
        {case.name: [7]},
        {case.name + "-unknown": [0, 1]},
        {case.name: [0, 7], "": [0]},
        {},
        {case.name: []},
    ]
    for topics in wanted:
        ask(case, producer.marker_request(topics=topics))
    ask(case, write_txn_markers.Request(markers=[]))


@SCENARIOS.error(27)
def marks_as_producers_that_are_not_there(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    ask(case, producer.marker_request(producer_id=UNKNOWN_ID))
    ask(case, producer.marker_request(producer_id=UNKNOWN_ID, producer_epoch=4, topics={case.name: [1]}), 1)
    ask(case, producer.marker_request(producer_id=-1))
    ask(case, producer.marker_request(producer_epoch=-1))


@SCENARIOS.success(27)
def several_markers_at_once(case: Case) -> None:
    first, second = Producer(case, "-a").bring(ONGOING), Producer(case, "-b").bring(ONGOING)
    request = write_txn_markers.Request(
        markers=[
            first.marker(topics={case.name: [0]}),
            second.marker(committed=False, topics={case.name: [0, 7]}),
            first.marker(committed=False, topics={case.name: [1]}),
        ]
    )
    case.compare(request, only=by_producer(case))
    see(case, 0, 1)


@SCENARIOS.success(27, each=KINDS)
def marks_offsets_of_a_group(case: Case, kind: str) -> None:
    producer = Producer(case).bring(ONGOING)
    producer.commit_offset(5)
    [transaction] = case.prepare(describe_request(producer.id)).transaction_states
    [indexes] = [topic.partitions for topic in transaction.topics if topic.topic == "__consumer_offsets"]
    case.compare(producer.marker_request(kind == COMMIT, {"__consumer_offsets": list(indexes)}), only=one_order)
    producer.commit_offset(6)


@SCENARIOS.error(27)
def a_coordinator_that_was_replaced_is_told_so(case: Case) -> None:
    """It gives up, and its transaction is never complete."""
    producer = Producer(case).bring(ONGOING)
    producer.write(1)
    case.compare(producer.marker_request(coordinator_epoch=LATER), only=one_order)
    case.see(producer.end_request(committed=False))
    case.wait_until(lambda: topics_of(case, producer) == {case.name: [0]}, "the marker of the other partition")
    case.see(describe_request(producer.id), only=one_order)
    see(case, 0, 1)


def topics_of(case: Case, producer: Producer) -> dict[str, list[int]]:
    [transaction] = case.prepare(describe_request(producer.id)).transaction_states
    return {topic.topic: sorted(topic.partitions) for topic in transaction.topics}
