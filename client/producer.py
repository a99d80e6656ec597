"""The producer: batches by partition, idempotent by default, in order, each record's fate in a future.

There is no sending task: `_drain` runs once a turn of the loop when there may be something to send (a batch is full or
has lingered, an answer came, a connection was made, a pause is over), and one timer wakes it for the rest. A broker
that lost acknowledged data is told apart from one that merely failed: `DataLost`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages import init_producer_id, produce
from ..protocol.primitives import ZERO_UUID
from ..protocol.records import BatchBuilder
from .accumulator import IN_FLIGHT_MAX, Accumulator, Batch
from .cluster import REQUEST_TIMEOUT_MS, Client, TopicMetadata
from .connection import Connection
from .errors import BufferFull, ClientError, DeliveryTimeout
from .partitioner import partition_for_key
from .raw import IDS_FROM
from .types import RecordMetadata, TopicPartition

BATCH_BYTES = 128 << 10
BUFFER_BYTES = 64 << 20
REQUEST_BYTES_MAX = 4 << 20  # of batches in one request
REQUESTS_IN_FLIGHT_MAX = 5  # to one node
RECORD_OVERHEAD_BYTES = 24  # most that a record takes besides key, value and headers
KEYS_REMEMBERED = 20_000  # of a topic, with their partitions
LEARN_ATTEMPTS = 8
RETRY_MIN_MS, RETRY_MAX_MS = 50, 1_000
TIMER_SLACK_S = 0.0005  # timers of some loops have steps of 1 ms
LANE = "produce"

Headers = Sequence[tuple[str, bytes | None]]


class _Topic:
    """What the producer knows of a topic: `seen` is the client's metadata object that this was taken from."""

    __slots__ = ("accumulators", "count", "key_partitions", "name", "seen", "sticky", "topic_id")

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: TopicMetadata | None = None
        self.count = 0
        self.topic_id = ZERO_UUID
        self.sticky: int | None = None
        self.accumulators: dict[int, Accumulator] = {}
        self.key_partitions: dict[bytes, int] = {}

    def learn(self, seen: TopicMetadata | None) -> None:
        self.seen = seen
        if seen is None:
            return
        if len(seen.leaders) != self.count:
            self.count = len(seen.leaders)
            self.key_partitions.clear()
        if seen.topic_id != self.topic_id and ZERO_UUID not in (seen.topic_id, self.topic_id):
            for each in self.accumulators.values():
                each.restart()
        self.topic_id = seen.topic_id

    def of_key(self, key: bytes) -> int:
        partition = self.key_partitions.get(key)
        if partition is None:
            if len(self.key_partitions) >= KEYS_REMEMBERED:
                self.key_partitions.clear()
            partition = self.key_partitions[bytes(key)] = partition_for_key(key, self.count)
        return partition


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
        idempotent: bool | None = None,
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
        self.idempotent = acks == -1 if idempotent is None else idempotent
        self.buffer_bytes = buffer_bytes
        self.delivery_timeout_s = delivery_timeout_ms / 1000
        self.request_timeout_ms = request_timeout_ms
        self.buffered_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._topics: dict[str, _Topic] = {}
        self._busy: dict[TopicPartition, Accumulator] = {}  # those that are not idle
        self._under_way: dict[int, int] = {}  # node -> requests not yet answered
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._waiting: dict[str, list[Any]] = {}  # records of topics that are still to be learnt
        self._jobs: dict[asyncio.Task[None], None] = {}
        self._refresh: asyncio.Task[None] | None = None
        self._drain_handle: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._is_full = False  # a batch was filled since the last drain
        self._room = asyncio.Event()
        self._producer_id, self._producer_epoch = -1, -1
        self._open = False

    # --- For users ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Get a producer id and begin to send."""
        if self.idempotent:
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
        """Put a record into its batch, without waiting. Raises BufferFull: `await producer.room()` first.

        A topic that the client does not know yet is asked for first, and made where the cluster does that.
        """
        if self.buffered_bytes >= self.buffer_bytes:
            raise BufferFull(f"the producer holds {self.buffered_bytes} bytes: await room() before send()")
        if not self._open:
            raise ClientError("the producer is not started, or closed")
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
        if partition is None:
            if not known.count or topic in self._waiting:
                self.buffered_bytes += size
                self._send_later(topic, (timestamp_ms, key, value, headers, size, future))
                return future
            partition = self._partition_of(known, key)
        self._put(known, partition, timestamp_ms, key, value, headers, size, future)
        return future

    @property
    def has_room(self) -> bool:
        return self.buffered_bytes < self.buffer_bytes

    async def room(self) -> None:
        """Wait until the next `send` is sure to be taken; lets the loop send what is full meanwhile."""
        if self._is_full:
            await asyncio.sleep(0)
        while self.buffered_bytes >= self.buffer_bytes:
            self._room.clear()
            await self._room.wait()

    async def flush(self) -> None:
        """Send what there is now and wait until each record's fate is known; errors are in the futures."""
        while self._waiting:
            await asyncio.wait(list(self._jobs), return_when=asyncio.FIRST_COMPLETED)
        batches = []
        for each in list(self._busy.values()):
            each.seal()
            batches += each.undone()
        self._wake()
        for batch in batches:
            if not batch.done:
                if batch.settled is None:
                    batch.settled = self._loop.create_future()
                await asyncio.shield(batch.settled)
            batches += batch.parts

    async def close(self) -> None:
        """Flush, then release everything."""
        if not self._open:
            return
        try:
            await self.flush()
        finally:
            self._open = False
            closed = ClientError("the producer was closed before this was delivered; it may or may not be in the log")
            for each in self._busy.values():
                for batch in each.undone():
                    batch.fail(closed)
            for handle in (self._drain_handle, self._timer):
                if handle is not None:
                    handle.cancel()
            tasks = [*self._jobs, *self._connecting.values(), *([self._refresh] if self._refresh else [])]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # --- Into batches -------------------------------------------------------------------------------

    def _look_at(self, topic: str) -> _Topic:
        """The topic as the client's metadata now has it."""
        known = self._topics.get(topic)
        if known is None:
            known = self._topics[topic] = _Topic(topic)
        known.learn(self.client.topics.get(topic))
        return known

    def _partition_of(self, topic: _Topic, key: bytes | None) -> int:
        if key is not None:
            return topic.of_key(key)
        if topic.sticky is None or topic.sticky >= topic.count:
            topic.sticky = self.client.runtime.random.randrange(topic.count)
        return topic.sticky

    def _put(
        self,
        topic: _Topic,
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
                future.exception()
                return
            if batch is not None:
                each.seal()
                topic.sticky = None
                self._is_full = True
                self._wake()
            builder = BatchBuilder(self.compression, max_bytes=self.batch_bytes)
            builder.append(timestamp_ms, key, value, headers)  # raises before the batch is there
            now = self._loop.time()
            batch = each.start(builder, now, now + self.delivery_timeout_s)
            self._busy[each.tp] = each
            if self.linger_s:
                self._wake_at(now + self.linger_s)
            else:
                self._wake()
        batch.futures.append(future)
        batch.timestamps.append(timestamp_ms)
        batch.size_bytes += size
        self.buffered_bytes += size

    def _accumulator(self, topic: _Topic, partition: int) -> Accumulator:
        if partition < 0 or (topic.count and partition >= topic.count):
            raise KafkaError.of(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {topic.name} has {topic.count} partitions, and no partition {partition}",
            )
        in_flight_max = IN_FLIGHT_MAX if self.idempotent else 1  # else a retry would change the order
        each = Accumulator(
            TopicPartition(topic.name, partition), self._producer_id, self._producer_epoch, in_flight_max
        )
        topic.accumulators[partition] = each
        return each

    def _send_later(self, topic: str, record: Any) -> None:
        """The topic is new to this client: learn it first, records kept in order. They count as buffered already."""
        waiting = self._waiting.setdefault(topic, [])
        waiting.append(record)
        if len(waiting) == 1:
            self._job(self._learn_topic(topic), f"learn {topic}")

    async def _learn_topic(self, topic: str) -> None:
        error: Exception = KafkaError.of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        give_up_at = self._loop.time() + self.delivery_timeout_s
        attempt = unknown = 0
        while unknown < LEARN_ATTEMPTS and self._loop.time() < give_up_at:
            try:
                await self.client.refresh_metadata([topic], create=True)
                unknown += 1
            except (KafkaError, ClientError) as failed:
                error = failed
            if self._look_at(topic).count:
                break
            await self.client.back_off(attempt)
            attempt += 1
        known = self._look_at(topic)
        for timestamp_ms, key, value, headers, size, future in self._waiting.pop(topic):
            self.buffered_bytes -= size
            if known.count:
                partition = self._partition_of(known, key)
                try:
                    self._put(known, partition, timestamp_ms, key, value, headers, size, future)
                except (TypeError, ValueError) as wrong:  # a record that no batch takes
                    future.set_exception(wrong)
            elif not future.done():
                future.set_exception(error)
                future.exception()
        self._made_room()

    # --- Out ----------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Drain on the next turn."""
        if self._drain_handle is None:
            self._drain_handle = self._loop.call_soon(self._drain)

    def _wake_at(self, when: float) -> None:
        if self._timer is None or when < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._timer_fired)
            self._timer_at = when

    def _timer_fired(self) -> None:
        self._timer = None
        self._wake()

    def _drain(self) -> None:
        """Send what can be sent now; set the timer for what becomes sendable by itself."""
        self._drain_handle = None
        self._is_full = False
        if not self._open:
            return
        now = self._loop.time()
        by_node: dict[int, list[Accumulator]] = {}
        lost_leader = False
        for each in list(self._busy.values()):
            if each.first_deadline() <= now:
                self._expire(each, now)
            self._seal_due(each, now)
            if each.sendable(now):
                node = self._leader(each)
                if node is None:
                    lost_leader = True
                else:
                    by_node.setdefault(node, []).append(each)
        for node, accumulators in by_node.items():
            self._drain_to(node, accumulators, now)
        if lost_leader:
            self._learn_leaders()
        next_at = min((self._next_at(each, now) for each in self._busy.values()), default=float("inf"))
        if next_at < float("inf"):
            self._wake_at(max(next_at, now + 0.001))

    def _seal_due(self, each: Accumulator, now: float) -> None:
        """What has lingered may go, but takes records for as long as it could not go anyway."""
        batch = each.open
        if batch is None or each.ready or len(each.in_flight) >= each.in_flight_max:
            return
        if batch.created_at + self.linger_s <= now + TIMER_SLACK_S:
            each.seal()
            self._topics[each.tp.topic].sticky = None

    def _next_at(self, each: Accumulator, now: float) -> float:
        """When time alone changes something for a partition; answers and connections wake by themselves."""
        found = each.first_deadline()
        if each.ready and each.retry_at > now:
            return min(found, each.retry_at)
        if each.open is not None and not each.ready and len(each.in_flight) < each.in_flight_max:
            return min(found, each.open.created_at + self.linger_s)
        return found

    def _leader(self, each: Accumulator) -> int | None:
        topic = self._topics[each.tp.topic]
        if self.client.topics.get(topic.name) is not topic.seen:
            topic.learn(self.client.topics.get(topic.name))
        return self.client.leader(each.tp)

    def _drain_to(self, node: int, accumulators: list[Accumulator], now: float) -> None:
        """Requests of at most REQUEST_BYTES_MAX, one batch of each partition in each."""
        connection = self.client.open_connection(node, LANE)
        if connection is None or not connection.is_writable:
            if node not in self._connecting:
                self._connecting[node] = self._job(self._connect(node), f"connect {node}")
            return
        while self._under_way.get(node, 0) < REQUESTS_IN_FLIGHT_MAX:
            batches: list[tuple[Accumulator, Batch]] = []
            size = 0
            for each in accumulators:
                self._seal_due(each, now)
                if each.sendable(now) and size < REQUEST_BYTES_MAX:
                    batch = each.take()
                    assert batch.data is not None
                    size += len(batch.data)
                    batches.append((each, batch))
                    self._busy[each.tp] = self._busy.pop(each.tp)  # the next request begins with others
            if not batches:
                return
            if not self._send_request(node, connection, batches):
                return

    async def _connect(self, node: int) -> None:
        try:
            connection = await self.client.connection(node, LANE)
            await connection.writable()
        except (ClientError, KafkaError, OSError):
            retry_at = self._retry_at(1)
            for each in self._busy.values():
                if self.client.leader(each.tp) == node:
                    each.backed_off(self._retry_at(each.failures))
            self._wake_at(retry_at)
            self._learn_leaders()
        finally:
            self._connecting.pop(node, None)
            self._wake()

    def _send_request(self, node: int, connection: Connection, batches: list[tuple[Accumulator, Batch]]) -> bool:
        """False when the connection takes no more."""
        topics: dict[str, Any] = {}
        for each, batch in batches:
            topic = topics.get(each.tp.topic)
            if topic is None:
                topic_id = self.client.topic_id(each.tp.topic) or ZERO_UUID
                topic = topics[each.tp.topic] = produce.TopicProduceData(name=each.tp.topic, topic_id=topic_id)
            topic.partition_data.append(produce.PartitionProduceData(index=each.tp.partition, records=batch.data))
        request = produce.Request(acks=self.acks, timeout_ms=self.request_timeout_ms, topic_data=list(topics.values()))
        by_name = any(topic.topic_id == ZERO_UUID for topic in topics.values())
        try:
            version = connection.version_of(produce.API, IDS_FROM - 1 if by_name else None)
            if self.acks == 0:
                connection.post(produce.API, request, version)
                for each, batch in batches:
                    each.acked(batch, -1)
                    batch.succeed(each.tp, -1, -1)
                    self._release(each, batch)
                return True
            future = connection.send(produce.API, request, self.request_timeout_ms, version)
        except (ClientError, ProtocolError) as error:  # too old a broker, or it went just now
            for each, batch in batches:
                self._try_again(each, batch, error)
            return False
        names = {topic.topic_id: name for name, topic in topics.items()} if version >= IDS_FROM else None
        self._under_way[node] = self._under_way.get(node, 0) + 1
        future.add_done_callback(lambda done: self._answered(done, node, batches, names))
        return True

    # --- Answers ------------------------------------------------------------------------------------

    def _answered(
        self,
        done: asyncio.Future[Any],
        node: int,
        batches: list[tuple[Accumulator, Batch]],
        names: dict[bytes, str] | None,
    ) -> None:
        self._under_way[node] -= 1
        if done.cancelled():
            return
        problem = done.exception()  # asked for in any case, or the loop complains that nobody did
        if not self._open:
            return
        self._wake()
        if problem is not None:
            for each, batch in batches:
                self._try_again(each, batch, problem)
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
                self._try_again(each, batch, ClientError(f"the broker left {each.where} out of its answer"))
            elif answer.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._succeeded(each, batch, answer)
            else:
                self._refused(each, batch, answer)

    def _succeeded(self, each: Accumulator, batch: Batch, answer: Any) -> None:
        base_offset = answer.base_offset if not answer.error_code else -1  # a duplicate's place nobody says
        error = each.acked(batch, base_offset)
        if batch.done:
            self._settle(each)
        elif error is None:
            batch.succeed(each.tp, base_offset, answer.log_append_time_ms)
            self._release(each, batch)
        else:
            self._give_up(each, batch, error)

    def _refused(self, each: Accumulator, batch: Batch, answer: Any) -> None:
        error = each.refused(batch, answer.error_code, answer.error_message, answer.log_start_offset)
        if batch.done:
            self._settle(each)
        elif error is not None:
            self._give_up(each, batch, error)
        elif answer.error_code not in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID):
            each.backed_off(self._retry_at(each.failures))
            self._learn_leaders()

    def _try_again(self, each: Accumulator, batch: Batch, problem: BaseException) -> None:
        each.unanswered(batch)
        if batch.done:
            self._settle(each)
        elif each.error is not None:
            self._give_up(each, batch, each.error)
        else:
            each.backed_off(self._retry_at(each.failures))

    def _retry_at(self, failures: int) -> float:
        ms = min(RETRY_MIN_MS * 2 ** min(failures, 8), RETRY_MAX_MS)
        return self._loop.time() + ms * (0.5 + self.client.runtime.random.random() / 2) / 1000

    def _give_up(self, each: Accumulator, batch: Batch, error: Exception) -> None:
        """Tell the senders of a batch; where nothing more may be written, of all that wait behind it too."""
        batch.fail(error)
        self._release(each, batch)
        if each.error is not None:
            each.seal()
            while each.ready:
                behind = each.ready.popleft()
                behind.fail(each.error)
                self._release(each, behind)

    def _expire(self, each: Accumulator, now: float) -> None:
        for batch in each.expired(now):
            batch.fail(
                DeliveryTimeout(
                    f"{each.where}: not delivered within {self.delivery_timeout_s:.0f} s: does its broker run? "
                    + ("It may or may not be in the log" if batch.attempts else "It is not in the log")
                )
            )
            self._release(each, batch)

    def _release(self, each: Accumulator, batch: Batch) -> None:
        self.buffered_bytes -= batch.size_bytes
        self._made_room()
        self._settle(each)

    def _made_room(self) -> None:
        if self.buffered_bytes < self.buffer_bytes:
            self._room.set()

    def _settle(self, each: Accumulator) -> None:
        if each.idle:
            self._busy.pop(each.tp, None)

    # --- Metadata and ids ---------------------------------------------------------------------------

    def _job(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        job = self._loop.create_task(work, name=f"{self.client.client_id} producer: {name}")
        self._jobs[job] = None
        job.add_done_callback(lambda done: self._jobs.pop(done, None))
        return job

    def _learn_leaders(self) -> None:
        """Refresh metadata in the background, once at a time."""
        if self._refresh is not None and not self._refresh.done():
            return

        async def refresh() -> None:
            await self.client.back_off(1)
            try:
                await self.client.refresh_metadata(sorted({tp.topic for tp in self._busy}))
            except (KafkaError, ClientError):
                pass  # the next drain asks again
            self._wake()

        self._refresh = self._loop.create_task(refresh(), name=f"{self.client.client_id} producer: leaders")

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
                refused = KafkaError.of(answer.error_code, "no producer id was given")
                if not refused.retriable:
                    raise refused
                error: Exception = refused
            except ClientError as failed:
                error = failed
            if self._loop.time() > deadline:
                raise error
            await self.client.back_off(attempt)
            attempt += 1
