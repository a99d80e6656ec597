"""Cases of our own workers, each a process beside Isthmus brokers: the mirror catching up, a stream app counting."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import TypeVar

from integration_tests.brokers import ROOT, die_with_parent
from integration_tests.peers.peers import MM2_ALONE, cpu_seconds, mm2
from isthmus.client import Admin, Client, TopicPartition

from .cases import BATCH_RECORDS, GB, KEPT_BYTES, MB, PARTITIONS, VALUE_BYTES, Bench, Sample, fill
from .frames import batch, random_batch
from .sides import isthmus, kafka

POLL_S = 0.02
WORKER_TIMEOUT_S = 60.0
# Nothing of MirrorMaker 2 but the copying turned on.
PROPERTIES = """\
clusters = {alias}, target
{alias}.bootstrap.servers = {source}
target.bootstrap.servers = {target}
{alias}->target.enabled = true
{alias}->target.topics = {topic}
{alias}->target.emit.heartbeats.enabled = false
{alias}->target.emit.checkpoints.enabled = false
{alias}->target.sync.topic.acls.enabled = false
target->{alias}.enabled = false
target->{alias}.emit.heartbeats.enabled = false
tasks.max = 3
"""
BYTES_A_SECOND = 256 << 20  # filled for each second that a sample should take, about
EVENTS_A_SECOND = 250_000
EVENTS_A_BATCH = 1000
KEYS = 1000
_numbers = itertools.count()
T = TypeVar("T")


class Mirror(Bench):
    """A mirror worker copies a full topic of 64 KB batches from one Isthmus broker to another."""

    def prepare(self) -> None:
        self.held = contextlib.ExitStack()
        folder = Path(self.held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")))
        self.target = self.held.enter_context(isthmus(folder / "target"))
        self.name = self.topic(PARTITIONS)
        self.records, self.size = filled(self)

    def measure(self, seconds: float) -> Sample:
        alias = f"copy{next(_numbers)}"
        target = f"{alias}.{self.name}"
        with worker("mirror", "--link", alias, "--source-alias", alias, "--source", self.side.address,
                    "--target", self.target.address, "--topics", self.name) as pid:  # fmt: skip
            took, cpu_s = until(pid, self.target.address, lambda client: end_of(client, target), self.records)
        self.target.delete_topic(target)
        return {"rate": self.size / took / MB, "cpu": cpu_s / (self.size / GB)}

    def clean(self) -> None:
        self.held.close()
        self.side.delete_topic(self.name)


class MirrorMaker(Bench):
    """MirrorMaker 2 does what `mirror` does, from one Kafka node to another."""

    warms_by_load = False

    def prepare(self) -> None:
        self.held = contextlib.ExitStack()
        self.folder = Path(self.held.enter_context(tempfile.TemporaryDirectory(prefix="isthmus-bench-")))
        self.target = self.held.enter_context(kafka(self.folder))
        self.name = self.topic(PARTITIONS)
        self.records, self.size = filled(self)

    def warm(self, seconds: float) -> None:
        """Each sample is a new process: what it costs before its first record is not counted."""

    def measure(self, seconds: float) -> Sample:
        alias = f"copy{next(_numbers)}"
        properties = self.folder / f"{alias}.properties"
        properties.write_text(
            PROPERTIES.format(source=self.side.address, target=self.target.address, topic=self.name, alias=alias)
            + MM2_ALONE
        )
        with open(self.folder / f"{alias}.log", "wb") as log:
            process = mm2(properties, stdout=log, stderr=log, preexec_fn=die_with_parent)
        try:
            copied = f"{alias}.{self.name}"
            until(process.pid, self.target.address, lambda client: end_of(client, copied), 1)
            first = asked(self.target.address, lambda client: end_of(client, copied))
            took, cpu_s = until(process.pid, self.target.address, lambda client: end_of(client, copied), self.records)
        finally:
            process.kill()
            process.wait()
        size = self.size * (self.records - first) / self.records
        return {"rate": size / took / MB, "cpu": cpu_s / (size / GB)}

    def clean(self) -> None:
        self.held.close()
        self.side.delete_topic(self.name)


class Counts(Bench):
    """A stream app counts lz4 JSON events by key (1,000 keys) into a table with a changelog."""

    def prepare(self) -> None:
        chance = random.Random(1)
        self.name = self.topic(PARTITIONS)
        values = [
            b'{"id":%d,"user":"u%d","amount":%.2f,"kind":"order"}' % (i, chance.randrange(KEYS), chance.random() * 100)
            for i in range(EVENTS_A_BATCH)
        ]
        events = batch(values, KEYS, "lz4")
        count = int(EVENTS_A_SECOND * self.seconds) // EVENTS_A_BATCH
        fill(self.side, self.name, PARTITIONS, count * len(events), events)
        self.records = asked(self.side.address, lambda client: end_of(client, self.name))

    def measure(self, seconds: float) -> Sample:
        app_id = f"bench-counts-{next(_numbers)}"
        names = {"BENCH_APP": app_id, "BENCH_TOPIC": self.name}
        app = f"{Path(__file__).with_name('counts.py')}:app"
        with worker("streams", app, "--bootstrap", self.side.address, **names) as pid:
            took, cpu_s = until(pid, self.side.address, lambda client: committed_by(client, app_id), self.records)
        return {"rate": self.records / took, "cpu": self.records / cpu_s}

    def clean(self) -> None:
        self.side.delete_topic(self.name)


def filled(bench: Mirror | MirrorMaker) -> tuple[int, int]:
    """Fill the topic that is to be copied; its records, and their bytes in the log."""
    batch = random_batch(BATCH_RECORDS, VALUE_BYTES)
    fill(bench.side, bench.name, PARTITIONS, min(int(BYTES_A_SECOND * bench.seconds), 2 * KEPT_BYTES), batch)
    records = asked(bench.side.address, lambda client: end_of(client, bench.name))
    return records, records // BATCH_RECORDS * len(batch)


@contextlib.contextmanager
def worker(room: str, *arguments: str, **names: str) -> Iterator[int]:
    """`python -m isthmus.<room>`, from its line `ready …` on; gone at the end. Gives its pid."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1", **names}
    with tempfile.TemporaryFile("w+") as log:
        command = [sys.executable, "-m", f"isthmus.{room}", *arguments]
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, preexec_fn=die_with_parent
        )
        try:
            assert process.stdout
            if not process.stdout.readline().startswith("ready"):
                process.wait(WORKER_TIMEOUT_S)
                log.seek(0)
                raise RuntimeError(f"{' '.join(command)} ended:\n{log.read()[-2000:]}")
            yield process.pid
        finally:
            process.kill()
            process.communicate()


def until(pid: int, address: str, look: Callable[[Client], Awaitable[int]], wanted: int) -> tuple[float, float]:
    """Seconds, and CPU-seconds of process `pid`, until `look` sees `wanted`."""
    start, before = time.perf_counter(), cpu_seconds(pid)

    async def wait(client: Client) -> tuple[float, float]:
        while await look(client) < wanted:
            if time.perf_counter() - start > WORKER_TIMEOUT_S:
                raise RuntimeError(f"{await look(client)} of {wanted} records after {WORKER_TIMEOUT_S} s")
            await asyncio.sleep(POLL_S)
        return time.perf_counter() - start, cpu_seconds(pid) - before

    return asked(address, wait)


def asked(address: str, question: Callable[[Client], Awaitable[T]]) -> T:
    """The answer to one question that a client of its own asks."""

    async def ask() -> T:
        client = Client(address, client_id="bench")
        await client.start()
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(ask())


async def end_of(client: Client, topic: str) -> int:
    """Sum of a topic's end offsets; 0 when there is no such topic yet."""
    await client.refresh_metadata([topic])
    partitions = [TopicPartition(topic, each) for each in client.partitions(topic)]
    if not partitions:
        return 0
    ends = await Admin(client).list_offsets(dict.fromkeys(partitions, "latest"))
    return sum(each[0] for each in ends.values())


async def committed_by(client: Client, group: str) -> int:
    return sum((await Admin(client).group_offsets(group)).values())
