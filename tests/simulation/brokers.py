"""A cluster of simulated machines, each with one broker that may be its controller, and faults among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, metadata

from .history import batches_of
from .product import BrokerHost
from .runner import Simulation
from .wire import ask, produce_by_wire
from .workload import Stored, Workload, values_in

T = TypeVar("T")

CONTROLLER_PORT = 9093
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
LOOK_S = 1.5  # between two looks at what is committed
SETTLE_S = 120.0  # in which all is in sync again once the faults have ended


class Cluster:
    """Brokers 1 to `size`, all of them voters."""

    def __init__(self, sim: Simulation, size: int = 3, options: dict[str, str] | None = None) -> None:
        self.sim = sim
        names = [f"b{number}" for number in range(1, size + 1)]
        voters = ",".join(f"{number}@{name}:{CONTROLLER_PORT}" for number, name in enumerate(names, 1))
        self.hosts: dict[int, BrokerHost] = {}
        for number, name in enumerate(names, 1):
            own = {
                "node.id": str(number),
                "cluster.id": CLUSTER_ID,
                "listeners": f"PLAINTEXT://{name}:9092,CONTROLLER://{name}:{CONTROLLER_PORT}",
                "controller.listener.names": "CONTROLLER",
                "controller.quorum.voters": voters,
                "default.replication.factor": "3",
                "offsets.topic.replication.factor": "3",
                **(options or {}),
            }
            self.hosts[number] = BrokerHost(sim, name, own)
        self._starting: dict[int, asyncio.Task[None]] = {}
        self._committed: dict[tuple[str, int], dict[int, bytes]] = {}  # by partition: last offset -> batch
        self._seen: dict[tuple[int, str, int], tuple[int, int]] = {}  # by replica: its life and high watermark
        self._leaders: dict[tuple[str, int, int], int] = {}  # by partition and leader epoch
        self._watching: asyncio.Task[None] | None = None

    # --- Life ---------------------------------------------------------------------------------------------------------

    async def up(self) -> None:
        """Start all that do not run, and wait until they serve."""
        for number in self.hosts:
            self.begin(number)
        await asyncio.wait_for(asyncio.gather(*self._starting.values()), SETTLE_S)

    def begin(self, number: int) -> None:
        """Start one in the background, again until it serves: it may need the others."""
        running = self._starting.get(number)
        if (running is None or running.done()) and not self.hosts[number].alive:
            self._starting[number] = self.sim.loop.create_task(self.hosts[number].up())

    def kill(self, number: int, *, power: bool) -> None:
        running = self._starting.get(number)
        if running is not None and not running.done():
            running.cancel()
        self.hosts[number].kill(power=power)

    async def stop(self, number: int) -> None:
        """Stop one in the controlled way."""
        host = self.hosts[number]
        assert host.broker is not None and host.machine.process is not None
        await host.machine.process.outcome(host.broker.stop())

    async def heal(self) -> None:
        """End all faults."""
        self.sim.network.heal()
        await self.up()

    async def disturb(self) -> None:
        """One fault, for a while, or for good until the next one or `heal`."""
        chance = self.sim.random
        number = chance.choice(list(self.hosts))
        dead = [each for each, host in self.hosts.items() if not host.alive]
        match chance.choice(("kill", "kill", "power", "cut", "one way", "reset", "all")):
            case "kill":
                self.kill(number, power=False)
            case "power":
                # It loses what is not on the disk: all others must have that.
                loses = not dead and self.are_in_sync()
                self.kill(number, power=loses)
                if (
                    loses and chance.random() < 0.5
                ):  # the others have all, but nobody may lead before one of them is back
                    for each in self.hosts:
                        self.kill(each, power=False)
            case "cut" | "one way" as kind:
                name = self.hosts[number].name
                others = [host.name for each, host in self.hosts.items() if each != number]
                self.sim.network.partition([name], others, both_ways=kind == "cut")
                self.sim.counters["partitions"] += 1
                await asyncio.sleep(chance.uniform(0.5, 15.0))
                self.sim.network.heal()
            case "reset":
                self.sim.network.cut()
            case "all":
                for each in self.hosts:
                    self.kill(each, power=False)
        await asyncio.sleep(chance.uniform(0.0, 4.0))
        for each in self.hosts:
            if chance.random() < 0.7:
                self.begin(each)

    # --- What clients do ----------------------------------------------------------------------------------------------

    def any_address(self) -> str:
        return self.sim.random.choice(list(self.hosts.values())).address

    async def make_topic(self, name: str, partitions: int, min_insync: int) -> None:
        topic = create_topics.CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=3,
            configs=[create_topics.CreatableTopicConfig(name="min.insync.replicas", value=str(min_insync))],
        )
        admin = self.sim.machine("admin").start()
        while True:
            message = create_topics.Request(topics=[topic], timeout_ms=5000)
            answer = await admin.outcome(ask(self.any_address(), create_topics.API, message))
            if answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await asyncio.sleep(0.3)

    def produce(self, workload: Workload, *, count: int, partition: int) -> asyncio.Future[None]:
        machine = self.sim.machine(workload.name)
        work: Coroutine[Any, Any, None] = produce_by_wire(
            self.sim,
            machine,
            workload,
            Leader(self, workload.topic, partition),
            count=count,
            partition=partition,
            pause_s=self.sim.random.choice((0.005, 0.05)),
        )
        return machine.start().outcome(work)

    async def leader(self, topic: str, partition: int) -> str:
        """The address of a partition's leader, as a broker tells it; of any broker if none is told."""
        request = metadata.Request(topics=[metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        address = self.any_address()
        answer = await ask(address, metadata.API, request, attempts=1)
        if answer is None:
            return address
        for row in answer.topics[0].partitions:
            if row.partition_index == partition:
                for broker in answer.brokers:
                    if broker.node_id == row.leader_id:
                        return f"{broker.host}:{broker.port}"
        return address

    def watch(self) -> None:
        """Look again and again whether what was committed stays as it is, and whether each epoch has one leader."""

        async def look() -> None:
            while True:
                self.check_committed()
                await asyncio.sleep(LOOK_S)

        self._watching = self.sim.loop.create_task(look())

    async def unless_broken(self, work: Awaitable[T]) -> T:
        """Wait for something, but no longer than until a look finds that something is wrong, which is raised."""
        assert self._watching is not None
        doing = asyncio.ensure_future(work)
        await asyncio.wait([doing, self._watching], return_when=asyncio.FIRST_COMPLETED)
        if self._watching.done():
            doing.cancel()
            self._watching.result()
        return doing.result()

    def check_committed(self) -> None:
        """What a broker serves as committed has one value at each offset, whoever serves it, at any time."""
        for number, host in self.hosts.items():
            broker = host.broker
            if broker is None or broker._replicas is None:
                continue
            for topic, indexes in broker._replicas.partitions.items():
                for index, held in indexes.items():
                    if held.leads and held.failure is None:
                        leader = self._leaders.setdefault((topic, index, held.leader_epoch), number)
                        assert leader == number, (
                            f"{topic}-{index} has two leaders in epoch {held.leader_epoch}: {leader} and {number}"
                        )
                    state = (host.lives, held.high_watermark)
                    if self._seen.get((number, topic, index)) == state:
                        continue
                    self._seen[number, topic, index] = state
                    known = self._committed.setdefault((topic, index), {})
                    for batch in host.partition(topic, index):
                        if batch.last_offset >= held.high_watermark:
                            break
                        value = known.setdefault(batch.last_offset, batch.data)
                        assert value == batch.data, (
                            f"broker {number} has committed another batch at offset {batch.last_offset} of "
                            f"{topic}-{index} than was seen before"
                        )
        self.sim.counters["looks"] += 1

    def are_in_sync(self) -> bool:
        """Whether all replicas of all partitions are in sync, as their leaders and all others know it."""
        for host in self.hosts.values():
            if host.broker is None or host.broker._replicas is None:
                return False
            for indexes in host.broker._replicas.partitions.values():
                for held in indexes.values():
                    if len(held.isr) < len(held.replicas):
                        return False
        return True

    # --- What must hold -----------------------------------------------------------------------------------------------

    async def settled(self, topic: str, partitions: int) -> None:
        """Wait until all replicas of all partitions are in sync and have the same bytes, whoever leads."""

        views: list[Any] = []

        def are_same() -> bool:
            for index in range(partitions):
                views.clear()
                for host in self.hosts.values():
                    broker = host.broker
                    if broker is None or broker._replicas is None:
                        return False
                    held = broker._replicas.partitions.get(topic, {}).get(index)
                    if held is not None:
                        views.append((held.leader, tuple(sorted(held.replicas)), tuple(sorted(held.isr))))
                if len(dict.fromkeys(views)) != 1 or len(views) != len(views[0][1]) or views[0][1] != views[0][2]:
                    return False
                copies = {
                    host.partition_bytes(topic, index) for number, host in self.hosts.items() if number in views[0][1]
                }
                if len(copies) != 1:
                    return False
            return True

        try:
            await self.sim.until(are_same, "all replicas are in sync and the same", SETTLE_S)
        except AssertionError as error:
            states = [(number, host.alive, host.broker and host.broker.doing) for number, host in self.hosts.items()]
            raise AssertionError(f"{error}: (leader, replicas, in sync) by replica {views}; brokers {states}") from None

    def stored(self, topic: str, partitions: int) -> list[Stored]:
        """What all replicas have in the end; `settled` before."""
        found = []
        for index in range(partitions):
            copies = [host.partition_bytes(topic, index) for host in self.hosts.values()]
            found += values_in(batches_of(next(copy for copy in copies if copy or not any(copies))), index)
        return found


class Leader:
    """Where a producer finds its partition's leader: asked for again for each connection."""

    def __init__(self, cluster: Cluster, topic: str, partition: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._partition = partition

    async def address(self) -> str:
        return await self._cluster.leader(self._topic, self._partition)
