"""A stream app of pipelines and agents, whose workers and broker are killed, hang, and go over to another version.

What the app is of, and what must hold of all that it writes, is in `pipeline_apps`. The seed draws the guarantee, the
group's protocol, where tables are, how many copies there are of them, whether changelogs are compacted all the time,
and what happens: an input grows, the code changes while two versions of it are in one group. Some seeds are on three
brokers, whose coordinators and leaders die.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Protocol
from unittest import mock

import orjson

from isthmus.client import Admin, Client, Producer
from isthmus.client.errors import ClientError
from isthmus.client.joining import CLASSIC, CONSUMER
from isthmus.protocol.errors import KafkaError
from isthmus.streams import App, ChangeRefused
from isthmus.streams.engine.tables import DISK, MEMORY
from isthmus.streams.engine.task import TaskId
from isthmus.streams.runtime.copies import Copies

from ..history import Batch
from ..hosts import Process
from ..local_state import LocalState
from ..pipeline_apps import (
    APP,
    BRIDGE,
    BY_SHOP,
    GUARANTEES,
    INPUTS,
    ITEMS,
    LIMITS,
    NOTES,
    ORDERS,
    OUTPUTS,
    PARTITIONS,
    PAYMENTS,
    PRICES,
    QUESTIONS,
    REGIONS,
    SHOPS,
    TABLES,
    VISITS,
    Options,
    PipelineAudit,
    new_app,
    region_of,
)
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..stream_apps import NobodyTells, StreamHost, counted
from . import stream_cluster
from .producers import create_topic
from .stream_cluster import MIN_INSYNC, OFFSETS, STATE, kill_a_leader, new_cluster
from .streams import GROUPS, TRANSACTIONS
from .zombies import CHANGELOG, HANG_S, Hangs

BROKER = {"durability": "page_cache", "log.cleaner.backoff.ms": "500", **GROUPS, **TRANSACTIONS}
FAULTS = ("worker", "worker", "power", "broker", "hang", "hang", "leave", "grow", "upgrade")
EVENTS = (2, 4)  # a run
ROUNDS = 40  # of the input, at the most, while things happen
ITEMS_ONCE, ITEMS_AGAIN = 15, 5  # by their numbers: most of the first stay as they are, the others change them
CLUSTER_EVERY, CLUSTER_AT = 12, 5  # seeds on three brokers: they cost six times as much
LEADERS = (STATE, OFFSETS, STATE, OFFSETS, ORDERS, VISITS, BY_SHOP, BRIDGE)  # that die there
PAUSE_S = 0.6
SETTLE_S = 400.0
LIMIT_S = 3_000.0


class Alone:
    """A broker that is killed, too."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.broker = BrokerHost(sim, "broker", BROKER)
        self.bootstrap = self.broker.address
        self.admin = sim.machine("admin").start()
        self.machines = [self.broker.name]

    async def form(self) -> None:
        await self.broker.up()

    async def make_topic(self, name: str, partitions: int, options: Mapping[str, str]) -> None:
        await self.admin.outcome(create_topic(self.admin, self.bootstrap, name, partitions, **options))

    def batches(self, topic: str, index: int) -> list[Batch]:
        return self.broker.partition(topic, index)

    async def fail(self) -> None:
        self.broker.kill()
        await asyncio.sleep(self.sim.random.uniform(0.0, 1.0))
        await self.broker.up(crash_chance=0.2, power=False)

    async def mend(self) -> None:
        pass


class Three:
    """Brokers of which the leaders of the app's topics and the coordinators die."""

    def __init__(self, sim: Simulation) -> None:
        self.cluster = new_cluster(sim, is_durable=False, more={"log.cleaner.backoff.ms": "500", **GROUPS})
        self.admin = self.cluster.admin
        self.machines = [host.name for host in self.cluster.hosts.values()]
        self._logs = stream_cluster.Brokers(self.cluster)
        self.bootstrap = self._logs.bootstrap

    async def form(self) -> None:
        await self.cluster.form()

    async def make_topic(self, name: str, partitions: int, options: Mapping[str, str]) -> None:
        await self.cluster.make_topic(name, partitions, {"min.insync.replicas": str(MIN_INSYNC), **options})

    def batches(self, topic: str, index: int) -> list[Batch] | None:
        return self._logs.batches(topic, index)

    async def fail(self) -> None:
        await kill_a_leader(self.cluster, LEADERS)

    async def mend(self) -> None:
        await self.cluster.up(SETTLE_S)


class Brokers(Protocol):
    """Where the app's topics are. machines: names of those of the brokers."""

    bootstrap: str
    admin: Process
    machines: list[str]

    async def form(self) -> None: ...

    async def make_topic(self, name: str, partitions: int, options: Mapping[str, str]) -> None: ...

    def batches(self, topic: str, index: int) -> list[Batch] | None:
        """What is readable of a partition; None if nobody can tell now."""
        ...

    async def fail(self) -> None:
        """One of them, or all; they come back by themselves."""
        ...

    async def mend(self) -> None:
        """Until all serve."""
        ...


class Input:
    """Writes all inputs: an order with a limit, and a payment before or after it; visits, notes and questions. Some
    orders come twice, some are late."""

    def __init__(self, sim: Simulation, bootstrap: str, audit: PipelineAudit, *, transactional: bool) -> None:
        self.sim = sim
        self.bootstrap = bootstrap
        self.audit = audit
        self.transactional = transactional
        self.number = 1
        self.rounds = 0
        self.payments = INPUTS[PAYMENTS]  # partitions
        self.is_enough = False
        self.machine = sim.machine("input")

    async def run(self) -> None:
        process = self.machine.start()
        await process.outcome(self._run(process))

    async def _run(self, process: Process) -> None:
        client = Client(self.bootstrap, client_id="input", runtime=process.runtime)
        await retried(client.start)
        while not self.is_enough:
            producer = Producer(client, transactional_id="input" if self.transactional else None)
            try:
                await producer.start()
                while not self.is_enough:
                    if len(client.partitions(PAYMENTS)) != self.audit.partitions[PAYMENTS]:
                        await client.refresh_metadata([PAYMENTS])
                    self.payments = len(client.partitions(PAYMENTS))
                    if self.rounds < ROUNDS:
                        await self._some(producer)
                    await asyncio.sleep(process.runtime.random.uniform(0.0, PAUSE_S))
            except (ClientError, KafkaError) as error:
                self.sim.notes.append(f"{self.sim.loop.time():.3f} {process.name}: {error!r}")
                await asyncio.sleep(0.5)
            finally:
                with contextlib.suppress(ClientError, KafkaError):
                    await producer.close()
        await client.close()

    async def _some(self, producer: Producer) -> None:
        chance = self.sim.random
        self.rounds += 1
        if self.transactional:
            await producer.begin_transaction()
        sent = [each for _ in range(chance.randint(1, 3)) for each in self._one(producer)]
        await asyncio.gather(*sent)
        if self.transactional and chance.random() < 0.2:
            self.sim.counters["aborted_inputs"] += 1
            await producer.abort_transaction()
        elif self.transactional:
            await producer.commit_transaction()

    def _one(self, producer: Producer) -> Iterator[asyncio.Future[Any]]:
        chance, number = self.sim.random, self.number
        self.number += 1
        at_ms = self.sim.wall_start_ms + number * 1_500 - (40_000 if chance.random() < 0.15 else 0)
        key = b"o%d" % number

        def send(topic: str, value: Any, key: bytes = key, partition: int | None = None) -> asyncio.Future[Any]:
            return producer.send(topic, orjson.dumps(value), key, partition=partition, timestamp_ms=at_ms)

        def pay() -> asyncio.Future[Any]:
            return send(PAYMENTS, {"id": number}, partition=chance.randrange(self.payments))

        yield send(LIMITS, {"limit": number})
        if early := chance.random() < 0.5:
            yield pay()
        for _ in range(chance.choice((1, 1, 1, 2))):
            yield send(ORDERS, {"id": number, "shop": f"s{number % SHOPS}"})
        if not early and chance.random() < 0.8:
            yield pay()
        yield send(VISITS, {"id": number}, b"v%d" % (number // 6))
        yield send(NOTES, {"id": number})
        item = number if number < ITEMS_ONCE else number % ITEMS_AGAIN
        yield send(ITEMS, {"id": number, "shop": f"s{chance.randrange(SHOPS)}"}, b"i%d" % item)
        if number % 3 == 0:
            yield send(PRICES, {"price": number}, b"s%d" % chance.randrange(SHOPS))
        if number % 4 == 0:
            yield send(QUESTIONS, {"id": number})


@contextlib.contextmanager
def copies_counted(sim: Simulation) -> Iterator[None]:
    real = Copies.take

    def take(self: Copies, id: TaskId) -> Any:
        found = real(self, id)
        sim.counters["copies_taken"] += found is not None
        return found

    with mock.patch.object(Copies, "take", take):
        yield


class Versions:
    """Which version of the code each worker begins with."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.of: dict[str, int] = {}

    def make(self, name: str) -> App:
        return new_app(self.options._replace(version=self.of.get(name, 1)), name)


async def stream_pipelines(sim: Simulation) -> None:
    is_cluster = sim.seed % CLUSTER_EVERY == CLUSTER_AT
    sim.counters["on_three_brokers"] += is_cluster
    brokers: Brokers = Three(sim) if is_cluster else Alone(sim)
    sim.loop.kernel.limit_s = LIMIT_S
    state, hangs = LocalState(sim), Hangs(sim, brokers.machines)
    with counted(sim), hangs.watched(), copies_counted(sim), state.used():
        await run_app(sim, brokers, state, hangs)


async def run_app(sim: Simulation, brokers: Brokers, state: LocalState, hangs: Hangs) -> None:
    chance = sim.random
    options = Options(
        GUARANTEES[sim.seed % 2],
        CONSUMER if chance.random() < 0.4 else CLASSIC,
        DISK if chance.random() < 0.5 else MEMORY,
        chance.choice((0, 1, 1)),
    )
    sim.counters[options.guarantee] = sim.counters[options.protocol] = sim.counters[options.store] = 1
    await brokers.form()
    admin = brokers.admin
    names = [f"worker{number}" for number in range(chance.choice((1, 2, 2, 3)))]
    topics = {**INPUTS, **OUTPUTS, **{f"replies-{name}": 1 for name in names}}
    for topic, partitions in topics.items():
        await brokers.make_topic(topic, partitions, {})
    is_compacted = chance.random() < 0.5
    sim.counters["compacted"] += is_compacted
    for table in TABLES:  # they decide how many partitions the app's tasks have, so that payments need a bridge
        count, given = (
            1 if table == "seen" else PARTITIONS,
            CHANGELOG if is_compacted else {"cleanup.policy": "compact"},
        )
        await brokers.make_topic(f"{APP}-{table}-changelog", count, given)
    audit = PipelineAudit(sim, admin, brokers.bootstrap, brokers.batches, options.guarantee)
    await admin.outcome(retried(audit.client.start))
    await admin.outcome(write_regions(audit.client))
    versions = Versions(options)
    hosts = [StreamHost(sim, name, brokers.bootstrap, partial(versions.make, name)) for name in names]
    hangs.names = names
    feed = Input(sim, brokers.bootstrap, audit, transactional=chance.random() < 0.5)
    running = sim.loop.create_task(feed.run())
    await asyncio.sleep(chance.uniform(1.0, 4.0))
    for _ in range(chance.randint(*EVENTS)):
        await disturb(sim, brokers, admin, audit, hosts, state, hangs, versions)
        await asyncio.sleep(chance.uniform(0.5, 3.0))
        if chance.random() < 0.4:
            await admin.outcome(retried_look(sim, audit, hosts))
    hangs.end()
    await brokers.mend()
    for host in hosts:
        host.wanted = True
    feed.is_enough = True
    await asyncio.wait_for(running, SETTLE_S)
    deadline = sim.loop.time() + SETTLE_S
    while not await admin.outcome(retried_look(sim, audit, hosts)):
        assert sim.loop.time() < deadline, f"the app does not come to an end: {audit.undone}"
        await asyncio.sleep(2.0)
    sim.counters["processed"] += feed.number


async def write_regions(client: Client) -> None:
    producer = Producer(client)
    await producer.start()
    for number in range(SHOPS):
        shop = f"s{number}"
        await producer.send(REGIONS, orjson.dumps(region_of(shop)), shop.encode())
    await producer.close()


async def retried_look(sim: Simulation, audit: PipelineAudit, hosts: Sequence[StreamHost]) -> bool:
    """A look that is disturbed is done again; one that finds something wrong is not."""
    deadline = sim.loop.time() + SETTLE_S
    while True:
        for host in hosts:
            if host.keeper.done():
                host.keeper.result()
            for id, failed in () if host.worker is None else host.worker.failed.items():
                assert isinstance(failed.problem, ChangeRefused), f"task {id} has failed: {failed.problem}"
        try:
            return await audit.look()
        except (ClientError, KafkaError, OSError, NobodyTells) as error:
            assert sim.loop.time() < deadline, f"the tables cannot be read: {error!r}"
        await asyncio.sleep(0.3)


async def disturb(
    sim: Simulation,
    brokers: Brokers,
    admin: Process,
    audit: PipelineAudit,
    hosts: list[StreamHost],
    state: LocalState,
    hangs: Hangs,
    versions: Versions,
) -> None:
    """One thing happens."""
    chance = sim.random
    fault, host = chance.choice(FAULTS), chance.choice(hosts)
    sim.counters[f"fault_{fault}"] += 1
    if fault == "worker":
        host.machine.kill()
    elif fault == "power":
        if host.is_alive:
            host.machine.kill(power=True)
            state.cut_power(host.machine.name)
    elif fault == "broker":
        await brokers.fail()
    elif fault == "hang":
        await hangs.one_more(hosts)
        await asyncio.sleep(chance.uniform(*HANG_S))
        hangs.end()
    elif fault == "leave":
        await host.leave()
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        host.wanted = True
    elif fault == "upgrade":
        for each in chance.sample(hosts, len(hosts)):
            versions.of[each.machine.name] = 2
            if chance.random() < 0.5:
                each.machine.kill()
            elif each.worker is not None:
                await each.worker.stop()
            await asyncio.sleep(chance.uniform(0.0, 4.0))
    elif audit.partitions[PAYMENTS] == INPUTS[PAYMENTS]:
        grown = INPUTS[PAYMENTS] + 1
        with contextlib.suppress(KafkaError):  # it is there, where an answer was lost
            await admin.outcome(Admin(audit.client).create_partitions(PAYMENTS, grown))
        audit.partitions[PAYMENTS] = grown
        sim.counters["grown"] += 1
