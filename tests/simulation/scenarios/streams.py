"""A stream app under kills of its workers and of the broker, with one worker or two that share its tasks.

Its table, read from the changelog up to the last markers, ends equal to what a plain count over the input topic gives:
each input record counted once, whatever was killed between. In a batch the loop turns at most three times.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from isthmus.client import Client
from isthmus.streams import App, table_reader
from isthmus.streams.runtime.agents import TaskRun
from isthmus.streams.runtime.worker import StreamWorker

from ..application import produce
from ..hosts import Process, ProcessKilled
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..workload import Workload, values_in
from .producers import create_topic

TOPIC = "events"
PARTITIONS = 2
SETTLE_S = 900.0
TURNS_A_BATCH = 3


def counting_app() -> App:
    """Counts the records of each key."""
    app = App("counts", checkpoint_interval_ms=200)
    source = app.topic(TOPIC)
    table = app.Table("totals", default=int)

    @app.agent(source)
    async def count(stream: Any) -> None:
        async for event in stream.events():
            table[event.key.decode()] += 1

    return app


@contextlib.contextmanager
def turns_watched(sim: Simulation) -> Iterator[None]:
    """Looks how often the loop turns while a task takes a batch in."""
    real = TaskRun.process

    async def process(self: TaskRun, *batch: Any) -> int:
        before = sim.loop.kernel.turn
        done = await real(self, *batch)
        turns = sim.loop.kernel.turn - before
        assert turns <= TURNS_A_BATCH, f"{turns} turns of the loop for one batch"
        sim.counters["stream_batches"] += 1
        return done

    with mock.patch.object(TaskRun, "process", process):
        yield


class StreamHost:
    """A machine that runs one stream worker, one life after the other."""

    def __init__(
        self, sim: Simulation, name: str, broker: BrokerHost, make_app: Callable[[], App] = counting_app
    ) -> None:
        self.sim = sim
        self.machine = sim.machine(name)
        self.broker = broker
        self.make_app = make_app
        self.keeper = sim.loop.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            process = self.machine.start()
            try:
                await process.outcome(self._run(process))
            except ProcessKilled:
                pass
            except AssertionError:
                raise
            except Exception as error:
                self.sim.counters["worker_exits"] += 1
                self.sim.notes.append(f"{self.sim.loop.time():.3f} {process.name}: {error!r}")
                self.machine.kill()
            await asyncio.sleep(self.sim.random.uniform(0.1, 2.0))

    async def _run(self, process: Process) -> None:
        client = Client(self.broker.address, client_id="counts", runtime=process.runtime)
        await client.start()
        worker = StreamWorker(self.make_app(), client, process.runtime)
        try:
            await worker.start()
            await worker.run()
        except Exception:
            await worker.abandon()
            await client.close()
            raise


async def streams(sim: Simulation) -> None:
    with turns_watched(sim):
        await run_app(sim)


async def run_app(sim: Simulation) -> None:
    chance = sim.random
    options = {"durability": "fsync", "group.min.session.timeout.ms": "1000"}
    broker = BrokerHost(sim, "broker", options)
    await broker.up()
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, broker.address, TOPIC, PARTITIONS))
    workers = [StreamHost(sim, f"worker{number}", broker) for number in range(chance.choice((1, 2)))]
    workload = Workload("w", TOPIC)
    machine = sim.machine("app")
    work = produce(
        sim, machine, workload, broker.address, count=chance.randint(40, 120), partitions=PARTITIONS, linger_ms=5,
        delivery_timeout_ms=120_000,
    )  # fmt: skip
    running = machine.start().outcome(work)
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
    await asyncio.wait_for(running, SETTLE_S)
    oracle: Counter[str] = Counter()
    for index in range(PARTITIONS):
        for stored in values_in(broker.partition(TOPIC, index), index):
            oracle[stored.key] += 1
    await admin.outcome(until_equal(sim, admin, broker, dict(oracle), workers))
    sim.counters["counted"] += sum(oracle.values())


async def until_equal(
    sim: Simulation, process: Process, broker: BrokerHost, oracle: dict[str, int], workers: list[StreamHost]
) -> None:
    client = Client(broker.address, client_id="reader", runtime=process.runtime)
    await retried(client.start)
    found: Counter[str] = Counter()
    deadline = sim.loop.time() + SETTLE_S
    while sim.loop.time() < deadline:
        committed = await retried(lambda: table_reader.read(client, "counts"))
        found.clear()
        for row in committed.rows:
            found[row.key] += row.value
        for key, count in found.items():
            assert count <= oracle.get(key, 0), (
                f"{key} was counted {count} times, it is there {oracle.get(key, 0)} times"
            )
        if dict(found) == oracle:
            await client.close()
            return
        await asyncio.sleep(2.0)
    raise AssertionError(f"the table stays {dict(found)}, the input has {oracle}")
