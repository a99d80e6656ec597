"""Pipelines over several partitions under kill -9: a foreign key join, and windows behind group_by."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.mirror import workers
from integration_tests.mirror.workers import Worker, clients, run, until
from integration_tests.streams.test_streams import read_all
from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic
from isthmus.streams import table_reader

APP = f"{Path(__file__).with_name('joining.py')}:app"
ORDERS, USERS, SHOPS = 40, 8, 5
PARTITIONS = {"orders": 3, "users": 2, "out": 1, "late": 1}
STEP_MS, END_MS = 5, 10_000_000


class Rows:
    """What is written, and what it comes to."""

    def __init__(self) -> None:
        self.chance = random.Random(11)
        self.orders: dict[bytes, Any] = {}
        self.users: dict[bytes, Any] = {}
        self.windows: Counter[tuple[int, int]] = Counter()
        self.number = 0

    def change(self) -> tuple[str, bytes, Any, int]:
        """Topic, key, value and time of the next change."""
        self.number += 1
        at_ms, chance = self.number * STEP_MS, self.chance
        if chance.random() < 0.25:
            key, value = b"u%d" % chance.randrange(USERS), None if chance.random() < 0.2 else f"name {self.number}"
            _set(self.users, key, value)
            return "users", key, value, at_ms
        key, order = b"o%d" % chance.randrange(ORDERS), None
        if chance.random() < 0.9:
            shop = chance.randrange(SHOPS)
            order = {"n": self.number, "user": f"u{chance.randrange(USERS)}", "shop": shop}
            self.windows[shop, at_ms // 1000 * 1000] += 1
        _set(self.orders, key, order)
        return "orders", key, order, at_ms

    def named(self) -> dict[bytes, Any]:
        return {key: [order["n"], self.users.get(order["user"].encode())] for key, order in self.orders.items()}


def _set(rows: dict[bytes, Any], key: bytes, value: Any) -> None:
    if value is None:
        rows.pop(key, None)
    else:
        rows[key] = value


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_joins_and_windows_over_partitions_are_exact_under_kills(
    guarantee: str, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"joining_{guarantee}"
    environment = {"APP_NAME": name, "APP_GUARANTEE": guarantee}
    monkeypatch.setattr(workers, "ENVIRONMENT", {**os.environ, **workers.ENVIRONMENT, **environment})
    rows = Rows()

    async def produce(client: Client, enough: asyncio.Event) -> None:
        producer = Producer(client, linger_ms=2)
        await producer.start()
        while not enough.is_set():
            for _ in range(100):
                topic, key, value, at_ms = rows.change()
                data = None if value is None else json.dumps(value).encode()
                producer.send(f"{name}.{topic}", data, key, timestamp_ms=at_ms)
            await asyncio.sleep(0.1)
        await producer.close()

    async def scenario() -> None:
        def worker(number: int) -> Worker:
            arguments = ["isthmus.streams", APP, "--bootstrap", broker.bootstrap]
            return Worker(tmp_path, f"worker{number}", *arguments).ready()

        async with clients(broker.bootstrap) as (client,):
            await Admin(client).create_topics(
                [NewTopic(f"{name}.{topic}", count, -1, {"retention.ms": "-1"}) for topic, count in PARTITIONS.items()]
            )

            async def named() -> dict[bytes, Any]:
                try:
                    found = await table_reader.read(client, name, ("named",))
                except Exception:
                    return {}
                assert len({row.key for row in found.rows}) == len(found.rows), "a row stands in two tasks"
                return {row.key: row.value for row in found.rows}

            enough = asyncio.Event()
            producing = asyncio.create_task(produce(client, enough))
            first, before = worker(1), 0
            for number in (2, 3):

                async def is_further(before: int = before) -> bool:
                    newest = max((n for n, _ in (await named()).values()), default=0)
                    return newest > before

                await until(is_further, "more was joined", 90)
                before = max(n for n, _ in (await named()).values())
                second = worker(number)
                first.kill()  # no leave: its session must expire
                first = second
            enough.set()
            await producing

            async def is_joined() -> bool:
                return await named() == rows.named()

            await until(is_joined, "the join is that of the last rows", 60)
            producer = Producer(client)
            await producer.start()
            for topic in ("orders", "users"):  # time goes on in all partitions
                for partition in range(PARTITIONS[topic]):
                    value = json.dumps({"n": 0, "user": "u", "shop": -1}).encode()
                    producer.send(f"{name}.{topic}", value, b"end", partition=partition, timestamp_ms=END_MS)
            await producer.close()

            async def results() -> list[Any]:
                found = await read_all(client, f"{name}.out", "read_committed")
                return [json.loads(bytes(each.value)) for each in found]

            async def are_closed() -> bool:
                return len({(each["key"], each["start_ms"]) for each in await results()}) >= len(rows.windows)

            await until(are_closed, "all windows are closed", 30)
            found = await results()
            assert {(each["key"], each["start_ms"]): each["value"] for each in found} == dict(rows.windows)
            assert guarantee == "at_least_once" or len(found) == len(rows.windows)
            late = await read_all(client, f"{name}.late", "read_committed")
            assert late == [], "no event was late where it came from"
            assert first.end() == 0, first.log

    run(scenario(), 300)
