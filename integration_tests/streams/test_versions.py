"""Five versions of one app under load, each rolled back once: rows, positions and outputs stay exact."""

from __future__ import annotations

import asyncio
import collections
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.mirror import workers
from integration_tests.mirror.workers import Worker, clients, run, until
from isthmus.client import Admin, Client, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.streams import table_reader

from .test_streams import read_partitions

APP = f"{Path(__file__).with_name('versions_app.py')}:app"
NAME = "versions"
INPUTS = ("orders", "payments", "refunds")
KEYS = 20
BURST = 10  # records to each input at a time


class App:
    """Two workers, each restarted for another version; and what goes in without a pause."""

    def __init__(self, broker: BrokerProcess, folder: Path, client: Client, patch: pytest.MonkeyPatch) -> None:
        self.broker, self.folder, self.client, self.patch = broker, folder, client, patch
        self.workers: dict[str, Worker] = {}
        self.sent = 0  # to each input
        self.is_enough = False
        self.lives = 0

    def _environment(self, version: int, instance: str, back: bool) -> dict[str, str]:
        own = {"APP_NAME": NAME, "CODE_VERSION": str(version), "APP_INSTANCE": instance}
        return {**os.environ, **workers.ENVIRONMENT, **own, **({"CODE_BACK": "1"} if back else {})}

    def start(self, instance: str, version: int, back: bool = False) -> Worker:
        self.lives += 1
        self.patch.setattr(workers, "ENVIRONMENT", self._environment(version, instance, back))
        arguments = ("isthmus.streams", APP, "--bootstrap", self.broker.bootstrap, "--name", instance)
        return Worker(self.folder, f"{self.lives:02}-v{version}-{instance}", *arguments)

    def stop(self) -> None:
        for each in self.workers.values():
            assert each.end() == 0, each.log
        self.workers = {}

    async def roll(self, version: int, back: bool = False) -> None:
        """Restart one worker, then the other; kill one of the new ones. Both process before that, and after it."""
        for instance in ("one", "two"):
            if instance in self.workers:
                assert self.workers[instance].end() == 0, self.workers[instance].log
            self.workers[instance] = self.start(instance, version, back).ready()
        await self.goes_on()
        self.workers["one"].kill()
        self.workers["one"] = self.start("one", version, back).ready()
        await self.goes_on()
        for worker in self.workers.values():
            assert worker.process.poll() is None and " ERROR " not in worker.log, worker.log

    async def committed(self) -> dict[TopicPartition, int]:
        return await Admin(self.client).group_offsets(NAME)

    async def goes_on(self) -> None:
        """Every partition of the orders has more committed than now was sent."""
        tps = [TopicPartition(f"{NAME}.orders", partition) for partition in range(3)]
        ends = await Admin(self.client).list_offsets(dict.fromkeys(tps, "latest"))

        async def look() -> bool:
            offsets = await self.committed()
            return all(offsets.get(tp, 0) > end for tp, (end, *_) in ends.items())

        await until(look, "orders are processed", 60)

    async def load(self) -> None:
        producer = Producer(self.client, linger_ms=5)
        await producer.start()
        while not self.is_enough:
            sending = []
            for i in range(self.sent, self.sent + BURST):
                key, value = b"k%d" % (i * 7 % KEYS), json.dumps({"i": i}).encode()
                sending += [producer.send(f"{NAME}.{name}", value, key, timestamp_ms=i * 100) for name in INPUTS]
            self.sent += BURST
            await asyncio.gather(*sending)
            await asyncio.sleep(0.02)
        await producer.close()

    def refused(self, version: int, words: str) -> None:
        """What the command says before a deployment, and a worker that is started all the same."""
        command = [sys.executable, "-m", "isthmus.console.main", "streams", "diff", APP, "-b", self.broker.bootstrap]
        said = subprocess.run(command, env=self._environment(version, "one", False), capture_output=True, text=True)
        assert said.returncode == 2 and words in said.stdout, said
        worker = self.start("late", version)
        assert worker.process.wait(30) == 2 and words in worker.log, worker.log

    async def gone(self) -> None:
        """Static members stay in the group until their sessions are over."""

        async def look() -> bool:
            [group] = await Admin(self.client).describe_groups([NAME])
            return bool(group.group_state == "Empty")

        await until(look, "the group is empty")

    def forget(self, table: str) -> None:
        command = [sys.executable, "-m", "isthmus.console.main", "streams", "forget", NAME, table, "--yes"]
        subprocess.run([*command, "-b", self.broker.bootstrap], check=True, env=os.environ)


def test_five_versions_each_rolled_back_once(
    broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with clients(broker.bootstrap) as (client,):
            topics = [NewTopic(f"{NAME}.{name}", 3, 1, {"retention.ms": "-1"}) for name in (*INPUTS, "out")]
            await Admin(client).create_topics(topics)
            app = App(broker, tmp_path, client, monkeypatch)
            loading = asyncio.create_task(app.load())
            try:
                begins = await versions(app)
                app.is_enough = True
                await loading
                await check(app, begins)
            finally:
                for worker in app.workers.values():
                    worker.kill()
                loading.cancel()

    run(scenario(), 400)


async def versions(app: App) -> dict[TopicPartition, int]:
    """From version 1 to 5, and back once from each. Returns from where on `minutes`, which began anew, has records."""
    await app.roll(1)
    await app.roll(2)
    await app.roll(1)  # the payments wait
    await app.roll(2)
    await app.roll(3)
    app.refused(2, "table counts has rows of version 2, and the code has version 1")
    await app.roll(2, back=True)
    await app.roll(3)
    await app.roll(4)
    await app.roll(3)  # the refunds wait
    await app.roll(4)
    await app.roll(5)
    app.refused(4, "table minutes lacks records that the app has read without it")
    app.stop()
    await app.gone()
    for table in ("minutes", "halves"):
        app.forget(table)
    begins = await app.committed()
    await app.roll(4)
    await app.roll(5)
    return begins


async def check(app: App, begins: dict[TopicPartition, int]) -> None:
    client = app.client
    inputs = {name: await read_partitions(client, f"{NAME}.{name}") for name in INPUTS}
    ends = {tp: len(rows) for each in inputs.values() for tp, rows in each.items()}

    async def all_done() -> bool:
        offsets = await app.committed()
        return all(offsets.get(tp) == end for tp, end in ends.items())

    await until(all_done, "all is processed", 60)
    orders = inputs["orders"]
    ended = (await table_reader.read(client, NAME, ("minutes",))).positions[f"{NAME}.orders"]  # where version 5 began
    want: collections.Counter[tuple[str, bytes, int | None]] = collections.Counter()
    last: dict[bytes, int] = {}
    for tp, records in orders.items():
        for record in records:
            key = bytes(record.key)
            want["counts", key, None] += 1
            last[key] = number(record)
            if record.offset >= ended[tp.partition].offset:
                want["halves", key, record.timestamp_ms // 30_000 * 30_000] += 1
            elif record.offset >= begins[tp]:
                want["minutes", key, record.timestamp_ms // 60_000 * 60_000] += 1
    for name, sign in (("payments", 1), ("refunds", -1)):
        for records in inputs[name].values():
            for record in records:
                want["sums", bytes(record.key), None] += sign * number(record)
    found = await table_reader.read(client, NAME, ("counts", "sums", "minutes", "halves"), ("minutes", "halves"))
    rows = {(row.table, row.key, row.window_start_ms): row.value for row in found.rows}
    assert {key: value["last"] for (table, key, _), value in rows.items() if table == "counts"} == last
    assert {place: value["count"] if place[0] == "counts" else value for place, value in rows.items()} == dict(want)
    outputs = await read_partitions(client, f"{NAME}.out", "read_committed")
    given = sorted(number(record) for records in outputs.values() for record in records)
    assert given == sorted(number(record) for records in orders.values() for record in records)


def number(record: Any) -> int:
    found: int = json.loads(bytes(record.value))["i"]
    return found
