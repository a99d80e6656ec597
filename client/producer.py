"""The producer: batches by partition, idempotent by default, in order, each record's fate in a future.

One task sends; it sleeps until a batch is full, has lingered, may be tried again, or an answer came. Answers are
callbacks. A broker that lost acknowledged data is told apart from one that merely failed: `DataLost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import init_producer_id, produce
from ..protocol.records import BatchBuilder
from .accumulator import Accumulator, Batch, fail, succeed
from .cluster import REQUEST_TIMEOUT_MS, Client
from .connection import Connection
from .errors import BufferFull, ClientError, DataLost, DeliveryTimeout
from .partitioner import partition_for_key
from .types import RecordMetadata, TopicPartition

BATCH_BYTES = 128 << 10
BUFFER_BYTES = 64 << 20
REQUEST_BYTES_MAX = 4 << 20  # of batches in one request
RECORD_OVERHEAD_BYTES = 24  # most that a record takes besides key, value and headers
LEARN_ATTEMPTS = 8
RETRY_MIN_MS, RETRY_MAX_MS = 50, 1_000
NO_SEQUENCE = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})

Headers = Sequence[tuple[str, bytes | None]]


class Producer:
    """Sends records through a started `Client`. linger_ms: how long a batch waits for more records; acks: -1 all, 1
    leader, 0 none (then futures resolve with offset -1); buffer_bytes: most that is held; batch_bytes: before
    compression."""

    def __init__(
        self,
        client: Client,
        *,
        linger_ms: float = 5,
        batch_bytes: int = BATCH_BYTES,
        compression: str = "none",
        acks: int = -1,
        idempotent: bool = True,
        buffer_bytes: int = BUFFER_BYTES,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        if idempotent and acks != -1:
            raise ClientError(f"acks={acks} cannot be idempotent: use acks=-1, or idempotent=False")
        self.client = client
        self.linger_s = linger_ms / 1000
        self.batch_bytes = batch_bytes
        self.compression = compression
        self.acks = acks
        self.idempotent = idempotent
        self.buffer_bytes = buffer_bytes
        self.delivery_timeout_s = delivery_timeout_ms / 1000
        self.request_timeout_ms = request_timeout_ms
        self.buffered_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._partitions: dict[TopicPartition, Accumulator] = {}
        self._busy: dict[TopicPartition, Accumulator] = {}  # those that are not idle
        self._sticky: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._drained = asyncio.Event()
        self._flushing = 0
        self._producer_id, self._producer_epoch = -1, -1
        self._sender: asyncio.Task[None] | None = None
        self._jobs: dict[asyncio.Task[None], None] = {}
        self._waiting: dict[str, list[Any]] = {}  # records of topics that are still to be learnt
        self._refresh: asyncio.Task[None] | None = None
        self._closed = False

    # --- For users ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Get a producer id and begin to send."""
        if self.idempotent:
            self._producer_id, self._producer_epoch = await self._new_producer_id()
        self._sender = self._loop.create_task(self._send_loop(), name=f"{self.client.client_id} producer")

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
        """Put a record into its batch, without waiting. Raises BufferFull: `await producer.room()` first.

        A topic that the client does not know yet is asked for first, and made where the cluster does that.
        """
        size = (len(value) if value else 0) + (len(key) if key else 0) + RECORD_OVERHEAD_BYTES
        if self.buffered_bytes + size > self.buffer_bytes and self.buffered_bytes:
            raise BufferFull(f"the producer holds {self.buffered_bytes} bytes: await room() before send()")
        if self._closed or self._sender is None:
            raise ClientError("the producer is not started, or closed")
        if timestamp_ms is None:
            timestamp_ms = self.client.runtime.wall_ms()
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        if partition is None:
            count = self._partition_count(topic)
            if not count or topic in self._waiting:
                self.buffered_bytes += size
                self._send_later(topic, value, key, timestamp_ms, headers, size, future)
                return future
            partition = partition_for_key(key, count) if key is not None else self._stick(topic, count)
        self._put(TopicPartition(topic, partition), timestamp_ms, key, value, headers, size, future)
        return future

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < self.buffer_bytes - self.batch_bytes

    async def room(self) -> None:
        """Wait until a record of ordinary size fits."""
        while not self.has_room:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Send all there is now and wait until each record's fate is known; errors are in the futures."""
        self._flushing += 1
        try:
            while self._busy or self._jobs:
                self._drained.clear()
                self._wake.set()
                if self._jobs:
                    await asyncio.wait(self._jobs)
                    continue
                await self._drained.wait()
        finally:
            self._flushing -= 1

    async def close(self) -> None:
        """Flush, then release everything."""
        if self._sender is not None and not self._closed:
            try:
                await self.flush()
            finally:
                self._closed = True
                tasks = [self._sender, *self._jobs, *([self._refresh] if self._refresh else [])]
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    # --- Into batches -------------------------------------------------------------------------------

    def _partition_count(self, topic: str) -> int:
        found = self.client.topics.get(topic)
        return len(found.leaders) if found else 0

    def _stick(self, topic: str, count: int) -> int:
        at = self._sticky.get(topic)
        if at is None or at >= count:
            at = self._sticky[topic] = self.client.runtime.random.randrange(count)
        return at

    def _send_later(self, topic: str, *record: Any) -> None:
        """The topic is new to this client: learn it first, records kept in order. They count as buffered already."""
        waiting = self._waiting.setdefault(topic, [])
        waiting.append(record)
        if len(waiting) > 1:
            return

        async def learn() -> None:
            error: Exception = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
            for attempt in range(LEARN_ATTEMPTS):
                try:
                    await self.client.refresh_metadata([topic], create=True)
                    if self._partition_count(topic):
                        break
                except (KafkaError, ClientError) as failed:
                    error = failed
                await self.client.back_off(attempt)
            count = self._partition_count(topic)
            for value, key, timestamp_ms, headers, size, future in self._waiting.pop(topic):
                self.buffered_bytes -= size
                if count:
                    partition = partition_for_key(key, count) if key is not None else self._stick(topic, count)
                    self._put(TopicPartition(topic, partition), timestamp_ms, key, value, headers, size, future)
                elif not future.done():
                    future.set_exception(error)
                    future.exception()

        job = self._loop.create_task(learn(), name=f"learn {topic}")
        self._jobs[job] = None
        job.add_done_callback(lambda done: self._jobs.pop(done, None))

    def _put(
        self,
        tp: TopicPartition,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        size: int,
        future: asyncio.Future[RecordMetadata],
    ) -> None:
        each = self._partitions.get(tp)
        if each is None:
            each = self._partitions[tp] = Accumulator(tp)
            each.producer_id, each.producer_epoch = self._producer_id, self._producer_epoch
        batch = each.open
        if batch is not None and not batch.builder.append(timestamp_ms, key, value, headers):
            each.seal()
            self._sticky.pop(tp.topic, None)
            self._wake.set()
            batch = None
        if batch is None:
            now = self._loop.time()
            batch = Batch(
                BatchBuilder(self.compression, max_bytes=self.batch_bytes), now, now + self.delivery_timeout_s
            )
            batch.builder.append(timestamp_ms, key, value, headers)
            each.start_batch(batch)
            self._busy[tp] = each
            if len(self._busy) == 1 or not self.linger_s:
                self._wake.set()
        batch.futures.append(future)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size
        self.buffered_bytes += size

    # --- Out ----------------------------------------------------------------------------------------

    async def _send_loop(self) -> None:
        while True:
            self._wake.clear()
            next_at = await self._send_ready()
            if self._wake.is_set():
                continue
            if next_at is None:
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(max(0.001, next_at - self._loop.time())):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _send_ready(self) -> float | None:
        """Send what can be sent; loop time at which something next becomes sendable by itself."""
        now = self._loop.time()
        next_at: float | None = None
        by_node: dict[int, list[tuple[Accumulator, Batch]]] = {}
        lost_leader = False
        for each in list(self._busy.values()):
            if each.open is not None:
                due = each.open.created_at + self.linger_s
                if due <= now + 0.0005 or self._flushing:
                    each.seal()
                    self._sticky.pop(each.tp.topic, None)
                else:
                    next_at = due if next_at is None else min(next_at, due)
            self._expire(each, now)
            if each.ready and now < each.retry_at:
                next_at = each.retry_at if next_at is None else min(next_at, each.retry_at)
            if not each.sendable(now):
                continue
            node = self.client.leader(each.tp)
            if node is None:
                lost_leader = True
                continue
            by_node.setdefault(node, []).append((each, each.take()))
        for node, batches in by_node.items():
            await self._send_to(node, batches)
        if lost_leader:
            self._learn_leaders()
        if by_node and any(each.sendable(now) for each in self._busy.values()):
            self._wake.set()
        return next_at

    async def _send_to(self, node: int, batches: list[tuple[Accumulator, Batch]]) -> None:
        """Write requests of at most REQUEST_BYTES_MAX to one node; the answers come as callbacks."""
        try:
            connection = await self.client.connection(node, "produce")
            await connection.writable()
        except Exception as error:
            for each, batch in batches:
                self._retry(each, batch, error)
            self._learn_leaders()
            return
        while batches:
            part: list[tuple[Accumulator, Batch]] = []
            size = 0
            while batches and (not part or size + len(batches[0][1].build()) <= REQUEST_BYTES_MAX):
                size += len(batches[0][1].build())
                part.append(batches.pop(0))
            self._send_request(connection, part)

    def _send_request(self, connection: Connection, batches: list[tuple[Accumulator, Batch]]) -> None:
        version = connection.version_of(produce.API)
        if version >= 13 and any(self.client.topic_id(each.tp.topic) is None for each, _ in batches):
            version = 12
        topics: dict[str, Any] = {}
        for each, batch in batches:
            topic = topics.get(each.tp.topic)
            if topic is None:
                topic_id = self.client.topic_id(each.tp.topic) or bytes(16)
                topic = topics[each.tp.topic] = produce.TopicProduceData(
                    name=each.tp.topic, topic_id=topic_id, partition_data=[]
                )
            topic.partition_data.append(produce.PartitionProduceData(index=each.tp.partition, records=batch.build()))
        request = produce.Request(acks=self.acks, timeout_ms=self.request_timeout_ms, topic_data=list(topics.values()))
        if self.acks == 0:
            try:
                connection.post(produce.API, request, version)
            except ClientError as error:
                for each, batch in batches:
                    self._retry(each, batch, error)
                return
            for each, batch in batches:
                self._succeed(each, batch, -1, -1)
            return
        names = {topic.topic_id: name for name, topic in topics.items()} if version >= 13 else None
        future = connection.send(produce.API, request, self.request_timeout_ms, version)
        future.add_done_callback(lambda done: self._answered(done, batches, names))

    def _answered(
        self, done: asyncio.Future[Any], batches: list[tuple[Accumulator, Batch]], names: dict[bytes, str] | None
    ) -> None:
        if self._closed or done.cancelled():
            return
        if (error := done.exception()) is not None:
            for each, batch in batches:
                self._retry(each, batch, error)
            self._learn_leaders()
            return
        answers = {
            (names[topic.topic_id] if names else topic.name, p.index): p
            for topic in done.result().responses
            for p in topic.partition_responses
        }
        for each, batch in batches:
            answer = answers.get(each.tp)
            if answer is None:
                self._retry(each, batch, ClientError(f"the broker left {each.tp} out of its answer"))
            elif answer.error_code == 0:
                self._succeed(each, batch, answer.base_offset, answer.log_append_time_ms)
            else:
                self._failed(each, batch, answer)
        self._wake.set()

    def _succeed(self, each: Accumulator, batch: Batch, base_offset: int, append_time_ms: int) -> None:
        each.finished(batch)
        lost = 0 <= base_offset <= each.last_offset and batch.attempts == 1
        if lost:
            fail(
                batch,
                DataLost(
                    f"{each.tp.topic}-{each.tp.partition}: offset {each.last_offset} was acknowledged, but a later "
                    f"batch was given offset {base_offset}: the broker lost what it had acknowledged (a crash with "
                    "durability=page_cache?). This batch is in the log; what is gone must be produced again"
                ),
            )
        else:
            succeed(batch, each.tp, base_offset, append_time_ms)
        if base_offset >= 0:
            last = base_offset + len(batch.futures) - 1
            each.last_offset = last if lost else max(each.last_offset, last)
        self._release(each, batch)

    def _failed(self, each: Accumulator, batch: Batch, answer: Any) -> None:
        code = answer.error_code
        where = f"{each.tp.topic}-{each.tp.partition}"
        error = KafkaError.of(code, f"{where}: {answer.error_message or ErrorCode(code).name}")
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._succeed(each, batch, -1, -1)
        elif code in NO_SEQUENCE and self.idempotent:
            if each.first_unanswered(batch):
                self._lost(each, batch, error)
            else:
                self._retry(each, batch, error)  # a batch before it failed; it comes after that one
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH and self.idempotent:
            self._lost(each, batch, error)
        elif error.retriable:
            self._retry(each, batch, error)
            self._learn_leaders()
        else:
            each.finished(batch)
            fail(batch, error)
            self._release(each, batch)
            if self.idempotent and batch.sequence >= 0:
                self._reset(each)  # its sequence is missing now

    def _lost(self, each: Accumulator, batch: Batch, error: KafkaError) -> None:
        """The broker does not know the sequences before this batch: it lost records it had acknowledged."""
        lost = DataLost(
            f"{each.tp.topic}-{each.tp.partition}: the broker no longer knows records up to offset {each.last_offset} "
            f"that it had acknowledged ({ErrorCode(error.code).name}): produce again what came after its log's end"
        )
        each.finished(batch)
        fail(batch, lost)
        self._release(each, batch)
        for other in each.take_all():
            fail(other, lost)
            self._release(each, other)
        self._reset(each)

    def _retry(self, each: Accumulator, batch: Batch, error: BaseException) -> None:
        now = self._loop.time()
        if now >= batch.deadline:
            self._give_up(each, batch, error)
            return
        ms = min(RETRY_MIN_MS * 2 ** min(batch.attempts - 1, 8), RETRY_MAX_MS)
        each.again(batch, now + ms * (0.5 + self.client.runtime.random.random() / 2) / 1000)
        self._wake.set()

    def _give_up(self, each: Accumulator, batch: Batch, error: BaseException) -> None:
        each.finished(batch)
        fail(batch, self._timed_out(each, error))
        self._release(each, batch)
        if self.idempotent:
            self._reset(each)

    def _expire(self, each: Accumulator, now: float) -> None:
        """Give batches up that waited for too long."""
        if each.ready and each.ready[0].deadline <= now:
            batch = each.ready.popleft()
            fail(batch, self._timed_out(each, None))
            self._release(each, batch)
            if self.idempotent:
                self._reset(each)

    def _timed_out(self, each: Accumulator, error: BaseException | None) -> DeliveryTimeout:
        return DeliveryTimeout(
            f"{each.tp.topic}-{each.tp.partition}: not delivered within {self.delivery_timeout_s:.0f} s"
            + (f"; the last try said: {error}" if error else ": its broker does not answer")
        )

    def _reset(self, each: Accumulator) -> None:
        """Begin anew with another producer id; what was numbered with the old one and not sent is numbered again."""
        if each.resetting:
            return
        each.resetting = True

        async def reset() -> None:
            attempt = 0
            while True:
                if not each.in_flight:
                    try:
                        producer_id, epoch = await self._new_producer_id()
                        break
                    except (KafkaError, ClientError):
                        pass
                await self.client.back_off(attempt)
                attempt += 1
            each.producer_id, each.producer_epoch, each.next_sequence = producer_id, epoch, 0
            batches, opened = list(each.ready), each.open
            each.ready.clear()
            for batch in batches:
                batch.data, batch.attempts = None, 0
                each.open = batch
                each.seal()
            each.open = opened
            each.resetting = each.recovering = False
            self._wake.set()

        job = self._loop.create_task(reset(), name=f"reset {each.tp}")
        self._jobs[job] = None
        job.add_done_callback(lambda done: self._jobs.pop(done, None))

    def _release(self, each: Accumulator, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes
        if self.has_room:
            self._room.set()
        if each.idle:
            self._busy.pop(each.tp, None)
            if not self._busy:
                self._drained.set()

    def _learn_leaders(self) -> None:
        """Refresh metadata in the background, once at a time."""
        if self._refresh is not None and not self._refresh.done():
            return

        async def refresh() -> None:
            await self.client.back_off(1)
            try:
                await self.client.refresh_metadata(sorted({tp.topic for tp in self._busy}))
            except (KafkaError, ClientError):
                pass  # the sender asks again
            self._wake.set()

        self._refresh = self._loop.create_task(refresh(), name=f"{self.client.client_id} leaders")

    async def _new_producer_id(self) -> tuple[int, int]:
        attempt = 0
        deadline = self._loop.time() + self.delivery_timeout_s
        while True:
            try:
                answer = await self.client.request(
                    init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60_000)
                )
                if not answer.error_code:
                    return answer.producer_id, answer.producer_epoch
                error: Exception = KafkaError.of(answer.error_code, "no producer id was given")
                if not KafkaError.of(answer.error_code, "").retriable:
                    raise error
            except ClientError as failed:
                error = failed
            if self._loop.time() > deadline:
                raise error
            await self.client.back_off(attempt)
            attempt += 1
