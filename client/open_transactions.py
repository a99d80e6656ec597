"""Transactions as an administrator sees them (KIP-664): what coordinators know of them, and what partitions hold.

A transaction hangs when a partition holds it open and no coordinator will end it: its readers of committed records wait
for ever, until somebody aborts it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import describe_producers, write_txn_markers
from . import leaders
from .cluster import Client
from .errors import ClientError, ConnectionLost
from .types import TopicPartition

NOT_OPEN = -1  # in place of the offset of a transaction's first record
FIRST_COORDINATOR_EPOCH = 0  # in place of one that a partition has not been told yet


@dataclass(frozen=True)
class TransactionListing:
    """A transactional id. coordinator: the node that has it. state: by Kafka's names, such as `Ongoing`."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True)
class TransactionDescription:
    """The same, with all that its coordinator knows. start_ms: when its transaction began, or the last one did; -1
    where there was none. partitions: of the transaction that is under way."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True)
class PartitionProducer:
    """A producer that a partition remembers. transaction_start: the offset of the first record of its open transaction,
    -1 if there is none. coordinator_epoch: of who ended its last one, -1 if nobody did."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_start: int


@dataclass(frozen=True)
class OpenTransaction:
    """A transaction that a partition holds open."""

    partition: TopicPartition
    producer: PartitionProducer


def described(said: Any, coordinator: int) -> TransactionDescription:
    """said: a `describe_transactions.TransactionState`."""
    return TransactionDescription(
        transactional_id=said.transactional_id,
        coordinator=coordinator,
        producer_id=said.producer_id,
        producer_epoch=said.producer_epoch,
        state=said.transaction_state,
        timeout_ms=said.transaction_timeout_ms,
        start_ms=said.transaction_start_time_ms,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, index) for topic in said.topics for index in topic.partitions)
        ),
    )


def open_before(
    producers: Mapping[TopicPartition, Sequence[PartitionProducer]], before_ms: int
) -> list[OpenTransaction]:
    """The open transactions that have written nothing since."""
    return [
        OpenTransaction(tp, producer)
        for tp, held in sorted(producers.items())
        for producer in held
        if producer.transaction_start != NOT_OPEN and producer.last_timestamp_ms <= before_ms
    ]


def hanging(found: Iterable[OpenTransaction], known: Mapping[int, TransactionDescription]) -> list[OpenTransaction]:
    """Those of open transactions that no coordinator will end. known: what coordinators say, by producer id."""
    return [
        each
        for each in found
        if (said := known.get(each.producer.producer_id)) is None or each.partition not in said.partitions
    ]


async def fetch_producers(
    client: Client, partitions: Iterable[TopicPartition], timeout_ms: float
) -> dict[TopicPartition, list[PartitionProducer]]:
    """As `Admin.describe_producers`."""

    def asking(tps: Sequence[TopicPartition]) -> describe_producers.Request:
        topics: dict[str, Any] = {}
        for tp in tps:
            topic = describe_producers.TopicRequest(name=tp.topic, partition_indexes=[])
            topics.setdefault(tp.topic, topic).partition_indexes.append(tp.partition)
        return describe_producers.Request(topics=list(topics.values()))

    async with client.operation("producers of partitions", timeout_ms) as operation:
        found = await leaders.ask(client, operation, "producers", partitions, asking)
    return {
        tp: sorted(map(_producer, part.active_producers), key=lambda each: each.producer_id)
        for tp, part in found.items()
    }


def _producer(said: Any) -> PartitionProducer:
    return PartitionProducer(
        producer_id=said.producer_id,
        epoch=said.producer_epoch,
        last_sequence=said.last_sequence,
        last_timestamp_ms=said.last_timestamp,
        coordinator_epoch=said.coordinator_epoch,
        transaction_start=said.current_txn_start_offset,
    )


async def abort(client: Client, tp: TopicPartition, producer: PartitionProducer, timeout_ms: float) -> None:
    """Write the marker that aborts a producer's open transaction in one partition. Raises KafkaError:
    INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED if the partition has been told of later ones."""
    marker = write_txn_markers.WritableTxnMarker(
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        transaction_result=False,
        topics=[write_txn_markers.WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, FIRST_COORDINATOR_EPOCH),
    )
    what = f"abort of producer {producer.producer_id} in {tp.topic}-{tp.partition}"
    async with client.operation(what, timeout_ms) as operation:
        while True:
            try:
                node = await client.leader_of(tp)
                code = _code(await client.request(write_txn_markers.Request(markers=[marker]), node))
                if not code:
                    return
                error: KafkaError | ClientError = KafkaError.of(code, what)
            except ConnectionLost as lost:
                error = lost
            await operation.again(error)
            await client.refresh_metadata([tp.topic])


def _code(answer: Any) -> int:
    """The code of an answer for one partition."""
    codes = [each.error_code for marker in answer.markers for topic in marker.topics for each in topic.partitions]
    return codes[0] if codes else ErrorCode.UNKNOWN_SERVER_ERROR
