"""Transactions of several producers under faults, by both protocols: all or nothing, in order, once, and as was said.

Producers have two transactional ids. They are killed, hung and let go on, and replaced while they live, so that zombies
write on. Answers are lost before and after the request was done, come late, or are errors that pass. A consumer of
committed records reads meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from isthmus.client import Client, Consumer, GroupMetadata, Producer, TopicPartition
from isthmus.client.errors import ClientError, OperationTimeout, ProducerFailed, ProducerFenced, TransactionAborted
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import add_offsets_to_txn, end_txn, init_producer_id
from isthmus.protocol.records import iter_records
from tests.client.coordinating import CoordinatingBroker, classic
from tests.client.scripted import HANG_UP, PORT, SILENCE, World, simulate
from tests.simulation.hosts import ProcessKilled

PARTITIONS = 3
IDS = ("one", "two")
SECONDS = 40.0
TIMEOUT_MS = 5_000  # of a transaction
FAULTY = ("end_txn", "init_producer_id", "add_partitions_to_txn", "add_offsets_to_txn", "txn_offset_commit", "produce")
PASSING = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.CONCURRENT_TRANSACTIONS)
WITH_CODE = {
    "end_txn": end_txn.Response,
    "init_producer_id": init_producer_id.Response,
    "add_offsets_to_txn": add_offsets_to_txn.Response,
}


class Faulty:
    """Decides for each request whether it is answered, once it is done or not."""

    def __init__(self, broker: CoordinatingBroker, random: Random) -> None:
        self.share = 0.0
        self._broker = broker
        self._random = random
        self._answer = broker.answer
        broker.answer = self.answer  # type: ignore[method-assign]

    def answer(self, name: str, message: Any) -> Any:
        if name not in FAULTY or self._random.random() >= self.share:
            return self._answer(name, message)
        kind = self._random.choice(("lost", "done", "silent", "code", "refused"))
        if kind == "lost":
            return HANG_UP
        if kind == "code" and name in WITH_CODE:
            return WITH_CODE[name](error_code=self._random.choice(PASSING))
        if kind == "refused" and name == "produce":
            return self._refused(message)
        self._answer(name, message)
        return SILENCE if kind == "silent" and self._random.random() < 0.2 else HANG_UP

    def _refused(self, message: Any) -> Any:
        code = self._random.choice(
            (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.INVALID_RECORD, ErrorCode.REQUEST_TIMED_OUT)
        )
        return self._broker.produced(message, lambda *_: code)


class History:
    """What was tried and what was said of it. A transaction's records have its name and their places in it."""

    def __init__(self) -> None:
        self.sent: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)  # transaction -> partition, value
        self.offsets: dict[bytes, int] = {}
        self.said: dict[bytes, str] = {}  # committed, aborted or unknown
        self.read: dict[int, list[bytes]] = {p: [] for p in range(PARTITIONS)}
        self.count = 0


async def produce(world: World, process: Any, transactional_id: str, history: History, random: Random) -> None:
    """One producer's life."""
    client = Client(f"{world.brokers[1].host}:{PORT}", client_id=transactional_id, runtime=process.runtime)
    await client.start()
    producer = Producer(
        client,
        transactional_id=transactional_id,
        transaction_timeout_ms=TIMEOUT_MS,
        max_block_ms=4_000,
        delivery_timeout_ms=3_000,
        request_timeout_ms=1_500,
        linger_ms=random.choice((0, 5)),
        batch_bytes=random.choice((100, 10_000)),
    )
    try:
        while True:
            try:
                await producer.start()
                break
            except (ClientError, KafkaError) as error:
                if isinstance(error, ProducerFailed):
                    raise
        while True:
            await one(producer, history, random)
    except ProducerFenced:
        pass
    finally:
        await producer.close(timeout_ms=1_000)
        await client.close()


async def one(producer: Producer, history: History, random: Random) -> None:
    history.count += 1
    name = b"%d" % history.count
    try:
        async with producer.transaction():
            await fill(producer, history, random, name)
            history.said[name] = "unknown"  # from here on, until the commit has an outcome
        history.said[name] = "committed"
    except Mine:
        history.said[name] = "aborted"
    except TransactionAborted:
        history.said[name] = "aborted"
    except OperationTimeout:  # of the commit
        while history.said.get(name) == "unknown":
            try:
                await producer.commit_transaction()
                history.said[name] = "committed"
            except OperationTimeout:
                continue
            except TransactionAborted:
                history.said[name] = "aborted"
                with contextlib.suppress(ClientError, KafkaError):  # the next one waits for it
                    await producer.abort_transaction()


class Mine(Exception):
    pass


async def fill(producer: Producer, history: History, random: Random, name: bytes) -> None:
    for k in range(random.randrange(1, 12)):
        partition, value = random.randrange(PARTITIONS), b"%s.%d" % (name, k)
        history.sent[name].append((partition, value))
        future = producer.send("t", value, partition=partition)
        if random.random() < 0.2:
            await future
    if random.random() < 0.5:
        history.offsets[name] = history.count
        await producer.send_offsets({TopicPartition("t", 0): history.count}, GroupMetadata(name.decode()))
    if random.random() < 0.05:
        await asyncio.sleep(random.uniform(0, 2 * TIMEOUT_MS / 1000))
    if random.random() < 0.15:
        raise Mine


async def read(world: World, history: History, stop: asyncio.Event) -> None:
    process = world.sim.machine("reader").start()

    async def run() -> None:
        client = Client(f"{world.brokers[1].host}:{PORT}", client_id="reader", runtime=process.runtime)
        await client.start()
        await client.refresh_metadata(["t"])
        consumer = Consumer(client, isolation="read_committed", partition_max_bytes=300)
        consumer.assign({TopicPartition("t", p): 0 for p in range(PARTITIONS)})
        is_last = False
        while not is_last:
            is_last = stop.is_set()
            found = await consumer.poll(1_000)
            for tp, records in found.items():
                history.read[tp.partition] += [record.value or b"" for record in records]
            is_last &= not found
        ends = [consumer.position(TopicPartition("t", p)) for p in range(PARTITIONS)]
        assert ends == [world.log("t", p).end for p in range(PARTITIONS)], "positions are past the markers"
        await consumer.close()
        await client.close()

    await process.outcome(run())


async def trouble(world: World, history: History, random: Random, faulty: Faulty) -> None:
    """Producers come and go until the time is over; then they are all gone, and nothing is faulty any more."""
    loop, lives = asyncio.get_running_loop(), 0
    machines: list[Any] = []

    def begin(transactional_id: str) -> None:
        nonlocal lives
        lives += 1
        machine = world.sim.machine(f"p{lives}")
        machine.start()
        machines.append(machine)
        work = produce(world, machine.process, transactional_id, history, Random(f"{random.random()}"))
        outcomes.append(machine.process.outcome(work))

    outcomes: list[asyncio.Future[None]] = []
    for each in IDS:
        begin(each)
    until = loop.time() + SECONDS
    while loop.time() < until:
        faulty.share = random.choice((0.0, 0.02, 0.2))
        await asyncio.sleep(random.uniform(0.5, 6))
        machine, each = random.choice(machines), random.choice(IDS)
        match random.choice(("kill", "hang", "replace", "none")):
            case "kill":
                machine.kill()
                begin(each)
            case "hang":
                machine.hang(random.uniform(1, 10))
                begin(each)
            case "replace":
                begin(each)
    faulty.share = 0.0
    for machine in machines:
        machine.kill()
    for done in await asyncio.gather(*outcomes, return_exceptions=True):
        assert done is None or isinstance(done, ProcessKilled), done
    await asyncio.sleep(2 * TIMEOUT_MS / 1000)  # whatever they had open is aborted


def check(world: World, broker: CoordinatingBroker, history: History) -> None:
    found: dict[bytes, list[tuple[int, bytes]]] = defaultdict(list)
    for p in range(PARTITIONS):
        assert len(set(history.read[p])) == len(history.read[p]), "no record counts twice"
        for value in history.read[p]:
            found[value.partition(b".")[0]].append((p, value))
    outcomes: dict[str, int] = defaultdict(int)
    for name, sent in history.sent.items():
        said = history.said.get(name, "unknown")
        outcomes[said] += 1
        is_there = bool(found[name])
        assert said != "committed" or is_there, f"{name!r} was said to be committed"
        assert said != "aborted" or not is_there, f"{name!r} was said to be aborted"
        if is_there:
            for p in range(PARTITIONS):
                assert [v for q, v in found[name] if q == p] == [v for q, v in sent if q == p], f"{name!r} is torn"
        has_offset = (name.decode(), TopicPartition("t", 0)) in broker.offsets
        assert has_offset == (is_there and name in history.offsets), f"{name!r}: offsets and records"
    assert outcomes["committed"] > 10 and outcomes["aborted"] > 1, dict(outcomes)
    everything = sum(len(list(iter_records(batch))) for p in range(PARTITIONS) for batch in world.log("t", p).batches)
    assert everything > sum(map(len, history.read.values())), "something was aborted"


@pytest.mark.parametrize("protocol", [CoordinatingBroker, classic], ids=["epochs", "added"])
@pytest.mark.parametrize("seed", range(8))
def test_transactions_are_whole_or_not_at_all_whatever_happens(
    seed: int, protocol: Callable[[World], CoordinatingBroker]
) -> None:
    async def scenario(world: World) -> None:
        world.add_topic("t", PARTITIONS)
        broker = world.brokers[1]
        assert isinstance(broker, CoordinatingBroker)
        random, history, stop = Random(seed), History(), asyncio.Event()
        faulty = Faulty(broker, random)
        reading = asyncio.ensure_future(read(world, history, stop))
        await trouble(world, history, random, faulty)
        stop.set()
        await reading
        check(world, broker, history)

    simulate(scenario, seed, broker=protocol)
