"""Our client against brokers that are killed: stock Kafka alone and in threes, and our own."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import uvloop

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.peers.peers import Node, cluster
from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.sender import LANE
from isthmus.protocol.errors import KafkaError

PARTITIONS = 3
PACE = 40  # records a turn of 5 ms
GROUP_TIMEOUT_S = 45.0


class Traffic:
    """A producer that never stops and a consumer that follows it, as the member of a group if that is given; afterwards
    each record was read once, in order."""

    def __init__(self, bootstrap: str, topic: str, group: str | None = None, pace: int = PACE) -> None:
        self.bootstrap, self.topic, self.group, self.pace = bootstrap, topic, group, pace
        self.consumer: Consumer
        self.futures: list[asyncio.Future[Any]] = []
        self.read: dict[int, list[int]] = {p: [] for p in range(PARTITIONS)}
        self.stopping = False

    async def produce(self, client: Client) -> None:
        producer = Producer(client, compression="lz4", linger_ms=2)
        await producer.start()
        while not self.stopping:
            for _ in range(self.pace):
                number = len(self.futures)
                await producer.wait_for_space()
                self.futures.append(producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS))
            await asyncio.sleep(0.005)
        await producer.close()
        assert [f.exception() for f in self.futures if f.exception()] == []

    async def consume(self, client: Client) -> None:
        reset = "earliest" if self.group else "none"
        self.consumer = consumer = Consumer(client, self.group, auto_offset_reset=reset, client_rack="b")
        if self.group:
            await consumer.subscribe([self.topic])
        else:
            consumer.assign({TopicPartition(self.topic, p): 0 for p in range(PARTITIONS)})
        again: dict[int, bool] = {}  # partitions that are read again from where the group has it
        while not self.stopping or sum(map(len, self.read.values())) < len(self.futures):
            found = await consumer.poll(200, 5_000)
            for tp, records in found.items():
                if again.pop(tp.partition, False):
                    del self.read[tp.partition][records[0].offset :]
                self.read[tp.partition] += [int(record.value or b"") for record in records]
            if found and self.group:
                try:
                    await consumer.commit()
                except KafkaError:  # put out of the group: what was not committed is read again
                    again = dict.fromkeys(range(PARTITIONS), True)
        await consumer.close()

    async def run(self, trouble: Callable[[], Awaitable[None]], replicas: int = 1) -> None:
        writer, reader = Client(self.bootstrap), Client(self.bootstrap)
        await writer.start()
        await reader.start()
        await Admin(writer).create_topics([NewTopic(self.topic, PARTITIONS, replicas)])
        await reader.refresh_metadata([self.topic])
        work = [asyncio.ensure_future(self.produce(writer)), asyncio.ensure_future(self.consume(reader))]
        await asyncio.sleep(1)
        await trouble()
        await asyncio.sleep(1)
        self.stopping = True
        await asyncio.wait_for(asyncio.gather(*work), 60)
        await writer.close()
        await reader.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert [task.get_name() for task in left if task.get_name().startswith("isthmus")] == []
        for p, read in self.read.items():
            assert read == list(range(p, len(self.futures), PARTITIONS))
            offsets = [f.result().offset for f in self.futures[p::PARTITIONS]]
            assert all(told in (offset, -1) for offset, told in enumerate(offsets))  # -1: Kafka forgot where it is


def away(node: Any, seconds: float) -> Callable[[], Awaitable[None]]:
    async def kill_and_start() -> None:
        node.kill()
        await asyncio.sleep(seconds)
        node.start()

    return kill_and_start


@pytest.mark.soak  # with three nodes below
def test_records_survive_kill_9_of_stock_kafka_once_and_in_order() -> None:
    with cluster(heap="512m") as kafka:
        uvloop.run(Traffic(kafka.bootstrap, "traffic").run(away(kafka.nodes[0], 1.0)))


async def kill_with_answers_unread(node: Any, bootstrap: str) -> list[int]:
    """Four batches that a broker has appended when it is killed, and whose answers its producer never read; then one
    more. Offsets that the records were told; asserts that each is there once and in order."""
    client = Client(bootstrap)
    await client.start()
    await Admin(client).create_topics([NewTopic("unread", 1)])
    producer = Producer(client, linger_ms=0)
    await producer.start()
    futures = [producer.send("unread", b"0", partition=0)]
    await producer.flush()
    connection = client.open_connection(client.leader(TopicPartition("unread", 0)) or 0, LANE)
    assert connection is not None and connection._transport is not None
    connection._transport.pause_reading()
    for number in range(1, 5):
        futures.append(producer.send("unread", b"%d" % number, partition=0))
        await asyncio.sleep(0.01)  # in a batch of its own
    assert await read_all(bootstrap, "unread", "read_uncommitted", 5) == [b"%d" % n for n in range(5)]
    assert not any(future.done() for future in futures[1:])
    node.kill()
    connection._transport.abort()
    node.start()
    futures.append(producer.send("unread", b"5", partition=0))
    await producer.flush()
    assert await read_all(bootstrap, "unread", "read_uncommitted", 6) == [b"%d" % n for n in range(6)]
    await producer.close()
    await client.close()
    return [future.result().offset for future in futures]


def test_what_kafka_forgets_of_a_producer_when_it_is_killed_is_neither_lost_nor_doubled() -> None:
    with cluster(heap="512m") as kafka:
        offsets = uvloop.run(kill_with_answers_unread(kafka.nodes[0], kafka.bootstrap))
    assert offsets == [0, -1, -1, -1, 4, 5]  # Kafka did forget three


def test_our_broker_forgets_nothing_of_a_producer_when_it_is_killed(tmp_path: Path) -> None:
    with running_broker(tmp_path / "b") as broker:
        assert uvloop.run(kill_with_answers_unread(broker, broker.bootstrap)) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("durability", ["page_cache", pytest.param("fsync", marks=pytest.mark.soak)])
def test_records_survive_kill_9_of_our_broker_once_and_in_order(tmp_path: Path, durability: str) -> None:
    with running_broker(tmp_path / "b", {"durability": durability}) as broker:

        async def thrice() -> None:
            for _ in range(3):
                await away(broker, 0.3)()
                await asyncio.sleep(0.7)

        uvloop.run(Traffic(broker.bootstrap, "traffic").run(thrice))


def test_leaders_that_die_hang_and_come_back_lose_and_double_nothing() -> None:
    properties = {"min.insync.replicas": 2, "default.replication.factor": 3, "broker.session.timeout.ms": 3000}
    with cluster(3, properties, heap="384m") as kafka:

        async def trouble() -> None:
            kafka.nodes[0].kill()
            await asyncio.sleep(6)
            kafka.nodes[0].start("384m")
            await asyncio.sleep(6)
            kafka.nodes[1].pause()
            await asyncio.sleep(5)
            kafka.nodes[1].resume()
            await asyncio.sleep(1)

        uvloop.run(Traffic(kafka.bootstrap, "traffic").run(trouble, replicas=3))


def test_a_group_reads_once_and_in_order_what_is_written_while_leaders_and_its_coordinator_die() -> None:
    """A leader is killed, comes back and leads again; then the coordinator dies. The consumer reads in its rack."""
    properties = {
        "min.insync.replicas": 2,
        "broker.heartbeat.interval.ms": 500,
        "broker.session.timeout.ms": 3_000,
        "auto.leader.rebalance.enable": False,
    }
    with cluster(3, properties, heap="384m", racks="abc") as kafka:
        traffic = Traffic(kafka.bootstrap, "failover", "failover", pace=4)

        async def dies(node: Node) -> None:
            node.kill()
            for partition in range(PARTITIONS):
                await asyncio.to_thread(kafka.leader, traffic.topic, partition)
            await traffic.futures[-1]  # what is sent now is written to those that are left

        async def trouble() -> None:
            client = Client(kafka.bootstrap)
            await client.start()
            leader = await asyncio.to_thread(kafka.leader, traffic.topic)
            await dies(leader)
            leader.start("384m")
            while await asyncio.to_thread(kafka.leader, traffic.topic) is not leader:
                with contextlib.suppress(KafkaError):  # until it is in sync
                    await Admin(client).elect_leaders()
            assert traffic.consumer._membership is not None
            await dies(kafka.node(await traffic.consumer._membership.coordinator.find()))
            await client.close()

        uvloop.run(traffic.run(trouble, replicas=3))


@contextlib.contextmanager
def transactional(bootstrap: str, name: str) -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name})
    producer.init_transactions(20)
    yield producer
    producer.flush(10)


def test_read_committed_gives_what_others_committed_and_nothing_aborted(kafka: str) -> None:
    with transactional(kafka, "tx-1") as one, transactional(kafka, "tx-2") as two:
        for number, producer in enumerate([one, two, one, two, one]):
            producer.begin_transaction()
            for i in range(10):
                producer.produce("tx", b"%d.%d" % (number, i), partition=0)
            producer.flush(10)
            if number in (1, 2):
                producer.abort_transaction(20)
            else:
                producer.commit_transaction(20)
        one.begin_transaction()
        one.produce("tx", b"open", partition=0)
        one.flush(10)
        found = asyncio.run(read_all(kafka, "tx", "read_committed", 30))
        everything = asyncio.run(read_all(kafka, "tx", "read_uncommitted", 51))
        one.abort_transaction(20)
    assert found == [b"%d.%d" % (number, i) for number in (0, 3, 4) for i in range(10)]
    assert len(everything) == 51


async def read_all(bootstrap: str, topic: str, isolation: str, count: int) -> list[bytes]:
    client = Client(bootstrap)
    await client.start()
    await client.refresh_metadata([topic])
    consumer = Consumer(client, isolation=isolation)
    consumer.assign({TopicPartition(topic, 0): 0})
    found: list[bytes] = []
    quiet = 0
    while quiet < 2:  # also what comes too much
        records = [record.value or b"" for each in (await consumer.poll(700)).values() for record in each]
        found += records
        quiet = 0 if records or len(found) < count else quiet + 1
    await consumer.close()
    await client.close()
    return found


async def join_with_aiokafka(bootstrap: str, topic: str) -> None:
    import aiokafka

    client = Client(bootstrap)
    await client.start()
    await Admin(client).create_topics([NewTopic(topic, 4)])
    theirs = aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", session_timeout_ms=6_000
    )
    ours = Consumer(client, topic, session_timeout_ms=6_000)
    await ours.subscribe([topic])
    producer = Producer(client)
    await producer.start()
    read: dict[str, list[bytes]] = {"ours": [], "theirs": []}
    stop = asyncio.Event()

    async def read_ours() -> None:
        while not stop.is_set():
            for records in (await ours.poll(100)).values():
                read["ours"] += [record.value or b"" for record in records]

    async def read_theirs() -> None:
        await theirs.start()
        while not stop.is_set():
            for records in (await theirs.getmany(timeout_ms=100)).values():
                read["theirs"] += [record.value for record in records]

    tasks = [asyncio.ensure_future(read_ours()), asyncio.ensure_future(read_theirs())]
    async with asyncio.timeout(GROUP_TIMEOUT_S):
        while len(theirs.assignment()) != 2 or len(ours.assignment()) != 2:
            await asyncio.sleep(0.1)
        for n in range(400):
            producer.send(topic, b"%d" % n, partition=n % 4)
        await producer.flush()
        while len(read["ours"]) + len(read["theirs"]) < 400:
            await asyncio.sleep(0.1)
        assert len(read["ours"]) == len(read["theirs"]) == 200
        stop.set()
        await asyncio.gather(*tasks)
    await theirs.stop()
    await ours.close()
    await producer.close()
    await client.close()


def test_our_member_shares_a_group_with_aiokafkas(kafka: str) -> None:
    asyncio.run(join_with_aiokafka(kafka, "mixed-stock"))


def test_our_member_shares_a_group_with_aiokafkas_on_our_broker(isthmus_broker: BrokerProcess) -> None:
    asyncio.run(join_with_aiokafka(isthmus_broker.bootstrap, "mixed-own"))
