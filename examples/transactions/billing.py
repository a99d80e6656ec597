"""Bills each order exactly once: `python billing.py HOST:PORT NAME` reads `orders`, and writes to `bills`.

Start several of them, each with a name of its own, kill any of them at any time, and start it again.
"""

from __future__ import annotations

import asyncio
import sys

from isthmus.client import Client, Consumer, Producer
from isthmus.client.errors import TransactionAborted


async def main(bootstrap: str, name: str) -> None:
    client = Client(bootstrap)
    await client.start()
    consumer = Consumer(client, "billing", isolation="read_committed")
    await consumer.subscribe(["orders"])
    producer = Producer(client, transactional_id=f"billing-{name}")
    await producer.start()
    while True:
        found = await consumer.poll(1_000)
        if not found:
            continue
        try:
            async with producer.transaction():
                for records in found.values():
                    for order in records:
                        producer.send("bills", b"bill of " + (order.value or b""), key=order.key)
                offsets = {tp: records[-1].offset + 1 for tp, records in found.items()}
                await producer.send_offsets(offsets, consumer.group_metadata())
        except TransactionAborted as error:
            if not error.retriable:
                raise
            await rewind(consumer)


async def rewind(consumer: Consumer) -> None:
    """Read again what was not billed."""
    committed = await consumer.committed(consumer.assignment())
    for tp in consumer.assignment():
        consumer.seek(tp, committed.get(tp, 0))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
