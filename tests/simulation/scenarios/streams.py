"""A stream app under kills of its workers and of the broker, with one worker or two that share its tasks, in groups of
both protocols.

Whenever one looks, its tables are what their positions say: the input up to there, folded once. With exactly_once its
outputs are those of each input record, once and in order, and go with tables and positions; with at_least_once none is
missing. In a batch the loop turns at most three times.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any
from unittest import mock

from isthmus.client.joining import CLASSIC, CONSUMER
from isthmus.streams.runtime.lane import Lane

from ..history import Batch
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..stream_apps import (
    AT_LEAST_ONCE,
    EVENTS,
    GUARANTEES,
    NOTED,
    NOTES,
    TALLIED,
    Audit,
    StreamHost,
    Writer,
    counted,
    new_app,
)
from .producers import create_topic

PARTITIONS = {EVENTS: 2, NOTES: 1}
SETTLE_S = 900.0
TURNS_A_BATCH = 3
TRANSACTIONS = {
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
GROUPS = {
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "10000",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "group.consumer.heartbeat.interval.ms": "1000",
}
BROKER = {"durability": "fsync", **GROUPS, **TRANSACTIONS}
PROTOCOLS = CLASSIC, CONSUMER


class OneBroker:
    """Logs of a broker that is alone."""

    def __init__(self, broker: BrokerHost) -> None:
        self.broker = broker
        self.bootstrap = broker.address

    def batches(self, topic: str, index: int) -> list[Batch]:
        return self.broker.partition(topic, index)


@contextlib.contextmanager
def turns_watched(sim: Simulation) -> Iterator[None]:
    """Looks how often the loop turns while a task whose agent waits for nothing takes a batch in."""
    real = Lane.process

    async def process(self: Lane, *batch: Any) -> int:
        before = sim.loop.kernel.turn
        done = await real(self, *batch)
        turns = sim.loop.kernel.turn - before
        if self.task.stores:
            assert turns <= TURNS_A_BATCH, f"{turns} turns of the loop for one batch"
            sim.counters["stream_batches"] += 1
        return done

    with mock.patch.object(Lane, "process", process):
        yield


async def streams(sim: Simulation) -> None:
    guarantee = GUARANTEES[sim.seed % 2]
    # With exactly_once an output waits for its transaction to begin, or for the commit before it.
    watched = turns_watched(sim) if guarantee == AT_LEAST_ONCE else contextlib.nullcontext()
    with counted(sim), watched:
        await run_app(sim, guarantee, PROTOCOLS[sim.seed // 2 % 2])


async def make_topics(sim: Simulation, broker: BrokerHost) -> Any:
    """The inputs and outputs; gives the administrator's process."""
    admin = sim.machine("admin").start()
    for topic, partitions in PARTITIONS.items():
        for each in (topic, {EVENTS: TALLIED, NOTES: NOTED}[topic]):
            await admin.outcome(create_topic(admin, broker.address, each, partitions))
    return admin


async def run_app(sim: Simulation, guarantee: str, protocol: str) -> None:
    chance = sim.random
    broker = BrokerHost(sim, "broker", BROKER)
    await broker.up()
    admin = await make_topics(sim, broker)
    logs = OneBroker(broker)
    audit = Audit(sim, admin, logs, guarantee, PARTITIONS)
    await admin.outcome(retried(audit.client.start))
    workers = [
        StreamHost(sim, f"worker{number}", logs.bootstrap, partial(new_app, guarantee, protocol))
        for number in range(chance.choice((1, 2)))
    ]
    audit.hosts = workers
    writers = [
        Writer(sim, topic, logs.bootstrap, count, transactional=topic == EVENTS and chance.random() < 0.5)
        for topic, count in PARTITIONS.items()
    ]
    for _ in range(chance.randint(1, 4)):
        await asyncio.sleep(chance.uniform(0.2, 2.0))
        fault = chance.choice(("worker", "worker", "broker", "cut"))
        sim.counters[f"fault_{fault}"] += 1
        if fault == "worker":
            chance.choice(workers).machine.kill()
        elif fault == "cut":
            sim.network.cut()
        else:
            power = chance.random() < 0.5
            broker.kill(power=power)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            await broker.up(crash_chance=0.2)
        if chance.random() < 0.5:
            await admin.outcome(audit.retried_look(SETTLE_S))
    await asyncio.wait_for(asyncio.gather(*(each.until(30, 0.5) for each in writers)), SETTLE_S)
    await admin.outcome(audit.until_complete(SETTLE_S))
