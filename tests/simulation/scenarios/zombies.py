"""A stream app whose workers hang past their sessions, while its changelog is compacted as often as it can be.

A worker that hangs is cut off from the broker: what it has in flight, and what it does before it learns that it is out
of its group, arrives after another worker began with its tasks. Workers are killed and started again, too, so that what
compaction left is restored. Whenever the changelog is read, the tables are what its positions say: the input up to
there, folded once. Rows are set, deleted and left alone for long, since a row that is written again mends itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from isthmus.client import Client
from isthmus.protocol.records import decode_batch
from isthmus.streams import App, ChangelogError, table_reader
from isthmus.streams.engine.task import Checkpoint, Task

from ..application import produce
from ..history import batches_of
from ..hosts import PROCESS, Process
from ..product import BrokerHost, retried
from ..runner import Simulation
from ..workload import Stored, Workload, values_in
from .producers import create_topic
from .streams import StreamHost

APP, TOPIC = "zombies", "events"
PARTITIONS = 2
WORKERS = 3
HANG_S = (10.5, 16.0)  # longer than a session
CHECKPOINT_WITHIN_S = 3.0
SETTLE_S = 300.0
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
    "log.cleaner.backoff.ms": "300",
}


def row_of(key: str, value: bytes) -> str:
    """The row that an input record changes: one record or two change it, then it is left alone."""
    number = int(value.rstrip(b".")[2:])
    return f"{key}-{number // 12}"


def toggling_app() -> App:
    """Counts the records of each row; every other record deletes the row from a second table, the others set it."""
    app = App(APP, checkpoint_interval_ms=200)
    totals = app.Table("totals", default=int)
    odd = app.Table("odd")

    @app.agent(app.topic(TOPIC))
    async def toggle(stream: Any) -> None:
        async for event in stream.events():
            row = row_of(event.key.decode(), event.value)
            totals[row] += 1
            if row in odd:
                del odd[row]
            else:
                odd[row] = event.offset

    return app


def folded(records: list[Stored]) -> dict[tuple[str, str], int]:
    """What the app's tables hold after these records."""
    tables: dict[tuple[str, str], int] = {}
    for each in records:
        row = row_of(each.key, each.value)
        tables["totals", row] = tables.get(("totals", row), 0) + 1
        if tables.pop(("odd", row), None) is None:
            tables["odd", row] = each.offset
    return tables


class Reader:
    """Reads the changelog and compares it with the input."""

    def __init__(self, sim: Simulation, process: Process, broker: BrokerHost) -> None:
        self.sim = sim
        self.broker = broker
        self.client = Client(broker.address, client_id="reader", runtime=process.runtime)
        self.positions: dict[int, int] = {}

    async def look(self) -> bool:
        """Whether all input has been processed. Raises AssertionError when tables and positions do not agree."""
        committed = await table_reader.read(self.client, APP)
        positions = committed.positions.get(TOPIC, {})
        complete = True
        for index in range(PARTITIONS):
            position = positions.get(index, 0)
            assert position >= self.positions.get(index, 0), f"the position of task {index} went back to {position}"
            self.positions[index] = position
            records = values_in(self.broker.partition(TOPIC, index), index)
            complete = complete and position == len(records)
            want = folded(records[:position])
            found = {(row.table, row.key): row.value for row in committed.rows if row.task == index}
            differ = {each: (found.get(each), want.get(each)) for each in found.keys() | want.keys()}
            differ = {each: both for each, both in sorted(differ.items()) if both[0] != both[1]}
            assert not differ, f"task {index} at position {position}: (found, wanted) {differ}"
        self.sim.counters["looks"] += 1
        return complete

    async def until_complete(self) -> None:
        deadline = self.sim.loop.time() + SETTLE_S
        while not await retried_look(self):
            assert self.sim.loop.time() < deadline, f"the app stays at {self.positions}"
            await asyncio.sleep(2.0)


async def retried_look(reader: Reader) -> bool:
    """A look that is disturbed is done again; one that finds something wrong is not."""
    deadline = reader.sim.loop.time() + SETTLE_S
    while True:
        try:
            return await reader.look()
        except AssertionError:
            raise
        except ChangelogError as error:
            raise AssertionError(f"the changelog cannot be read: {error}") from error
        except Exception as error:
            assert reader.sim.loop.time() < deadline, f"the changelog cannot be read: {error!r}"
        await asyncio.sleep(0.3)


class Hangs:
    """Cuts workers off from the broker: at any moment, or as they begin a checkpoint, which is under way then until
    they come back."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.hung: dict[str, None] = {}  # names of machines
        self._awaited: asyncio.Future[None] | None = None

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        real_checkpoint, real_check = Task.checkpoint, Task.advance_and_check

        def checkpoint(task: Task) -> Checkpoint:
            process = PROCESS.get()
            if self._awaited is not None and process is not None and process.machine.name not in self.hung:
                self._cut_off(process.machine.name)
                self._awaited.set_result(None)
                self._awaited = None
            return real_checkpoint(task)

        def advance_and_check(task: Task, offsets: Sequence[int]) -> bool:
            found = real_check(task, offsets)
            self.sim.counters["stopped_for_others"] += not found
            return found

        with (
            mock.patch.object(Task, "checkpoint", checkpoint),
            mock.patch.object(Task, "advance_and_check", advance_and_check),
        ):
            yield

    async def one_more(self, hosts: list[StreamHost]) -> None:
        """One of those who do not hang yet hangs."""
        if self.sim.random.random() < 0.8:
            self._awaited = self.sim.loop.create_future()
            try:
                await asyncio.wait_for(self._awaited, CHECKPOINT_WITHIN_S)
                return
            except TimeoutError:  # such as when there is nothing left to be processed
                self._awaited = None
        left = [host.machine.name for host in hosts if host.machine.name not in self.hung]
        self._cut_off(self.sim.random.choice(left))

    def _cut_off(self, name: str) -> None:
        self.hung[name] = None
        self.sim.network.partition([name], ["broker"])
        self.sim.counters["hung"] += 1

    def end(self) -> None:
        self.hung.clear()
        self.sim.network.heal()


async def hang(sim: Simulation, hosts: list[StreamHost], hangs: Hangs) -> None:
    """One worker hangs, and perhaps its successor before it comes back."""
    chance = sim.random
    for _ in range(chance.randint(1, len(hosts) - 1)):
        await hangs.one_more(hosts)
        await asyncio.sleep(chance.uniform(*HANG_S))
        if chance.random() < 0.3:
            chance.choice(hosts).machine.kill()
    hangs.end()
    await asyncio.sleep(chance.uniform(0.0, 4.0))


async def zombies(sim: Simulation) -> None:
    hangs = Hangs(sim)
    with hangs.watched():
        await run_app(sim, hangs)


async def run_app(sim: Simulation, hangs: Hangs) -> None:
    chance = sim.random
    broker = BrokerHost(sim, "broker", BROKER)
    await broker.up()
    admin = sim.machine("admin").start()
    await admin.outcome(create_topic(admin, broker.address, TOPIC, PARTITIONS))
    await admin.outcome(create_topic(admin, broker.address, f"{APP}-changelog", PARTITIONS, **CHANGELOG))
    reader = Reader(sim, admin, broker)
    await admin.outcome(retried(reader.client.start))
    hosts = [StreamHost(sim, f"worker{number}", broker, toggling_app) for number in range(WORKERS)]
    workload = Workload("w", TOPIC)
    work = produce(
        sim, sim.machine("app"), workload, broker.address, count=chance.randint(80, 160), partitions=PARTITIONS,
        pause_s=0.6, delivery_timeout_ms=120_000,
    )  # fmt: skip
    running = sim.machine("app").start().outcome(work)
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
        await admin.outcome(retried_look(reader))
    await asyncio.wait_for(running, SETTLE_S)
    await admin.outcome(reader.until_complete())
    for index in range(PARTITIONS):
        stored = batches_of(broker.partition_bytes(f"{APP}-changelog", index))
        held = sum(len(decode_batch(each.data)) for each in stored)
        sim.counters["compacted_away"] += stored[-1].last_offset + 1 - held
    sim.counters["processed"] += sum(reader.positions.values())
