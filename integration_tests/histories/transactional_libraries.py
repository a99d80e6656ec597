"""Transactional producers of librdkafka and of our client, and the readers and writers of all libraries by name."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from typing import Any

import confluent_kafka

from integration_tests.histories import libraries
from integration_tests.histories.history import READ_COMMITTED
from integration_tests.histories.java_library import Java, JavaReader, JavaWriter
from integration_tests.histories.libraries import POLL_S, REQUEST_S, Copier
from integration_tests.histories.transactional import ANSWER_S, DELIVERY_S, TIMEOUT_S, Doomed, Later, Over
from integration_tests.histories.transactional import TransactionalWriter as Writer
from isthmus.client import Client, Producer, TopicPartition
from isthmus.client.errors import ClientError, OperationTimeout, ProducerFailed, ProducerFenced, TransactionAborted
from isthmus.protocol.errors import KafkaError

# A call of librdkafka is given up that takes no notice of its timeout, as send_offsets_to_transaction does when the
# group's coordinator goes out of the metadata (its issues 5456 and 5511): it waits until another node comes or goes.
HANGS_S = 3 * ANSWER_S
FENCED = (confluent_kafka.KafkaError._FENCED, confluent_kafka.KafkaError.PRODUCER_FENCED)


class LibrdkafkaWriter:
    def __init__(self, bootstrap: str, name: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": int(TIMEOUT_S * 1000),
                "message.timeout.ms": int(DELIVERY_S * 1000),
                "linger.ms": 5,
                "request.timeout.ms": int(REQUEST_S * 1000),
                "socket.timeout.ms": int(REQUEST_S * 1000),
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._polls: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._polls = asyncio.create_task(self._poll())
        await self._step(self._producer.init_transactions, ANSWER_S)

    async def _poll(self) -> None:
        while True:
            self._producer.poll(0)
            await asyncio.sleep(POLL_S / 2)

    async def begin(self) -> None:
        await self._step(self._producer.begin_transaction)

    async def send(self, topic: str, partition: int, value: str) -> asyncio.Future[int]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()

        def settle(error: Any, offset: int | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(confluent_kafka.KafkaException(error))
            else:
                future.set_result(-1 if offset is None else offset)

        def told(error: Any, message: Any) -> None:  # also in the thread that commits
            loop.call_soon_threadsafe(settle, error, message.offset())

        try:
            self._producer.produce(topic, value.encode(), partition=partition, on_delivery=told)
        except confluent_kafka.KafkaException as error:
            raise _kind(error) from None
        return future

    async def offsets(self, topic: str, positions: Mapping[int, int], group: Any) -> None:
        places = [confluent_kafka.TopicPartition(topic, each, at) for each, at in positions.items()]
        await self._step(self._producer.send_offsets_to_transaction, places, group, ANSWER_S)

    async def commit(self) -> None:
        await self._step(self._producer.commit_transaction, ANSWER_S)

    async def abort(self) -> None:
        await self._step(self._producer.abort_transaction, ANSWER_S)

    async def _step(self, step: Callable[..., None], *arguments: Any) -> None:
        try:
            async with asyncio.timeout(HANGS_S):
                await _in_thread(step, *arguments)
        except confluent_kafka.KafkaException as error:
            raise _kind(error) from None
        except TimeoutError:
            raise Over(f"{step.__name__} has not returned after {HANGS_S:g} s", fenced=False) from None

    async def close(self) -> None:
        if self._polls:
            self._polls.cancel()
        self._producer.purge()
        self._producer.poll(0)


def _in_thread(step: Callable[..., None], *arguments: Any) -> asyncio.Future[None]:
    """In a thread of its own, for which neither the loop nor the process waits."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()

    def settle(error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            step(*arguments)
        except Exception as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(settle, error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _kind(error: confluent_kafka.KafkaException) -> Doomed | Later | Over:
    of = error.args[0]
    text = f"{of.name()}: {of.str()}"
    if of.txn_requires_abort():
        return Doomed(text)
    if of.retriable():
        return Later(text)
    return Over(text, of.code() in FENCED)


class IsthmusWriter:
    def __init__(self, bootstrap: str, name: str, transactional_id: str) -> None:
        self._client = Client(bootstrap, name)
        self._id = transactional_id
        self._made: Producer | None = None

    @property
    def _producer(self) -> Producer:
        assert self._made
        return self._made

    async def start(self) -> None:
        await self._client.start()
        self._made = Producer(
            self._client,
            transactional_id=self._id,
            transaction_timeout_ms=int(TIMEOUT_S * 1000),
            request_timeout_ms=int(REQUEST_S * 1000),
            delivery_timeout_ms=DELIVERY_S * 1000,
            max_block_ms=ANSWER_S * 1000,
        )
        await self._step(self._made.start())

    async def begin(self) -> None:
        await self._step(self._producer.begin_transaction())

    async def send(self, topic: str, partition: int, value: str) -> asyncio.Future[int]:
        try:
            sent = self._producer.send(topic, value.encode(), partition=partition)
        except (ClientError, KafkaError) as error:
            raise _kind_of_ours(error) from None

        async def offset() -> int:
            return (await sent).offset

        return asyncio.ensure_future(offset())

    async def offsets(self, topic: str, positions: Mapping[int, int], group: Any) -> None:
        places = {TopicPartition(topic, each): at for each, at in positions.items()}
        await self._step(self._producer.send_offsets(places, group))

    async def commit(self) -> None:
        await self._step(self._producer.commit_transaction())

    async def abort(self) -> None:
        await self._step(self._producer.abort_transaction())

    async def _step(self, step: Any) -> None:
        try:
            await step
        except (ClientError, KafkaError) as error:
            raise _kind_of_ours(error) from None

    async def close(self) -> None:
        """With the client gone, the producer cannot end its transaction."""
        await self._client.close()
        if self._made:
            await self._made.close(0)


def _kind_of_ours(error: Exception) -> Doomed | Later | Over:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, TransactionAborted):
        return Doomed(text)
    if isinstance(error, OperationTimeout):
        return Later(text)
    assert isinstance(error, ProducerFenced | ProducerFailed | ClientError | KafkaError)
    return Over(text, isinstance(error, ProducerFenced))


class Libraries:
    """Makes readers and writers of one cluster, by the library's name."""

    def __init__(self, java: Java) -> None:
        self._java = java

    def writer(self, library: str, bootstrap: str, name: str, transactional_id: str) -> Writer:
        if library == "java":
            return JavaWriter(self._java, bootstrap, name, transactional_id)
        made: dict[str, Callable[..., Writer]] = {"librdkafka": LibrdkafkaWriter, "isthmus": IsthmusWriter}
        return made[library](bootstrap, name, transactional_id)

    def reader(
        self,
        library: str,
        bootstrap: str,
        topic: str,
        name: str,
        group: str = "",
        rack: str = "",
        isolation: str = READ_COMMITTED,
    ) -> Copier:
        if library == "java":
            return JavaReader(self._java, bootstrap, topic, name, group, rack, isolation)
        made: dict[str, Callable[..., Copier]] = {
            "librdkafka": libraries.LibrdkafkaReader,
            "isthmus": libraries.IsthmusReader,
        }
        return made[library](bootstrap, topic, name, group, rack, isolation)
