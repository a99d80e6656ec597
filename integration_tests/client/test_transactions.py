"""Our transactional producer against stock Kafka and ours: what it commits, aborts and hands over, and who is fenced.

Each test runs by both protocols: an epoch for each transaction (transaction.version 2), and partitions that are added
before they are written to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.peers.peers import cluster
from isthmus.client import Admin, Client, Consumer, GroupMetadata, Producer, TopicPartition
from isthmus.client.admin import SAFE_DOWNGRADE, NewTopic
from isthmus.client.errors import ClientError, ProducerFailed, ProducerFenced, TransactionAborted
from isthmus.protocol.errors import ErrorCode, KafkaError

LIMIT_S = 60.0

Body = Callable[[Client], Awaitable[None]]


async def downgrade(bootstrap: str) -> None:
    """To transaction.version 1, as every Kafka 3 has it."""
    client = Client(bootstrap)
    await client.start()
    await Admin(client).update_features({"transaction.version": 1}, SAFE_DOWNGRADE)
    await client.close()


@pytest.fixture(scope="module")
def kafka_before_epochs() -> Iterator[str]:
    with cluster(heap="512m") as made:
        asyncio.run(downgrade(made.bootstrap))
        yield made.bootstrap


@pytest.fixture(scope="module")
def own(isthmus_broker: BrokerProcess) -> str:
    return isthmus_broker.bootstrap


@pytest.fixture(scope="module")
def own_before_epochs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("isthmus")) as broker:
        asyncio.run(downgrade(broker.bootstrap))
        yield broker.bootstrap


@pytest.fixture(params=["kafka", "kafka_before_epochs", "own", "own_before_epochs"])
def bootstrap(request: pytest.FixtureRequest) -> str:
    address: str = request.getfixturevalue(request.param)
    return address


@pytest.fixture
def run(bootstrap: str) -> Callable[[Body], None]:
    """Runs the body of a test with a client."""

    async def main(body: Body) -> None:
        async with asyncio.timeout(LIMIT_S):
            client = Client(bootstrap)
            await client.start()
            try:
                await body(client)
            finally:
                await client.close()

    return lambda body: asyncio.run(main(body))


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """A topic of three partitions for one run of one test."""
    name = f"tx-{abs(hash(request.node.nodeid))}"

    async def make() -> None:
        client = Client(bootstrap)
        await client.start()
        await Admin(client).create_topics([NewTopic(name, 3)])
        await client.wait_for_topics([name])
        await client.close()

    asyncio.run(make())
    return name


@contextlib.asynccontextmanager
async def started(client: Client, transactional_id: str, **options: Any) -> AsyncIterator[Producer]:
    producer = Producer(client, transactional_id=transactional_id, linger_ms=0, **options)
    await producer.start()
    yield producer
    await producer.close()


async def until_nothing_is_open(client: Client, topic: str) -> dict[TopicPartition, int]:
    """Until the markers of all transactions are written: the last stable offsets are the ends, which are returned."""
    admin, latest = Admin(client), {TopicPartition(topic, p): "latest" for p in range(3)}
    while (ends := await admin.list_offsets(latest)) != await admin.list_offsets(latest, isolation=1):
        await asyncio.sleep(0.05)
    return {tp: end for tp, (end, *_) in ends.items()}


async def committed(client: Client, topic: str) -> list[bytes]:
    """All that a reader of committed records finds, sorted, when no transaction is open."""
    ends = await until_nothing_is_open(client, topic)
    consumer = Consumer(client, isolation="read_committed")
    consumer.assign(dict.fromkeys(ends, 0))
    found: list[bytes] = []
    while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
        for records in (await consumer.poll(1_000)).values():
            found += [record.value or b"" for record in records]
    await consumer.close()
    return sorted(found)


async def group_offset(client: Client, group: str, tp: TopicPartition) -> int | None:
    consumer = Consumer(client, group)
    found = await consumer.committed([tp])
    await consumer.close()
    return found.get(tp)


def test_what_is_committed_counts_and_what_is_aborted_does_not(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as producer:
            for n in range(6):
                await producer.begin_transaction()
                for p in range(3):
                    producer.send(topic, b"%d.%d" % (n, p), partition=p)
                if n % 2:
                    await producer.flush()
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        assert await committed(client, topic) == [b"%d.%d" % (n, p) for n in (0, 2, 4) for p in range(3)]

    run(body)


def test_a_body_that_raises_is_aborted_and_the_next_one_counts(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as producer:
            with pytest.raises(LookupError, match="mine"):
                async with producer.transaction():
                    await producer.send(topic, b"no")
                    raise LookupError("mine")
            async with producer.transaction():
                producer.send(topic, b"yes")
        assert await committed(client, topic) == [b"yes"]

    run(body)


def test_a_cancelled_task_aborts_and_leaves_nothing_open(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as producer:
            sent = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    await producer.send(topic, b"no")
                    sent.set()
                    await asyncio.Event().wait()

            task = asyncio.ensure_future(work())
            await sent.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await asyncio.gather(*(producer.send(topic, b"%d" % n) for n in range(5)))
        assert await committed(client, topic) == [b"%d" % n for n in range(5)]

    run(body)


def test_offsets_count_with_the_transaction_alone(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        tp = TopicPartition(topic, 0)
        async with started(client, topic) as producer:
            await producer.begin_transaction()
            await producer.send_offsets({tp: 7}, GroupMetadata(topic))
            await producer.abort_transaction()
            assert await group_offset(client, topic, tp) is None
            async with producer.transaction():
                producer.send(topic, b"x")
                await producer.send_offsets({tp: 9}, GroupMetadata(topic))
            assert await group_offset(client, topic, tp) == 9

    run(body)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_removed_member_cannot_commit_and_the_producer_goes_on(
    run: Callable[[Body], None], topic: str, protocol: str
) -> None:
    async def body(client: Client) -> None:
        consumer = Consumer(client, topic, group_protocol=protocol)
        await consumer.subscribe([topic])
        async with started(client, topic) as producer:
            async with producer.transaction():
                await producer.send(topic, b"in", partition=0)
            while not await consumer.poll(500):
                pass
            tp, member = TopicPartition(topic, 0), consumer.group_metadata()
            async with producer.transaction():
                await producer.send_offsets({tp: 1}, member)
            assert await group_offset(client, topic, tp) == 1
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction():
                    producer.send(topic, b"no")
                    await producer.send_offsets({tp: 2}, member._replace(generation_id=member.generation_id + 7))
            assert caught.value.retriable
            cause = caught.value.__cause__
            assert isinstance(cause, KafkaError) and cause.code == ErrorCode.ILLEGAL_GENERATION
            assert await group_offset(client, topic, tp) == 1
            async with producer.transaction():
                producer.send(topic, b"yes")
        await consumer.close()
        assert await committed(client, topic) == [b"in", b"yes"]

    run(body)


def test_a_second_producer_fences_the_first_and_ends_what_it_had_open(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as first:
            await first.begin_transaction()
            await first.send(topic, b"no")
            async with started(client, topic) as second:
                async with second.transaction():
                    await second.send(topic, b"yes")
                with pytest.raises(ProducerFenced, match="Another producer has started"):
                    await first.commit_transaction()
                with pytest.raises(ProducerFenced):
                    await first.begin_transaction()
                async with second.transaction():
                    await second.send(topic, b"again")
        assert await committed(client, topic) == [b"again", b"yes"]

    run(body)


def test_a_fenced_producer_that_writes_hears_so_when_its_transaction_ends(
    run: Callable[[Body], None], topic: str
) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as first:
            with pytest.raises(ProducerFenced):
                async with first.transaction():
                    await first.send(topic, b"no", partition=0)
                    async with started(client, topic):
                        await first.send(topic, b"neither", partition=0)
        assert await committed(client, topic) == []

    run(body)


def test_a_transaction_longer_than_its_timeout_is_aborted_and_told(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        goes_on = client.feature("transaction.version") >= 2
        for is_writing in (False, True):
            async with started(client, topic, transaction_timeout_ms=1_000) as producer:
                with pytest.raises(
                    TransactionAborted if goes_on else ProducerFenced, match=r"epoch|state|too long|longer"
                ):
                    async with producer.transaction():
                        await producer.send(topic, b"no", partition=0)
                        while is_writing:  # until the coordinator has aborted it
                            await producer.send(topic, b"no", partition=0)
                            await asyncio.sleep(0.5)
                        await until_nothing_is_open(client, topic)
                if goes_on:
                    async with producer.transaction():
                        await producer.send(topic, b"yes", partition=0)
        assert await committed(client, topic) == [b"yes"] * (2 * goes_on)

    run(body)


def test_a_record_that_the_broker_refuses_ends_its_transaction(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as producer:
            with pytest.raises(TransactionAborted) as caught:
                async with producer.transaction():
                    producer.send(topic, b"no", partition=0)
                    producer.send(topic, b"x" * (2 << 20), partition=1)
            assert not caught.value.retriable
            assert isinstance(caught.value.__cause__, KafkaError)
            assert caught.value.__cause__.code == ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(TransactionAborted):
                async with producer.transaction():
                    producer.send("no such topic!", b"no")
            async with producer.transaction():
                for n in range(300):
                    producer.send(topic, b"%03d" % n, partition=n % 3)
        assert await committed(client, topic) == [b"%03d" % n for n in range(300)]

    run(body)


def test_a_timeout_that_the_cluster_does_not_allow_is_told_at_once(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        producer = Producer(client, transactional_id=topic, transaction_timeout_ms=10**9)
        with pytest.raises(ProducerFailed, match="timeout"):
            await producer.start()

    run(body)


def test_librdkafka_takes_over_from_ours_and_ours_from_librdkafka(
    run: Callable[[Body], None], topic: str, bootstrap: str
) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as ours:
            await ours.begin_transaction()
            await ours.send(topic, b"no")
            theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
            await asyncio.to_thread(theirs.init_transactions, 20)
            with pytest.raises(ProducerFenced):
                await ours.commit_transaction()
            theirs.begin_transaction()
            theirs.produce(topic, b"theirs")
            await asyncio.to_thread(theirs.commit_transaction, 20)
            theirs.begin_transaction()
            theirs.produce(topic, b"no")
            await asyncio.to_thread(theirs.flush, 20)
        async with started(client, topic) as ours:
            async with ours.transaction():
                ours.send(topic, b"ours")
            with pytest.raises(confluent_kafka.KafkaException):
                await asyncio.to_thread(theirs.commit_transaction, 20)
        assert await committed(client, topic) == [b"ours", b"theirs"]

    run(body)


def test_close_aborts_what_is_open(run: Callable[[Body], None], topic: str) -> None:
    async def body(client: Client) -> None:
        async with started(client, topic) as producer:
            await producer.begin_transaction()
            await producer.send(topic, b"no", partition=0)
        await until_nothing_is_open(client, topic)
        with pytest.raises(ClientError, match="closed"):
            await producer.begin_transaction()
        assert await committed(client, topic) == []

    run(body)
