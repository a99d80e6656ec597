"""Inputs that grow while there are copies of the tables behind them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic
from isthmus.streams import App, table_reader
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import run_by

from .product import BrokerHost
from .runner import Simulation, run_checked
from .scenarios.streams import BROKER

KEYS = 40


def simulated(scenario: Any) -> None:
    run_checked(scenario)


def an_app(guarantee: str) -> App:
    app = App(
        "app",
        broker_commit_interval=0.2,
        broker_session_timeout=6.0,
        processing_guarantee=guarantee,
        table_standby_replicas=1,
    )
    counts = app.Table("counts", default=int)

    @app.agent(app.topic("in", value_serializer="raw"), name="count")
    async def count(stream: Any) -> None:
        async for event in stream.events():
            counts[event.key] += 1

    return app


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
@run_by(simulated)
async def test_what_was_counted_before_an_input_grows_is_in_its_tables(sim: Simulation, /, guarantee: str) -> None:
    """Each worker has copies of the other's tables. A bridge, which has no tables, gets the name of a task that had:
    what begins as one may not take the copy of the other."""
    broker = BrokerHost(sim, "broker", BROKER | {"durability": "page_cache"})
    await broker.up()
    process = sim.machine("app").start()
    sent: Counter[bytes] = Counter()

    async def main() -> None:
        client, *theirs = (Client(broker.address, runtime=process.runtime) for _ in range(3))
        for each in (client, *theirs):
            await each.start()
        await Admin(client).create_topics([NewTopic("in", 2)])
        workers = [StreamWorker(an_app(guarantee), each, process.runtime) for each in theirs]
        producer = Producer(client)
        await producer.start()

        async def work(worker: StreamWorker) -> None:
            await worker.start()
            await worker.run()

        async def are_counted() -> bool:
            try:
                found = await table_reader.read(client, "app", ("counts",))
            except Exception:  # it is not there yet
                return False
            assert all(row.value <= sent[row.key] for row in found.rows), "something was counted twice"
            return sum(row.value for row in found.rows) == sent.total()

        async def count_more() -> None:
            for number in range(10 * KEYS):
                key = b"k%d" % (number % KEYS)
                sent[key] += 1
                producer.send("in", b"v", key)
            await producer.flush()
            async with asyncio.timeout(120):
                while not await are_counted():
                    await asyncio.sleep(0.1)

        tasks = [asyncio.ensure_future(work(each)) for each in workers]
        await count_more()
        async with asyncio.timeout(60):
            while not all(len(each.copies.stores) == len(each.running) == 1 for each in workers):
                await asyncio.sleep(0.1)
        gone = tasks.pop()
        gone.cancel()  # without a word: the group misses it while the other one has read of the growth
        await asyncio.gather(gone, return_exceptions=True)
        await Admin(client).create_partitions("in", 5)
        await client.refresh_metadata(["in"])
        await count_more()
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    await process.outcome(main())
