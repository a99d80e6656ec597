"""An application that uses the product's own producer.

A producer that is told of an error is replaced by a new one, as an application would do it; no value is sent again.
"""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.client import Client, Producer

from .hosts import Machine
from .product import retried
from .runner import Simulation
from .workload import Sent, Workload

OUTSTANDING = 12  # values that an application leaves unanswered before it waits


async def produce(
    sim: Simulation,
    machine: Machine,
    workload: Workload,
    bootstrap: str,
    *,
    count: int,
    partitions: int = 1,
    pause_s: float = 0.05,
    **options: Any,
) -> None:
    """Send `count` values and wait for what becomes of each. Runs as a process of `machine`."""
    process = machine.process
    assert process is not None
    chance = process.runtime.random
    client = Client(bootstrap, client_id=workload.name, runtime=process.runtime)
    await retried(client.start)
    number = 0
    loop = asyncio.get_running_loop()
    while number < count:
        workload.lives += 1
        life = workload.lives
        producer = Producer(client, **options)
        await producer.start()
        broken: list[BaseException] = []
        futures: list[asyncio.Future[Any]] = []

        def settle(future: asyncio.Future[Any], each: Sent, broken: list[BaseException] = broken) -> None:
            error = future.exception()
            if error is None:
                told = future.result()
                each.acked, each.acked_s = (told.partition, told.offset), loop.time()
            else:
                each.error, each.failed_s = error, loop.time()
                broken.append(error)

        while number < count and not broken:
            for _ in range(chance.randint(1, 6)):
                if number == count:
                    break
                value = f"{workload.name}-{number:05d}".encode() + b"." * chance.choice((0, 40, 2000))
                each = Sent(value, number, chance.randrange(partitions), life, loop.time())
                workload.sent[value] = each
                number += 1
                await producer.wait_for_space()
                future = producer.send(workload.topic, value, b"k%d" % (number % 7), partition=each.partition)
                future.add_done_callback(lambda done, each=each: settle(done, each))  # type: ignore[misc]
                futures.append(future)
            await asyncio.sleep(chance.uniform(0.0, 2 * pause_s))
            while sum(not future.done() for future in futures) > OUTSTANDING and not broken:
                await asyncio.sleep(pause_s)
        await asyncio.gather(*futures, return_exceptions=True)
        await producer.close()
        sim.counters["producer_lives"] += 1
    await client.close()
    workload.done = True
    sim.counters["acked"] += len(workload.acked)
    sim.counters["failed"] += len(workload.failed)
