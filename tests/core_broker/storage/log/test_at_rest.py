"""Logs at rest cost nothing: what recurs asks those that have changed or are due, and not those beside them."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import DAY_MS, LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

from ..support import NOW_MS, BrokenFiles, append, batch

COUNT = 60
MANY = 2000
FEW = 10  # tasks and timers, for all logs together
TOPIC_ID = bytes(range(16))


class World:
    """A data directory of many logs, and which of them are looked at."""

    def __init__(self, path, monkeypatch, config=None, count=COUNT, **options) -> None:
        self.count = count
        self.files = BrokenFiles()
        self.now_ms = NOW_MS
        runtime = Runtime(random.Random(1), lambda: self.now_ms, lambda: 0)
        self.manager = LogManager(self.files, str(path), runtime, ManagerConfig(**options))
        self.config = config or LogConfig()
        self.retained: list[str] = []
        original = Log.enforce_retention

        async def enforce(log, *args):
            self.retained.append(log.name)
            return await original(log, *args)

        monkeypatch.setattr(Log, "enforce_retention", enforce)

    async def open(self) -> None:
        await self.manager.open(1)
        await self.manager.open_logs([LogToOpen("t", index, TOPIC_ID, self.config) for index in range(self.count)])

    def log(self, index) -> Log:
        return self.manager.logs["t", index]

    async def retain(self) -> list[str]:
        self.retained.clear()
        await self.manager.enforce_retention()
        return list(self.retained)


@run_by(in_loop)
async def test_retention_looks_at_what_has_changed_or_is_due(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, LogConfig(retention_ms=DAY_MS))
    await world.open()
    assert len(await world.retain()) == COUNT  # once, since nobody knows them yet
    assert await world.retain() == []
    append(world.log(7), batch(1))
    append(world.log(7), batch(1))
    append(world.log(3), batch(1, timestamp=NOW_MS - DAY_MS // 2))
    assert await world.retain() == ["t-3", "t-7"]
    assert await world.retain() == []
    append(world.log(7), batch(1))
    assert await world.retain() == ["t-7"]
    world.now_ms += DAY_MS // 2 + 1
    assert await world.retain() == ["t-3"]
    assert (world.log(3).log_start_offset, world.log(7).log_start_offset) == (1, 0)
    world.now_ms += DAY_MS
    assert "t-7" in await world.retain()
    assert world.log(7).log_start_offset == 3
    await world.manager.close()


@pytest.fixture
def folder_in_memory() -> Iterator[Path]:
    """On a disk at work, thousands of files take ten times as long to open."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@run_by(in_loop)
async def test_thousands_of_logs_have_no_tasks_and_timers_of_their_own(folder_in_memory, monkeypatch):
    """A pass over them deletes what has expired since the last one, and looks at no others but those it has changed."""
    expired, soon = set(range(3, MANY, 20)), set(range(8, MANY, 20))
    timers: list[object] = []
    original = asyncio.BaseEventLoop.call_at

    def call_at(loop, when, callback, *args, **more):
        timers.append(callback)
        return original(loop, when, callback, *args, **more)

    world = World(folder_in_memory, monkeypatch, LogConfig(retention_ms=DAY_MS), MANY)
    await world.open()
    tasks = asyncio.all_tasks()
    monkeypatch.setattr(asyncio.BaseEventLoop, "call_at", call_at)
    world.manager.start()
    for index in range(MANY):
        age_ms = DAY_MS + 1 if index in expired else DAY_MS - 1000 if index in soon else 0
        append(world.log(index), batch(1, timestamp=NOW_MS - age_ms))
    assert len(await world.retain()) == MANY
    assert {index for index in range(MANY) if world.log(index).log_start_offset} == expired
    await world.retain()  # what it has changed
    assert await world.retain() == []
    world.now_ms += 1001
    assert set(await world.retain()) == {f"t-{index}" for index in soon}
    assert {index for index in range(MANY) if world.log(index).log_start_offset} == expired | soon
    assert len(asyncio.all_tasks() - tasks) <= FEW and len(timers) <= FEW
    await world.manager.close()


@run_by(in_loop)
async def test_retention_follows_options_and_starts_that_move(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, LogConfig(retention_ms=-1))
    await world.open()
    append(world.log(1), batch(1, timestamp=NOW_MS - 5000))
    append(world.log(2), batch(1))
    await world.retain()
    world.now_ms += 100 * DAY_MS
    assert "t-1" not in await world.retain()
    world.log(1).configure(LogConfig(retention_ms=1000))
    world.log(2).advance_start(1)
    assert await world.retain() == ["t-1", "t-2"]
    assert (world.log(1).log_start_offset, world.log(2).segments_count) == (1, 1)
    await world.manager.close()


@run_by(in_loop)
async def test_retention_comes_back_for_what_the_high_watermark_held_back(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, LogConfig(retention_ms=1000))
    marks = {("t", 4): 0}
    world.manager.high_watermark_of = lambda topic, index: marks.get((topic, index))
    await world.open()
    append(world.log(4), batch(1, timestamp=NOW_MS - 5000))
    await world.retain()
    assert world.log(4).log_start_offset == 0
    marks["t", 4] = 1
    assert await world.retain() == ["t-4"]
    assert world.log(4).log_start_offset == 1
    await world.manager.close()


@run_by(in_loop)
async def test_producers_expire_without_an_append(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch, LogConfig(retention_ms=-1, producer_id_expiration_ms=DAY_MS))
    await world.open()
    append(world.log(5), batch(1, producer_id=9, producer_epoch=0, base_sequence=0))
    await world.retain()
    world.now_ms += DAY_MS - 1
    assert await world.retain() == [] and len(world.log(5).producers) == 1
    world.now_ms += 1
    assert await world.retain() == ["t-5"] and len(world.log(5).producers) == 0
    await world.manager.close()


@run_by(in_loop)
async def test_a_checkpoint_asks_those_that_have_changed(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    asked: list[tuple[str, int]] = []
    marks: dict[tuple[str, int], int] = {}

    def high_watermark(topic, index):
        asked.append((topic, index))
        return marks.get((topic, index), world.log(index).log_end_offset)

    await world.open()
    await world.manager.checkpoints.save()
    world.manager.high_watermark_of = high_watermark
    await world.manager.checkpoints.save_high_watermarks()
    assert asked == []
    append(world.log(9), batch(2))
    append(world.log(9), batch(2))
    marks["t", 8] = 1
    append(world.log(8), batch(3))
    await world.manager.checkpoints.save_high_watermarks()
    assert set(asked) == {("t", 8), ("t", 9)}
    lines = (tmp_path / "replication-offset-checkpoint").read_text().splitlines()
    assert len(lines) == COUNT + 2 and {"t 9 4", "t 8 1", "t 7 0"} <= set(lines)
    expected = {8: 1, 9: 4}
    assert lines[2:] == [f"t {index} {expected.get(index, 0)}" for index in range(COUNT)]
    asked.clear()
    del marks["t", 8]  # it rises, and no append tells
    await world.manager.checkpoints.save_high_watermarks()
    assert set(asked) == {("t", 8)}
    assert "t 8 3" in (tmp_path / "replication-offset-checkpoint").read_text()
    asked.clear()
    world.files.calls.clear()
    await world.manager.checkpoints.save()
    assert asked == [] and world.files.calls == []
    append(world.log(9), batch(1))
    await world.manager.checkpoints.save_high_watermarks()
    assert set(asked) == {("t", 9)}
    await world.manager.close()


@run_by(in_loop)
async def test_recovery_points_follow_syncs_and_cuts(tmp_path, monkeypatch):
    world = World(tmp_path, monkeypatch)
    await world.open()
    await world.manager.checkpoints.save_recovery_points()
    append(world.log(2), batch(5))
    await world.log(2).sync()
    await world.manager.checkpoints.save_recovery_points()
    assert "t 2 5\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    await world.log(2).truncate_to(0)
    assert "t 2 0\n" in (tmp_path / "recovery-point-offset-checkpoint").read_text()
    await world.manager.close()


@run_by(in_loop)
async def test_flush_ms_looks_at_logs_that_have_it_and_appends(tmp_path, monkeypatch):
    synced: list[str] = []
    original = Log.sync

    async def sync(log):
        synced.append(log.name)
        await original(log)

    monkeypatch.setattr(Log, "sync", sync)
    world = World(tmp_path, monkeypatch)
    await world.open()
    manager = world.manager
    append(world.log(1), batch(1))
    append(world.log(2), batch(1))
    assert manager.duties.aging == {}
    for index in (2, 3):  # an append was before the option, or there is none
        world.log(index).configure(LogConfig(flush_ms=100))
    assert list(manager.duties.aging) == [("t", 2)]
    await manager.duties.flush_old()
    assert synced == []
    world.now_ms += 100
    await manager.duties.flush_old()
    assert synced == ["t-2"]
    await manager.duties.flush_old()
    assert manager.duties.aging == {}
    append(world.log(3), batch(1))
    assert list(manager.duties.aging) == [("t", 3)]
    await manager.close()


def test_flush_ms_is_kept_while_the_manager_runs(tmp_path, monkeypatch):
    async def work():
        world = World(tmp_path, monkeypatch, LogConfig(flush_ms=1))
        await world.open()
        world.manager.start()
        append(world.log(4), batch(1))
        world.now_ms += 10
        while world.log(4).recovery_point != 1:
            await asyncio.sleep(0.001)
        await world.manager.close()

    asyncio.run(asyncio.wait_for(work(), 20))
