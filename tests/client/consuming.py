"""What the consumer's tests share."""

from __future__ import annotations

from typing import Any

from isthmus.client import Consumer, TopicPartition
from isthmus.protocol.records import (
    build_batch,
)
from tests.client.scripted import World, started_client

TP = TopicPartition("t", 0)


def fill(world: World, count: int, each: int = 1, name: str = "t", index: int = 0, size: int = 0) -> None:
    log = world.log(name, index)
    for _ in range(count):
        first = log.end
        values = [(n, b"k", b"%d" % n + b"." * size, ()) for n in range(first, first + each)]
        log.append(build_batch(values, partition_leader_epoch=0))


async def begun(world: World, partitions: int = 1, **options: Any) -> Consumer:
    """A consumer that is closed at the end, on `world.client`, which knows all topics, or t if there is none."""
    if not world.topics:
        world.add_topic("t", partitions)
    client = await started_client(world)
    await client.refresh_metadata(list(world.topics))
    consumer = Consumer(client, **options)
    world.to_close.append(consumer.close)
    return consumer


async def read(consumer: Consumer, count: int, most: int = 500) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for records in (await consumer.poll(1_000, most)).values():
            found += [record.value or b"" for record in records]
    return found


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % n for n in range(low, high)]
