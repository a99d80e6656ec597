"""A stage for groups: our broker with a topic on the simulated loop, and consumers that are members."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.classic_membership import ClassicMembership
from isthmus.protocol.errors import ErrorCode, KafkaError
from tests.leftovers import no_leftovers
from tests.simulation.hosts import Process
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked

TP = TopicPartition("t", 0)
QUICK = {  # for members of the consumer protocol, as the tests have classic ones
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
RECORDS = 200
PARTITIONS = 4


class Member:
    """One consumer process that reads, remembers and commits until it is stopped."""

    def __init__(self, sim: Simulation, host: BrokerHost, name: str, **options: Any) -> None:
        self.sim, self.host, self.name = sim, host, name
        self.options = {**({} if "group_protocol" in options else {"session_timeout_ms": 6_000}), **options}
        self.read: list[bytes] = []
        self.calls: list[tuple[str, list[int]]] = []
        self.owned: list[int] = []
        self.stopping = False
        self.stall_s = 0.0
        self.done: asyncio.Future[None]

    def start(self) -> Member:
        process = self.sim.machine(self.name).start()
        self.done = process.outcome(self._checked(process))
        return self

    async def _checked(self, process: Process) -> None:
        async with no_leftovers():
            await self._run(process)

    def kill(self) -> None:
        self.sim.machine(self.name).kill()
        self.owned = []

    async def stop(self) -> None:
        self.stopping = True
        await self.done

    async def _run(self, process: Process) -> None:
        client = Client(self.host.address, client_id=self.name, runtime=process.runtime)
        await client.start()
        consumer = Consumer(client, "g", **self.options)
        await consumer.subscribe(["t"], self._assigned, self._revoked)
        while not self.stopping:
            if self.stall_s:
                stall, self.stall_s = self.stall_s, 0.0
                await asyncio.sleep(stall)
            found = await consumer.poll(200, 10)
            for records in found.values():
                self.read += [record.value or b"" for record in records]
            if found:
                try:
                    await consumer.commit()
                except KafkaError as error:
                    assert error.code in (
                        ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID,
                        ErrorCode.STALE_MEMBER_EPOCH,
                    )  # fmt: skip
        await consumer.close()
        await client.close()

    async def _assigned(self, tps: list[TopicPartition]) -> None:
        new = [tp.partition for tp in tps]
        self.owned = sorted(self.owned + new)
        self.calls.append(("+", new))

    def _revoked(self, tps: list[TopicPartition]) -> None:
        gone = [tp.partition for tp in tps]
        self.owned = [each for each in self.owned if each not in gone]
        self.calls.append(("-", gone))


class Stage:
    """A broker with a topic, and a producer's hand."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.host = BrokerHost(sim, "broker", QUICK)
        self.sent = 0

    async def begin(self) -> None:
        await self.host.up()
        await self.work(self._topic)

    async def work(self, what: Callable[[Client], Coroutine[Any, Any, Any]]) -> Any:
        process = self.sim.machine("hand").process or self.sim.machine("hand").start()

        async def work() -> Any:
            async with no_leftovers():
                client = Client(self.host.address, client_id="hand", runtime=process.runtime)
                await client.start()
                try:
                    return await what(client)
                finally:
                    await client.close()

        return await process.outcome(work())

    async def _topic(self, client: Client) -> None:
        await Admin(client).create_topics([NewTopic("t", PARTITIONS)])

    async def send(self, count: int) -> None:
        async def send(client: Client) -> None:
            producer = Producer(client)
            await producer.start()
            for _ in range(count):
                producer.send("t", b"%d" % self.sent, partition=self.sent % PARTITIONS)
                self.sent += 1
            await producer.close()

        await self.work(send)

    async def all_read(self, members: list[Member], timeout_s: float = 60) -> None:
        wanted = {b"%d" % n for n in range(self.sent)}
        await self.sim.until(lambda: {v for m in members for v in m.read} >= wanted, "all records read", timeout_s)

    async def shared(self, members: list[Member], timeout_s: float = 60) -> None:
        """Until the members own all partitions between them, each one something."""
        await self.sim.until(
            lambda: (
                all(m.owned for m in members) and sorted(p for m in members for p in m.owned) == list(range(PARTITIONS))
            ),
            "partitions shared",
            timeout_s,
        )


def staged(test: Callable[[Stage], Coroutine[Any, Any, None]], seed: int = 1) -> None:
    """A runner: the test has a stage."""

    async def scenario(sim: Simulation) -> None:
        stage = Stage(sim)
        await stage.begin()
        await test(stage)

    run_checked(scenario, seed)


def at_hand(test: Callable[[Client, Stage], Coroutine[Any, Any, None]], sent: int = 0) -> None:
    """A runner: the test has a client on the hand's machine, and a stage with so many records."""

    async def with_client(stage: Stage) -> None:
        await stage.send(sent)
        await stage.work(lambda client: test(client, stage))

    staged(with_client)


class Calls:
    """What a consumer's callbacks were called with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, int]] = []  # which one, how many partitions

    def assigned(self, tps: list[TopicPartition]) -> None:
        self.made.append(("assigned", len(tps)))

    def revoked(self, tps: list[TopicPartition]) -> None:
        self.made.append(("revoked", len(tps)))

    def lost(self, tps: list[TopicPartition]) -> None:
        self.made.append(("lost", len(tps)))


async def joined(client: Client, calls: Calls, on_lost: bool = True, **options: Any) -> Consumer:
    consumer = Consumer(client, "g", session_timeout_ms=6_000, **options)
    await consumer.subscribe(["t"], calls.assigned, calls.revoked, calls.lost if on_lost else None)
    while not consumer.assignment():
        await consumer.poll(100, 1)
    return consumer


async def session_ended(consumer: Consumer) -> None:
    """As if the process had been stopped past its session, until all others have left the group, too."""
    await membership_of(consumer)._heart.stop()
    await asyncio.sleep(30)


def membership_of(consumer: Consumer) -> ClassicMembership:
    assert isinstance(consumer._membership, ClassicMembership)
    return consumer._membership


async def committed(client: Client) -> dict[TopicPartition, int]:
    return await Admin(client).group_offsets("g")
