"""Which batches of a Produce request begin a transaction in their partition, and wait until its coordinator is asked.

A transaction that is open in a partition's log is known. Of any other the coordinator must say that the partition
belongs to it, or take it in (KIP-890). The request's batches are copied for that time only. While the coordinator still
ends the producer's transaction before this one, it is asked again for a moment, as in Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from ...protocol.batch_layout import HEADER, HEADER_SIZE, TRANSACTIONAL
from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.produce import TopicProduceData
from ..purgatory import Pending
from ..replication.partition import Partition
from ..storage.log._producers import VerificationGuard
from ._context import Context
from .verification import Errors

ABORTABLE_SINCE = 11  # version of Produce
ADDS_SINCE = 12

Place = tuple[str, int]  # topic, partition
Verified = Mapping[Place, VerificationGuard | KafkaError]  # why the batch may be written, or may not

# What producers are told as NOT_ENOUGH_REPLICAS, for which they try again without looking for another leader.
UNSURE = (
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Unverified:
    """The transactional batches of one request. Raises KafkaError INVALID_PRODUCER_ID_MAPPING if there are several
    producers. needs_answer: whether the coordinator must be asked."""

    def __init__(self, transactional_id: str, topics: list[tuple[str, TopicProduceData]], context: Context) -> None:
        """topics: as asked, with the name of each."""
        self._transactional_id = transactional_id
        self._context = context
        self._adds = context.version >= ADDS_SINCE
        self._places: dict[Place, int] = {}  # base sequence
        self._producer: tuple[int, int] | None = None  # id, epoch
        self._last_s = 0.0  # loop time up to which it is asked again; 0 until it has to be
        self._waits: Pending | None = None
        self._held_bytes = 0
        self.verified: dict[Place, VerificationGuard | KafkaError] = {}
        self.needs_answer = False
        for name, topic in topics:
            for data in topic.partition_data:
                records = data.records
                if records is None or len(records) < HEADER_SIZE:
                    continue
                *_, attributes, _, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(records)
                if not attributes & TRANSACTIONAL or producer_id < 0:
                    continue
                producer = producer_id, epoch
                if self._producer not in (None, producer):
                    raise KafkaError(
                        ErrorCode.INVALID_PRODUCER_ID_MAPPING, "transactional batches of more than one producer"
                    )
                self._producer = producer
                self._places[name, data.index] = sequence
        if self._places and (self._adds or context.services.config["transaction.partition.verification.enable"]):
            self._look()

    def _look(self) -> None:
        """Find which transactions are not known to be open."""
        assert self._producer is not None
        services = self._context.services
        wall_ms = services.runtime.wall_ms()
        self.verified.clear()
        for place, sequence in self._places.items():
            partition: Partition | None = services.replicas.partitions.get(place[0], {}).get(place[1])
            if partition is None or not partition.leads or partition.failure is not None:
                continue  # the append says so
            try:
                begun = partition.begin_verification(*self._producer, sequence, self._adds, wall_ms)
            except KafkaError as error:
                self.verified[place] = error
                continue
            if begun is not None:
                self.verified[place] = begun
        self.needs_answer = any(isinstance(each, VerificationGuard) for each in self.verified.values())

    def keep(self, topics: list[TopicProduceData]) -> bool:
        """Copy the batches, as the request's memory goes; False where too much waits already. Until `verified` is
        complete, or `abandon`, this counts."""
        rows = [data for topic in topics for data in topic.partition_data if data.records is not None]
        size_bytes = sum(len(data.records) for data in rows)
        if not self._context.services.verification.held.take(size_bytes):
            return False
        self._held_bytes = size_bytes
        for data in rows:
            data.records = bytes(data.records)
        return True

    def ask(self, done: Callable[[], None]) -> None:
        """Call `done()` once `verified` is complete."""
        services = self._context.services
        topics: dict[str, list[int]] = {}
        for (name, index), found in self.verified.items():
            if isinstance(found, VerificationGuard):
                topics.setdefault(name, []).append(index)
        if not topics:
            self._let_go()
            done()
            return
        assert self._producer is not None

        def answered(errors: Errors) -> None:
            if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and self._may_ask_again():
                self._ask_again(done)
                return
            for place, code in errors.items():
                self.verified[place] = _for_producers(code, self._adds)
            self._let_go()
            done()

        waits = services.verification.ask(
            self._transactional_id,
            *self._producer,
            topics,
            adds=self._adds,
            timeout_ms=services.config["request.timeout.ms"],
            done=answered,
            knows_abortable=self._context.version >= ABORTABLE_SINCE,
        )
        if not waits.done:  # else it may already wait to ask again
            self._waits = waits

    def abandon(self) -> None:
        """Who waits has gone, or has its answer."""
        self._let_go()
        if self._waits is not None:
            self._waits.abandon()

    def _let_go(self) -> None:
        self._context.services.verification.held.give_back(self._held_bytes)
        self._held_bytes = 0

    def _may_ask_again(self) -> bool:
        config = self._context.services.config
        now_s = asyncio.get_running_loop().time()
        if not self._last_s:
            most_ms = min(config["add.partitions.to.txn.retry.backoff.max.ms"], config["request.timeout.ms"])
            self._last_s = now_s + most_ms / 1000
        return now_s < self._last_s

    def _ask_again(self, done: Callable[[], None]) -> None:
        def again(_: Any) -> None:
            self._look()
            self.ask(done)

        services = self._context.services
        self._waits = Pending(lambda: None)
        self._waits.when_done(again)
        services.purgatory.add(self._waits, services.config["add.partitions.to.txn.retry.backoff.ms"])


def _for_producers(code: int, adds: bool) -> KafkaError:
    if code == ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "the partition was not added to the transaction")
    if code in UNSURE or (code == ErrorCode.CONCURRENT_TRANSACTIONS and not adds):
        name = KafkaError(code).name
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS, f"it is not known whether the partition was added to the transaction: {name}"
        )
    return KafkaError(code)
