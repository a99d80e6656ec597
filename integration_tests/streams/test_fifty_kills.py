"""kill -9 of workers, brokers and mirrors, one after the other under load: two clusters of three brokers, mirrored into
a third, where an app counts in each guarantee. Every acknowledged record is counted once, in both."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from integration_tests.mirror.workers import clients, run, until
from isthmus.client import Admin, Client
from isthmus.client.errors import ClientError
from isthmus.deploy.supervisor import State, Status
from isthmus.deploy.topology import load
from isthmus.examples.flights.supervised import Supervised
from isthmus.protocol.errors import KafkaError
from isthmus.streams import table_reader

from .kills_app import GROUPS, INPUTS

SHOPS = ("north", "south")
GUARANTEES = ("at_least_once", "exactly_once")
KINDS = ("worker", "broker", "mirror")
SEED = 32
KEYS = 50
PACE_S = 0.05  # between the orders of a shop, ten at once
AT_ONCE = 10
BACK_S = 90.0  # from a kill until all that was acknowledged before it is counted
TOPOLOGY = """\
name: kills
datacenters:
  north: &shop
    brokers: 3
    options: {default.replication.factor: 3, min.insync.replicas: 2}
    topics: {orders: {partitions: 3, options: {retention.ms: -1}}}
  south: *shop
  office:
    brokers: 3
    options: {min.insync.replicas: 2, group.initial.rebalance.delay.ms: 0}
    topics:
      at_least_once.out: {partitions: 3, options: {retention.ms: -1}}
      exactly_once.out: {partitions: 3, options: {retention.ms: -1}}
mirrors:
  - {name: north-office, source: north, target: office, topics: [orders], rename: "{source}.{topic}"}
  - {name: south-office, source: south, target: office, topics: [orders], rename: "{source}.{topic}"}
workers:
  - {name: at-least-once-1, app: "kills_app.py:at_least_once", datacenter: office}
  - {name: at-least-once-2, app: "kills_app.py:at_least_once", datacenter: office}
  - {name: exactly-once-1, app: "kills_app.py:exactly_once", datacenter: office}
  - {name: exactly-once-2, app: "kills_app.py:exactly_once", datacenter: office}
"""

Order = tuple[str, int]  # shop, number


class Orders(threading.Thread):
    """What a shop orders, until it is told that it is enough. acknowledged: numbers, in the order of the answers."""

    def __init__(self, shop: str, bootstrap: str) -> None:
        super().__init__(name=shop)
        self.shop = shop
        self.acknowledged: list[int] = []
        self.failed: list[str] = []
        self._enough = threading.Event()
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000}
        )

    def run(self) -> None:
        begin = 0
        while not self._enough.wait(PACE_S):
            for number in range(begin, begin + AT_ONCE):
                self.send(number)
            begin += AT_ONCE
            self._producer.poll(0)
        self._producer.flush(120)

    def send(self, number: int) -> None:
        value = json.dumps({"shop": self.shop, "n": number})
        self._producer.produce("orders", value, key_of(number), on_delivery=self._answered)

    def _answered(self, error: Any, message: Any) -> None:
        if error:
            self.failed.append(str(error))
        else:
            self.acknowledged.append(json.loads(message.value())["n"])

    def end(self) -> None:
        self._enough.set()
        self.join()

    def send_again(self, number: int) -> None:
        """One more of the same, behind the ledger's back: the planted fault."""
        self.send(number)
        assert self._producer.flush(60) == 0 and self.acknowledged.pop() == number


def key_of(number: int) -> bytes:
    return b"k%d" % (number * 7 % KEYS)


# --- What is expected, and what is wrong ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """What an app has made of the orders."""

    tables: Mapping[str, Mapping[Any, int]]
    outputs: Sequence[Order]


def faults(orders: Sequence[Order], found: Found, outputs_may_double: bool) -> list[str]:
    """Rows that are no sums of the orders, and orders that are no output, or several; a line each."""
    expected: dict[str, collections.Counter[Any]] = {
        "counts": collections.Counter(key_of(number) for _, number in orders),
        "groups": collections.Counter(number % GROUPS for _, number in orders),
    }
    said = [
        f"{table}: {key!r} is {rows.get(key, 0)}, not {wanted.get(key, 0)}"
        for table, wanted in expected.items()
        for rows in [found.tables[table]]
        for key in sorted({*wanted, *rows}, key=repr)
        if rows.get(key, 0) != wanted.get(key, 0)
    ]
    outputs, once = collections.Counter(found.outputs), collections.Counter(orders)
    said += [f"no output: {order}" for order in sorted(once - outputs)]
    said += [f"output of nothing: {order}" for order in sorted(set(outputs) - set(once))]
    if not outputs_may_double:
        said += [f"{outputs[order]} outputs: {order}" for order in sorted(once) if outputs[order] > once[order]]
    return said


def victims(seed: int, count: int, names: Mapping[str, Sequence[str]]) -> Iterator[list[str]]:
    """Names to be killed, one or two at once; as many of each kind, each kind's by chance."""
    chance = random.Random(seed)
    kinds = [KINDS[i % len(KINDS)] for i in range(count)]
    chance.shuffle(kinds)
    while kinds:
        taken, kinds = kinds[: (size := chance.choice([1, 2]))], kinds[size:]
        chosen: list[str] = []
        for kind in taken:
            chosen.append(chance.choice([name for name in names[kind] if name not in chosen]))
        yield chosen


# --- The run --------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """A topology that runs, the shops that order, and what was killed. killed: name, pid before, pid after."""

    stage: Supervised
    shops: list[Orders]
    office: Client
    killed: list[tuple[str, int, int]] = field(default_factory=list)
    kinds: collections.Counter[str] = field(default_factory=collections.Counter)

    async def processes(self) -> dict[str, Status]:
        return {each.name: each for each in await self.stage.processes()}

    def acknowledged(self) -> dict[str, int]:
        return {f"{each.shop}.orders": len(each.acknowledged) for each in self.shops}

    async def counted(self, app: str) -> dict[str, int]:
        """Records of each input that an app has committed; mirrors keep offsets, and no record is without an order."""
        total = dict.fromkeys(INPUTS, 0)
        for at, offset in (await Admin(self.office).group_offsets(app)).items():
            if at.topic in total:
                total[at.topic] += offset
        return total

    async def all_counted(self, at_least: Mapping[str, int]) -> None:
        """Wait until both apps have committed so much of each input."""

        async def are() -> bool:
            try:
                found = [await self.counted(app) for app in GUARANTEES]
            except (ClientError, KafkaError, OSError, TimeoutError) as error:
                raise AssertionError(f"the office does not answer: {error!r}") from None
            assert all(each[topic] >= some for each in found for topic, some in at_least.items()), (found, at_least)
            return True

        await until(are, "counted by both", BACK_S)

    async def kill(self, names: Sequence[str]) -> None:
        """Each is back under another pid, and all that was acknowledged before went through everything."""
        before = await self.processes()
        pids = {}
        for name in names:
            pid = before[name].pid
            assert before[name].state is State.READY and pid, before[name]
            os.kill(pid, signal.SIGKILL)
            pids[name] = pid
        acknowledged = self.acknowledged()

        async def back() -> bool:
            now = await self.processes()
            return all(now[name].state is State.READY and now[name].pid != pid for name, pid in pids.items())

        await until(back, f"{', '.join(names)} back", BACK_S)
        await self.all_counted(acknowledged)
        now = await self.processes()
        self.killed += [(name, pid, now[name].pid or 0) for name, pid in pids.items()]
        self.kinds.update(now[name].kind for name in names)

    async def found(self, app: str) -> Found:
        read = await table_reader.read(self.office, app, ("counts", "groups"))
        tables: dict[str, dict[Any, int]] = {"counts": {}, "groups": {}}
        for row in read.rows:
            assert row.key not in tables[row.table], f"{row.key!r} stands in two partitions of {row.table}"
            tables[row.table][row.key] = row.value
        return Found(tables, await asyncio.to_thread(read_orders, self.stage.addresses["office"], f"{app}.out"))


def read_orders(bootstrap: str, topic: str) -> list[Order]:
    """All orders of a topic as librdkafka reads it, without what was aborted."""
    settings = {
        "bootstrap.servers": bootstrap, "group.id": "outside", "isolation.level": "read_committed",
        "enable.partition.eof": True, "enable.auto.commit": False,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(settings)
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in partitions])
    found: list[Order] = []
    ended: set[int | None] = set()
    while len(ended) < len(partitions):
        message = consumer.poll(60)
        assert message, f"{topic} does not answer"
        if not (error := message.error()):
            value = json.loads(message.value() or b"")
            found.append((value["shop"], value["n"]))
        elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
            ended.add(message.partition())
    consumer.close()
    return found


@contextmanager
def ordering(addresses: Mapping[str, str]) -> Iterator[list[Orders]]:
    shops = [Orders(shop, addresses[shop]) for shop in SHOPS]
    try:
        for each in shops:
            each.start()
        yield shops
    finally:
        for each in shops:
            each.end()


@pytest.mark.parametrize("kills", [6, pytest.param(50, marks=pytest.mark.soak)])
def test_sums_are_exact_through_kills_of_workers_brokers_and_mirrors(tmp_path: Path, kills: int) -> None:
    file = tmp_path / "topology.yaml"
    file.write_text(TOPOLOGY)
    shutil.copy(Path(__file__).with_name("kills_app.py"), tmp_path)
    stage = Supervised(load(file), file, tmp_path / "run", kept=False)

    async def scenario() -> None:
        stage.check()
        try:
            await stage.start(print)
            async with clients(stage.addresses["office"]) as (office,):
                with ordering(stage.addresses) as shops:
                    running = Run(stage, shops, office)
                    await killing(running, kills)
                await is_exact(running)
                await a_planted_double_is_noticed(running)
        finally:
            await stage.stop()

    run(scenario(), 180 + kills * BACK_S)


async def killing(running: Run, kills: int) -> None:
    await until(lambda: all(running.acknowledged().values()), "each shop has ordered")
    names = {kind: [name for name, each in (await running.processes()).items() if each.kind == kind] for kind in KINDS}
    assert {kind: len(names[kind]) for kind in KINDS} == {"worker": 4, "broker": 9, "mirror": 2}
    began = time.monotonic()
    for chosen in victims(SEED, kills, names):
        await running.kill(chosen)
        print(f"{time.monotonic() - began:.1f} s: {', '.join(chosen)}; {running.acknowledged()}", flush=True)
    assert sum(running.kinds.values()) == kills and min(running.kinds.values()) >= kills // len(KINDS), running.kinds
    assert all(before != after for _, before, after in running.killed)
    # Nothing died but what was killed.
    restarts = {name: each.restarts for name, each in (await running.processes()).items() if each.restarts}
    assert restarts == collections.Counter(name for name, _, _ in running.killed)


async def is_exact(running: Run) -> None:
    assert [each.failed for each in running.shops] == [[], []]
    orders = [(each.shop, number) for each in running.shops for number in each.acknowledged]
    assert len(set(orders)) == len(orders)
    await running.all_counted(running.acknowledged())
    for topic in INPUTS:  # once each in the mirrored topics
        mirrored = await asyncio.to_thread(read_orders, running.stage.addresses["office"], topic)
        assert sorted(mirrored) == sorted(order for order in orders if f"{order[0]}.orders" == topic)
    await until_groups_are_counted(running, len(orders))
    for app in GUARANTEES:
        found = await running.found(app)
        assert faults(orders, found, app == "at_least_once") == []
        print(f"{app}: {len(orders)} orders, {len(found.outputs)} outputs; killed: {dict(running.kinds)}", flush=True)


async def until_groups_are_counted(running: Run, count: int) -> None:
    """The second step of each app is committed after the first one's inputs."""

    async def are() -> bool:
        found = [sum((await running.found(app)).tables["groups"].values()) for app in GUARANTEES]
        assert min(found) >= count, (found, count)
        return True

    await until(are, "both have counted the groups", BACK_S)


async def a_planted_double_is_noticed(running: Run) -> None:
    """The control: one order more is one that the same checker finds, in each table and in the outputs."""
    shop = running.shops[0]
    number = shop.acknowledged[0]
    shop.send_again(number)
    ends = running.acknowledged()
    await running.all_counted(ends | {f"{shop.shop}.orders": ends[f"{shop.shop}.orders"] + 1})
    orders = [(each.shop, number) for each in running.shops for number in each.acknowledged]
    await until_groups_are_counted(running, len(orders) + 1)
    for app in GUARANTEES:
        may_double = app == "at_least_once"
        said = faults(orders, await running.found(app), may_double)
        assert [each.partition(":")[0] for each in said] == ["counts", "groups", *([] if may_double else ["2 outputs"])]
