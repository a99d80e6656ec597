"""Replays one airport's flights and weather into its own datacenter: `python -m isthmus.examples.flights.replay`.
With `--fleet` it writes what is known of the planes into the aggregate instead.

It may be killed at any moment and started again: it looks up how far each partition's log has come, checks that the
last record there is the event it would have written there, and goes on with the next.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.errors import ClientError, no_topic
from isthmus.client.producer import partition_for_key
from isthmus.protocol.errors import KafkaError

from .events import AIRPORTS, Event, events_of, fleet_events, read_flights, weather_events

POLL_MS = 1000
FAULTS = ("withheld", "doubled", "altered", "swapped")
PACE_HZ = 50  # how often a second a replay with a rate looks at the clock


class ReplayError(Exception):
    """The topic holds something else than this airport's events, or the command line asks for what there is not."""


async def replay(client: Client, producer: Producer, topic: str, events: Sequence[Event], rate: int = 0) -> int:
    """Write what is not yet in the topic, at most `rate` records a second (0: all there is); how many that was."""
    await client.refresh_metadata([topic])
    count = len(client.partitions(topic))
    if not count:
        raise no_topic(topic)
    planned: dict[int, list[Event]] = {p: [] for p in range(count)}
    for event in events:
        planned[partition_of(event, count)].append(event)
    done = {p: await progress(client, TopicPartition(topic, p), planned[p]) for p in planned}
    sent = dict.fromkeys(planned, 0)
    futures = []
    loop = asyncio.get_running_loop()
    began = loop.time()
    for event in events:
        p = partition_of(event, count)
        sent[p] += 1
        if sent[p] <= done[p]:
            continue
        await producer.wait_for_space()
        future = producer.send(topic, event.value, event.key, partition=p, timestamp_ms=event.timestamp_ms)
        futures.append(future)
        if rate and len(futures) % (rate // PACE_HZ or 1) == 0:
            await asyncio.sleep(began + len(futures) / rate - loop.time())
    await producer.flush()
    for future in futures:
        future.result()
    return len(futures)


def partition_of(event: Event, partitions: int) -> int:
    """The partition of an event: by key as every Kafka producer does it, else by row, so that a restart finds it."""
    if event.key is None:
        return event.row % partitions
    return partition_for_key(event.key, partitions)


async def progress(client: Client, tp: TopicPartition, planned: Sequence[Event]) -> int:
    """How many of the partition's planned events are in its log."""
    end = (await Admin(client).list_offsets({tp: "latest"}))[tp][0]
    if end == 0:
        return 0
    consumer = Consumer(client)
    consumer.assign({tp: end - 1})
    try:
        found: Sequence[object] = ()
        while not found:
            found = (await consumer.poll(POLL_MS, 1)).get(tp, ())
    finally:
        await consumer.close()
    last = bytes(found[0].value)  # type: ignore[attr-defined]
    if end > len(planned) or last != planned[end - 1].value:
        raise ReplayError(
            f"{tp.topic}-{tp.partition} holds {end} records, and the last is not event {end} of this replay: "
            f"{last[:120]!r}. Replay into an empty topic."
        )
    return end


def with_fault(events: list[Event], fault: str) -> list[Event]:
    """The events with one fault planted, so that the self-check can be seen to find it: KIND:ROW."""
    kind, _, row = fault.partition(":")
    if kind not in FAULTS or not row.isdigit():
        raise ReplayError(f"--fault {fault}: write {', '.join(FAULTS)}, a colon and a row of the CSV")
    at = next((i for i, event in enumerate(events) if event.row == int(row) and event.kind != "scheduled"), None)
    if at is None:
        return events
    before, this, after = events[:at], events[at], events[at + 1 :]
    match kind:
        case "withheld":
            return before + after
        case "doubled":
            return [*before, this, this, *after]
        case "altered":
            return [*before, this._replace(body={**this.body, "dest": "XXX"}), *after]
        case _:  # swapped: one withheld and another doubled, so that the count agrees
            return [*before, *after[:1], *after]


@contextlib.asynccontextmanager
async def connected(bootstrap: str, name: str) -> AsyncIterator[tuple[Client, Producer]]:
    client = Client(bootstrap, client_id=f"replay-{name}")
    await client.start()
    producer = Producer(client, compression="lz4", linger_ms=20)
    await producer.start()
    try:
        yield client, producer
    finally:
        await producer.close()
        await client.close()


async def replay_airport(origin: str, bootstrap: str, limit: int | None, rate: int, fault: str) -> None:
    events = events_of(read_flights(limit, origin))
    if fault:
        events = with_fault(events, fault)
    async with connected(bootstrap, origin) as (client, producer):
        weather = await replay(client, producer, "weather", weather_events(origin))
        print(f"ready {weather} hours of weather", flush=True)
        flights = await replay(client, producer, "flights", events, rate)
        print(f"done {flights} events of flights", flush=True)


async def replay_fleet(bootstrap: str) -> int:
    """How many planes were written."""
    async with connected(bootstrap, "fleet") as (client, producer):
        return await replay(client, producer, "fleet", fleet_events())


async def run(options: argparse.Namespace) -> None:
    if options.fleet:
        print(f"done {await replay_fleet(options.bootstrap)} planes", flush=True)
    else:
        await replay_airport(options.origin, options.bootstrap, options.flights, options.rate, options.fault)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--origin", metavar="AIRPORT", help=f"one of {', '.join(AIRPORTS)}")
    what.add_argument("--fleet", action="store_true", help="the planes, into the topic fleet")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--flights", type=int, default=None, help="only the first rows of the CSV")
    parser.add_argument("--rate", type=int, default=0, help="records a second at most; 0: no limit")
    parser.add_argument("--fault", default="", help="plant one: withheld|doubled|altered|swapped:ROW")
    options = parser.parse_args()
    try:
        asyncio.run(run(options))
    except (ReplayError, KafkaError, ClientError, OSError) as error:
        print(f"error: replay of {options.origin or 'the fleet'}: {error}", file=sys.stderr)
        return 2 if isinstance(error, ReplayError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
