"""Tables between workers, and looked at from outside: global tables, standbys that answer, and the console."""

from __future__ import annotations

import asyncio
import collections
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
from typer.testing import CliRunner

from integration_tests.brokers import BrokerProcess
from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic
from isthmus.client.partitioner import partition_for_key
from isthmus.console import tables
from isthmus.streams import App, table_reader
from tests.running import in_loop, run_by


class Producing:
    """Writes records as text, and grows topics."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.producer = Producer(client)

    async def send(self, topic: str, key: str | None, value: str | None, partition: int | None = None) -> None:
        encoded = [None if each is None else each.encode() for each in (value, key)]
        await self.producer.send(topic, *encoded, partition=partition)

    async def grow(self, topic: str, count: int, *workers: Any) -> None:
        """workers: learn of it now, as each does by itself every few minutes."""
        await Admin(self.client).create_partitions(topic, count)
        for worker in workers:
            await worker.client.refresh_metadata([topic])


@asynccontextmanager
async def producing(broker: BrokerProcess, **topics: int) -> AsyncIterator[Producing]:
    """topics: created with so many partitions."""
    client = Client(broker.bootstrap)
    await client.start()
    await Admin(client).create_topics([NewTopic(name, count, -1) for name, count in topics.items()])
    made = Producing(client)
    await made.producer.start()
    try:
        yield made
    finally:
        await made.producer.close()
        await client.close()


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not what():
            await asyncio.sleep(0.02)


@pytest.mark.parametrize("store", ["memory://", "rocksdb://"])
@run_by(in_loop)
async def test_every_worker_has_all_rows_of_a_global_table_and_none_is_counted_twice(
    broker: BrokerProcess, store: str, tmp_path: Path
) -> None:
    """Tasks write the rows of their keys, also as they move; the view of a topic follows it, tombstones and growth."""
    name = f"global-{store.partition(':')[0]}"
    apps: list[App] = []
    want = collections.Counter[str]()

    def made() -> tuple[App, Any, Any]:
        folder = tmp_path / str(len(apps))
        app = App(name, broker=broker.bootstrap, store=store, datadir=str(folder), broker_commit_interval=0.1)
        app.conf.web_enabled = False
        totals = app.GlobalTable("totals", default=int)
        rates = app.GlobalTable("rates", topic=app.topic(f"{name}-rates", key_type=str, value_type=int))

        @app.agent(app.topic(f"{name}-in", key_type=str, value_type=int))
        async def count(stream: Any) -> None:
            async for key, n in stream.items():
                totals[key] += n * rates.get("factor", 0)

        apps.append(app)
        return app, totals, rates

    async with producing(broker, **{f"{name}-in": 4, f"{name}-rates": 1}) as to:
        await to.send(f"{name}-rates", "factor", "2")
        await to.send(f"{name}-rates", "gone", "7")

        async def some(count: int) -> None:
            for number in range(count):
                key = f"k{number % 11}"
                want[key] += 2
                await to.send(f"{name}-in", key, "1")

        first, totals, rates = made()
        await first.start()
        sending = asyncio.ensure_future(some(300))
        second, its_totals, its_rates = made()
        await second.start()
        await sending
        await until(lambda: dict(totals) == want and dict(its_totals) == want)
        await to.grow(f"{name}-rates", 3, *(app.worker for app in apps))
        await to.send(f"{name}-rates", "more", "9", 2)
        await to.send(f"{name}-rates", "gone", None, 0)
        await until(lambda: dict(rates) == dict(its_rates) == {"factor": 2, "more": 9})
        await first.stop()
        await some(50)
        await until(lambda: dict(its_totals) == want)
        await second.stop()
        third, again, rates = made()
        await third.start()
        await until(lambda: third.global_stores and not third.rebalancing)
        assert dict(again) == want and dict(rates) == {"factor": 2, "more": 9}, "ready is read to the end"
        await third.stop()


class Asked(NamedTuple):
    status: int
    said: Any


async def asked(session: aiohttp.ClientSession, url: str) -> Asked:
    async with session.get(url) as answer:
        return Asked(answer.status, await answer.json())


@run_by(in_loop)
async def test_rows_are_looked_at_from_the_console_and_while_their_owner_leaves(broker: BrokerProcess) -> None:
    keys = [f"k{n}" for n in range(20)]

    def made() -> App:
        app = App("looked-at", broker=broker.bootstrap, broker_commit_interval=0.1, table_standby_replicas=1)
        app.conf.web_port = 0
        counts = app.Table("counts", default=int)

        @app.agent(app.topic("looked-at-in", key_type=str, value_type=int))
        async def count(stream: Any) -> None:
            async for key, n in stream.items():
                counts[key] += n

        return app

    def of(app: App) -> Any:
        return app.worker

    async with producing(broker, **{"looked-at-in": 4}) as to, aiohttp.ClientSession() as session:
        for number, key in enumerate(keys):
            await to.send("looked-at-in", key, str(number))
        apps = made(), made()
        for app in apps:
            await app.start()
        workers = [of(app) for app in apps]
        await until(lambda: all(len(each.running) == 2 and len(each.copies.lags()) == 2 for each in workers))
        await until(lambda: sum(len(each.rows) for one in workers for each in one.stores("counts")) == len(keys))

        async def console(*arguments: str, code: int = 0) -> Any:
            more = [] if "--worker" in arguments else ["-b", broker.bootstrap]
            done = await asyncio.to_thread(CliRunner().invoke, tables.app, [*arguments, *more, "--json"])
            assert done.exit_code == code, done.output
            return done.exception if code else json.loads(done.stdout)

        where = partition_for_key(b"k7", 4)
        reading: list[Sequence[int]] = []
        plain = table_reader.read

        async def noted(*given: Any, **more: Any) -> Any:
            reading.append(more["partitions"])
            return await plain(*given, **more)

        async def shown() -> bool:
            return bool(await console("list", "looked-at") == [{"table": "counts", "partitions": 4, "rows": len(keys)}])

        async with asyncio.timeout(30):
            while not await shown():
                pass
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(table_reader, "read", noted)
            row = {"key": "k7", "value": 7, "partition": where}
            assert await console("get", "looked-at", "counts", "k7") == [row]
            assert where in reading[0] and len(reading[0]) < 4, "only where the row may be"
        scanned = await console("scan", "looked-at", "counts")
        assert {each["key"]: each["value"] for each in scanned} == {key: n for n, key in enumerate(keys)}
        assert "no row none" in str(await console("get", "looked-at", "counts", "none", code=1))

        owner = next(app for app in apps if ("looked-at-in", where) in of(app).running)
        [other] = [app for app in apps if app is not owner]
        said = await console("get", "looked-at", "counts", "k7", "--worker", other.conf.canonical_url)
        assert said == [{"key": "k7", "value": 7, "staleness_ms": 0, "worker": owner.conf.canonical_url}]
        url = f"{other.conf.canonical_url}/tables/counts?key=k7"
        at_hand = await asked(session, f"{url}&max_staleness_ms=60000")
        assert (at_hand.said["value"], at_hand.said["worker"]) == (7, other.conf.canonical_url)
        leaving = asyncio.ensure_future(owner.stop())
        answers, strict = [], []
        while not leaving.done() or ("looked-at-in", where) not in of(other).running:
            answers.append(await asked(session, f"{url}&max_staleness_ms=60000"))
            strict.append((await asked(session, url)).status)
        assert {(each.status, each.said["value"]) for each in answers} == {(200, 7)}
        assert set(strict) <= {200, 503}
        assert (await asked(session, url)).said["staleness_ms"] == 0
        await leaving
        await other.stop()


@run_by(in_loop)
async def test_an_app_of_pages_alone_reads_a_topic_as_a_table(broker: BrokerProcess) -> None:
    app = App("pages", broker=broker.bootstrap)
    app.conf.web_port = 0
    rates = app.GlobalTable("rates", topic=app.topic("pages-rates", key_type=str, value_type=int))

    @app.page("/rate/{name}/")
    async def rate(web: Any, request: Any, name: str) -> Any:
        return web.json({name: rates.get(name)})

    async with producing(broker, **{"pages-rates": 2}) as to, aiohttp.ClientSession() as session:
        await to.send("pages-rates", "usd", "7")
        await app.start()
        assert await asked(session, f"{app.conf.canonical_url}/rate/usd/") == (200, {"usd": 7})
        await to.send("pages-rates", "usd", "8")
        await until(lambda: rates.get("usd") == 8)
        await app.stop()
