"""What a producer notices of a fault: `python -m benchmarks.stalls HOST:PORT,... TOPIC [--client isthmus]`.

A producer, idempotent, acks=all, otherwise with its defaults, sends a small record every few milliseconds to one
partition until SIGTERM. Then it prints one JSON line: the longest time between two acknowledgements, how many records
it sent, and how many failed. By default it is librdkafka's. Where a leader hangs, librdkafka and Java's producer wait
for its answer for longer than any cluster needs to elect another; Isthmus' sends anew when it hears of a new leader.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from isthmus import client as isthmus

LIBRDKAFKA, ISTHMUS = "librdkafka", "isthmus"
EVERY_S = 0.005
END_S = 60.0  # for the last acknowledgements
VALUE = b"x" * 100


class Seen:
    """When records were acknowledged, and what failed."""

    def __init__(self) -> None:
        self.acked: list[float] = []
        self.failed: list[str] = []

    def settled(self, error: object) -> None:
        if error is None:
            self.acked.append(time.perf_counter())
            if len(self.acked) == 1:
                print("ready", flush=True)
        else:
            self.failed.append(str(error))


def by_librdkafka(address: str, topic: str, seen: Seen, is_over: Callable[[], bool]) -> None:
    def settled(error: Any, message: Any) -> None:
        seen.settled(error)

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "log_level": 0, "on_delivery": settled}
    )
    due = time.perf_counter()
    while not is_over():
        producer.produce(topic, VALUE, partition=0)
        due += EVERY_S
        while not is_over() and (left := due - time.perf_counter()) > 0:
            producer.poll(left)
    if left_over := producer.flush(END_S):
        seen.failed.append(f"{left_over} records are not acknowledged after {END_S:g} s")


async def by_isthmus(address: str, topic: str, seen: Seen, is_over: Callable[[], bool]) -> None:
    client = isthmus.Client(address)
    await client.start()
    producer = isthmus.Producer(client, idempotent=True)
    await producer.start()
    due = time.perf_counter()
    while not is_over():
        sent = producer.send(topic, VALUE, partition=0)
        sent.add_done_callback(lambda each: seen.settled(each.exception()))
        due += EVERY_S
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    async with asyncio.timeout(END_S):
        await producer.close()
    await client.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stalls", description=__doc__.splitlines()[0])
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("topic")
    parser.add_argument("--client", choices=[LIBRDKAFKA, ISTHMUS], default=LIBRDKAFKA)
    given = parser.parse_args()
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    seen = Seen()
    if given.client == ISTHMUS:
        asyncio.run(by_isthmus(given.address, given.topic, seen, lambda: bool(ended)))
    else:
        by_librdkafka(given.address, given.topic, seen, lambda: bool(ended))
    gaps = [after - before for before, after in itertools.pairwise(seen.acked)]
    stall = {"stall": max(gaps), "records": len(seen.acked), "failed": len(seen.failed), "why": seen.failed[:1]}
    print(json.dumps(stall))
    return 0


if __name__ == "__main__":
    sys.exit(main())
