"""The program of docs/how-to/transactions.md, killed again and again, bills each order once."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from integration_tests.brokers import ROOT
from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic

PROGRAM = ROOT / "examples" / "transactions" / "billing.py"
PAGE = ROOT / "docs" / "how-to" / "transactions.md"
ORDERS = 3_000
PARTITIONS = 4
LIMIT_S = 120.0
KILL_EVERY_S = 2.5
KILLS = 4


@contextmanager
def billing(bootstrap: str, name: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, PROGRAM, bootstrap, name])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


async def order(client: Client) -> None:
    producer = Producer(client)
    await producer.start()
    for number in range(ORDERS):
        producer.send("orders", b"order %d" % number, key=b"%d" % number)
        if number % 50 == 0:
            await asyncio.sleep(KILLS * KILL_EVERY_S * 50 / ORDERS)
    await producer.close()


async def bills(client: Client, enough: int) -> list[bytes]:
    consumer = Consumer(client, isolation="read_committed")
    consumer.assign({TopicPartition("bills", p): 0 for p in range(PARTITIONS)})
    found: list[bytes] = []
    while len(found) < enough:
        for records in (await consumer.poll(1_000)).values():
            found += [record.value or b"" for record in records]
    for records in (await consumer.poll(2_000)).values():  # also what came too much
        found += [record.value or b"" for record in records]
    await consumer.close()
    return found


def test_each_order_is_billed_once_whoever_is_killed(bootstrap: str) -> None:
    async def main() -> list[bytes]:
        async with asyncio.timeout(LIMIT_S):
            client = Client(bootstrap)
            await client.start()
            await Admin(client).create_topics([NewTopic(name, PARTITIONS) for name in ("orders", "bills")])
            await client.wait_for_topics(["orders", "bills"])
            with ExitStack() as programs:
                running = {name: programs.enter_context(billing(bootstrap, name)) for name in ("a", "b")}
                ordering = asyncio.ensure_future(order(client))
                for kill in range(KILLS):
                    await asyncio.sleep(KILL_EVERY_S)
                    name = "ab"[kill % 2]
                    running[name].kill()
                    running[name] = programs.enter_context(billing(bootstrap, name))
                await ordering
                found = await bills(client, ORDERS)
                assert all(program.poll() is None for program in running.values())
            await client.close()
            return found

    assert sorted(asyncio.run(main())) == sorted(b"bill of order %d" % n for n in range(ORDERS))


def test_the_how_to_shows_the_program() -> None:
    shown = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert sum(block in PROGRAM.read_text() for block in shown) == 2
