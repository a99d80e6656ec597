"""Flights into the containers of the flights topology, a portion at a time, and what must have come of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from integration_tests.console.commands import isthmus, said
from integration_tests.mirror.workers import clients, same, until
from isthmus.client import Client, Producer
from isthmus.examples.flights import check
from isthmus.examples.flights.events import Event, events_of, read_flights
from isthmus.examples.flights.replay import replay
from isthmus.examples.flights.watch import AGGREGATE, Sample, Watch

ROWS = 30_000  # of the CSV
PARTITIONS = range(3)
ARRIVE_TIMEOUT_S = 90.0  # a mirror's connection that was cut may wait for its request's 30 s, twice


class Airports:
    """Each portion follows the one before. addresses: HOST:PORT of each datacenter, from the host."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = addresses
        self.names = [name for name in addresses if name != AGGREGATE]
        self.events: dict[str, list[Event]] = {name: events_of(read_flights(ROWS, name.upper())) for name in self.names}
        self.sent = dict.fromkeys(self.names, 0)

    async def send(self, name: str, count: int, over_s: float = 0.0) -> None:
        """The next `count` events of one airport, evenly over so many seconds; done when all is acknowledged."""
        assert self.sent[name] + count <= len(self.events[name]), "no flights are left: raise ROWS"
        self.sent[name] += count
        client = Client(self.addresses[name], client_id="airports")
        await client.start()
        producer = Producer(client, compression="lz4", linger_ms=20)
        await producer.start()
        try:
            rate = int(count / over_s) if over_s else 0
            wrote = await replay(client, producer, "flights", self.events[name][: self.sent[name]], rate)
            assert wrote == count
        finally:
            await producer.close()
            await client.close()

    async def send_all(self, count: int, over_s: float = 0.0) -> None:
        await asyncio.gather(*(self.send(name, count, over_s) for name in self.names))

    async def sample(self) -> Sample:
        """How many records each hop has."""
        watch = Watch(self.addresses)
        try:
            return await watch.sample(0.0)
        finally:
            await watch.close()

    async def exact(self) -> None:
        """Wait until all that was sent is in the aggregate and through the stream app; then compare row by row with
        the CSV, and byte by byte and offset by offset with the sources."""

        async def arrived() -> bool:
            sample = await self.sample()
            assert dict(sample.source) == self.sent
            assert dict(sample.mirrored) == self.sent and sample.streamed == sum(self.sent.values()), sample
            return True

        await until(arrived, "all flights in the aggregate and through the stream app", ARRIVE_TIMEOUT_S)
        async with clients(self.addresses[AGGREGATE], *(self.addresses[name] for name in self.names)) as made:
            for name, client in zip(self.names, made[1:], strict=True):
                assert await same(client, made[0], "flights", PARTITIONS, name), name
        expected: dict[check.RowKind, bytes] = {}
        for name in self.names:
            expected |= check.expected_events(self.events[name][: self.sent[name]])
        watch = Watch(self.addresses)
        try:
            verdict = check.check_events(AGGREGATE, expected, await watch.events())
        finally:
            await watch.close()
        assert verdict.right, verdict.lines()

    def lag(self, name: str, folder: Path, measured: bool = True) -> int:
        """What `isthmus mirror status` says a link lags in flights; not measured: what its mirror last said."""
        at = ("mirror", "status", f"{name}-aggregate", "-b", self.addresses[AGGREGATE], "--json")
        ask = ("--source", self.addresses[name]) if measured else ()
        rows = json.loads(said(isthmus(*at, *ask, folder=folder)))
        assert len(rows) == len(PARTITIONS) + 1  # and the weather
        lags = [row["lag_records"] for row in rows if row["topic"] == "flights"]
        assert None not in lags, "a source was not seen"
        return sum(lags)
