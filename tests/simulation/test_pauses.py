"""How long tasks that stay wait while others move, in simulated time: computing takes none, so that what is left is
waiting."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import pytest

from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic
from isthmus.streams import App
from isthmus.streams.runtime.worker import StreamWorker
from tests.running import run_by

from .hosts import Process
from .network import Link
from .product import BrokerHost
from .runner import Simulation, run_checked
from .scenarios.streams import BROKER

TASKS = 100
LATENCY_S = 0.001
WINDOW = (1 << 20,)  # a small one takes a round trip for each 4 KiB of an answer, and other tasks' records wait behind
EVERY_S = 0.05  # between records of each task


def simulated(scenario: Any) -> None:
    run_checked(scenario)


@pytest.mark.parametrize(
    ("protocol", "guarantee"),
    [("classic", "at_least_once"), ("classic", "exactly_once"), ("consumer", "at_least_once")],
)
@run_by(simulated)
async def test_tasks_that_stay_do_not_wait_for_those_that_move(
    sim: Simulation, /, protocol: str, guarantee: str
) -> None:
    """With exactly_once, half of the tasks have outputs. These wait for each commit that is under way; others do not
    wait for them."""
    sim.network.default = Link((LATENCY_S, LATENCY_S), spike_chance=0.0, small_piece_chance=0.0, window_bytes=WINDOW)
    broker = BrokerHost(sim, "broker", BROKER | {"durability": "page_cache"})
    await broker.up()
    seen: dict[int, list[float]] = defaultdict(list)

    def an_app() -> App:
        app = App("app", group_protocol=protocol, broker_commit_interval=0.2, processing_guarantee=guarantee)
        out = app.topic("out", value_serializer="raw")
        counts = app.Table("counts", default=int)

        @app.agent(app.topic("in", value_serializer="raw"))
        async def count(stream: Any) -> None:
            async for event in stream.events():
                counts[event.key] += 1
                if guarantee == "exactly_once" and event.partition % 2:
                    await out.send(value=b"v")
                seen[event.partition].append(sim.loop.time())

        return app

    async def work(worker: StreamWorker) -> None:
        await worker.start()
        await worker.run()

    async def main() -> None:
        client = Client(broker.address, runtime=process.runtime)
        await client.start()
        await Admin(client).create_topics([NewTopic("in", TASKS), NewTopic("out", 1)])

        async def produce() -> None:
            producer = Producer(client, linger_ms=0)
            await producer.start()
            while True:
                for partition in range(TASKS):
                    producer.send("in", b"v", b"k%d" % partition, partition=partition)
                await asyncio.sleep(EVERY_S)

        clients = [Client(broker.address, runtime=process.runtime) for _ in range(2)]
        for each in clients:
            await each.start()
        first, second = (StreamWorker(an_app(), each, process.runtime) for each in clients)
        tasks = [asyncio.ensure_future(work(first))]
        tasks.append(asyncio.ensure_future(produce()))
        await first.settled.wait()
        await asyncio.sleep(1.0)
        begun = sim.loop.time()
        longest_before = longest(quiet(range(TASKS)), begun - 1.0)
        tasks.append(asyncio.ensure_future(work(second)))
        while len(second.running) < TASKS // 2:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
        stayed = [id.partition for id in first.running]
        moved = [id.partition for id in second.running]
        assert len(stayed) == len(moved) == TASKS // 2
        assert longest(quiet(stayed), begun) <= longest_before + LATENCY_S
        assert longest(moved, begun) > 4 * longest_before  # the control: a heartbeat of 1 s may come at once
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def quiet(partitions: Iterable[int]) -> list[int]:
        return [each for each in partitions if guarantee == "at_least_once" or each % 2 == 0]

    def longest(partitions: Iterable[int], since: float) -> float:
        gaps = []
        for partition in partitions:
            times = [time for time in seen[partition] if time >= since]
            gaps += [later - time for time, later in itertools.pairwise(times)]
        return max(gaps)

    process = sim.machine("app").start()
    await process.outcome(main())


@pytest.mark.parametrize(("name", "within_s"), [("first", 3.0), (None, 11.0)])
@run_by(simulated)
async def test_what_a_killed_worker_has_open_holds_up_readers_until_it_is_back_or_missed(
    sim: Simulation, /, name: str | None, within_s: float
) -> None:
    """Of a topic between two steps. One with a name is started again; one without is missed after 10 s. Its
    transaction would last for 30 s."""
    broker = BrokerHost(sim, "broker", BROKER | {"durability": "page_cache"})
    await broker.up()
    seen: list[float] = []  # by the second worker, behind the topic

    def an_app(seen: list[float]) -> App:
        app = App("app", broker_commit_interval=1.0)
        counts = app.Table("counts", default=int)

        @app.agent(app.topic("in", value_serializer="raw"))
        async def count(stream: Any) -> None:
            async for event in stream.group_by(lambda value: value, name="value", partitions=2).events():
                counts[event.key] += 1
                seen.append(sim.loop.time())

        return app

    async def work(process: Process, seen: list[float], name: str | None) -> None:
        client = Client(broker.address, runtime=process.runtime)
        await client.start()
        worker = StreamWorker(an_app(seen), client, process.runtime, name)
        await worker.start()
        await worker.run()

    async def produce() -> None:
        client = Client(broker.address, runtime=process.runtime)
        await client.start()
        await Admin(client).create_topics([NewTopic("in", 2)])
        producer = Producer(client, linger_ms=0)
        await producer.start()
        while True:
            for number in range(10):
                producer.send("in", b"%d" % number, b"k%d" % number)
            await asyncio.sleep(0.2)

    process, machine = sim.machine("second").start(), sim.machine("first")
    running = [process.spawn(produce()), process.spawn(work(process, seen, "second"))]
    first = machine.start()
    first.spawn(work(first, [], name))
    await asyncio.sleep(8.0)
    assert all(not each.done() for each in running) and seen
    machine.kill()
    killed_at = sim.loop.time()
    if name is not None:
        again = machine.start()
        running.append(again.spawn(work(again, [], name)))
    await asyncio.sleep(24.0)
    assert all(not each.done() for each in running)
    times = [killed_at, *(each for each in seen if each > killed_at), sim.loop.time()]
    longest = max(later - time for time, later in itertools.pairwise(times))
    assert longest < within_s
