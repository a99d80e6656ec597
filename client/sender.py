"""The producer's sending side: full and lingered batches go to their leaders; the answers decide the outcome.

There is no sending task. `_drain` runs at most once per turn of the loop, when there may be something to send: a batch
is full or has lingered, an answer arrived, a connection was made, or a pause is over. One timer wakes it otherwise.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol

from ..protocol.errors import ErrorCode, KafkaError, ProtocolError
from ..protocol.messages import describe_producers, produce
from ..protocol.primitives import ZERO_UUID
from .accumulator import OUT_OF_TURN, Accumulator, Batch
from .cluster import BACKOFF_MAX_MS, Client
from .connection import Connection
from .errors import ClientError, ConnectionLost, DeliveryTimeout, UnsupportedVersion
from .operation import SILENT_S
from .partitioner import ProducerTopic
from .raw import IDS_FROM
from .refresher import Refresher
from .types import TopicPartition

log = logging.getLogger("isthmus.client")

REQUEST_BYTES_MAX = 4 << 20  # of batches in one request
REQUESTS_IN_FLIGHT_MAX = 5  # to one node
TIMER_SLACK_S = 0.0005  # some loops have timers with a resolution of 1 ms
LANE = "produce"
CLOSED = "the producer was closed before this was delivered"
CONCURRENT_PAUSE_S = 0.02
ASK_S = 5.0  # for a broker to answer what it has of a producer


class Gate(Protocol):
    """What the sender needs of a transaction. most_version: of Produce; None: any. may_write: whether a partition is
    part of the transaction; if not, it is added, and the sender is woken then. refused: something was not delivered;
    returns the error for its records."""

    transactional_id: str

    @property
    def most_version(self) -> int | None: ...

    def may_write(self, tp: TopicPartition) -> bool: ...

    def refused(self, error: Exception) -> Exception: ...


class Sent:
    """A request that was not answered yet."""

    __slots__ = ("at", "batches", "connection", "is_silent", "names", "node")

    def __init__(
        self,
        node: int,
        connection: Connection,
        batches: list[tuple[Accumulator, Batch]],
        names: dict[bytes, str] | None,
        at: float,
    ) -> None:
        self.node = node
        self.connection = connection
        self.batches = batches
        self.names = names  # topics by id; None where they stand in the answer
        self.at = at
        self.is_silent = False  # the answer is late


class Sender:
    """Sends what is in `active`. released: called with the bytes of each batch whose fate is known. gate: of a
    transactional producer."""

    def __init__(
        self,
        client: Client,
        topics: Mapping[str, ProducerTopic],
        released: Callable[[int], None],
        *,
        acks: int,
        linger_s: float,
        request_timeout_ms: int,
        delivery_timeout_s: float,
        gate: Gate | None = None,
    ) -> None:
        self.client = client
        self._gate = gate
        self.active: dict[TopicPartition, Accumulator] = {}  # those that are not idle
        self.acks = acks
        self.linger_s = linger_s
        self.request_timeout_ms = request_timeout_ms
        self.delivery_timeout_s = delivery_timeout_s
        self.is_drained = True  # no batch was filled since the last drain
        self._topics = topics
        self._released = released
        self._loop = asyncio.get_running_loop()
        self._sent: dict[int, dict[asyncio.Future[Any], Sent]] = {}  # node -> requests not yet answered, in order
        self._connecting: dict[int, asyncio.Task[None]] = {}
        self._asking: dict[TopicPartition, asyncio.Task[None]] = {}
        self._refresher = Refresher(client, "producer", self._is_failing, self.wake)
        self._drain_handle: asyncio.Handle | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._idle: asyncio.Future[None] | None = None  # done when nothing is active
        self._open = True

    @property
    def undelivered(self) -> int:
        """Records whose fate is not known."""
        return sum(batch.count for each in self.active.values() for batch in each.pending())

    def drop(self, error: Exception) -> None:
        """Send nothing of what is active, or send it no more; its futures get the error."""
        for each in list(self.active.values()):
            for batch in each.expired(float("inf")):
                batch.fail(error)
                self._release(each, batch)

    async def until_idle(self) -> None:
        """Wait until nothing is active, and no request is unanswered."""
        while self.active:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    async def close(self) -> None:
        """Stop sending; the futures of undelivered records get an error."""
        self._open = False
        for each in list(self.active.values()):
            for batch in each.pending():
                doubt = "it may or may not be in the log" if batch.attempts else "it is not in the log"
                batch.fail(ClientError(f"{each.where}: {CLOSED}; {doubt}"))
                self._release(each, batch)
        for handle in (self._drain_handle, self._timer):
            if handle is not None:
                handle.cancel()
        tasks = [*self._connecting.values(), *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._refresher.close()

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        return self._loop.create_task(work, name=f"{self.client.client_id} producer: {name}")

    # --- Sending-------------------------------------------------------------------------------------

    def wake(self) -> None:
        """Drain on the next turn of the loop."""
        if self._drain_handle is None and self._open:
            self._drain_handle = self._loop.call_soon(self._drain)

    def wake_at(self, when: float) -> None:
        if self._open and (self._timer is None or when < self._timer_at):
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(when, self._timer_fired)
            self._timer_at = when

    def _timer_fired(self) -> None:
        self._timer = None
        self.wake()

    def _drain(self) -> None:
        """Send what can be sent now; set the timer for what can be sent later."""
        self._drain_handle = None
        self.is_drained = True
        if not self._open:
            return
        now = self._loop.time()
        self._look_at_silent(now)
        by_node: dict[int, list[Accumulator]] = {}
        leaderless: list[TopicPartition] = []
        for each in list(self.active.values()):
            if each.first_deadline() <= now:
                self._expire(each, now)
            self._seal_due(each, now)
            if each.retry_at > now:
                each.led_by(self._leader(each))
            if each.sendable(now):
                node = self._leader(each)
                if node is None:
                    leaderless.append(each.tp)
                elif self._gate is None or self._gate.may_write(each.tp):
                    by_node.setdefault(node, []).append(each)
        for node, accumulators in by_node.items():
            self._drain_to(node, accumulators, now)
        if leaderless:
            self._refresher.need(leaderless)
        next_at = min((self._next_at(each, now) for each in self.active.values()), default=float("inf"))
        late_at = min((sent.at + SILENT_S for sent in self._first_sent() if not sent.is_silent), default=float("inf"))
        if (next_at := min(next_at, late_at)) < float("inf"):
            self.wake_at(max(next_at, now + 0.001))

    def _first_sent(self) -> Iterator[Sent]:
        """The requests that are answered next."""
        return (next(iter(sent.values())) for sent in self._sent.values() if sent)

    def _look_at_silent(self, now: float) -> None:
        """Where an answer is late, the metadata tells whether another node leads a partition by now. Then nothing is
        waited for any more: the connection is closed, and all its batches are sent again."""
        for sent in list(self._first_sent()):
            if now - sent.at < SILENT_S:
                continue
            if not sent.is_silent:
                sent.is_silent = True
                for each, _ in sent.batches:
                    each.failures += 1
                self._refresher.need(each.tp for each, _ in sent.batches)
            moved = [each.where for each, _ in sent.batches if self.client.leader(each.tp) not in (None, sent.node)]
            if moved:
                what = f"{sent.connection.address} did not answer Produce for {now - sent.at:.1f} s"
                sent.connection.close(ConnectionLost(f"{what}, and another node leads {moved[0]} now"))

    def _seal_due(self, each: Accumulator, now: float) -> None:
        """A lingered batch may be sent, but takes records as long as it cannot be sent anyway."""
        batch = each.open
        if batch is None or each.ready or len(each.in_flight) >= each.in_flight_max:
            return
        if batch.created_at + self.linger_s <= now + TIMER_SLACK_S:
            each.seal()
            self._topics[each.tp.topic].sticky = None

    def _next_at(self, each: Accumulator, now: float) -> float:
        """When time alone changes something for a partition. Answers and connections wake the sender themselves."""
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
        """Requests of at most REQUEST_BYTES_MAX, each with one batch per partition."""
        connection = self.client.open_connection(node, LANE)
        if connection is None or not connection.is_writable:
            if node not in self._connecting:
                self._connecting[node] = self._task(self._connect(node), f"connect {node}")
            return
        while len(self._sent.get(node, ())) < REQUESTS_IN_FLIGHT_MAX:
            batches: list[tuple[Accumulator, Batch]] = []
            size = 0
            for each in accumulators:
                self._seal_due(each, now)
                if each.sendable(now) and size < REQUEST_BYTES_MAX:
                    batch = each.take()
                    assert batch.data is not None
                    size += len(batch.data)
                    batches.append((each, batch))
                    self.active[each.tp] = self.active.pop(each.tp)  # the next request begins with others
            if not batches:
                return
            if not self._send_request(node, connection, batches):
                return

    async def _connect(self, node: int) -> None:
        try:
            connection = await self.client.connection(node, LANE)
            await connection.writable()
        except (ClientError, KafkaError, OSError):
            led = [each for each in self.active.values() if self.client.leader(each.tp) == node]
            for each in led:
                self._back_off(each)
            self._refresher.need(each.tp for each in led)
        finally:
            self._connecting.pop(node, None)
            self.wake()

    def _send_request(self, node: int, connection: Connection, batches: list[tuple[Accumulator, Batch]]) -> bool:
        """False if the connection takes no more."""
        topics: dict[str, Any] = {}
        for each, batch in batches:
            topic = topics.get(each.tp.topic)
            if topic is None:
                topic_id = self.client.topic_id(each.tp.topic) or ZERO_UUID
                topic = topics[each.tp.topic] = produce.TopicProduceData(name=each.tp.topic, topic_id=topic_id)
            topic.partition_data.append(produce.PartitionProduceData(index=each.tp.partition, records=batch.data))
        request = produce.Request(acks=self.acks, timeout_ms=self.request_timeout_ms, topic_data=list(topics.values()))
        most_version = None
        if self._gate is not None:
            request.transactional_id, most_version = self._gate.transactional_id, self._gate.most_version
        if most_version is None and any(topic.topic_id == ZERO_UUID for topic in topics.values()):
            most_version = IDS_FROM - 1
        try:
            version = connection.version_of(produce.API, most_version)
            if self.acks == 0:
                connection.post(produce.API, request, version)
                for each, batch in batches:
                    each.acked(batch, -1)
                    batch.succeed(each.tp, -1, -1)
                    self._release(each, batch)
                return True
            future = connection.send(produce.API, request, self.request_timeout_ms, version)
        except (ClientError, ProtocolError) as error:  # the broker is too old, or the connection was just lost
            for each, batch in batches:
                self._try_again(each, batch, error)
            return False
        names = {topic.topic_id: name for name, topic in topics.items()} if version >= IDS_FROM else None
        self._sent.setdefault(node, {})[future] = Sent(node, connection, batches, names, self._loop.time())
        future.add_done_callback(lambda done: self._answered(done, node))
        return True

    # --- Answers ------------------------------------------------------------------------------------

    def _answered(self, done: asyncio.Future[Any], node: int) -> None:
        sent = self._sent[node].pop(done)
        batches, names = sent.batches, sent.names
        if done.cancelled():
            return
        problem = done.exception()  # always retrieved, or the loop logs that it never was
        if not self._open:
            return
        self.wake()
        if problem is not None:
            for each, batch in batches:
                self._try_again(each, batch, problem)
            self._refresher.need(each.tp for each, _ in batches if each.tp in self.active)
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
                self.client.learn_leader(each.tp, answer.current_leader, done.result().node_endpoints)
                self._refused(each, batch, answer, node)

    def _succeeded(self, each: Accumulator, batch: Batch, answer: Any) -> None:
        base_offset = answer.base_offset if not answer.error_code else -1  # unknown for a duplicate
        error = each.acked(batch, base_offset)
        if batch.done:
            self._settle(each)
        elif error is None:
            batch.succeed(each.tp, base_offset, answer.log_append_time_ms)
            self._release(each, batch)
        else:
            self._give_up(each, batch, error)

    def _refused(self, each: Accumulator, batch: Batch, answer: Any, node: int) -> None:
        error = each.refused(batch, answer.error_code, answer.error_message, answer.log_start_offset)
        if batch.done:
            self._settle(each)
        elif error is not None:
            self._give_up(each, batch, error)
        elif answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # markers of the last one are being written
            pause_s = min(CONCURRENT_PAUSE_S * 2.0 ** min(each.failures, 10), BACKOFF_MAX_MS / 1000)
            each.hold(self._loop.time() + pause_s, self.client.leader(each.tp))
            each.failures += 1
        elif answer.error_code not in OUT_OF_TURN:
            if self.client.leader(each.tp) in (None, node):  # otherwise the answer has told who leads it now
                self._back_off(each)
                self._refresher.need([each.tp])
        elif batch.epoch == each.epoch:  # otherwise it is sent at once with new numbers
            each.hold(self._retry_at(0), self.client.leader(each.tp))
        if each.asking and each.tp not in self._asking:
            self._asking[each.tp] = self._task(self._ask(each, answer.log_start_offset), f"ask about {each.where}")

    async def _ask(self, each: Accumulator, log_start_offset: int) -> None:
        """Ask the leader what it has of this producer's records (DescribeProducers, KIP-664)."""
        try:
            async with asyncio.timeout(ASK_S):
                last_sequence = await self._last_sequence(each)
            in_log, error = each.remembered(last_sequence, log_start_offset)
            if in_log:
                count = sum(batch.count for batch in in_log)
                log.warning("%s: %d records have no offset: the broker has them, but not where", each.where, count)
            for batch in in_log:
                batch.succeed(each.tp, -1, -1)
                self._release(each, batch)
            if error is not None:
                self._give_up(each, each.ready.popleft(), error)
        except (ClientError, KafkaError, ProtocolError, OSError):
            # The batch is sent again; if it is refused again, the question is repeated.
            self._back_off(each)
            self._refresher.need([each.tp])
        finally:
            each.asking = False
            self._asking.pop(each.tp, None)
            self.wake()

    async def _last_sequence(self, each: Accumulator) -> int | None:
        """The leader's last sequence of this producer's epoch; -1: none; None: it cannot say, or must not."""
        topic = describe_producers.TopicRequest(name=each.tp.topic, partition_indexes=[each.tp.partition])
        request = describe_producers.Request(topics=[topic])
        try:
            answer = await self.client.request(request, await self.client.leader_of(each.tp), self.request_timeout_ms)
        except UnsupportedVersion:
            return None  # Kafka before 2.8
        found = next((one for topic in answer.topics for one in topic.partitions), None)
        if found is None:
            raise ClientError(f"the broker left {each.where} out of its answer")
        if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None  # the right to read the topic is missing
        if found.error_code:
            raise KafkaError.of(found.error_code, f"{each.where}: its producers")
        return next(
            (
                state.last_sequence
                for state in found.active_producers
                if (state.producer_id, state.producer_epoch) == (each.producer_id, each.epoch)
            ),
            -1,
        )

    def _try_again(self, each: Accumulator, batch: Batch, problem: BaseException) -> None:
        each.unanswered(batch)
        if batch.done:
            self._settle(each)
        elif each.error is not None:
            self._give_up(each, batch, each.error)
        else:
            self._back_off(each)

    def _back_off(self, each: Accumulator) -> None:
        each.hold(self._retry_at(each.failures), self.client.leader(each.tp))
        each.failures += 1

    def _retry_at(self, failures: int) -> float:
        return self._loop.time() + self.client.back_off_ms(failures) / 1000

    def _is_failing(self, tp: TopicPartition) -> bool | None:
        each = self.active.get(tp)
        return None if each is None else each.failures > 0

    def _give_up(self, each: Accumulator, batch: Batch, error: Exception) -> None:
        """Resolve the futures of a batch with an error; if nothing more may be written, of all later ones too."""
        batch.fail(error if self._gate is None else self._gate.refused(error))
        self._release(each, batch)
        if each.error is not None:
            each.seal()
            while each.ready:
                behind = each.ready.popleft()
                behind.fail(each.error)
                self._release(each, behind)

    def _expire(self, each: Accumulator, now: float) -> None:
        for batch in each.expired(now):
            why = self.client.why_no_leader(each.tp)
            error = DeliveryTimeout(
                f"{each.where}: not delivered within {self.delivery_timeout_s:.0f} s: "
                f"{why.message if why else each.refusal or 'does its broker run?'} "
                + ("It may or may not be in the log" if batch.attempts else "It is not in the log")
            )
            batch.fail(error if self._gate is None else self._gate.refused(error))
            self._release(each, batch)

    def _release(self, each: Accumulator, batch: Batch) -> None:
        self._released(batch.size_bytes)
        self._settle(each)

    def _settle(self, each: Accumulator) -> None:
        if each.idle:
            self.active.pop(each.tp, None)
            if self._idle is not None and not self.active:
                self._idle.set_result(None)
                self._idle = None
