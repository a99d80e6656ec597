"""What the producer's tests share."""

from __future__ import annotations

import asyncio
from typing import Any

from isthmus.client import Producer
from isthmus.protocol.records import decode_batch, verify_crc
from tests.client.scripted import (
    HANG_UP,
    SILENCE,
    Answer,
    Log,
    ScriptedBroker,
    World,
    started_client,
)


async def begun(world: World, **options: Any) -> Producer:
    """A producer that is closed at the end, on `world.client`, which knows all topics, or t if there is none."""
    if not world.topics:
        world.add_topic("t")
    client = await started_client(world)
    await client.refresh_metadata(list(world.topics))
    producer = Producer(client, **{"linger_ms": 0, **options})
    await producer.start()
    world.to_close.append(producer.close)
    return producer


def values(log: Log) -> list[bytes]:
    for batch in log.batches:
        assert verify_crc(batch, 0, len(batch))
    return [bytes(record.value or b"") for batch in log.batches for record in decode_batch(batch)]


def refusing(broker: ScriptedBroker, code: int, at: tuple[int, ...] = (0,)) -> Answer:
    """Refuses batches whose first sequence is one of `at`."""
    return lambda m: broker.produced(m, lambda _, __, header: code if header.base_sequence in at else 0)


def losing(broker: ScriptedBroker) -> Answer:
    """Does what was asked, and hangs up instead of answering."""

    def answer(message: Any) -> Any:
        broker.produced(message)
        return HANG_UP

    return answer


def silently(broker: ScriptedBroker) -> Answer:
    """Does what was asked, and says nothing."""

    def answer(message: Any) -> Any:
        broker.produced(message)
        return SILENCE

    return answer


async def send_batches(producer: Producer, count: int, each: int = 1, first: int = 0) -> list[Any]:
    """`count` batches of `each` records, one a turn of the loop."""
    futures = []
    for i in range(first, first + count):
        futures += [producer.send("t", b"%d.%d" % (i, n), partition=0) for n in range(each)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    return futures


def forget_tail(log: Log, count: int, everything: bool = False) -> None:
    """What a power cut does to a broker that had not synced: the last batches are gone, the state follows the log."""
    kept = log.batches[:-count]
    log.batches, log.end, log.producers = [], 0, {}
    for batch in kept:
        log.append(batch)
    if everything:
        log.producers = {}
