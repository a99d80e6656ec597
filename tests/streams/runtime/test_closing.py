"""A worker that is closed while its broker hangs, on the simulated loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Admin, Client, NewTopic, Producer
from isthmus.client.errors import OperationTimeout
from isthmus.client.operation import CLOSE_TIMEOUT_MS
from isthmus.streams import App
from isthmus.streams.runtime.worker import ABANDON_MS, StreamWorker
from tests.leftovers import no_leftovers
from tests.simulation.product import BrokerHost
from tests.simulation.runner import Simulation, run_checked


def test_close_ends_by_its_deadline_though_the_broker_hangs() -> None:
    app = App("app", broker_commit_interval=60.0)
    seen = app.Table("seen", default=int)

    @app.agent(app.topic("in", value_serializer="raw"))
    async def count(stream: Any) -> None:
        async for event in stream.events():
            seen[event.key.decode()] += 1

    async def close(sim: Simulation, client: Client, worker: StreamWorker) -> None:
        loop = asyncio.get_running_loop()
        await client.start()
        await Admin(client).create_topics([NewTopic("in")])
        producer = Producer(client)
        await producer.start()
        producer.send("in", b"x", b"k")
        await producer.close()
        await worker.start()
        running = loop.create_task(worker.run())
        while not worker.processed_total:
            await asyncio.sleep(0.1)
        sim.network.partition(["app"], ["broker"])
        await worker.stop()
        await running
        began = loop.time()
        with pytest.raises(OperationTimeout, match="close of app app: not done within 30000 ms"):
            await worker.close()
        assert loop.time() - began == pytest.approx(CLOSE_TIMEOUT_MS / 1000, abs=0.1)
        await worker.abandon()
        assert loop.time() - began < (CLOSE_TIMEOUT_MS + 2 * ABANDON_MS) / 1000 + 0.1
        await client.close()

    async def scenario(sim: Simulation) -> None:
        broker = BrokerHost(sim, "broker")
        await broker.up()
        process = sim.machine("app").start()

        async def checked() -> None:
            async with no_leftovers():
                client = Client(broker.address, client_id="app", runtime=process.runtime)
                await close(sim, client, StreamWorker(app, client, process.runtime))

        await process.outcome(checked())

    run_checked(scenario)
