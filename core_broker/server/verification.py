"""Asks the coordinators of transactions whether partitions belong to transactions, or to add them (KIP-890).

A broker that is to write to a transaction of which it knows nothing yet asks that transaction's coordinator first, so
that nothing is written to a transaction that has ended. Each coordinator gets one request at a time. What is to be
asked meanwhile goes into its next one, in which each transactional id is once, as the protocol wants it. Where this
broker is the coordinator itself, it has its answer at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    Request,
    Response,
)
from ..cluster.image import MetadataImage
from ..cluster.topic_names import TRANSACTION_STATE
from ..coordinators.find import partition_for
from ..purgatory import Pending, Purgatory

LEAST_VERSION = 4  # from which on brokers ask, for many transactions at once
NO_LEADER = -1

Errors = Mapping[tuple[str, int], int]  # by topic and partition; without those that are in the transaction

log = logging.getLogger(__name__)


class _Asked(NamedTuple):
    """What is asked of one transaction. pending: its answer is `Errors`."""

    transaction: AddPartitionsToTxnTransaction
    knows_abortable: bool
    pending: Pending


class Here(NamedTuple):
    """This node as a coordinator. ask: gives its answer to a request, or the Pending that will have it."""

    node_id: int
    ask: Callable[[Request], Any]


class Held:
    """The memory of requests that wait for an answer, which is bounded for all of them together."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0

    def take(self, size_bytes: int) -> bool:
        """Whether there is room for so much, which is taken then."""
        if self._bytes + size_bytes > self._max_bytes:
            return False
        self._bytes += size_bytes
        return True

    def give_back(self, size_bytes: int) -> None:
        self._bytes -= size_bytes


class Verification:
    """request: `BrokerChannels.request`. timeout_ms: of one request to a coordinator. held: for those who ask. The
    number of questions that wait is bounded by the purgatory's limit. here: None where all are asked by requests."""

    def __init__(
        self,
        image: MetadataImage,
        request: Callable[..., Awaitable[Response]],
        purgatory: Purgatory,
        timeout_ms: Callable[[], float],
        held: Held,
        here: Here | None = None,
    ) -> None:
        self.held = held
        self._image = image
        self._request = request
        self._purgatory = purgatory
        self._timeout_ms = timeout_ms
        self._here = here
        self._queues: dict[int, list[_Asked]] = {}  # by coordinator, of what its next requests have
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by coordinator, while it is asked

    def ask(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Mapping[str, Collection[int]],
        *,
        adds: bool,
        timeout_ms: float,
        done: Callable[[Errors], None],
        knows_abortable: bool = True,
    ) -> Pending:
        """Call `done(errors)` once, when it is known which partitions are not in the transaction, and why; at once
        where no coordinator can be asked, or where this broker is the coordinator and knows.

        adds: they are added to it (part two); else it is only asked whether they are there (part one). knows_abortable:
        the client knows TRANSACTION_ABORTABLE; others get INVALID_TXN_STATE. Who does not want the answer any more
        abandons what this returns. Errors are those for producers: INVALID_PRODUCER_EPOCH, CONCURRENT_TRANSACTIONS,
        NETWORK_EXCEPTION where there was no answer in time, COORDINATOR_NOT_AVAILABLE, or what the coordinator says.
        """
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not adds,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=list(each)) for name, each in partitions.items()],
        )
        pending = Pending(lambda: _all(transaction, ErrorCode.NETWORK_EXCEPTION))
        pending.when_done(done)
        coordinator = self._coordinator_of(transactional_id)
        if coordinator is None:
            pending.complete(_all(transaction, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return pending
        asked = _Asked(transaction, knows_abortable, pending)
        if self._here is not None and coordinator == self._here.node_id:
            self._ask_here(self._here, asked, timeout_ms)
            return pending
        self._purgatory.add(pending, timeout_ms)
        if not pending.done:
            self._queues.setdefault(coordinator, []).append(asked)
            if coordinator not in self._tasks:
                self._tasks[coordinator] = asyncio.get_running_loop().create_task(
                    self._ask_all(coordinator), name=f"verification of transactions by broker {coordinator}"
                )
        return pending

    async def close(self) -> None:
        """Ask no more. Those who wait hear nothing."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._queues.clear()

    def _coordinator_of(self, transactional_id: str) -> int | None:
        topic = self._image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader == NO_LEADER else leader

    def _ask_here(self, here: Here, asked: _Asked, timeout_ms: float) -> None:
        def heard(response: Response) -> None:
            [errors] = _answered(here.node_id, [asked], response)
            asked.pending.complete(errors)

        answer = here.ask(Request(transactions=[asked.transaction]))
        if not isinstance(answer, Pending):
            heard(answer)
            return
        self._purgatory.add(asked.pending, timeout_ms)
        answer.when_done(heard)

    async def _ask_all(self, coordinator: int) -> None:
        """Ask a coordinator until there is nothing more to ask."""
        try:
            while asked := self._next(coordinator):
                try:
                    answered = await self._ask(coordinator, asked)
                except KafkaError as error:
                    log.warning("transactions of broker %d are not verified: %s", coordinator, error.message)
                    answered = _unanswered(asked, error.code)
                for each, errors in zip(asked, answered, strict=True):
                    each.pending.complete(errors)
        finally:
            del self._tasks[coordinator]

    def _next(self, coordinator: int) -> list[_Asked]:
        """What the next request has: each transactional id once, in the order in which they came."""
        taken: dict[str, _Asked] = {}
        left = []
        for each in self._queues.pop(coordinator, ()):
            if each.pending.done:
                continue
            if taken.setdefault(each.transaction.transactional_id, each) is not each:
                left.append(each)
        if left:
            self._queues[coordinator] = left
        return list(taken.values())

    async def _ask(self, coordinator: int, asked: list[_Asked]) -> list[Errors]:
        """The errors of each that is asked. Raises KafkaError where there is no answer."""
        request = Request(transactions=[each.transaction for each in asked])
        response = await self._request(coordinator, request, self._timeout_ms(), least_version=LEAST_VERSION)
        return _answered(coordinator, asked, response)


def _answered(coordinator: int, asked: list[_Asked], response: Response) -> list[Errors]:
    """The errors of each that was asked."""
    if response.error_code:
        log.warning("transactions are not verified: broker %d has refused it, %d", coordinator, response.error_code)
        return [_all(each.transaction, _told(response.error_code)) for each in asked]
    results = {each.transactional_id: each.topic_results for each in response.results_by_transaction}
    answered: list[Errors] = []
    for each in asked:
        topics = results.get(each.transaction.transactional_id)
        if topics is None:
            answered.append(_all(each.transaction, ErrorCode.NETWORK_EXCEPTION))
            continue
        answered.append(
            {
                (topic.name, row.partition_index): _for_producers(row.partition_error_code, each.knows_abortable)
                for topic in topics
                for row in topic.results_by_partition
                if row.partition_error_code
            }
        )
    return answered


def _unanswered(asked: list[_Asked], code: int) -> list[Errors]:
    """What is known where a coordinator has not answered. One of a version that can not be asked whether partitions are
    there is not in the way. But what it was to add is in no transaction: that must not be written."""
    told = _told(code)
    return [
        {} if code == ErrorCode.UNSUPPORTED_VERSION and each.transaction.verify_only else _all(each.transaction, told)
        for each in asked
    ]


def _told(code: int) -> int:
    """What a producer is told where its coordinator refuses the request as a whole, or does not answer."""
    match code:
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            return ErrorCode.INVALID_TXN_STATE  # not the client's fault, which must not see it
        case ErrorCode.BROKER_NOT_AVAILABLE:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.REQUEST_TIMED_OUT:
            return ErrorCode.NETWORK_EXCEPTION
    return code


def _all(transaction: AddPartitionsToTxnTransaction, code: int) -> Errors:
    return {(topic.name, index): code for topic in transaction.topics for index in topic.partitions}


def _for_producers(code: int, knows_abortable: bool) -> int:
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
