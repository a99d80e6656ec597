"""Three client libraries behind the same two interfaces, on one event loop: a Writer that sends to given partitions
with acks=all, idempotently, and a Reader, which may be a member of a group.

Timeouts are short where a library has them long: a paused broker is left after REQUEST_S. Nothing is given up within
a history but what the library itself gives up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka
from aiokafka.abc import ConsumerRebalanceListener

from integration_tests.histories.history import READ_UNCOMMITTED
from isthmus.client import Client, Consumer, Producer, TopicPartition

REQUEST_S = 2.0
DELIVERY_S = 120.0
SESSION_S = 6.0
POLL_S = 0.02
NAMES = ("librdkafka", "aiokafka", "isthmus")

Records = dict[int, list[tuple[int, str]]]  # by partition: offset, value


class NotSent(Exception):
    """The library took the record for certain not: its buffer is full."""


class Writer(Protocol):
    async def start(self) -> None: ...

    async def send(self, partition: int, value: str) -> asyncio.Future[int]:
        """A future of its offset; -1: the library does not know it. Raises NotSent."""

    async def close(self) -> None:
        """Give up what is not acknowledged yet."""


class Reader(Protocol):
    """span counts assignments and seeks: reading goes on from where it was only within one."""

    span: int

    async def start(self) -> None: ...

    async def subscribe(self) -> None:
        """Become a member of the group."""

    async def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions from these offsets."""

    async def poll(self) -> Records:
        """What has come, or comes within a moment."""

    async def commit(self, positions: Mapping[int, int]) -> None: ...

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        """The group's offsets; -1: none."""

    async def close(self) -> None: ...


class Copier(Reader, Protocol):
    """A reader whose group's offsets a transactional producer of the same library commits."""

    async def rewind(self, positions: Mapping[int, int]) -> None:
        """Go back within the present assignment. Raises if a partition is not assigned any more."""

    async def metadata(self) -> Any:
        """The member as its library's producer wants it."""


# --- librdkafka -------------------------------------------------------------------------------------------------------


class LibrdkafkaWriter:
    """One request is in flight: when the first of several is refused, it takes a new producer epoch after the answer to
    the second, and sends again under it what other partitions may have already (confluentinc/librdkafka issue 4953)."""

    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 5,
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "request.timeout.ms": int(REQUEST_S * 1000),
                "socket.timeout.ms": int(REQUEST_S * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._polls: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._polls = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(POLL_S / 2)

    async def send(self, partition: int, value: str) -> asyncio.Future[int]:
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def told(error: Any, message: Any) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(confluent_kafka.KafkaException(error))
            else:
                offset = message.offset()
                future.set_result(-1 if offset is None else offset)

        try:
            self._producer.produce(self._topic, value.encode(), partition=partition, on_delivery=told)
        except BufferError as error:
            raise NotSent(str(error)) from None
        return future

    async def close(self) -> None:
        assert self._polls
        self._polls.cancel()
        self._producer.purge()
        self._producer.poll(0)


class LibrdkafkaReader:
    def __init__(self, bootstrap: str, topic: str, name: str, group: str, rack: str, isolation: str) -> None:
        self._topic = topic
        self.span = 0
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": group or "none",
                "client.rack": rack,
                "isolation.level": isolation,
                "partition.assignment.strategy": "range",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "session.timeout.ms": int(SESSION_S * 1000),
                "heartbeat.interval.ms": 500,
                "socket.timeout.ms": int(REQUEST_S * 1000),
                "reconnect.backoff.max.ms": 500,
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    async def start(self) -> None:
        pass

    async def subscribe(self) -> None:
        self._consumer.subscribe([self._topic], on_assign=self._next, on_revoke=self._next, on_lost=self._next)

    def _next(self, *_: object) -> None:
        self.span += 1

    def _places(self, positions: Mapping[int, int]) -> list[Any]:
        return [confluent_kafka.TopicPartition(self._topic, each, at) for each, at in positions.items()]

    async def assign(self, positions: Mapping[int, int]) -> None:
        self.span += 1
        self._consumer.assign(self._places(positions))

    async def poll(self) -> Records:
        found: Records = {}
        messages: list[Any] = self._consumer.consume(500, timeout=0)
        if not messages:
            await asyncio.sleep(POLL_S)
        for each in messages:
            if each.error() is not None:
                raise confluent_kafka.KafkaException(each.error())
            found.setdefault(each.partition(), []).append((each.offset(), each.value().decode()))
        return found

    async def commit(self, positions: Mapping[int, int]) -> None:
        places = self._places(positions)
        for each in await asyncio.to_thread(self._consumer.commit, offsets=places, asynchronous=False) or []:
            if each.error is not None:
                raise confluent_kafka.KafkaException(each.error)

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        places = self._places(dict.fromkeys(partitions, -1001))
        told = await asyncio.to_thread(self._consumer.committed, places, REQUEST_S)
        for each in told:
            if each.error is not None:
                raise confluent_kafka.KafkaException(each.error)
        return {each.partition: max(each.offset, -1) for each in told}

    async def rewind(self, positions: Mapping[int, int]) -> None:
        self.span += 1
        for place in self._places(positions):
            self._consumer.seek(place)

    async def metadata(self) -> Any:
        return await asyncio.to_thread(self._consumer.consumer_group_metadata)

    async def close(self) -> None:
        await asyncio.to_thread(self._consumer.close)


# --- aiokafka ---------------------------------------------------------------------------------------------------------


class AiokafkaWriter:
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self._producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            client_id=name,
            enable_idempotence=True,
            linger_ms=5,
            request_timeout_ms=int(REQUEST_S * 1000),
            metadata_max_age_ms=2000,
        )

    async def start(self) -> None:
        await self._producer.start()

    async def send(self, partition: int, value: str) -> asyncio.Future[int]:
        sent = await self._producer.send(self._topic, value.encode(), partition=partition)

        async def offset() -> int:
            told = await sent
            return -1 if told is None else told.offset

        return asyncio.ensure_future(offset())

    async def close(self) -> None:
        stopping = asyncio.ensure_future(self._producer.stop())
        await asyncio.wait([stopping], timeout=REQUEST_S)
        stopping.cancel()


class AiokafkaReader(ConsumerRebalanceListener):
    def __init__(self, bootstrap: str, topic: str, name: str, group: str, rack: str, isolation: str) -> None:
        self._topic = topic
        self.span = 0
        self._consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            client_id=name,
            group_id=group or None,
            isolation_level=isolation,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=500,
            request_timeout_ms=int(REQUEST_S * 1000),
            metadata_max_age_ms=2000,
            fetch_max_wait_ms=100,
        )

    async def start(self) -> None:
        await self._consumer.start()

    async def subscribe(self) -> None:
        self._consumer.subscribe([self._topic], listener=self)

    def on_partitions_assigned(self, assigned: object) -> None:
        self.span += 1

    def on_partitions_revoked(self, revoked: object) -> None:
        self.span += 1

    def _place(self, partition: int) -> aiokafka.TopicPartition:
        return aiokafka.TopicPartition(self._topic, partition)

    async def assign(self, positions: Mapping[int, int]) -> None:
        self.span += 1
        self._consumer.assign([self._place(each) for each in positions])
        for partition, offset in positions.items():
            self._consumer.seek(self._place(partition), offset)

    async def poll(self) -> Records:
        came = await self._consumer.getmany(timeout_ms=int(POLL_S * 1000))
        return {tp.partition: [(each.offset, each.value.decode()) for each in records] for tp, records in came.items()}

    async def commit(self, positions: Mapping[int, int]) -> None:
        await self._consumer.commit({self._place(each): at for each, at in positions.items()})

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        found = {}
        for each in partitions:
            told = await self._consumer.committed(self._place(each))
            found[each] = -1 if told is None else told
        return found

    async def close(self) -> None:
        await self._consumer.stop()


# --- isthmus.client ---------------------------------------------------------------------------------------------------


class IsthmusWriter:
    def __init__(self, bootstrap: str, topic: str, name: str) -> None:
        self._topic = topic
        self._client = Client(bootstrap, name)
        self._producer: Producer | None = None

    async def start(self) -> None:
        await self._client.start()
        timeouts: dict[str, Any] = {
            "request_timeout_ms": int(REQUEST_S * 1000),
            "delivery_timeout_ms": int(DELIVERY_S * 1000),
        }
        self._producer = Producer(self._client, **timeouts)
        await self._producer.start()

    async def send(self, partition: int, value: str) -> asyncio.Future[int]:
        assert self._producer
        if not self._producer.has_space:
            raise NotSent("the buffer is full")
        sent = self._producer.send(self._topic, value.encode(), partition=partition)

        async def offset() -> int:
            return (await sent).offset

        return asyncio.ensure_future(offset())

    async def close(self) -> None:
        assert self._producer
        await self._producer.close(1)
        await self._client.close()


class IsthmusReader:
    def __init__(self, bootstrap: str, topic: str, name: str, group: str, rack: str, isolation: str) -> None:
        self._topic = topic
        self._group = group
        self._rack = rack
        self._isolation = isolation
        self.span = 0
        self._client = Client(bootstrap, name)
        self._made: Consumer | None = None

    @property
    def _consumer(self) -> Consumer:
        assert self._made
        return self._made

    async def start(self) -> None:
        await self._client.start()
        self._made = Consumer(
            self._client,
            self._group or None,
            session_timeout_ms=int(SESSION_S * 1000),
            heartbeat_interval_ms=500,
            client_rack=self._rack,
            isolation=self._isolation,
        )

    async def subscribe(self) -> None:
        await self._consumer.subscribe([self._topic], on_assigned=self._next, on_revoked=self._next, on_lost=self._next)

    def _next(self, _: object) -> None:
        self.span += 1

    async def assign(self, positions: Mapping[int, int]) -> None:
        self.span += 1
        self._consumer.assign({TopicPartition(self._topic, each): at for each, at in positions.items()})

    async def poll(self) -> Records:
        came = await self._consumer.poll(POLL_S * 1000)
        found: Records = {}
        for tp, records in came.items():
            found[tp.partition] = [(each.offset, (each.value or b"").decode()) for each in records]
        return found

    async def commit(self, positions: Mapping[int, int]) -> None:
        places = {TopicPartition(self._topic, each): at for each, at in positions.items()}
        await self._consumer.commit(places, REQUEST_S * 1000)

    async def committed(self, partitions: Sequence[int]) -> dict[int, int]:
        places = [TopicPartition(self._topic, each) for each in partitions]
        found = await self._consumer.committed(places, REQUEST_S * 1000)
        return {tp.partition: found.get(tp, -1) for tp in places}

    async def rewind(self, positions: Mapping[int, int]) -> None:
        self.span += 1
        for partition, offset in positions.items():
            self._consumer.seek(TopicPartition(self._topic, partition), offset)

    async def metadata(self) -> Any:
        return self._consumer.group_metadata()

    async def close(self) -> None:
        await self._consumer.close()
        await self._client.close()


def writer(library: str, bootstrap: str, topic: str, name: str) -> Writer:
    made: dict[str, Callable[..., Writer]] = {
        "librdkafka": LibrdkafkaWriter,
        "aiokafka": AiokafkaWriter,
        "isthmus": IsthmusWriter,
    }
    return made[library](bootstrap, topic, name)


def reader(
    library: str,
    bootstrap: str,
    topic: str,
    name: str,
    group: str = "",
    rack: str = "",
    isolation: str = READ_UNCOMMITTED,
) -> Reader:
    """rack: reads from the replica there. aiokafka has no such option, and reads from leaders."""
    made: dict[str, Callable[..., Reader]] = {
        "librdkafka": LibrdkafkaReader,
        "aiokafka": AiokafkaReader,
        "isthmus": IsthmusReader,
    }
    return made[library](bootstrap, topic, name, group, rack, isolation)
