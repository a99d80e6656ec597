"""A stop of many logs: what is on disk before the marker says so, by how many waits, and what an error does."""

from __future__ import annotations

import errno
import os
import random

import pytest

from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.disk.real_volume import sync_volume
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.manager import LogManager, ManagerConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen
from isthmus.protocol.errors import KafkaError
from isthmus.runtime import Runtime
from tests.running import in_loop, run_by

from ..support import NOW_MS, BrokenFiles, append, batch, contents, place

COUNT = 6
TOPIC_ID = bytes(range(16))
MARKER = ".kafka_cleanshutdown"


class Directory:
    """A data directory of a few logs, each life of which is one manager; what its volume says to a sync."""

    def __init__(self, path, volume_logs_min: int = COUNT, answers: tuple[bool, ...] = (True, True)) -> None:
        self.path = path
        self.files = BrokenFiles()
        self.config = ManagerConfig(volume_logs_min=volume_logs_min)
        self.answers = list(answers)
        self.manager: LogManager

    async def open(self) -> LogManager:
        runtime = Runtime(random.Random(1), lambda: NOW_MS, lambda: 0)
        self.manager = LogManager(self.files, str(self.path), runtime, self.config)
        await self.manager.open(1)
        await self.manager.open_logs([LogToOpen("t", index, TOPIC_ID, LogConfig()) for index in range(COUNT)])
        self.manager._lock.sync_volume = self._sync_volume  # type: ignore[union-attr, method-assign]
        return self.manager

    def _sync_volume(self) -> bool:
        self.files.calls.append(("sync_volume", ""))
        return self.answers.pop(0)

    def fill(self, *indexes: int) -> None:
        for index in indexes or range(COUNT):
            append(self.manager.logs["t", index], batch(3, producer_id=7, producer_epoch=0, base_sequence=0))

    async def close(self) -> list[tuple[str, str]]:
        """The calls of a stop, with the paths below the data directory."""
        self.files.calls.clear()
        await self.manager.close()
        return [(kind, path.removeprefix(f"{self.path}/")) for kind, path in self.files.calls]


async def filled(path, volume_logs_min: int = COUNT, answers: tuple[bool, ...] = (True, True)) -> Directory:
    """Open, with records in every log."""
    directory = Directory(path, volume_logs_min, answers)
    await directory.open()
    directory.fill()
    return directory


class _Lock:
    """A lock whose `sync_volume` can be replaced."""

    def __init__(self, held) -> None:
        self.release = held.release
        self.sync_volume = held.sync_volume


@pytest.fixture(autouse=True)
def locks(monkeypatch):
    real = RealFiles.lock
    monkeypatch.setattr(RealFiles, "lock", lambda files, path: _Lock(real(files, path)))


def waits(calls) -> list[tuple[str, str]]:
    """Those of them that wait for the disk, of partitions' files."""
    kinds = ("sync", "sync_directory", "write_atomic", "sync_volume")
    return [(kind, path) for kind, path in calls if kind in kinds and (path.startswith("t-") or not path)]


@run_by(in_loop)
async def test_many_logs_wait_for_the_disk_twice_together(tmp_path):
    directory = await filled(tmp_path)
    calls = await directory.close()
    assert waits(calls) == [("sync_volume", ""), ("sync_volume", "")]
    order = [kind for kind, path in calls if kind == "sync_volume" or "epoch" in path or path == MARKER]
    appends = ["open", "append"] * COUNT
    assert order == [*appends, "sync_volume", *["rename"] * COUNT, "sync_volume", "write_atomic"]
    again = await directory.open()
    assert again.was_clean
    for log in again.logs.values():
        assert (log.recovery_notes, log.recovery_point, log.epochs.entries()) == ([], 3, [(0, 0)])
        assert log.producers.get(7).last_sequence == 2
    again._release()


@run_by(in_loop)
async def test_logs_whose_epochs_are_on_disk_wait_once(tmp_path):
    directory = await filled(tmp_path)
    for log in directory.manager.logs.values():
        await log.sync()
        append(log, batch(1))
    assert waits(await directory.close()) == [("sync_volume", "")]


@pytest.mark.parametrize(("volume_logs_min", "answers"), [(COUNT, (False,)), (COUNT + 1, ())])
@run_by(in_loop)
async def test_where_the_volume_cannot_be_synced_or_logs_are_few_each_file_is(tmp_path, volume_logs_min, answers):
    directory = await filled(tmp_path, volume_logs_min, answers)
    calls = await directory.close()
    name = "00000000000000000000"
    for index in range(COUNT):
        place = f"t-{index}"
        synced = [(kind, path) for kind, path in waits(calls) if path.startswith(place)]
        assert synced == [
            ("sync", f"{place}/partition.metadata"), ("sync", f"{place}/{name}.log"),
            ("sync", f"{place}/{name}.index"), ("sync", f"{place}/{name}.timeindex"),
            ("sync", f"{place}/{3:020d}.snapshot"), ("sync", f"{place}/leader-epoch-checkpoint.tmp"),
            ("sync_directory", place),
        ]  # fmt: skip
        renamed = calls.index(("rename", f"{place}/leader-epoch-checkpoint.tmp"))
        assert calls.index(synced[-2]) < renamed < calls.index(synced[-1]) < calls.index(("write_atomic", MARKER))
    assert directory.answers == []


@run_by(in_loop)
async def test_volume_that_fails_at_the_second_sync_leaves_the_names_to_each_directory(tmp_path):
    directory = await filled(tmp_path, answers=(True, False))
    names = [("sync_directory", f"t-{index}") for index in range(COUNT)]
    assert waits(await directory.close()) == [("sync_volume", ""), ("sync_volume", ""), *names]


@pytest.mark.parametrize("call", [("sync", "t-2/00000000000000000000.index"), ("append", "t-2/leader-epoch"),
                                  ("rename", "t-2/leader-epoch"), ("sync_directory", "t-2")])  # fmt: skip
@run_by(in_loop)
async def test_log_that_cannot_be_closed_is_noted_and_the_others_are(tmp_path, call, caplog):
    def trap(kind, path):
        if kind == call[0] and call[1] in place(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    directory = await filled(tmp_path, answers=(False,))
    directory.files.trap = trap
    await directory.close()
    directory.files.trap = lambda kind, path: None
    assert not (tmp_path / MARKER).exists()
    assert [path.parent.name for path in tmp_path.glob("*/sync-failed")] == ["t-2"]
    assert "t-2 is offline" in caplog.text and "Input/output error" in caplog.text
    again = await directory.open()
    assert {log.log_end_offset for log in again.logs.values()} == {3}
    assert [log.recovery_point for log in again.logs.values()] == [3, 3, 0, 3, 3, 3]
    again._release()


@run_by(in_loop)
async def test_logs_that_have_not_changed_are_only_let_go(tmp_path):
    directory = await filled(tmp_path)
    await directory.close()
    directory.answers = []
    await directory.open()
    append(directory.manager.logs["t", 4], batch(1))
    calls = await directory.close()
    assert {path.split("/")[0] for _, path in calls if path.startswith("t-")} == {"t-4"}
    assert "sync_volume" not in [kind for kind, _ in calls]


@run_by(in_loop)
async def test_closed_log_takes_no_more_and_one_that_is_offline_is_let_go(tmp_path):
    directory = await filled(tmp_path)
    logs = list(directory.manager.logs.values())
    logs[1].status.fail(OSError(errno.EIO, "Input/output error"), "cannot read from")
    calls = await directory.close()
    assert not [path for kind, path in calls if path.startswith("t-1/") or path == MARKER]
    assert [log.recovery_point for log in logs] == [3, 0, 3, 3, 3, 3]
    for log in logs:
        with pytest.raises(KafkaError):
            append(log, batch(1))


@run_by(in_loop)
async def test_power_cut_before_the_new_epochs_have_their_name_leaves_the_old_ones(tmp_path):
    directory = await filled(tmp_path)

    def die():
        raise SystemExit

    directory.manager._lock.sync_volume = die
    with pytest.raises(SystemExit):
        await directory.close()
    directory.manager._release()
    for path in tmp_path.glob("*/leader-epoch-checkpoint.tmp"):
        path.write_bytes(b"")
    again = await directory.open()
    assert not again.was_clean
    for log in again.logs.values():
        assert log.epochs.entries() == [(0, 0)] and len(contents(log)) == len(batch(3))
    assert not list(tmp_path.glob("*/*.tmp"))
    again._release()


def test_volume_that_would_not_tell_of_errors_is_not_believed(tmp_path, monkeypatch):
    from isthmus.core_broker.storage.disk import real_volume

    fd = os.open(tmp_path, os.O_RDONLY)
    try:
        monkeypatch.setattr(real_volume, "REPORTING", {})
        assert sync_volume(fd) is False
        monkeypatch.undo()
        release = os.uname().release
        for old in ("5.7.19", "4.18.0-80.el8", "unnamed"):
            monkeypatch.setattr(real_volume, "_kernel", lambda text=old: text)
            assert sync_volume(fd) is False, (old, release)
    finally:
        os.close(fd)
    monkeypatch.undo()
    assert sync_volume(-1) is False


@run_by(in_loop)
async def test_a_log_start_that_rose_since_the_last_stop_is_in_the_epochs_file_of_this_one(tmp_path):
    """A log without an append since was only let go, and a check missed the epoch's new start."""
    directory = await filled(tmp_path)
    await directory.close()
    await directory.open()
    directory.manager.logs["t", 1].advance_start(2)
    await directory.close()
    for index, start in ((0, 0), (1, 2)):
        assert (tmp_path / f"t-{index}/leader-epoch-checkpoint").read_text().split()[2:] == ["0", str(start)]
    again = await directory.open()
    assert again.was_clean and again.logs["t", 1].log_start_offset == 2
    assert [log.recovery_notes for log in again.logs.values()] == [[]] * COUNT
    again._release()
