"""A start after a kill reads, and waits for the disk only where a crash after it would find something else."""

from __future__ import annotations

import os
import random

import pytest

from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager
from isthmus.core_broker.storage.startup import recovery
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

from ..support import NOW_MS, BrokenFiles, append, batch, contents, open_log, run

TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=300)
SEGMENTS = [f"{base:020d}" for base in range(0, 12, 3)]


def waits(files, since: int = 0) -> list[tuple[str, str]]:
    """What was waited for, by kind and the name of the file or directory."""
    kinds = ("sync", "sync_directory", "write_atomic")
    return [(kind, path.rpartition("/")[2]) for kind, path in files.calls[since:] if kind in kinds]


def left_by_a_kill(tmp_path, count: int = 10, config: LogConfig = SMALL, synced: int = 0):
    """A log of single records, three a segment, of which the process was killed; the first `synced` are on disk."""
    files = BrokenFiles()
    log = open_log(files, tmp_path, config)
    for number in range(count):
        if number == synced and synced:
            run(log.sync())
        append(log, batch(1), epoch=number // 4)
    return files, log


def reopened(files, tmp_path, config: LogConfig = SMALL, **points):
    since = len(files.calls)
    log = open_log(files, tmp_path, config, **points)
    return log, waits(files, since)


@pytest.mark.parametrize("synced", [0, 5])
def test_nothing_is_waited_for_where_nothing_is_lost(tmp_path, synced):
    files, before = left_by_a_kill(tmp_path, synced=synced)
    log, waited = reopened(files, tmp_path, recovery_point=synced)
    assert waited == []
    assert contents(log) == contents(before)
    assert log.epochs.entries() == before.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
    assert log.recovery_point == synced


def test_epochs_are_written_by_the_first_sync(tmp_path):
    files, _ = left_by_a_kill(tmp_path)
    log, _ = reopened(files, tmp_path)
    assert not (tmp_path / "t-0" / "leader-epoch-checkpoint").exists()
    run(log.sync())
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n3\n0 0\n1 4\n2 8\n"
    assert log.recovery_point == 10


def test_kill_after_kill_finds_the_same(tmp_path):
    files, before = left_by_a_kill(tmp_path, synced=5)
    for _ in range(3):
        log, waited = reopened(files, tmp_path, recovery_point=5)
        assert (waited, contents(log), log.epochs.entries()) == ([], contents(before), before.epochs.entries())


def test_clean_stop_after_it_is_believed(tmp_path):
    files, before = left_by_a_kill(tmp_path)
    log, _ = reopened(files, tmp_path)
    run(log.close())
    again, waited = reopened(files, tmp_path, clean=True, recovery_point=10)
    assert (waited, again.recovery_notes, contents(again)) == ([], [], contents(before))
    for offset in range(10):
        assert again.read(offset, 1).size_bytes == len(batch(1))


def test_tail_that_is_cut_off_is_so_on_disk(tmp_path):
    files, _ = left_by_a_kill(tmp_path, count=11)
    path = tmp_path / "t-0" / f"{SEGMENTS[3]}.log"
    os.truncate(path, path.stat().st_size - 1)
    log, waited = reopened(files, tmp_path)
    assert waited == [("sync", path.name)]
    assert log.log_end_offset == 10


def test_segments_that_go_do_not_come_back(tmp_path):
    files, _ = left_by_a_kill(tmp_path)
    path = tmp_path / "t-0" / f"{SEGMENTS[1]}.log"
    os.truncate(path, path.stat().st_size - 1)
    log, waited = reopened(files, tmp_path)
    assert waited == [("sync", path.name), ("sync_directory", "t-0")]
    assert log.log_end_offset == 5


def test_snapshot_past_the_end_does_not_come_back(tmp_path):
    files, _ = left_by_a_kill(tmp_path, count=2)
    (tmp_path / "t-0" / f"{77:020d}.snapshot").write_bytes(b"of another history")
    log, waited = reopened(files, tmp_path)
    assert waited == [("sync_directory", "t-0")]
    assert not list((tmp_path / "t-0").glob("*77.snapshot"))
    assert log.log_end_offset == 2


@pytest.mark.parametrize("left", [b"0\n9\n", None])
def test_epochs_that_are_lost_are_written_again_at_once(tmp_path, left):
    """Or each start would read all of the log, which was read through up to the recovery point."""
    files, before = left_by_a_kill(tmp_path, synced=5)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.unlink() if left is None else path.write_bytes(left)
    log, waited = reopened(files, tmp_path, recovery_point=5)
    assert waited == [("write_atomic", path.name)]
    assert path.read_text() == "0\n3\n0 0\n1 4\n2 8\n" and log.epochs.entries() == before.epochs.entries()


def test_thousands_of_small_logs_make_no_files(tmp_path):
    files, _ = left_by_a_kill(tmp_path, config=LogConfig())
    there = sorted(os.listdir(tmp_path / "t-0"))
    log, waited = reopened(files, tmp_path, LogConfig())
    assert (waited, sorted(os.listdir(tmp_path / "t-0"))) == ([], there)
    append(log, batch(1))
    run(log.close())
    assert {f"{SEGMENTS[0]}.index", f"{SEGMENTS[0]}.timeindex"} <= set(os.listdir(tmp_path / "t-0"))


@pytest.mark.parametrize(("limit", "in_memory"), [(256, True), (2, False)])
def test_index_of_the_last_segment_stays_in_memory_if_it_is_small(tmp_path, monkeypatch, limit, in_memory):
    monkeypatch.setattr(recovery, "ENTRIES_IN_MEMORY", limit)
    config = LogConfig(index_interval_bytes=1)
    files, before = left_by_a_kill(tmp_path, config=config)
    log, _ = reopened(files, tmp_path, config)
    assert log.active_segment.offsets.is_whole == in_memory
    assert (tmp_path / "t-0" / f"{SEGMENTS[0]}.index").exists() != in_memory
    for offset in range(10):
        assert log.read(offset, 1).ranges[0].position == before.read(offset, 1).ranges[0].position
    append(log, batch(1))
    run(log.close())
    again, _ = reopened(files, tmp_path, config, clean=True, recovery_point=11)
    assert again.recovery_notes == [] and again.log_end_offset == 11


def test_index_that_an_earlier_stop_left_does_not_stay_behind(tmp_path):
    """It may be of an end that a power cut has taken."""
    config = LogConfig(index_interval_bytes=1)
    files, log = left_by_a_kill(tmp_path, config=config)
    run(log.close())
    path = tmp_path / "t-0" / f"{SEGMENTS[0]}.log"
    os.truncate(path, 3 * len(batch(1)))
    index = path.with_suffix(".index")
    before = index.stat().st_size
    again, _ = reopened(files, tmp_path, config)
    assert again.log_end_offset == 3 and index.stat().st_size < before


@run_by(in_loop)
async def test_many_partitions_after_a_kill(tmp_path):
    files = BrokenFiles()
    runtime = Runtime(random.Random(1), lambda: NOW_MS, lambda: 0)
    wanted = [LogToOpen("t", index, TOPIC_ID, LogConfig()) for index in range(20)]
    manager = LogManager(files, str(tmp_path), runtime)
    await manager.open(1)
    await manager.open_logs(wanted)
    for log in manager.logs.values():
        append(log, batch(2))
    manager._release()
    again = LogManager(files, str(tmp_path), runtime)
    await again.open(1)
    since = len(files.calls)
    await again.open_logs(wanted)
    assert waits(files, since) == []
    assert {log.log_end_offset for log in again.logs.values()} == {2}
    await again.close()
