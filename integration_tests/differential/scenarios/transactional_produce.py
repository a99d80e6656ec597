"""Produce (0) in transactions: partitions that are added by what is sent, and what may not be sent."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import produce as m

from ..batches import CONTROL, TRANSACTIONAL, batch
from ..peer import NO_SUCH_ID, Case, Scenarios
from ..requests import produce_request
from ..transactional import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    OLD_PRODUCE,
    ONGOING,
    PREPARED,
    STATES,
    UNKNOWN_ID,
    Producer,
    describe_request,
    one_order,
)

SCENARIOS = Scenarios()
FIRST, ADDS = 3, 12  # versions: the first that is served, and the first that adds partitions
KINDS = ("commit", "abort")


def begun(case: Case, state: str = EMPTY) -> Producer:
    """A transaction that the version under test may write to partition 0 of."""
    producer = Producer(case, old=case.version < ADDS).bring(state)
    if producer.old and state not in PREPARED:
        producer.add(0)
    return producer


def ask(case: Case, producer: Producer, request: m.Request) -> None:
    case.compare(request)
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.success(0, since=FIRST, each=KINDS)
def appends_in_a_transaction(case: Case, kind: str) -> None:
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch(0, 2)))
    ask(case, producer, producer.produce_request(producer.batch(2, 1)))
    producer.end(kind == "commit")


@SCENARIOS.success(0, since=FIRST, each=STATES)
def appends_to_a_transaction_in_each_state(case: Case, state: str) -> None:
    producer = begun(case, state)
    sequence = int(state == ONGOING)
    ask(case, producer, producer.produce_request(producer.batch(sequence)))


@SCENARIOS.error(0, since=FIRST, each=(EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT))
def appends_to_a_partition_that_was_not_added(case: Case, state: str) -> None:
    """Before version 12; later ones add it."""
    producer = Producer(case, old=case.version < ADDS).bring(state)
    ask(case, producer, producer.produce_request(producer.batch(), 1))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_in_the_old_way_to_what_the_new_one_added(case: Case) -> None:
    producer = Producer(case).bring(ONGOING)
    ask(case, producer, producer.produce_request(producer.batch(1)))
    producer.end()


@SCENARIOS.success(0, since=FIRST, ends=True)
def takes_a_repeated_batch_of_a_transaction_once(case: Case) -> None:
    producer = begun(case)
    for sequence in (0, 0, 1, 0, 1):
        ask(case, producer, producer.produce_request(producer.batch(sequence)))
    producer.end()


@SCENARIOS.error(0, since=FIRST, ends=True)
def a_repeated_batch_comes_after_the_end(case: Case) -> None:
    producer = begun(case)
    request = producer.produce_request(producer.batch())
    ask(case, producer, request)
    producer.end()
    ask(case, producer, request)
    ask(case, producer, producer.produce_request(producer.batch(1)))


@SCENARIOS.error(0, since=FIRST)
def appends_as_another_producer(case: Case) -> None:
    producer = begun(case)
    for fields in (
        {"producer_id": UNKNOWN_ID},
        {"producer_epoch": producer.epoch + 1},
        {"producer_epoch": producer.epoch + 5},
        {"producer_id": UNKNOWN_ID, "producer_epoch": 7},
    ):
        ask(case, producer, producer.produce_request(producer.batch(**fields)))


@SCENARIOS.error(0, since=FIRST, ends=True)
def appends_in_an_epoch_that_is_over(case: Case) -> None:
    older = begun(case)
    newer = Producer(case, old=older.old).begin()
    ask(case, newer, older.produce_request(older.batch()))
    newer.write()
    ask(case, newer, older.produce_request(older.batch()))
    ask(case, newer, older.produce_request(older.batch(), 1))
    newer.end()
    ask(case, newer, older.produce_request(older.batch()))


@SCENARIOS.error(0, since=FIRST)
def transactional_batches_without_a_transactional_id(case: Case) -> None:
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch(), transactional_id=None))
    ask(case, producer, producer.produce_request(producer.batch(), transactional_id=""))
    ask(case, producer, producer.produce_request(producer.batch(), transactional_id=case.name + "-unknown"))


@SCENARIOS.success(0, since=FIRST)
def plain_batches_with_a_transactional_id(case: Case) -> None:
    producer = begun(case)
    ask(case, producer, producer.produce_request(batch()))
    ask(case, producer, producer.produce_request(producer.batch(attributes=0)))


@SCENARIOS.error(0, since=FIRST)
def plain_batches_of_a_producer_within_its_transaction(case: Case) -> None:
    """With its id and epoch, but not in the transaction that is open in the partition."""
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch()))
    ask(case, producer, producer.produce_request(producer.batch(1, attributes=0)))
    ask(case, producer, producer.produce_request(producer.batch(1, attributes=0), transactional_id=None))


@SCENARIOS.success(0, since=FIRST)
def transactional_batches_of_no_producer(case: Case) -> None:
    producer = begun(case)
    for sequence in (0, -1):
        fields = {"producer_id": -1, "producer_epoch": -1}
        ask(case, producer, producer.produce_request(producer.batch(sequence, **fields)))


@SCENARIOS.error(0, since=FIRST, ends=True)
def sequences_of_transactions(case: Case) -> None:
    producer = begun(case)
    for sequence in (5, 0, 2, 1, -1):
        ask(case, producer, producer.produce_request(producer.batch(sequence)))
    producer.end()
    if producer.old:
        producer.add(0)
    for sequence in (7, 2, 0):
        ask(case, producer, producer.produce_request(producer.batch(sequence)))


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_transaction_without_sequences(case: Case) -> None:
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch(0)))
    producer.end(committed=False)
    producer.write()
    producer.end()


@SCENARIOS.error(0, since=FIRST, ends=True)
def markers_by_producers(case: Case) -> None:
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch(attributes=CONTROL | TRANSACTIONAL)))
    ask(case, producer, producer.produce_request(producer.batch(attributes=CONTROL)))


@SCENARIOS.success(0, since=FIRST, ends=True)
def appends_to_several_partitions_in_a_transaction(case: Case) -> None:
    case.topic("-other", partitions=2)
    producer = begun(case)
    other = case.name + "-other"
    if producer.old:
        producer.add(0, topic=other)
    rows = [m.PartitionProduceData(index=index, records=producer.batch(count=index + 1)) for index in (1, 0)]
    topics = [
        m.TopicProduceData(name=name, topic_id=producer.topic_id(name), partition_data=rows)
        for name in (case.name, other)
    ]
    request = m.Request(transactional_id=producer.id, acks=-1, timeout_ms=5_000, topic_data=topics)
    case.compare(request, only=in_order(case))
    case.see(describe_request(producer.id), only=one_order)
    producer.end()


def in_order(case: Case) -> Any:
    """Cuts an answer: Kafka's order of partitions is that of a hash table."""

    def cut(answer: Any) -> Any:
        for topic in answer["responses"]:
            topic["partition_responses"].sort(key=lambda row: row["index"])
        answer["responses"].sort(key=lambda row: row.get("name") or case.peer.topic_ids.get(row.get("topic_id"), ""))
        return answer

    return cut


@SCENARIOS.error(0, since=FIRST, ends=True)
def two_producers_in_one_request(case: Case) -> None:
    first, second = begun(case), Producer(case, "-second", old=case.version < ADDS).begin()
    if second.old:
        second.add(1)
    rows = [
        m.PartitionProduceData(index=0, records=first.batch()),
        m.PartitionProduceData(index=1, records=second.batch()),
    ]
    topic = m.TopicProduceData(name=case.name, topic_id=case.id_of(case.name), partition_data=rows)
    request = m.Request(transactional_id=first.id, acks=-1, timeout_ms=5_000, topic_data=[topic])
    case.compare(request, only=in_order(case))
    case.see(describe_request(first.id, second.id), only=one_order)


@SCENARIOS.error(0, since=FIRST, ends=True)
def plain_and_transactional_batches_in_one_request(case: Case) -> None:
    producer = begun(case)
    for transactional_id in (producer.id, None):
        rows = [
            m.PartitionProduceData(index=0, records=producer.batch()),
            m.PartitionProduceData(index=1, records=batch()),
        ]
        topic = m.TopicProduceData(name=case.name, topic_id=case.id_of(case.name), partition_data=rows)
        request = m.Request(transactional_id=transactional_id, acks=-1, timeout_ms=5_000, topic_data=[topic])
        case.compare(request, only=in_order(case))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(0, since=FIRST, ends=True)
def some_partitions_of_a_transaction_are_not_there(case: Case) -> None:
    """The others are refused or added, as the version has it."""
    producer = begun(case)
    rows = [m.PartitionProduceData(index=index, records=producer.batch()) for index in (0, 7, 1)]
    topics = [
        m.TopicProduceData(name=case.name, topic_id=case.id_of(case.name), partition_data=rows),
        m.TopicProduceData(name=case.name + "-unknown", topic_id=NO_SUCH_ID, partition_data=rows[:1]),
    ]
    request = m.Request(transactional_id=producer.id, acks=-1, timeout_ms=5_000, topic_data=topics)
    case.compare(request, only=in_order(case))
    case.see(describe_request(producer.id), only=one_order)


@SCENARIOS.error(0, since=FIRST, ends=True)
def broken_batches_in_a_transaction(case: Case) -> None:
    """Whether what is broken is added all the same."""
    producer = begun(case)
    ask(case, producer, producer.produce_request(producer.batch(break_crc=True), 1))
    ask(case, producer, producer.produce_request(producer.batch(0, 3, says_count=2), 1))
    ask(case, producer, producer.produce_request(producer.batch()[:-1], 1))


@SCENARIOS.success(0, since=FIRST, ends=True, each=("0", "1"))
def acks_in_a_transaction(case: Case, acks: str) -> None:
    producer = begun(case)
    request = producer.produce_request(producer.batch(), acks=int(acks))
    if acks == "0":
        case.send(request)
        case.compare(producer.produce_request(producer.batch(1)))
    else:
        case.compare(request)
    case.see(describe_request(producer.id), only=one_order)
    producer.end()


@SCENARIOS.success(0, since=FIRST, ends=True)
def an_idempotent_batch_of_a_transactional_producer(case: Case) -> None:
    """Without a transaction; the next one begins where it ended."""
    producer = Producer(case, old=case.version < ADDS).bring(EMPTY)
    topic_id = case.id_of(case.name)
    sent = batch(1, producer_id=producer.producer_id, producer_epoch=producer.epoch, base_sequence=0)
    case.compare(produce_request(case, sent, topic_id))
    if producer.old:
        producer.add(0)
    ask(case, producer, producer.produce_request(producer.batch(1)))
    producer.end()


@SCENARIOS.error(0, since=FIRST, until=OLD_PRODUCE, ends=True)
def appends_in_the_old_way_after_the_new_end(case: Case) -> None:
    """The epoch that was given is used by the old protocol."""
    producer = Producer(case).bring(COMPLETE_COMMIT)
    ask(case, producer, producer.produce_request(producer.batch()))
    producer.add(0)
    ask(case, producer, producer.produce_request(producer.batch()))


@SCENARIOS.success(0, since=FIRST, ends=True)
def a_later_epoch_writes_where_the_earlier_one_did(case: Case) -> None:
    producer = begun(case, ONGOING)
    producer.begin()
    if producer.old:
        producer.add(0)
    ask(case, producer, producer.produce_request(producer.batch(3)))
    ask(case, producer, producer.produce_request(producer.batch()))
    producer.end()
