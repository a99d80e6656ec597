"""Producers that write down what they are asked for, and answer when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from isthmus.client import Acknowledged, RecordMetadata, TopicPartition
from isthmus.client.errors import ClientError
from isthmus.client.outcomes import Stretch
from isthmus.streams.runtime import commits as commits_module

PLAIN, TRANSACTIONAL = "plain", "transactional"


class Journal:
    """What all producers did, in order. fails: errors that steps raise, each once; gates: steps that wait; lasts_s: how
    long they take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.open: list[tuple[str, asyncio.Future[RecordMetadata]]] = []
        self.at_once = True  # records are acknowledged as they are sent
        self.fails: dict[str, list[Exception]] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.lasts_s: dict[str, float] = {}
        self.producers: list[FakeProducer] = []
        self.started: list[str] = []  # transactional ids of which one was made
        self.end = 40  # offset of what is written next
        monkeypatch.setattr(commits_module, "Producer", self._producer)

    def _producer(self, client: Any, *, transactional_id: str | None = None, **__: Any) -> FakeProducer:
        made = FakeProducer(self, PLAIN if transactional_id is None else TRANSACTIONAL, client)
        if transactional_id is not None:
            self.started.append(transactional_id)
        self.producers.append(made)
        return made

    def settle(self, error: Exception | None = None) -> None:
        opened, self.open = self.open, []
        for topic, future in opened:
            if error:
                future.set_exception(error)
            else:
                future.set_result(RecordMetadata(topic, 0, self.end, 0))
                self.end += 1

    async def step(self, *what: Any) -> None:
        if what[0] in self.gates:
            await self.gates[what[0]].wait()
        if what[0] in self.lasts_s:
            await asyncio.sleep(self.lasts_s[what[0]])
        if self.fails.get(what[0]):
            raise self.fails[what[0]].pop(0)
        self.done.append(what)

    @property
    def steps(self) -> list[str]:
        """Names of steps, and topics of records."""
        return [each[2] if each[0] == "send" else each[0] for each in self.done]

    def committed(self, topic: str, partition: int | None = None) -> list[tuple[bytes | None, bytes | None]]:
        """Keys and values that a read_committed reader has of a topic."""
        found: list[tuple[bytes | None, bytes | None]] = []
        pending: list[tuple[bytes | None, bytes | None]] = []
        for each in self.done:
            if each[0] == "send" and each[2] == topic and partition in (None, each[5]):
                (found if each[1] == PLAIN else pending).append((each[3], each[4]))
            elif each[0] in ("commit", "abort", "start"):
                found += pending if each[0] == "commit" else ()
                pending = []
        return found

    def values(self, topic: str) -> list[bytes | None]:
        return [each[4] for each in self.done if each[:1] == ("send",) and each[2] == topic]


class FakeProducer:
    def __init__(self, journal: Journal, kind: str, client: Any) -> None:
        self.journal = journal
        self.kind = kind
        self.client = client
        self.has_space = True
        self.buffered_bytes, self.buffer_bytes = 0, 1 << 20

    async def start(self) -> None:
        if self.kind == TRANSACTIONAL:
            await self.journal.step("start")

    def send(
        self, topic: str, value: bytes | None, key: bytes | None = None, *, partition: int | None = None, **_: Any
    ) -> asyncio.Future[RecordMetadata]:
        if self.journal.fails.get("send"):
            raise self.journal.fails["send"].pop(0)
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self.journal.done.append(("send", self.kind, topic, key, value, partition))
        self.journal.open.append((topic, future))
        if self.journal.at_once:
            self.journal.settle()
        return future

    def send_many(
        self,
        topic: str,
        values: Sequence[bytes | None],
        keys: Sequence[bytes | None],
        *,
        partition: int | None,
        **_: Any,
    ) -> asyncio.Future[Acknowledged]:
        """Done with the last of them."""
        future: asyncio.Future[Acknowledged] = asyncio.get_running_loop().create_future()
        written = Acknowledged(topic, [0] * len(values))

        def settled(row: int, each: asyncio.Future[RecordMetadata]) -> None:
            if future.done():
                return
            if each.cancelled() or each.exception() is not None:
                future.set_exception(each.exception() or ClientError("it was dropped"))
                return
            written.add(Stretch([row], partition or 0, each.result().offset, -1))
            if row == len(values) - 1:
                future.set_result(written)

        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            one = self.send(topic, value, key, partition=partition)
            one.add_done_callback(partial(settled, row))
        return future

    async def flush(self) -> None: ...

    async def begin_transaction(self) -> None:
        await self.journal.step("begin")

    async def send_offsets(self, offsets: Mapping[TopicPartition, int], group: Any) -> None:
        await self.journal.step("offsets", dict(offsets), group)

    async def commit_transaction(self) -> None:
        await self.journal.step("commit")

    async def abort_transaction(self) -> None:
        await self.journal.step("abort")

    async def close(self, timeout_ms: float = 0) -> None: ...


async def turns(count: int = 10) -> None:
    """Let everything go on that waits for nothing."""
    for _ in range(count):
        await asyncio.sleep(0)
