"""Topics of the tests of mirrors: made, written to, and what `isthmus mirror status` says of them."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from isthmus.client import Admin, Client, Producer
from isthmus.client.admin import NewTopic

from .workers import mirror_status, until

FOREVER = {"retention.ms": "-1"}


async def create(client: Client, name: str, partitions: int = 1, **options: str) -> None:
    configs = {**FOREVER, **{key.replace("_", "."): value for key, value in options.items()}}
    await Admin(client).create_topics([NewTopic(name, partitions, -1, configs)])
    await client.refresh_metadata([name])


async def produce(
    client: Client, topic: str, count: int, size: int = 100, compression: str = "lz4", pause_s: float = 0.0
) -> None:
    producer = Producer(client, linger_ms=1, compression=compression)
    await producer.start()
    await client.refresh_metadata([topic])
    partitions = client.partitions(topic)
    futures = []
    for i in range(count):
        await producer.wait_for_space()
        if pause_s and i % 500 == 0:
            await asyncio.sleep(pause_s)
        value = os.urandom(size // 2) + bytes(size // 2)
        futures.append(producer.send(topic, value, b"k%d" % i, partition=partitions[i % len(partitions)]))
    await asyncio.gather(*futures)
    await producer.close()


def row(status: dict[tuple[str, int], dict[str, Any]], topic: str, partition: int = 0) -> dict[str, Any]:
    return status.get((topic, partition), {"state": None, "reason": ""})


async def reaches(target: str, topic: str, state: str, timeout_s: float = 20.0, reason: str = "") -> dict[str, Any]:
    """Wait for the state, and for a reason that holds this text."""

    async def look() -> Any:
        found = row(await asyncio.to_thread(mirror_status, target), topic)
        assert found["state"] == state and reason in found["reason"], found
        return found

    return await until(look, f"{topic} is {state}", timeout_s)
