"""The producer: batches by partition, idempotent by default, in order; a future has the outcome of each record.

This module puts records into batches. `accumulator` has the order and the sequences of a partition, `sender` sends.
`DataLost` distinguishes a broker that lost acknowledged data from one that merely failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import init_producer_id
from ..protocol.records import BatchBuilder
from ..protocol.topic_names import why_invalid
from .accumulator import IN_FLIGHT_MAX, Accumulator
from .cluster import REQUEST_TIMEOUT_MS, Client
from .errors import (
    BufferFull,
    ClientError,
    OperationTimeout,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
    no_topic,
)
from .operation import API_TIMEOUT_MS, CLOSE_TIMEOUT_MS
from .partitioner import ProducerTopic, partition_for_key
from .sender import CLOSED, Sender
from .transactional import Transactions
from .types import GroupMetadata, RecordMetadata, TopicPartition

log = logging.getLogger("isthmus.client")

BATCH_BYTES = 128 << 10
BUFFER_BYTES = 64 << 20
RECORD_OVERHEAD_BYTES = 24  # upper limit for a record without key, value and headers
LEARN_ATTEMPTS = 8
TRANSACTION_TIMEOUT_MS = 60_000

__all__ = ["Producer", "partition_for_key"]

Headers = Sequence[tuple[str, bytes | None]]


class Producer:
    """Sends records through a started `Client`. linger_ms: how long a batch waits for more records; acks: -1 all, 1
    leader, 0 none (then futures resolve with offset -1); buffer_bytes: most bytes that are
    buffered; batch_bytes: most bytes of a batch before compression.

    With a transactional_id all records are sent in transactions (KIP-98): one at a time, each seen by read_committed
    consumers as a whole or not at all. `start` ends what an earlier producer with the same id has left open, and fences
    that producer. transaction_timeout_ms: the cluster aborts a transaction that is open for longer. max_block_ms: time
    of `start` and of each call that concerns a transaction."""

    def __init__(
        self,
        client: Client,
        *,
        linger_ms: float = 5,
        batch_bytes: int = BATCH_BYTES,
        compression: str = "none",
        acks: int = -1,
        idempotent: bool | None = None,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS,
        max_block_ms: float = API_TIMEOUT_MS,
    ) -> None:
        if idempotent and acks != -1:
            raise ClientError(f"acks={acks} cannot be idempotent: use acks=-1, or idempotent=False")
        if transactional_id is not None and (not transactional_id or acks != -1 or idempotent is False):
            raise ClientError("a transactional producer needs an id that is not empty, acks=-1, and to be idempotent")
        self.client = client
        self.linger_s = linger_ms / 1000
        self.batch_bytes = batch_bytes
        self.compression = compression
        self.acks = acks
        self.idempotent = acks == -1 if idempotent is None else idempotent
        self.buffer_bytes = buffer_bytes
        self.delivery_timeout_s = delivery_timeout_ms / 1000
        self.request_timeout_ms = request_timeout_ms
        self.buffered_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, ProducerTopic] = {}
        self._waiting: dict[str, list[Any]] = {}  # records that wait for their topic's metadata
        self._jobs: dict[asyncio.Task[None], None] = {}
        self._space_freed = asyncio.Event()
        self._producer_id, self._producer_epoch = -1, -1
        self._open = False
        self._transactions = (
            None
            if transactional_id is None
            else Transactions(client, _Records(self), transactional_id, transaction_timeout_ms, max_block_ms)
        )
        self._progress = None if self._transactions is None else self._transactions.progress
        self._sender = Sender(
            client,
            self._topics,
            self._released,
            acks=acks,
            linger_s=self.linger_s,
            request_timeout_ms=request_timeout_ms,
            delivery_timeout_s=self.delivery_timeout_s,
            gate=self._transactions,
        )

    # --- For users ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Get a producer id, within delivery_timeout_ms, and start sending. Of a transactional producer: within
        max_block_ms; raises ProducerFailed if it can never have one."""
        if self._transactions is not None:
            await self._transactions.start()
        elif self.idempotent:
            self._producer_id, self._producer_epoch = await self._new_producer_id()
        self._open = True

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into its batch, without waiting. Raises BufferFull: `await producer.wait_for_space()` first.

        Of a topic that is new to the client the metadata is fetched first; the cluster may create the topic then. Of a
        transactional producer it raises TransactionAborted if the transaction has failed, and so do the futures.
        """
        if self.buffered_bytes >= self.buffer_bytes:
            raise BufferFull(f"the producer holds {self.buffered_bytes} bytes: await wait_for_space() before send()")
        if not self._open:
            raise ClientError("the producer is not started, or is closed")
        if self._progress is not None and not self._progress.is_open:
            raise self._progress.refusal()
        if timestamp_ms is None:
            timestamp_ms = self.client.runtime.wall_ms()
        size = RECORD_OVERHEAD_BYTES
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
        if headers:
            size += sum(len(name) + len(data or b"") + 4 for name, data in headers)
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        known = self._topics.get(topic)
        if known is None or known.seen is None or self.client.topics.get(topic) is not known.seen:
            known = self._look_at(topic)
        if not known.count or topic in self._waiting:
            self.buffered_bytes += size
            self._send_later(topic, (partition, timestamp_ms, key, value, headers, size, future))
            return future
        if partition is None:
            partition = known.partition(key, self.client.runtime.random)
        self._put(known, partition, timestamp_ms, key, value, headers, size, future)
        return future

    @property
    def has_space(self) -> bool:
        return self.buffered_bytes < self.buffer_bytes

    async def wait_for_space(self) -> None:
        """Wait until the buffer takes the next `send`, or the producer is closed. Full batches are sent meanwhile."""
        if not self._sender.is_drained:
            await asyncio.sleep(0)
        while self.buffered_bytes >= self.buffer_bytes:
            self._space_freed.clear()
            await self._space_freed.wait()

    async def flush(self) -> None:
        """Send everything now and wait until each record's outcome is known; errors are in the futures."""
        while self._waiting:
            await asyncio.wait(list(self._jobs), return_when=asyncio.FIRST_COMPLETED)
        batches = []
        for each in list(self._sender.active.values()):
            each.seal()
            batches += each.pending()
        self._sender.wake()
        for batch in batches:
            if not batch.done:
                if batch.settled is None:
                    batch.settled = self._loop.create_future()
                await asyncio.shield(batch.settled)
            batches += batch.parts

    async def close(self, timeout_ms: float = CLOSE_TIMEOUT_MS) -> None:
        """Flush for at most timeout_ms, then release everything. The futures of records that were not delivered get a
        ClientError; their number is logged."""
        if not self._open:
            return
        try:
            async with self.client.operation("flush in close() of a producer", timeout_ms):
                if self._transactions is not None:
                    await self._transactions.end()
                await self.flush()
        except OperationTimeout as error:
            if self._transactions is not None:
                log.warning("%s: %s", self._transactions.left_open, error)
            else:
                undelivered = self._sender.undelivered + sum(len(records) for records in self._waiting.values())
                log.warning("%d records are not delivered, as their futures say: %s", undelivered, error)
        finally:
            self._open = False
            jobs = list(self._jobs)
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)
            if self._transactions is not None:
                self._transactions.stop()
            for topic in list(self._waiting):
                self._fail_waiting(topic, ClientError(f"topic {topic}: {CLOSED}; it is not in the log"))
            await self._sender.close()
            if self._transactions is not None:
                await self._transactions.close()

    # --- Transactions -------------------------------------------------------------------------------

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction for `async with`: committed at the end, aborted if the body raises or is cancelled, unless the
        body has ended it. Raises

        * TransactionAborted: it failed and was aborted; the next one may be begun;
        * ProducerFenced: another producer has taken over; ProducerFailed: a new producer is needed;
        * OperationTimeout if the outcome of the commit is not known: `commit_transaction` goes on."""
        transactions = self._transactional()
        await transactions.begin()
        try:
            yield
            if not transactions.is_over:
                await transactions.commit()
        except BaseException as error:
            await self._abort_after(error)
            raise

    async def _abort_after(self, error: BaseException) -> None:
        """Abort if that is still to be done. The error is raised afterwards; what aborting tells is rarely more."""
        transactions = self._transactional()
        if not transactions.must_end:
            return
        try:
            await transactions.abort()
        except (ProducerFenced, ProducerFailed) as over:
            if isinstance(error, TransactionAborted):
                raise over from error
        except (KafkaError, ClientError) as failed:
            log.warning("%s; the next transaction waits for that", failed)

    async def begin_transaction(self) -> None:
        """Open a transaction: what is sent from now on belongs to it. If the last one is still being aborted, that is
        waited for. Raises ClientError if one is open."""
        await self._transactional().begin()

    async def commit_transaction(self) -> None:
        """Commit the transaction, when all its records are acknowledged. Errors as of `transaction`; after
        TransactionAborted call `abort_transaction`. If it is cancelled once the cluster was asked, it goes on, and
        another call has the outcome."""
        await self._transactional().commit()

    async def abort_transaction(self) -> None:
        """Abort the transaction: records that were not sent yet are dropped, their futures get a ClientError, and no
        read_committed consumer sees the others."""
        await self._transactional().abort()

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: GroupMetadata) -> None:
        """Commit a group's offsets, of the next records to read, if and when the transaction commits. group: of the
        consumer that has read them, `consumer.group_metadata()`: a member that the group has removed meanwhile is
        refused (KIP-447), as TransactionAborted."""
        await self._transactional().send_offsets(offsets, group)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ClientError("this producer has no transactions: make it with a transactional_id")
        if not self._open:
            raise ClientError("the producer is not started, or is closed")
        return self._transactions

    # --- Into batches -------------------------------------------------------------------------------

    def _look_at(self, topic: str) -> ProducerTopic:
        """The topic as the client's metadata now has it."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = ProducerTopic(topic)
        known.learn(self.client.topics.get(topic))
        return known

    def _put(
        self,
        topic: ProducerTopic,
        partition: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        future: asyncio.Future[RecordMetadata],
    ) -> None:
        each = topic.accumulators.get(partition)
        if each is None:
            each = self._accumulator(topic, partition)
        batch = each.open
        if batch is None or not batch.builder.append(timestamp_ms, key, value, headers):  # type: ignore[union-attr]
            if each.error is not None:
                future.set_exception(each.error)
                future.exception()  # seen: asyncio logs one that nobody asks for
                return
            if batch is not None:
                each.seal()
                topic.sticky = None
                self._sender.is_drained = False
                self._sender.wake()
            builder = BatchBuilder(
                self.compression, max_bytes=self.batch_bytes, transactional=self._transactions is not None
            )
            builder.append(timestamp_ms, key, value, headers)  # may raise: no batch has begun yet
            now = self._loop.time()
            batch = each.start(builder, now, now + self.delivery_timeout_s)
            self._sender.active[each.tp] = each
            if self.linger_s:
                self._sender.wake_at(now + self.linger_s)
            else:
                self._sender.wake()
        batch.futures.append(future)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size
        self.buffered_bytes += size

    def _accumulator(self, topic: ProducerTopic, partition: int) -> Accumulator:
        if partition < 0 or (topic.count and partition >= topic.count):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name} has {topic.count} partitions, and no partition {partition}",
            )
        in_flight_max = IN_FLIGHT_MAX if self.idempotent else 1  # otherwise a retry would change the order
        each = Accumulator(
            TopicPartition(topic.name, partition),
            self._producer_id,
            self._producer_epoch,
            in_flight_max,
            self._transactions is not None,
        )
        topic.accumulators[partition] = each
        return each

    def _send_later(self, topic: str, record: Any) -> None:
        """The topic is new to this client: get its metadata first. Records are kept in order and count as buffered."""
        waiting = self._waiting.setdefault(topic, [])
        waiting.append(record)
        if len(waiting) == 1:
            name = f"{self.client.client_id} producer: learn {topic}"
            job = self._loop.create_task(self._learn_topic(topic), name=name)
            self._jobs[job] = None
            job.add_done_callback(lambda done: self._jobs.pop(done, None))

    async def _learn_topic(self, topic: str) -> None:
        error: Exception = no_topic(topic)
        try:
            async with self.client.operation(f"metadata of topic {topic}", self.delivery_timeout_s * 1000) as operation:
                for _ in range(0 if why_invalid(topic) else LEARN_ATTEMPTS):  # no broker can have an invalid one
                    await self.client.refresh_metadata([topic], create=True, timeout_ms=operation.remaining_ms)
                    if self._look_at(topic).count:
                        break
                    await operation.again(no_topic(topic))
        except (KafkaError, ClientError) as failed:
            error = failed
        known = self._look_at(topic)
        if not known.count:
            self._fail_waiting(topic, error if self._transactions is None else self._transactions.refused(error))
            return
        for partition, timestamp_ms, key, value, headers, size, future in self._waiting.pop(topic, ()):
            self.buffered_bytes -= size
            if future.done():
                continue
            try:
                at = known.partition(key, self.client.runtime.random) if partition is None else partition
                self._put(known, at, timestamp_ms, key, value, headers, size, future)
            except (KafkaError, ClientError, TypeError, ValueError) as wrong:
                future.set_exception(wrong if self._transactions is None else self._transactions.refused(wrong))
                future.exception()  # seen
        self._released(0)

    def _fail_waiting(self, topic: str, error: Exception) -> None:
        for *_, size, future in self._waiting.pop(topic, ()):
            self._released(size)
            if not future.done():
                future.set_exception(error)
                future.exception()  # seen

    def _released(self, size_bytes: int) -> None:
        self.buffered_bytes -= size_bytes
        if self.buffered_bytes < self.buffer_bytes:
            self._space_freed.set()

    async def _new_producer_id(self) -> tuple[int, int]:
        request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)
        async with self.client.operation("getting a producer id", self.delivery_timeout_s * 1000) as operation:
            while True:
                error: KafkaError | ClientError
                try:
                    answer = await self.client.ask_any(request, operation.patience_s)
                    if not answer.error_code:
                        return answer.producer_id, answer.producer_epoch
                    error = KafkaError.of(answer.error_code, "no producer id was given")
                except ClientError as failed:
                    error = failed
                await operation.again(error)


class _Records:
    """The records of a producer, for its transactions: `transactional.Records`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def flush(self) -> None:
        await self._producer.flush()

    def drop(self, error: Exception) -> None:
        producer = self._producer
        for topic in list(producer._waiting):
            producer._fail_waiting(topic, error)
        producer._sender.drop(error)

    async def until_idle(self) -> None:
        await self._producer._sender.until_idle()

    def is_in_doubt(self) -> bool:
        return any(each.gap for each in self._accumulators())

    def renew(self, producer_id: int, epoch: int) -> None:
        self._producer._producer_id, self._producer._producer_epoch = producer_id, epoch
        for each in self._accumulators():
            each.renew(producer_id, epoch)

    def wake(self) -> None:
        self._producer._sender.wake()

    def _accumulators(self) -> Iterator[Accumulator]:
        for topic in self._producer._topics.values():
            yield from topic.accumulators.values()
