"""Logs whose records must be on disk before they are served: after a kill they are synced side by side."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.config import BrokerConfig
from isthmus.protocol.messages import metadata_records as r

from .worlds import ID, World, partition, settle

COUNT = 20
FSYNC = r.ConfigRecord(resource_type=2, resource_name="t", name="durability", value="fsync")


class Syncs:
    """How many syncs of logs there are, and how many at a time. Each takes some turns of the loop."""

    def __init__(self, world: World) -> None:
        self.count = self.running = self.most = 0
        pool = world.files.run

        async def run(work: Any, *arguments: Any) -> Any:
            if getattr(work, "__name__", "") != "with_note":
                return await pool(work, *arguments)
            self.count += 1
            self.running += 1
            self.most = max(self.most, self.running)
            await settle()
            try:
                return await pool(work, *arguments)
            finally:
                self.running -= 1

        world.files.run = run  # type: ignore[method-assign]


async def feed(world: World) -> None:
    await world.feed(r.TopicRecord(name="t", topic_id=ID), FSYNC, *(partition(index) for index in range(COUNT)))


async def killed(world: World) -> None:
    """Every partition has a record that no sync was told to be on disk."""
    await world.logs.open(1)
    await feed(world)
    for index in range(COUNT):
        world.append(index)
        world.replicas.get("t", index)._sync_task.cancel()  # type: ignore[union-attr]
    await settle()
    world.logs._release()


@pytest.mark.parametrize("threads", [1, 4])
def test_as_many_logs_are_synced_at_once_as_the_pool_has_threads(tmp_path: Path, threads: int) -> None:
    asyncio.run(killed(World(tmp_path)))
    world = World(tmp_path, BrokerConfig({"file.pool.threads": str(threads)}))
    syncs = Syncs(world)

    async def history() -> None:
        await feed(world)
        assert (syncs.count, syncs.most) == (COUNT, threads)
        for index in range(COUNT):
            served = world.replicas.get("t", index)
            assert served.high_watermark == served.log.recovery_point == 1

    world.run(history)


def test_one_that_cannot_be_synced_does_not_keep_the_others(tmp_path: Path) -> None:
    asyncio.run(killed(World(tmp_path)))
    world = World(tmp_path)

    async def history() -> None:
        world.refuse(errno.EIO, ("sync",), part="/t-3/")
        await feed(world)
        assert list(world.replicas.offline()) == [("t", 3)]
        assert sorted(world.replicas.partitions["t"]) == [index for index in range(COUNT) if index != 3]
        world.heal()

    world.run(history)
