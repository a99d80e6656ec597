"""A producer of a few lines that speaks Kafka's protocol by itself, so that a broker can be tested without our client.

It keeps KIP-98's rules: sequences, at most five batches in flight, every batch sent again, unchanged, until it is
answered. Answers are matched by order, and an answer out of order is an AssertionError.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import Any, Protocol

from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import create_topics, init_producer_id, produce
from isthmus.protocol.records import build_batch

from .hosts import Machine, Process
from .runner import Simulation
from .workload import Sent, Workload

VERSIONS = {
    0: 9, 1: 11, 2: 5, 3: 8, 8: 8, 9: 7, 10: 3, 11: 5, 12: 3, 13: 3, 14: 3, 15: 5, 16: 3, 19: 5, 20: 3, 21: 1, 22: 4,
    37: 3, 42: 1, 43: 2, 45: 1, 46: 0, 55: 2, 57: 2, 64: 0, 69: 1, 80: 1, 81: 0, 30000: 0,
}  # fmt: skip
MAX_IN_FLIGHT = 5
RESTS = 0.15  # of the pauses
ANSWER_TIMEOUT_S = 8.0
FATAL = {
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_RECORD,
    ErrorCode.CORRUPT_MESSAGE,
}


class Wire(asyncio.Protocol):
    """One connection with pipelined requests."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._waiting: deque[tuple[int, Any, int, asyncio.Future[Any]]] = deque()
        self._correlation = 0
        self.lost = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def request(self, api: Any, message: Any, version: int = -1) -> asyncio.Future[Any]:
        """Send now; the answer later. ConnectionError when the connection ends before."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.lost:
            future.set_exception(ConnectionResetError("lost"))
            future.exception()
            return future
        version = VERSIONS[api.key] if version < 0 else version
        self._correlation += 1
        header = RequestHeader(api.key, version, self._correlation, "wire")
        frame = b"".join(bytes(part) for part in frame_request(header, api.encode_request(message, version)))
        self._waiting.append((self._correlation, api, version, future))
        self.transport.write(frame)
        return future

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= 4:
            size = int.from_bytes(self._buffer[:4], "big")
            if len(self._buffer) < 4 + size:
                return
            frame = bytes(self._buffer[4 : 4 + size])
            del self._buffer[: 4 + size]
            expected, api, version, future = self._waiting.popleft()
            correlation, position = decode_response_header(frame, api.response_header_version(version))
            assert correlation == expected, f"answer {correlation} where {expected} was due"
            if not future.done():
                future.set_result(api.decode_response(frame, position, version))

    def connection_lost(self, exc: BaseException | None) -> None:
        self.lost = True
        for _, _, _, future in self._waiting:
            if not future.done():
                future.set_exception(ConnectionResetError(f"lost: {exc!r}"))
                future.exception()
        self._waiting.clear()


async def connect(address: str) -> Wire:
    host, port = address.split(":")
    _, wire = await asyncio.get_running_loop().create_connection(Wire, host, int(port))
    return wire


class Target(Protocol):
    """Where a producer's partition is led, if that may change."""

    async def address(self) -> str: ...


class Fixed:
    """A broker that is the only one."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def address(self) -> str:
        return self._address


async def ask(address: str, api: Any, message: Any, pause_s: float = 0.3, attempts: int = 0) -> Any:
    """One request, again on a new connection until there is an answer. attempts: None after so many without; 0: no
    bound."""
    for _ in range(attempts) if attempts else itertools.count():
        try:
            wire = await connect(address)
        except OSError:
            await asyncio.sleep(pause_s)
            continue
        try:
            return await asyncio.wait_for(wire.request(api, message), ANSWER_TIMEOUT_S)
        except (OSError, TimeoutError):
            await asyncio.sleep(pause_s)
        finally:
            wire.transport.abort()
    return None


async def make_topic(address: str, name: str, partitions: int) -> None:
    topic = create_topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    while True:
        answer = await ask(address, create_topics.API, create_topics.Request(topics=[topic], timeout_ms=5000))
        code = answer.topics[0].error_code
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            return
        await asyncio.sleep(0.3)


async def produce_by_wire(
    sim: Simulation,
    machine: Machine,
    workload: Workload,
    target: str | Target,
    *,
    count: int,
    partition: int,
    pause_s: float,
    rest_s: float = 0.0,
) -> None:
    """Send `count` values to one partition, or until that is enough, and wait for what becomes of each.

    pause_s: about what is between two batches. rest_s: a longer pause now and then, at most.
    """
    process = machine.process
    assert process is not None
    number = 0
    while number < count and not workload.is_enough:
        workload.lives += 1
        found = Fixed(target) if isinstance(target, str) else target
        sender = _Sender(sim, process, workload, found, partition, pause_s, rest_s)
        number = await sender.run(number, count)
    workload.done = True
    sim.counters["acked"] += len(workload.acked)
    sim.counters["failed"] += len(workload.failed)


class _Batch:
    def __init__(self, data: bytes, sent: list[Sent]) -> None:
        self.data = data
        self.sent = sent


class _Sender:
    """One producer id's life: to its first error, or to the end."""

    def __init__(
        self,
        sim: Simulation,
        process: Process,
        workload: Workload,
        target: Target,
        partition: int,
        pause_s: float,
        rest_s: float,
    ) -> None:
        self.sim = sim
        self.random = process.runtime.random
        self.workload = workload
        self.target = target
        self.partition = partition
        self.pause_s = pause_s
        self.rest_s = rest_s
        self.unanswered: deque[_Batch] = deque()
        self.sequence = 0
        self.last_offset = -1
        self.failure: KafkaError | None = None

    async def run(self, number: int, count: int) -> int:
        """Send from `number` on; the number after the last that was tried."""
        message = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=60000)
        while True:
            answer = await ask(await self.target.address(), init_producer_id.API, message, attempts=1)
            if answer is not None and not answer.error_code:
                break
            await asyncio.sleep(0.3)
        self.producer = (answer.producer_id, answer.producer_epoch)
        while self.failure is None and (self._has_more(number, count) or self.unanswered):
            try:
                wire = await connect(await self.target.address())
            except OSError:
                await asyncio.sleep(self.random.uniform(0.05, 0.5))
                continue
            number = await self._converse(wire, number, count)
            wire.transport.abort()
        for batch in self.unanswered:
            for sent in batch.sent:
                sent.error, sent.failed_s = self.failure, self.sim.loop.time()
        return number

    def _has_more(self, number: int, count: int) -> bool:
        return number < count and not self.workload.is_enough

    async def _converse(self, wire: Wire, number: int, count: int) -> int:
        """Until the connection or the producer fails, or all is answered."""
        answers: deque[asyncio.Future[Any]] = deque(self._send(wire, batch) for batch in self.unanswered)
        try:
            while self.failure is None and (self._has_more(number, count) or answers):
                has_more = self._has_more(number, count)
                while has_more and len(answers) < MAX_IN_FLIGHT and self.random.random() < 0.7:
                    number, batch = self._make(number, count)
                    self.unanswered.append(batch)
                    answers.append(self._send(wire, batch))
                    has_more = number < count
                if answers and (len(answers) == MAX_IN_FLIGHT or not has_more or self.random.random() < 0.5):
                    response = await asyncio.wait_for(answers.popleft(), ANSWER_TIMEOUT_S)
                    if not self._answered(response.responses[0].partition_responses[0]):
                        return number
                elif self.rest_s and self.random.random() < RESTS:
                    await asyncio.sleep(self.random.uniform(0.0, self.rest_s))
                else:
                    await asyncio.sleep(self.random.uniform(0.0, 2 * self.pause_s))
        except (ConnectionError, TimeoutError):
            self.sim.counters["resends"] += len(self.unanswered)
        return number

    def _make(self, number: int, count: int) -> tuple[int, _Batch]:
        sent = []
        now = self.sim.loop.time()
        for _ in range(min(self.random.randint(1, 5), count - number)):
            padding = b"." * self.random.choice((0, 40, 3000))
            value = f"{self.workload.name}-{number:05d}".encode() + padding
            each = Sent(value, number, self.partition, self.workload.lives, now)
            self.workload.sent[value] = each
            sent.append(each)
            number += 1
        rows = [(self.sim.wall_start_ms + each.order, None, each.value, ()) for each in sent]
        data = build_batch(
            rows,
            self.random.choice(("none", "none", "lz4")),
            producer_id=self.producer[0],
            producer_epoch=self.producer[1],
            base_sequence=self.sequence,
        )
        self.sequence += len(sent)
        return number, _Batch(data, sent)

    def _send(self, wire: Wire, batch: _Batch) -> asyncio.Future[Any]:
        data = produce.PartitionProduceData(index=self.partition, records=batch.data)
        topic = produce.TopicProduceData(name=self.workload.topic, partition_data=[data])
        return wire.request(produce.API, produce.Request(acks=-1, timeout_ms=5000, topic_data=[topic]))

    def _answered(self, answer: Any) -> bool:
        """Take the answer to the first unanswered batch; False when all from it on must be sent again."""
        code = ErrorCode(answer.error_code)
        if code in FATAL:
            self.failure = KafkaError.of(code, answer.error_message or "")
            return False
        if code:
            self.sim.counters[f"answer_{code.name}"] += 1
            return False
        batch = self.unanswered[0]
        if answer.base_offset <= self.last_offset:
            self.failure = KafkaError.of(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "the log has lost its end")
            return False
        self.unanswered.popleft()
        self.last_offset = answer.base_offset + len(batch.sent) - 1
        for index, sent in enumerate(batch.sent):
            sent.acked, sent.acked_s = (self.partition, answer.base_offset + index), self.sim.loop.time()
        return True
