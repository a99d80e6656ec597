"""A stream app whose workers hang past their sessions, in groups of both protocols, while its changelogs are compacted
as often as they can be.

A worker that hangs is stopped or cut off from the broker, at any moment or in a step of a commit: what it has in
flight, and what it does before it learns that it is out of its group, arrives after another worker began with its
tasks. Workers are killed and started again, too, so that what compaction left is restored. Whenever one looks, tables,
positions and outputs are what the input says, as in `streams`. Rows are set, deleted and left alone for long, since a
row that is written again mends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

from isthmus.client import Producer
from isthmus.protocol.records import decode_batch
from isthmus.streams.engine.task import Checkpoint, Task

from ..history import batches_of
from ..hosts import PROCESS
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..stream_apps import APP, EVENTS, GUARANTEES, TABLES, Audit, StreamHost, Writer, counted, new_app
from .producers import create_topic
from .streams import PARTITIONS, PROTOCOLS, TRANSACTIONS, OneBroker, make_topics

WORKERS = 3
HANG_S = (10.5, 16.0)  # longer than a session
SHORT_SESSION_S = 4.0  # the simulated time until a group has noticed that a worker hangs is most of a run
SHORT_HANG_S = (4.2, 6.4)
STEP_WITHIN_S = 3.0
SETTLE_S = 300.0
AT_STEPS = ("checkpoint", "offsets", "commit")
# Each segment is closed after a moment, and compacted soon; tombstones stay for longer than a restart takes.
CHANGELOG = {
    "cleanup.policy": "compact",
    "segment.ms": "300",
    "min.cleanable.dirty.ratio": "0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "90000",
}
BROKER = {
    "durability": "fsync",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(round(SHORT_SESSION_S * 1000)),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
    "log.cleaner.backoff.ms": "300",
    **TRANSACTIONS,
}


class Hangs:
    """Makes workers hang: at any moment, or as they come to a step of a commit, or just after they have asked for it.
    peers: machines that those that are cut off do not reach. for_s: how long those that are not cut off hang."""

    def __init__(self, sim: Simulation, peers: Sequence[str], for_s: tuple[float, float] = HANG_S) -> None:
        self.sim = sim
        self.peers = peers
        self.for_s = for_s
        self.names: list[str] = []  # of machines of workers
        self.hung: dict[str, None] = {}
        self._awaited: tuple[str, asyncio.Future[None]] | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        real_checkpoint, real_offsets, real_commit = Task.checkpoint, Producer.send_offsets, Producer.commit_transaction

        def checkpoint(task: Task) -> Checkpoint:
            self._at("checkpoint")
            return real_checkpoint(task)

        async def send_offsets(producer: Producer, *given: Any) -> None:
            self._at("offsets")
            await real_offsets(producer, *given)

        async def commit_transaction(producer: Producer) -> None:
            self._at("commit")
            await real_commit(producer)

        with (
            mock.patch.object(Task, "checkpoint", checkpoint),
            mock.patch.object(Producer, "send_offsets", send_offsets),
            mock.patch.object(Producer, "commit_transaction", commit_transaction),
        ):
            yield

    def _at(self, step: str) -> None:
        process = PROCESS.get()
        if process is None or self._awaited is None or self._awaited[0] != step:
            return
        name, (_, reached) = process.machine.name, self._awaited
        if name in self.names and name not in self.hung:
            self._awaited = None
            self.hung[name] = None
            self.sim.counters[f"hung_at_{step}"] += 1
            # The request may be there, and its answer not.
            self.sim.loop.call_later(self.sim.random.choice((0.0, 0.0, 0.001, 0.003)), self._hang, name)
            reached.set_result(None)

    async def one_more(self, hosts: Sequence[StreamHost]) -> None:
        """One of those who do not hang yet hangs."""
        if self.sim.random.random() < 0.8:
            reached: asyncio.Future[None] = self.sim.loop.create_future()
            self._awaited = (self.sim.random.choice(AT_STEPS), reached)
            try:
                await asyncio.wait_for(reached, STEP_WITHIN_S)
                return
            except TimeoutError:  # such as when there is nothing left to be processed
                self._awaited = None
        left = [host.machine.name for host in hosts if host.machine.name not in self.hung]
        if left:
            name = self.sim.random.choice(left)
            self.hung[name] = None
            self._hang(name)

    def _hang(self, name: str) -> None:
        self.sim.counters["hung"] += 1
        if self.sim.random.random() < 0.3:
            self.sim.machine(name).hang(self.sim.random.uniform(*self.for_s))
        else:
            self.sim.network.partition([name], self.peers)

    def end(self) -> None:
        self.hung.clear()
        self.sim.network.heal()


async def hang(sim: Simulation, hosts: list[StreamHost], hangs: Hangs) -> None:
    """One worker hangs, and perhaps its successor before it comes back."""
    chance = sim.random
    for _ in range(chance.randint(1, len(hosts) - 1)):
        await hangs.one_more(hosts)
        await asyncio.sleep(chance.uniform(*SHORT_HANG_S))
        if chance.random() < 0.3:
            chance.choice(hosts).machine.kill()
    hangs.end()
    await asyncio.sleep(chance.uniform(0.0, 4.0))


async def zombies(sim: Simulation) -> None:
    hangs = Hangs(sim, ["broker"], SHORT_HANG_S)
    with counted(sim), hangs.watched():
        await run_app(sim, hangs)


async def run_app(sim: Simulation, hangs: Hangs) -> None:
    chance = sim.random
    guarantee = GUARANTEES[sim.seed % 2]
    broker = BrokerHost(sim, "broker", BROKER)
    await broker.up()
    admin = await make_topics(sim, broker)
    changelogs = [f"{APP}-{table}-changelog" for table in TABLES]
    for each in changelogs:
        await admin.outcome(create_topic(admin, broker.address, each, PARTITIONS[EVENTS], **CHANGELOG))
    logs = OneBroker(broker)
    audit = Audit(sim, admin, logs, guarantee, PARTITIONS)
    await admin.outcome(retried(audit.client.start))
    protocol = PROTOCOLS[sim.seed // 2 % 2]
    make = partial(new_app, guarantee, protocol, session_s=SHORT_SESSION_S)
    hosts = [StreamHost(sim, f"worker{number}", logs.bootstrap, make) for number in range(WORKERS)]
    audit.hosts = hosts
    hangs.names = [host.machine.name for host in hosts]
    writers = [
        Writer(sim, topic, logs.bootstrap, count, transactional=topic == EVENTS and chance.random() < 0.3)
        for topic, count in PARTITIONS.items()
    ]
    await asyncio.sleep(chance.uniform(1.0, 4.0))
    for _ in range(chance.randint(1, 3)):
        await hang(sim, hosts, hangs)
        fault = chance.choice(("worker", "all", "broker", "none"))
        sim.counters[f"fault_{fault}"] += 1
        if fault == "worker":
            chance.choice(hosts).machine.kill()
        elif fault == "all":
            for host in hosts:
                host.machine.kill()
        elif fault == "broker":
            broker.kill(power=chance.random() < 0.5)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            await broker.up()
        await admin.outcome(audit.retried_look(SETTLE_S))
    await asyncio.wait_for(asyncio.gather(*(each.until(30, 0.5) for each in writers)), SETTLE_S)
    await admin.outcome(audit.until_complete(SETTLE_S))
    for topic in changelogs:
        for index in range(PARTITIONS[EVENTS]):
            stored = batches_of(broker.partition_bytes(topic, index))
            held = sum(len(decode_batch(each.data)) for each in stored)
            sim.counters["compacted_away"] += stored[-1].last_offset + 1 - held
