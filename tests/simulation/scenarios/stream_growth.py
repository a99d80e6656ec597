"""A stream app on three brokers whose inputs grow, those with tables, too, while its tasks move; and that is stopped,
saved and restored into new topics.

What the app is of, and what must hold of all that it writes, is in `growth_apps`. When an input grows, a broker may be
late to know it. Coordinators and leaders die; workers come, go, hang and are killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import orjson

from isthmus.client import Admin, Client, Producer
from isthmus.client.errors import ClientError
from isthmus.client.joining import CLASSIC, CONSUMER
from isthmus.protocol.errors import KafkaError
from isthmus.streams import AppError, ChangelogError, StreamsError
from isthmus.streams.savepoints import fence, plan, positions, restoring, taking
from isthmus.streams.savepoints.format import Savepoint

from ..brokers import Cluster
from ..growth_apps import (
    APP,
    CLICKS,
    GROWS,
    LOGINS,
    PAIRS,
    PARTITIONS,
    SESSION_S,
    TABLES,
    TOLD,
    VIA,
    GrowthAudit,
    Options,
    new_app,
)
from ..hosts import Process
from ..network import Link
from ..product import retried
from ..runner import Simulation
from ..stream_apps import GUARANTEES, NobodyTells, StreamHost, counted
from .stream_cluster import MIN_INSYNC, OFFSETS, STATE, Brokers, kill_a_leader, new_cluster
from .zombies import Hangs

BROKER = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(round(SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
FAULTS = ("grow", "grow", "grow", "kill", "worker", "hang", "leave", "restore")
EVENTS = (2, 4)  # a run
ROUNDS = 50  # of the input, at the most, while things happen
PAUSE_S = 0.4
HUNG_S = (4.2, 6.4)  # longer than a session
LATE_S = (1.0, 3.0)  # how late a broker hears from the others
LATE_FOR_S = (2.0, 6.0)
GLANCE_S = 20.0  # brokers may be down
SETTLE_S = 150.0
LIMIT_S = 2_000.0


class Input:
    """Writes all inputs, by the numbers of partitions that a broker tells it now. No number is written again."""

    def __init__(self, sim: Simulation, bootstrap: str, *, transactional: bool) -> None:
        self.sim = sim
        self.bootstrap = bootstrap
        self.transactional = transactional
        self.number = self.rounds = 0
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
                    if self.rounds < ROUNDS:
                        await client.refresh_metadata([CLICKS, PAIRS])
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
        sent = [each for _ in range(chance.randint(1, 4)) for each in self._one(producer)]
        await asyncio.gather(*sent)
        if self.transactional and chance.random() < 0.2:
            self.sim.counters["aborted_inputs"] += 1
            await producer.abort_transaction()
        elif self.transactional:
            await producer.commit_transaction()

    def _one(self, producer: Producer) -> Iterator[asyncio.Future[Any]]:
        chance, number = self.sim.random, self.number
        self.number += 1
        value = orjson.dumps({"id": number})
        at_ms = self.sim.wall_start_ms + number * 500 - (chance.randint(0, 30_000) if chance.random() < 0.15 else 0)
        yield producer.send(CLICKS, value, b"c%d" % (number % 11), timestamp_ms=at_ms)
        if number % 3 == 0:
            yield producer.send(PAIRS, value, b"p%d" % (number % 5), timestamp_ms=at_ms)
        # Some keys come once, so that their rows end.
        key = b"l%d" % (number if chance.random() < 0.3 else number % 7)
        yield producer.send(LOGINS, value if chance.random() < 0.9 else None, key, timestamp_ms=at_ms)


async def stream_growth(sim: Simulation) -> None:
    sim.loop.kernel.limit_s = LIMIT_S
    brokers = new_cluster(sim, is_durable=False, more=BROKER)
    hangs = Hangs(sim, [host.name for host in brokers.hosts.values()])
    with counted(sim), hangs.watched():
        await run_app(sim, brokers, hangs)


async def run_app(sim: Simulation, brokers: Cluster, hangs: Hangs) -> None:
    chance = sim.random
    options = Options(
        GUARANTEES[sim.seed % 2], CONSUMER if chance.random() < 0.3 else CLASSIC, 1 if chance.random() < 0.5 else 0
    )
    await brokers.form()
    topics = {CLICKS: PARTITIONS, PAIRS: PARTITIONS, LOGINS: PARTITIONS, TOLD: PARTITIONS, VIA: 1}
    topics |= {f"{APP}-{table}-changelog": PARTITIONS for table in TABLES}
    for name, count in topics.items():
        compacted = {"cleanup.policy": "compact"} if name.endswith("-changelog") else {}
        await brokers.make_topic(name, count, {"min.insync.replicas": str(MIN_INSYNC), **compacted})

    def count_of(topic: str) -> int:
        image = brokers.image()
        if image is None:
            raise NobodyTells(topic)
        return len(image.topics[topic].partitions)

    logs = Brokers(brokers)
    audit = GrowthAudit(sim, brokers.admin, logs.bootstrap, logs.batches, count_of, options.guarantee)
    await brokers.admin.outcome(retried(audit.client.start))
    make = partial(new_app, options)
    audit.hosts = hosts = [
        StreamHost(sim, f"worker{number}", logs.bootstrap, make) for number in range(chance.randint(2, 3))
    ]
    hangs.names = [host.machine.name for host in hosts]
    feed = Input(sim, logs.bootstrap, transactional=chance.random() < 0.3)
    running = sim.loop.create_task(feed.run())
    await asyncio.sleep(chance.uniform(1.0, 3.0))
    for _ in range(chance.randint(*EVENTS)):
        await disturb(sim, brokers, audit, hosts, hangs)
        await asyncio.sleep(chance.uniform(0.0, 2.0))
        if chance.random() < 0.4:
            await brokers.admin.outcome(glance(audit))
    hangs.end()
    await brokers.up(SETTLE_S)
    for host in hosts:
        host.wanted = True
    feed.is_enough = True
    await asyncio.wait_for(running, SETTLE_S)
    deadline = sim.loop.time() + SETTLE_S
    while not await brokers.admin.outcome(retried_look(audit, SETTLE_S)):
        assert sim.loop.time() < deadline, f"the app does not come to an end: {audit.undone}"
        await asyncio.sleep(3.0)
    sim.counters["processed"] += feed.number


async def retried_look(audit: GrowthAudit, within_s: float) -> bool:
    """A look that is disturbed is done again; one that finds something wrong is not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_s
    while True:
        try:
            return await audit.look()
        except ChangelogError as error:
            raise AssertionError(f"a changelog cannot be read: {error}") from error
        except (ClientError, KafkaError, OSError, NobodyTells) as error:
            assert loop.time() < deadline, f"the tables cannot be read: {error!r}"
        await asyncio.sleep(0.3)


async def glance(audit: GrowthAudit) -> None:
    """A look, unless it is disturbed for all this time."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(retried_look(audit, 1e9), GLANCE_S)


async def disturb(sim: Simulation, brokers: Cluster, audit: GrowthAudit, hosts: list[StreamHost], hangs: Hangs) -> None:
    """One thing happens."""
    chance = sim.random
    fault, host = chance.choice(FAULTS), chance.choice(hosts)
    sim.counters[f"fault_{fault}"] += 1
    if fault == "grow":
        await grow(sim, brokers, audit)
    elif fault == "kill":
        await kill_a_leader(brokers, (STATE, OFFSETS, CLICKS, VIA, f"{APP}-{TABLES[0]}-changelog"))
    elif fault == "worker":
        host.machine.kill()
    elif fault == "hang":
        await hangs.one_more(hosts)
        await asyncio.sleep(chance.uniform(*HUNG_S))
        hangs.end()
    elif fault == "leave":
        await host.leave()
        await asyncio.sleep(chance.uniform(0.0, 3.0))
        host.wanted = True
    else:
        await restore(sim, brokers, audit, hosts)


async def grow(sim: Simulation, brokers: Cluster, audit: GrowthAudit) -> None:
    """An input has one more partition, which is written to at once; mostly while a broker hears late from the others,
    and sometimes while a worker dies."""
    chance = sim.random
    topic = chance.choice((CLICKS, CLICKS, PAIRS))
    count = len(audit.client.partitions(topic)) or PARTITIONS
    if count >= GROWS[topic]:
        return
    if chance.random() < 0.7:
        late = chance.choice(list(brokers.hosts.values())).name
        links = [link for (sender, to), link in sim.network.links.items() if to == late and sender[0] == "b"]
        for link in links:
            link.latency_s = LATE_S
        sim.loop.call_later(chance.uniform(*LATE_FOR_S), hear_in_time, links)
    try:
        await brokers.admin.outcome(Admin(audit.client).create_partitions(topic, count + 1))
    except (KafkaError, ClientError, OSError) as error:
        sim.notes.append(f"{sim.loop.time():.3f} growth: {error!r}")
        return
    sim.counters[f"grown_{topic}"] += 1
    if chance.random() < 0.3:
        await asyncio.sleep(chance.uniform(0.0, 1.0))
        chance.choice(audit.hosts).machine.kill()


def hear_in_time(links: list[Link]) -> None:
    for link in links:
        link.latency_s = Link().latency_s


async def restore(sim: Simulation, brokers: Cluster, audit: GrowthAudit, hosts: list[StreamHost]) -> None:
    """All workers end, some of them by a kill; the app is saved, and goes on with new topics made of that."""
    for host in hosts:
        host.wanted = False
        if sim.random.random() < 0.3:
            host.machine.kill()
        else:
            await host.leave()
    await sim.until(lambda: not any(host.is_alive for host in hosts), "all workers have ended", SETTLE_S)
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(restoring.fence, "Change", _without_folder):
        await brokers.admin.outcome(_save_and_restore(audit.client, Path(folder)))
    sim.counters["restored"] += 1
    for host in hosts:
        host.wanted = True


_Change = fence.Change


def _without_folder(what: str, folder: str = "", taken_ms: int = 0) -> fence.Change:
    """The folder's name is another one in each process, and would be in the trace."""
    return _Change(what, "/savepoint" if folder else "", taken_ms)


async def _save_and_restore(client: Client, folder: Path) -> None:
    async def save() -> Savepoint:
        for number in range(1000):  # each attempt needs a folder that is not there
            if not (its := folder / str(number)).exists():
                return await taking.take(client, APP, its)
        raise AssertionError("never saved")

    async def put_back() -> None:
        where = await positions.resolve(client, saved.manifest.inputs, {})
        await restoring.restore(client, saved, plan.as_it_was(saved, where, APP), force=True)

    saved = await again(save)
    await again(put_back)


async def again(what: Any) -> Any:
    """What an administrator does until it goes through: members of the group may be dead and not missed yet."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SETTLE_S
    while True:
        try:
            return await what()
        except ChangelogError as error:
            raise AssertionError(f"a changelog cannot be read: {error}") from error
        except (AppError, StreamsError, ClientError, KafkaError, OSError) as error:
            assert loop.time() < deadline, f"it does not go through: {error!r}"
        await asyncio.sleep(1.0)
