"""Deleted partitions: gone for good when that is told, their files later, in pieces, and after a restart too."""

from __future__ import annotations

import asyncio
import errno
import os
import random

import pytest

from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.core_broker.storage.upkeep.removals import PIECE_DIRECTORIES, PIECE_FILES, remove_piece
from isthmus.protocol.errors import KafkaError
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

from ..support import NOW_MS, BrokenFiles, append, batch, place

COUNT = 8
KEYS = [("t", index) for index in range(COUNT)]
TOPIC_ID = bytes(range(16))
HOUR_MS = 3_600_000


async def opened(files, path, delay_ms: int = HOUR_MS) -> LogManager:
    runtime = Runtime(random.Random(1), lambda: NOW_MS, lambda: 0)
    manager = LogManager(files, str(path), runtime, ManagerConfig(file_delete_delay_ms=delay_ms))
    await manager.open(1)
    return manager


async def filled(files, path, **more) -> LogManager:
    manager = await opened(files, path, **more)
    await manager.open_logs([LogToOpen(*key, TOPIC_ID, LogConfig()) for key in KEYS])
    for log in manager.logs.values():
        append(log, batch(1))
    return manager


def left(path) -> list[str]:
    """Directories of deleted partitions, by what they were before."""
    return sorted(each.name.partition(".")[0] for each in path.iterdir() if each.name.endswith("-delete"))


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.001)


def refusing(kind, part):
    def trap(called, path):
        if called == kind and part in place(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    return trap


@run_by(in_loop)
async def test_deletion_is_told_when_the_names_are_on_disk_and_no_file_has_gone(tmp_path):
    files = BrokenFiles()
    manager = await filled(files, tmp_path)
    await manager.checkpoints.save()
    files.calls.clear()
    await manager.delete_logs(KEYS[:5])
    kinds = [kind for kind, _ in files.calls]
    assert kinds[:5] == ["rename"] * 5 and "rename" not in kinds[5:]
    assert files.calls[-1] == ("sync_directory", str(tmp_path))
    assert not {"unlink", "rmtree"} & set(kinds)
    saved = [path.rpartition("/")[2] for kind, path in files.calls if kind == "write_atomic"]
    assert "recovery-point-offset-checkpoint" in saved  # or it would speak for later logs of the names
    assert left(tmp_path) == [f"t-{index}" for index in range(5)]
    assert sorted(manager.logs) == manager.found() == KEYS[5:]
    await manager.close()


@run_by(in_loop)
async def test_names_that_may_come_back_keep_their_files_until_a_start(tmp_path):
    files = BrokenFiles()
    manager = await filled(files, tmp_path, delay_ms=0)
    files.trap = refusing("sync_directory", place(str(tmp_path)))
    with pytest.raises(KafkaError, match="cannot sync"):
        await manager.delete_logs(KEYS[:1])
    files.trap = lambda kind, path: None
    assert len(manager.removals) == 0 and left(tmp_path) == ["t-0"]
    await manager.close()
    again = await opened(files, tmp_path, delay_ms=0)
    again.start()
    await until(lambda: left(tmp_path) == [])
    await again.close()


@run_by(in_loop)
async def test_directory_that_cannot_be_renamed_does_not_keep_the_others(tmp_path):
    files = BrokenFiles()
    manager = await filled(files, tmp_path)
    files.trap = refusing("rename", "/t-3")
    with pytest.raises(KafkaError, match=r"cannot delete .*t-3: Input/output error"):
        await manager.delete_logs(KEYS)
    assert left(tmp_path) == [f"t-{index}" for index in range(COUNT) if index != 3]
    assert len(manager.removals) == COUNT - 1 and manager.logs == {}
    files.trap = lambda kind, path: None
    await manager.close()


@run_by(in_loop)
async def test_files_go_when_the_delay_has_passed_which_may_change_meanwhile(tmp_path):
    manager = await filled(BrokenFiles(), tmp_path)
    manager.start()
    await manager.delete_logs(KEYS[:3])
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(left(tmp_path)) == len(manager.removals) == 3
    manager.removals.delay_ms = 0
    await until(lambda: not len(manager.removals))
    assert left(tmp_path) == []
    await manager.delete_logs(KEYS[3:4])
    await until(lambda: left(tmp_path) == [])
    await manager.close()


@run_by(in_loop)
async def test_rest_of_a_deletion_is_removed_after_the_next_start(tmp_path):
    files = BrokenFiles()
    manager = await filled(files, tmp_path)
    manager.start()
    await manager.delete_logs(KEYS[:3])
    await manager.close()
    assert len(left(tmp_path)) == 3
    again = await opened(files, tmp_path, delay_ms=0)
    assert len(left(tmp_path)) == len(again.removals) == 3 and again.found() == KEYS[3:]
    files.calls.clear()
    again.start()
    await until(lambda: not len(again.removals))
    assert left(tmp_path) == []
    again._release()


@run_by(in_loop)
async def test_one_that_cannot_be_removed_is_told_and_does_not_stop_the_others(tmp_path, caplog):
    files = BrokenFiles()
    manager = await filled(files, tmp_path, delay_ms=0)
    manager.start()
    files.trap = refusing("rmtree", "t-1.")
    await manager.delete_logs(KEYS[:4])
    await until(lambda: not len(manager.removals))
    assert left(tmp_path) == ["t-1"]
    assert "cannot delete" in caplog.text and "the next start tries again" in caplog.text
    files.trap = lambda kind, path: None
    await manager.close()


def test_a_piece_has_so_many_files_and_no_more(tmp_path):
    files = BrokenFiles()
    large = tmp_path / "large"
    small = [tmp_path / f"small-{number}" for number in range(PIECE_DIRECTORIES)]
    for directory, count in ((large, 2 * PIECE_FILES + 1), *((each, 10) for each in small)):
        directory.mkdir()
        for number in range(count):
            (directory / f"{number:020d}.log").touch()

    def there() -> int:
        return sum(len(os.listdir(each)) for each in (large, *small) if each.exists())

    waiting = [str(large), *map(str, small)]
    total = there()
    pieces = []
    while waiting:
        before = there()
        count, failures = remove_piece(files, waiting)
        assert failures == []
        del waiting[:count]
        pieces.append(before - there())
    assert sum(pieces) == total and there() == 0
    assert max(pieces) == PIECE_FILES and min(pieces) > 0
    assert pieces[:2] == [PIECE_FILES, PIECE_FILES]
    assert not large.exists() and not any(each.exists() for each in small)


@run_by(in_loop)
async def test_stop_does_not_wait_for_the_rest(tmp_path):
    manager = await filled(BrokenFiles(), tmp_path)
    manager.start()
    await manager.delete_logs(KEYS)
    await manager.close()
    assert len(left(tmp_path)) == COUNT
    assert (tmp_path / ".kafka_cleanshutdown").exists()


@run_by(in_loop)
async def test_deletion_that_a_crash_cut_short_goes_on_after_the_next_start(tmp_path, caplog):
    other, broken = bytes(range(16, 32)), KEYS[5]
    files = BrokenFiles()
    manager = await filled(files, tmp_path)
    await manager.create("kept", 0, other, LogConfig())
    await manager.close()
    (tmp_path / "t-5" / "partition.metadata").write_bytes(b"?")
    again = await opened(files, tmp_path)
    again.removed = {TOPIC_ID: None}
    renamed = await again.set_aside(lambda topic, index: True)
    assert sorted(name.partition(".")[0] for name in renamed) == ["kept-0", "t-5"]
    assert left(tmp_path) == [f"t-{index}" for index in range(COUNT) if index != broken[1]]
    assert len(again.removals) == COUNT - 1 and again.found() == []
    await again.close()
