"""A replica manager over a data directory: fed with records, on a disk to break, in time that a test lets go on."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.cluster.image import MetadataImage
from isthmus.core_broker.config import BrokerConfig
from isthmus.core_broker.replication.manager import ReplicaManager
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.protocol.records import build_batch
from isthmus.runtime import system
from tests.core_broker.storage.support import BrokenFiles, FilesAtOnce, place
from tests.core_broker.ticked import TickedPauses

ID, OTHER_ID = b"\1" * 16, b"\2" * 16
BATCH = build_batch([(system().wall_ms(), b"k", b"v", ())])


class World:
    """A replica manager on a disk to break. Time stands still: `tick` lets the next pause of the task be over."""

    def __init__(self, path: Path, config: BrokerConfig | None = None) -> None:
        self.path = path
        self.files = BrokenFiles()
        self.image = MetadataImage("cluster")
        self.logs = LogManager(self.files, str(path), system())
        self.config = config or BrokerConfig()
        self.replicas = ReplicaManager(self.image, self.logs, self.config, system(), 1)
        self.pauses = self.replicas._shortage._pauses = TickedPauses()
        self.returned: list[tuple[str, int]] = []
        self.replicas.came_back.add(lambda topic, index: self.returned.append((topic, index)))

    def run(self, history: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            await self.logs.open(1)
            await history()
            await self.replicas.close()
            await self.logs.close()

        asyncio.run(main())
        self.files.close()

    async def feed(self, *records: Any) -> None:
        await self.replicas.apply(self.image.apply(records, self.image.offset + len(records), 0))

    async def topic(self, *partitions: int, topic_id: bytes = ID) -> None:
        await self.feed(r.TopicRecord(name="t", topic_id=topic_id), *(partition(n, topic_id) for n in partitions))

    async def tick(self, times: int = 1) -> None:
        for _ in range(times):
            await settle()
            self.pauses.tick()
            await settle()

    async def ended(self) -> None:
        """Nothing wants room any more."""
        while self.is_looking:
            assert not self.pauses.is_pausing, "it waits once more"
            await asyncio.sleep(0)

    @property
    def is_looking(self) -> bool:
        return self.replicas._shortage._task is not None

    def refuse(self, number: int, kinds: tuple[str, ...] = ("append",), part: str = "/t-") -> None:
        def trap(kind: str, path: str) -> None:
            if kind in kinds and part in place(path):
                raise OSError(number, os.strerror(number), path)

        self.files.trap = trap

    def heal(self) -> None:
        self.files.trap = lambda kind, path: None

    def append(self, index: int = 0) -> int:
        return self.replicas.get("t", index).append(BATCH, Origin.CLIENT, system().wall_ms()).first_offset

    def refusal(self, index: int = 0) -> KafkaError:
        with pytest.raises(KafkaError) as caught:
            self.append(index)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        return caught.value


def in_world(test: Callable[[World], Coroutine[Any, Any, None]], world: World) -> None:
    """The runner of tests in the fixture's world."""
    world.run(lambda: test(world))


async def heal_in_vain(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The disk is well again, and the partition that it broke waits for a start all the same."""
    world.heal()
    await settle()
    assert not world.is_looking
    assert "Input/output error" in world.refusal().message
    assert "t-0 is offline until the broker starts again" in caplog.text


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def partition(index: int, topic_id: bytes = ID, leader: int = 1) -> r.PartitionRecord:
    return r.PartitionRecord(
        partition_id=index, topic_id=topic_id, replicas=[leader], isr=[leader], leader=leader, leader_epoch=0,
        partition_epoch=0, directories=[bytes(16)],
    )  # fmt: skip


class Gate:
    """The pool's next job waits until it is opened."""

    def __init__(self, files: FilesAtOnce) -> None:
        self.is_reached, self.is_open = asyncio.Event(), asyncio.Event()
        pool = files.run

        async def run(work: Any, *arguments: Any) -> Any:
            files.run = pool  # type: ignore[method-assign]
            self.is_reached.set()
            await self.is_open.wait()
            return await pool(work, *arguments)

        files.run = run  # type: ignore[method-assign]


async def at_a_try(world: World) -> Gate:
    """A partition that wanted room is being opened once more, and waits for the gate."""
    world.refuse(errno.ENOSPC)
    await world.topic(0)
    world.heal()
    gate = Gate(world.files)
    await world.tick()
    assert gate.is_reached.is_set()
    return gate


async def during_a_try(world: World, change: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The change comes while the partition is being opened once more."""
    gate = await at_a_try(world)
    changing = asyncio.ensure_future(change())
    await settle()
    assert not changing.done()  # it waits: two must not work in one directory
    gate.is_open.set()
    await changing
    await settle()
