"""Looks at a running flights topology from outside, as any Kafka client can: offsets of each hop through time."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from isthmus.client import Admin, Client, Consumer, TopicPartition
from isthmus.protocol import records

from .check import RowKind, found_event

AGGREGATE = "aggregate"
GROUP = "delays"
K = TypeVar("K")
POLL_MS = 500


@dataclass(frozen=True)
class Sample:
    """Records that each hop had at one moment. at_s: since the start."""

    at_s: float
    source: Mapping[str, int]  # datacenter -> records in its own topic
    mirrored: Mapping[str, int]  # datacenter -> of them in the aggregate
    streamed: int  # in the aggregate and committed by the stream app


@dataclass
class History:
    """All samples and kills of a run."""

    samples: list[Sample] = field(default_factory=list)
    kills: list[tuple[float, str]] = field(default_factory=list)
    delta: list[tuple[float, int]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def now_s(self) -> float:
        return time.monotonic() - self.started


class Watch:
    """One client per datacenter, connected anew when its broker was gone."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        self.addresses = dict(addresses)
        self.origins = [name for name in addresses if name != AGGREGATE]
        self.clients: dict[str, Client] = {}
        self.last: dict[str, int] = {}

    async def client(self, name: str) -> Client:
        if name not in self.clients:
            client = Client(self.addresses[name], client_id="flights-demo")
            await client.start()
            self.clients[name] = client
        return self.clients[name]

    async def close(self) -> None:
        for client in self.clients.values():
            await client.close()

    async def ends(self, name: str, topic: str) -> dict[TopicPartition, int]:
        """End offsets of a topic; nothing while it does not exist."""
        client = await self.client(name)
        await client.refresh_metadata([topic])
        partitions = [TopicPartition(topic, p) for p in client.partitions(topic)]
        found = await Admin(client).list_offsets(dict.fromkeys(partitions, "latest")) if partitions else {}
        return {tp: offset for tp, (offset, *_) in found.items()}

    async def count(self, name: str, topic: str) -> int:
        """Records in a topic that loses none; the last known number while the broker is away."""
        with contextlib.suppress(Exception):  # a killed broker is what the demo is about
            async with asyncio.timeout(2):
                self.last[f"{name}/{topic}"] = sum((await self.ends(name, topic)).values())
        return self.last.get(f"{name}/{topic}", 0)

    async def streamed(self) -> int:
        """Records of the flights topics that the stream app has committed; it reads the fleet, too."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(2):
                committed = await Admin(await self.client(AGGREGATE)).group_offsets(GROUP)
                flights = {f"{name}.flights" for name in self.origins}
                self.last["streamed"] = sum(max(at, 0) for tp, at in committed.items() if tp.topic in flights)
        return self.last.get("streamed", 0)

    async def sample(self, at_s: float) -> Sample:
        names = self.origins
        source, mirrored, streamed = await asyncio.gather(
            asyncio.gather(*(self.count(name, "flights") for name in names)),
            asyncio.gather(*(self.count(AGGREGATE, f"{name}.flights") for name in names)),
            self.streamed(),
        )
        pairs = zip(names, source, strict=True), zip(names, mirrored, strict=True)
        return Sample(at_s, dict(pairs[0]), dict(pairs[1]), streamed)

    async def values(
        self, name: str, topics: Iterable[str]
    ) -> AsyncIterator[tuple[list[bytes | None], list[bytes | None]]]:
        """Keys and values of all there is in `topics` now, a fetch at a time."""
        ends: dict[TopicPartition, int] = {}
        for topic in topics:
            ends |= {tp: end for tp, end in (await self.ends(name, topic)).items() if end}
        consumer = Consumer(await self.client(name))
        consumer.assign(dict.fromkeys(ends, 0))
        try:
            while any((consumer.position(tp) or 0) < end for tp, end in ends.items()):
                for batches in await consumer.poll_batches(POLL_MS):
                    _, _, keys, values = records.decode_lists(batches.records)
                    yield keys, values
        finally:
            await consumer.close()

    async def events(self) -> list[tuple[RowKind, bytes]]:
        """(row, kind) and digest of every flight event in the aggregate."""
        found = []
        async for _, values in self.values(AGGREGATE, [f"{name}.flights" for name in self.origins]):
            found += [found_event(value or b"") for value in values]
        return found

    async def carried(self) -> dict[int, dict[str, object]]:
        """The last word on each late flight in `delays.carried`."""
        latest: dict[int, dict[str, object]] = {}
        async for keys, values in self.values(AGGREGATE, ["delays.carried"]):
            for key, value in zip(keys, values, strict=True):
                row = int(bytes(key or b"-1"))
                if value is None:
                    latest.pop(row, None)
                else:
                    latest[row] = orjson.loads(value)
        return latest

    async def late(self) -> dict[int, object]:
        """Row of a late flight -> what `delays.late` says of it."""
        return said_late(await self.said("delays.late"))

    async def spells(self) -> dict[tuple[str, int], object]:
        """(tail number, start in ms) -> what `delays.spells` says of the spell."""
        return said_of_spells(await self.said("delays.spells"))

    async def said(self, topic: str) -> list[tuple[str, dict[str, Any]]]:
        """Each key and value of a topic in the aggregate."""
        found = []
        async for keys, values in self.values(AGGREGATE, [topic]):
            found += [(bytes(k or b"").decode(), orjson.loads(v or b"{}")) for k, v in zip(keys, values, strict=True)]
        return found


def said_late(found: Iterable[tuple[str, dict[str, Any]]]) -> dict[int, object]:
    """Row of a late flight -> what is said of it."""
    return said_once((value["row"], value) for _, value in found)


def said_of_spells(found: Iterable[tuple[str, dict[str, Any]]]) -> dict[tuple[str, int], object]:
    """(tail number, start in ms) -> what is said of the spell."""
    return said_once(((tail, each["start_ms"]), {"end_ms": each["end_ms"], **each["value"]}) for tail, each in found)


def said_once(found: Iterable[tuple[K, object]]) -> dict[K, object]:
    """What was said of each key. A worker that died may have said it before; what was said in two ways is a list."""
    said: dict[K, object] = {}
    for key, value in found:
        before = said.setdefault(key, value)
        if before != value:
            said[key] = [before, value]
    return said


def delta_events(path: str) -> list[tuple[RowKind, bytes]]:
    """(row, kind) and digest of every flight event in the Delta table."""
    from deltalake import DeltaTable

    values = DeltaTable(path).to_pyarrow_table(columns=["value"]).column("value")
    return [found_event(value.as_py()) for chunk in values.chunks for value in chunk]
