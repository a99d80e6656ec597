"""An app's state is saved, cloned and rescaled while records come, and every record counts once."""

from __future__ import annotations

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.console.commands import begun, error, isthmus, said
from integration_tests.mirror.workers import Worker, clients, run, until
from integration_tests.streams import test_streams
from integration_tests.streams.test_streams import read_partitions
from isthmus.client import Admin, Client, Producer, TopicPartition
from isthmus.streams import table_reader
from isthmus.streams.savepoints import fence
from isthmus.streams.savepoints.format import Savepoint

FILE = Path(__file__).with_name("moving.py")
ELEVENS = 11


class Case(test_streams.Case):
    """An app of `moving.py`."""

    def worker(self, **settings: object) -> Worker:
        self.patch.setattr(test_streams, "APP", f"{FILE}:app")
        return super().worker(**settings)

    @contextlib.asynccontextmanager
    async def producing(self, client: Client) -> AsyncIterator[None]:
        """Records come all the time."""
        stopping = asyncio.Event()

        async def go_on() -> None:
            while not stopping.is_set():
                await self.produce(client, 200)
                await asyncio.sleep(0.03)

        task = asyncio.create_task(go_on())
        try:
            yield
        finally:
            stopping.set()
            await task

    def isthmus(self, *arguments: str) -> Any:
        return isthmus("streams", *arguments, "-b", self.broker.bootstrap, folder=self.folder)


def test_a_running_app_is_saved_and_cloned_to_a_cluster_of_kafkas(
    broker: BrokerProcess, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if broker.bootstrap == kafka:
        pytest.skip("a copy needs another cluster")
    case = Case("cloned", broker, tmp_path, monkeypatch)
    copy = Case("cloned", SimpleNamespace(bootstrap=kafka), tmp_path, monkeypatch)

    async def scenario() -> None:
        async with clients(broker.bootstrap, kafka) as (client, other):
            await case.create(client)
            with case.worker().ready() as worker:
                async with case.producing(client):
                    await case.some_done(client)
                    assert "2 tables" in said(
                        await asyncio.to_thread(case.isthmus, "savepoint", case.name, "-o", "saved")
                    )
                await case.exact(client)
                assert worker.end() == 0, worker.log
            # Rows and positions are of one checkpoint: there are as many counts as records before the positions.
            saved = Savepoint.open(tmp_path / "saved")
            saved.check()
            offsets = [at.offset for at in saved.manifest.inputs[f"{case.name}.in"].reached.values()]
            assert 2_000 < sum(offsets) < len(case.sent)
            assert sum_of(saved, "counts") == sum_of(saved, "minutes") == sum(offsets)
            # A copy of the topic, with its offsets, as a mirror makes it.
            await copy.create(other)
            await copied(client, other, f"{case.name}.in")
            refused = error(copy.isthmus("restore", "saved"))
            assert "not the topic that the app has read" in refused and "--positions keep" in refused
            assert "would restore" in said(copy.isthmus("restore", "saved", "--positions", "keep", "--dry-run"))
            assert await copy.done(other) == 0
            said(copy.isthmus("restore", "saved", "--positions", "keep"))
            assert await copy.done(other) == sum(offsets)
            copy.sent = case.sent
            with copy.worker().ready() as worker:
                await copy.exact(other)
                assert worker.end() == 0, worker.log
            assert "--force" in error(copy.isthmus("restore", "saved", "--positions", "keep"))
            # Under another id, and by time: there is one record at each, so that none counts twice.
            twin = Case("twin", SimpleNamespace(bootstrap=kafka), tmp_path, monkeypatch)
            said(copy.isthmus("restore", "saved", "--as", "twin", "--positions", "time"))
            assert await twin.done(other) == sum(offsets)
            assert await Admin(other).group_offsets("twin") == {
                TopicPartition(f"{case.name}.in", partition): offset for partition, offset in enumerate(offsets)
            }

    run(scenario(), 120)


def sum_of(saved: Savepoint, table: str) -> int:
    """What the rows of a table add up to."""
    total = 0
    for part in saved.manifest.tables[table].parts:
        newest = {
            key: value for columns in saved.read(part) for key, value in zip(columns.keys, columns.values, strict=True)
        }
        total += sum(int(value) for value in newest.values() if value is not None)
    return total


async def change_of(client: Client, app: str) -> fence.Change | None:
    return await fence.read(client, app) if await fence.is_up(client, app) else None


async def copied(source: Client, target: Client, topic: str) -> None:
    producer = Producer(target)
    await producer.start()
    for tp, found in (await read_partitions(source, topic)).items():
        for each in found:
            await producer.wait_for_space()
            producer.send(topic, each.value, each.key, partition=tp.partition, timestamp_ms=each.timestamp_ms)
    await producer.flush()
    await producer.close()


@pytest.mark.parametrize(("guarantee", "protocol"), [("at_least_once", "classic"), ("exactly_once", "consumer")])
def test_tables_get_other_partitions_while_records_come(
    broker: BrokerProcess, kafka: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str, protocol: str
) -> None:
    where = broker if guarantee == "at_least_once" else SimpleNamespace(bootstrap=kafka)
    case = Case(f"rescaled_{guarantee}", where, tmp_path, monkeypatch)
    settings: dict[str, object] = {"guarantee": guarantee, "group_protocol": protocol, "grouped": 1}
    monkeypatch.setenv("APP_NAME", case.name)
    monkeypatch.setenv("APP_GROUPED", "1")
    rescale = ("rescale", f"{FILE}:app", "-n", "7", "--yes")

    def unread(folder: str) -> object:
        return Savepoint.open(tmp_path / folder).manifest.inputs[f"{case.name}.in"].unread

    async def totals(client: Client) -> dict[Any, int]:
        found = await table_reader.read(client, case.name, ("totals",))
        return {row.key: row.value for row in found.rows}

    async def scenario() -> None:
        async with clients(case.broker.bootstrap) as (client,):
            await case.create(client)
            async with case.producing(client):
                with case.worker(**settings).ready() as first:
                    await case.some_done(client)
                    refused = error(await asyncio.to_thread(case.isthmus, *rescale))
                    assert "workers that run" in refused
                    refused = error(await asyncio.to_thread(case.isthmus, "savepoint", case.name, "-o", "never"))
                    assert "Stop its workers first" in refused
                    assert first.end() == 0, first.log
                # Killed in the middle: no worker starts on what is there then.
                with begun("streams", *rescale, "-b", case.broker.bootstrap, cwd=tmp_path) as rescaling:
                    await until(lambda: change_of(client, case.name), "it changes something")
                    rescaling.kill()
                assert await fence.is_up(client, case.name)
                with case.worker(**settings) as refused_one:
                    assert await asyncio.to_thread(refused_one.process.wait, 30) == 1
                    assert "was not finished" in refused_one.log
                assert "an earlier change was not finished" in said(await asyncio.to_thread(case.isthmus, *rescale))
                assert unread(f"{case.name}-savepoint") == [0, 1, 2], "records have come since the worker ended"
                assert not await fence.is_up(client, case.name)
                second = case.worker(**settings).ready()
            with second:
                await case.exact(client)
                want = collections.Counter(i % ELEVENS for i in range(len(case.sent)))

                async def counted() -> bool:
                    return sum((await totals(client)).values()) >= len(case.sent)

                await until(counted, "all are counted by their other keys")
                assert await totals(client) == want
                # What was read of topics between the steps is gone, but for the last half second or so.
                between = [f"{case.name}-elevens-repartition", f"{case.name}-{case.name}.in-copartitioned"]
                tps = [TopicPartition(topic, p) for topic in between for p in range(7)]

                async def purged() -> bool:
                    begins = await Admin(client).list_offsets(dict.fromkeys(tps, "earliest"))
                    committed = await Admin(client).group_offsets(case.name)
                    assert all(begins[tp][0] <= committed.get(tp, 0) for tp in tps)
                    return {tp.topic for tp in tps if begins[tp][0] > 0} == set(between)

                await until(purged, "what was read is deleted")
                assert second.end() == 0, second.log
            for table in ("counts", "minutes", "totals"):
                assert len(client.partitions(f"{case.name}-{table}-changelog")) == 7
            # Back to as many as the input has, without the bridge.
            said(await asyncio.to_thread(case.isthmus, "rescale", f"{FILE}:app", "-n", "3", "--yes", "-o", "again"))
            await case.produce(client, 1_000)
            with case.worker(**settings).ready() as third:
                await case.exact(client)
                assert third.end() == 0, third.log
            assert between[1] not in await Admin(client).list_topics()
            assert unread("again") == []
            saved = Savepoint.open(tmp_path / "again").manifest.tables
            assert {each.partitions for each in saved.values()} == {7}

    run(scenario(), 180)
