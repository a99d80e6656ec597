"""The producer: batches by partition, idempotent by default, in order; a future has the outcome of each record.

This module puts records into batches. `accumulator` has the order and the sequences of a partition, `sender` sends.
`DataLost` distinguishes a broker that lost acknowledged data from one that merely failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import init_producer_id
from ..protocol.records import BatchBuilder
from .accumulator import IN_FLIGHT_MAX, Accumulator, Batch
from .cluster import REQUEST_TIMEOUT_MS, Client
from .columns import RECORD_OVERHEAD_BYTES, Columns, Headers
from .errors import (
    BufferFull,
    ClientError,
    OperationTimeout,
    ProducerFailed,
    ProducerFenced,
    TransactionAborted,
)
from .operation import API_TIMEOUT_MS, CLOSE_TIMEOUT_MS
from .outcomes import Acknowledged, Many
from .partitioner import (
    DEFAULT_PARTITIONER,
    Partitioner,
    ProducerTopic,
    check_partitioner,
    partition_for_key,
)
from .sender import CLOSED, Sender
from .transactional import Transactions
from .types import GroupMetadata, RecordMetadata, TopicPartition
from .unlearned import Later, Unlearned

log = logging.getLogger("isthmus.client")

BATCH_BYTES = 128 << 10
BUFFER_BYTES = 64 << 20
TRANSACTION_TIMEOUT_MS = 60_000

__all__ = ["Producer", "partition_for_key"]


class Producer:
    """Sends records through a started `Client`. linger_ms: how long a batch waits for more records; acks: -1 all, 1
    leader, 0 none (then futures resolve with offset -1); buffer_bytes: most bytes that are
    buffered; batch_bytes: most bytes of a batch before compression.

    partitioner: chooses a record's partition where `send` is given none: by a hash of the key, as librdkafka names
    them. murmur2_random, the default, is that of Java's clients; consistent_random (CRC32) librdkafka's own;
    fnv1a_random Sarama's. A record without a key (with consistent_random one with an empty key, too) goes to any
    partition, the same for a whole batch; with murmur2, consistent and fnv1a to that of the empty key; with random,
    each record to any. Or a function of the key, or None, and the number of partitions, called for each record.

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
        partitioner: str | Partitioner = DEFAULT_PARTITIONER,
    ) -> None:
        if idempotent and acks != -1:
            raise ClientError(f"acks={acks} cannot be idempotent: use acks=-1, or idempotent=False")
        if transactional_id is not None and (not transactional_id or acks != -1 or idempotent is False):
            raise ClientError("a transactional producer needs an id that is not empty, acks=-1, and to be idempotent")
        check_partitioner(partitioner)
        self.client = client
        self.partitioner = partitioner
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
        self._space_freed = asyncio.Event()
        self._producer_id, self._producer_epoch = -1, -1
        self._open = False
        self._transactions = (
            None
            if transactional_id is None
            else Transactions(client, _Records(self), transactional_id, transaction_timeout_ms, max_block_ms)
        )
        self._progress = None if self._transactions is None else self._transactions.progress
        self._unlearned = Unlearned(client, self.delivery_timeout_s, self._look_at, self._released, self._refused)
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
        partitioner: str | Partitioner | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Put a record into its batch, without waiting. Raises BufferFull: `await producer.wait_for_space()` first.
        partitioner: instead of the producer's, for this record.

        Of a topic that is new to the client the metadata is fetched first; the cluster may create the topic then. Of a
        transactional producer it raises TransactionAborted if the transaction has failed, and so do the futures.
        """
        progress = self._progress
        if (
            self.buffered_bytes >= self.buffer_bytes
            or not self._open
            or (progress is not None and not progress.is_open)
        ):
            raise self._refusal()
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
        if not known.count or topic in self._unlearned:
            put = partial(self._put_one, partition, partitioner, timestamp_ms, key, value, headers, size, future)
            self.buffered_bytes += size
            self._unlearned.add(topic, Later(1, size, future, put))
            return future
        if partition is None:
            random = self.client.runtime.random
            by = partitioner
            partition = known.partition(key, random) if by is None else known.partition_by(by, key, random)
        self._put(known, partition, timestamp_ms, key, value, headers, size, future)
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None] | None = None,
        *,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[Headers] | None = None,
        partitioner: str | Partitioner | None = None,
    ) -> asyncio.Future[Acknowledged]:
        """Put many records, as columns of one length, into their batches: as `send` of each, at a fraction of the cost.
        They keep their order in each partition. keys: None where no record has one; timestamps_ms: of each record, or
        of all, None for now; headers: None where no record has any; partitioner: instead of the producer's, for these.

        The future is done when the outcome of every record is known. It has where they are, or the first error: others
        of the records may be in the log then. Raises as `send`, ValueError for columns of different lengths, and
        TypeError for what is not bytes; nothing is sent then. One call may exceed buffer_bytes by its own records, so
        do not hand in a large part of that at once."""
        if not self._open or not self.has_space or (self._progress is not None and not self._progress.is_open):
            raise self._refusal()
        columns = Columns.of(values, keys, timestamps_ms, headers, self.client.runtime.wall_ms)
        future: asyncio.Future[Acknowledged] = self._loop.create_future()
        known = self._look_at(topic)
        if known.count and topic not in self._unlearned:
            self._put_many(partition, partitioner, columns, Many(future, topic, list(columns.timestamps)), known)
        else:
            columns = columns.copied()
            many = Many(future, topic, columns.timestamps)
            put = partial(self._put_many, partition, partitioner, columns, many)
            size = columns.size_bytes
            self.buffered_bytes += size
            self._unlearned.add(topic, Later(columns.length, size, future, put))
        return future

    def _refusal(self) -> Exception:
        """Why no records are taken now."""
        if not self._open:
            return ClientError("the producer is not started, or is closed")
        if self._progress is not None and not self._progress.is_open:
            return self._progress.refusal()
        return BufferFull(f"the producer holds {self.buffered_bytes} bytes: await wait_for_space() before send()")

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
        await self._unlearned.until_none()
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
                undelivered = self._sender.undelivered + self._unlearned.records
                log.warning("%d records are not delivered, as their futures say: %s", undelivered, error)
        finally:
            self._open = False
            await self._unlearned.stop()
            if self._transactions is not None:
                self._transactions.stop()
            self._unlearned.fail(lambda topic: ClientError(f"topic {topic}: {CLOSED}; it is not in the log"))
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
            known = self._topics[topic] = ProducerTopic(topic, self.partitioner)
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
                self._seal(topic, each)
            builder = self._builder()
            builder.append(timestamp_ms, key, value, headers)  # may raise: no batch has begun yet
            batch = self._start(each, builder)
        batch.outcomes.append(future)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size
        self.buffered_bytes += size

    def _seal(self, topic: ProducerTopic, each: Accumulator) -> None:
        """The open batch is full."""
        each.seal()
        topic.sticky = None
        self._sender.is_drained = False
        self._sender.wake()

    def _builder(self) -> BatchBuilder:
        return BatchBuilder(self.compression, max_bytes=self.batch_bytes, transactional=self._transactions is not None)

    def _start(self, each: Accumulator, builder: BatchBuilder) -> Batch:
        now = self._loop.time()
        batch = each.start(builder, now, now + self.delivery_timeout_s)
        self._sender.active[each.tp] = each
        if self.linger_s:
            self._sender.wake_at(now + self.linger_s)
        else:
            self._sender.wake()
        return batch

    def _put_one(
        self,
        partition: int | None,
        partitioner: str | Partitioner | None,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        future: asyncio.Future[RecordMetadata],
        topic: ProducerTopic,
    ) -> None:
        if partition is None:
            random = self.client.runtime.random
            by = partitioner
            partition = topic.partition(key, random) if by is None else topic.partition_by(by, key, random)
        self._put(topic, partition, timestamp_ms, key, value, headers, size, future)

    def _put_many(
        self,
        partition: int | None,
        partitioner: str | Partitioner | None,
        columns: Columns,
        many: Many,
        topic: ProducerTopic,
    ) -> None:
        """Raises an error only if nothing was put; later ones are told by the future."""
        random = self.client.runtime.random
        by = topic.partitioner if partitioner is None else partitioner
        try:
            if partition is not None:
                self._fill_all(topic, partition, columns, None, columns.length, many)
            elif columns.has_keys or not isinstance(by, str):
                for at, rows in topic.rows_by_partition(columns.keys, random, by).items():
                    self._fill_all(topic, at, columns, rows, len(rows), many)
            else:
                done = 0
                while done < columns.length:  # each batch may be of another partition
                    at = topic.partition_by(by, None, random)
                    done = self._fill(topic, at, columns, None, done, columns.length, many)
        except Exception as error:
            if not many.put:
                raise
            many.failed(self._refused(error), columns.length - many.put)

    def _fill_all(
        self, topic: ProducerTopic, partition: int, columns: Columns, rows: list[int] | None, end: int, many: Many
    ) -> None:
        done = 0
        while done < end:
            done = self._fill(topic, partition, columns, rows, done, end, many)

    def _fill(
        self,
        topic: ProducerTopic,
        partition: int,
        columns: Columns,
        rows: list[int] | None,
        start: int,
        end: int,
        many: Many,
    ) -> int:
        """Put records into the open batch, or into a new one: as many as fit. rows: those of the partition, None: all;
        start, end: places among them. Returns the place after the last that was put."""
        each = topic.accumulators.get(partition)
        if each is None:
            each = self._accumulator(topic, partition)
        batch = each.open
        if batch is not None:
            assert batch.builder is not None
            count, size = batch.builder.count, batch.builder.size_bytes
            try:
                after = columns.into(batch.builder, start, rows)
            finally:
                if batch.builder.count > count:
                    size = batch.builder.size_bytes - size
                    batch.add_run(many, _rows(rows, start, batch.builder.count - count), size)
                    self.buffered_bytes += size
            if after > start:
                return after
        if each.error is not None:
            many.failed(each.error, end - start)
            many.put += end - start
            return end
        if batch is not None:
            self._seal(topic, each)
        builder = self._builder()
        after = columns.into(builder, start, rows)  # may raise: no batch has begun yet
        self._start(each, builder).add_run(many, _rows(rows, start, builder.count), builder.size_bytes)
        self.buffered_bytes += builder.size_bytes
        return after

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

    def _refused(self, error: Exception) -> Exception:
        """What a future is told of a record that was not put into a batch: it fails the transaction."""
        return error if self._transactions is None else self._transactions.refused(error)

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


def _rows(rows: list[int] | None, start: int, count: int) -> Sequence[int]:
    """Some of the rows of a call's columns. rows: those of a partition, None: all."""
    return range(start, start + count) if rows is None else rows[start : start + count]


class _Records:
    """The records of a producer, for its transactions: `transactional.Records`."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def flush(self) -> None:
        await self._producer.flush()

    def drop(self, error: Exception) -> None:
        producer = self._producer
        producer._unlearned.fail(lambda topic: error)
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
