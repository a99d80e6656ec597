"""The checkpoint files of a data directory: what a start believes of them, and when they are written."""

from __future__ import annotations

import errno
import os

import pytest

from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.checkpoints import CheckpointFile
from isthmus.protocol.errors import KafkaError
from tests.running import in_loop, run_by

from ..directories import TOPIC_ID, killed, manager, opened
from ..support import BrokenFiles, append, batch, drive


def test_save_that_failed_is_made_up_for(tmp_path):
    files, log, value = BrokenFiles(), object(), {"at": 1}
    checkpoint = CheckpointFile(files, f"{tmp_path}/points", lambda key, log: value["at"])
    checkpoint.note(("t", 0), log)

    def refuse(kind, path):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    files.trap = refuse
    with pytest.raises(KafkaError, match="No space left"):
        drive(checkpoint.save())
    assert not checkpoint.is_saved(("t", 0), 1)
    files.trap = lambda kind, path: None
    drive(checkpoint.save())
    assert (tmp_path / "points").read_text() == "0\n1\nt 0 1\n" and checkpoint.is_saved(("t", 0), 1)
    files.calls.clear()
    checkpoint.note(("t", 0), log)  # nothing is new
    drive(checkpoint.save())
    assert files.calls == []
    checkpoint.forget(("t", 0))
    drive(checkpoint.save())
    assert (tmp_path / "points").read_text() == "0\n0\n"


def test_what_changes_while_the_file_is_written_is_not_saved_yet(tmp_path):
    files, log, value = BrokenFiles(), object(), {"at": 1}
    checkpoint = CheckpointFile(files, f"{tmp_path}/points", lambda key, log: value["at"])
    checkpoint.note(("t", 0), log)

    def change(kind, path):
        value["at"] = 2
        checkpoint.note(("t", 0), log)
        checkpoint.leave(("t", 0))

    files.trap = change
    drive(checkpoint.save())
    files.trap = lambda kind, path: None
    assert not checkpoint.is_saved(("t", 0), 1) and not checkpoint.is_saved(("t", 0), 2)
    drive(checkpoint.save())
    assert (tmp_path / "points").read_text() == "0\n1\nt 0 2\n" and checkpoint.is_saved(("t", 0), 2)


@run_by(in_loop)
async def test_checkpoint_of_a_directory_that_is_gone_is_forgotten_at_the_start(files, tmp_path):
    async with opened(files, tmp_path):
        pass
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 500\n")
    async with opened(files, tmp_path) as made:
        assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n0\n"
        assert (await made.create("t", 0, TOPIC_ID, LogConfig())).recovery_point == 0


@run_by(in_loop)
async def test_broken_checkpoint_means_that_logs_are_read_through(files, tmp_path):
    async with opened(files, tmp_path) as made:
        append(await made.create("t", 0, TOPIC_ID, LogConfig()), batch(1))
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n7\nt 0 1\n")
    async with opened(files, tmp_path) as made:
        assert not made.was_clean
        assert made.get("t", 0).log_end_offset == 1


@run_by(in_loop)
async def test_truncation_lowers_the_checkpoint_on_disk(files, tmp_path):
    async with opened(files, tmp_path) as made:
        log = await made.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=300))
        for _ in range(9):
            append(log, batch(1))
        await log.sync()
        await made.checkpoints.save()
        await log.truncate_to(5)
        assert "t 0 3" in (tmp_path / "recovery-point-offset-checkpoint").read_text()


@run_by(in_loop)
async def test_checkpoint_ahead_of_its_log_is_lowered_before_anything_is_appended(files, tmp_path):
    made = manager(files, tmp_path)
    await made.open(1)
    log = await made.create("t", 0, TOPIC_ID, LogConfig())
    append(log, batch(10))
    await log.sync()
    await made.checkpoints.save_recovery_points()
    killed(made)
    (tmp_path / "t-0" / f"{0:020d}.log").write_bytes(b"")  # what was synced is gone all the same
    again = manager(files, tmp_path)
    await again.open(1)
    log = await again.create("t", 0, TOPIC_ID, LogConfig())
    assert (log.log_end_offset, log.recovery_point) == (0, 0)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nt 0 0\n"
    await again.close()
