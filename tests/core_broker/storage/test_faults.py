"""A disk that refuses: the log is as before, or offline with the reason; never in between."""

from __future__ import annotations

import errno
import gc
import os
import weakref

import pytest

from isthmus.core_broker.storage.disk.errors import StorageError, TornWrite
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.status import LogHooks
from isthmus.protocol.errors import ErrorCode, KafkaError

from .support import NOW_MS, BrokenFiles, append, batch, contents, open_log, place, run

SMALL = LogConfig(segment_bytes=300)


def failing(number: int, kinds: tuple[str, ...] = ("append",), part: str = "", error: type[OSError] = OSError):
    def trap(kind: str, path: str) -> None:
        if kind in kinds and part in place(path):
            raise error(number, os.strerror(number), path)

    return trap


def ignore(kind: str, path: str) -> None:
    pass


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EMFILE])
def test_append_refused_for_want_of_room_changes_nothing_and_names_file_and_reason(tmp_path, number):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    data = batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
    append(log, data)
    files.trap = failing(number)
    following = batch(1, producer_id=7, producer_epoch=0, base_sequence=1)
    with pytest.raises(StorageError) as caught:
        append(log, following, epoch=5)
    assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    assert caught.value.errno == number
    assert "00000000000000000000.log" in caught.value.message
    assert os.strerror(number) in caught.value.message
    assert (log.log_end_offset, log.latest_epoch) == (1, 0)
    files.trap = ignore
    assert append(log, following).first_offset == 1
    assert append(log, following).duplicate


@pytest.mark.parametrize(("number", "error"), [(errno.EIO, OSError), (errno.EROFS, OSError), (errno.ENOSPC, TornWrite)])
def test_append_that_a_broken_disk_refuses_takes_the_log_offline(tmp_path, number, error):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1))
    files.trap = failing(number, error=error)
    with pytest.raises(StorageError):
        append(log, batch(1))
    files.trap = ignore
    for use in (lambda: append(log, batch(1)), lambda: log.read(0, 100), lambda: run(log.sync())):
        with pytest.raises(KafkaError) as caught:
            use()
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "0000.log" in caught.value.message
    assert open_log(files, tmp_path).log_end_offset == 1


class Request(bytearray):
    """One whose end can be seen."""


@pytest.mark.parametrize(("number", "error"), [(errno.EIO, OSError), (errno.ENOSPC, TornWrite)])
def test_an_offline_log_keeps_its_reason_and_the_memory_of_no_request_that_met_it(tmp_path, number, error):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    told = []
    log.status.hooks = LogHooks(on_failure=lambda status, failure: told.append(failure.message))

    def refused(use) -> weakref.ref:
        request = Request(batch(1))
        with pytest.raises(StorageError, match=f"cannot append to .*0000.log: {os.strerror(number)}") as caught:
            use(request)
        assert (caught.value.code, caught.value.errno) == (ErrorCode.KAFKA_STORAGE_ERROR, number)
        return weakref.ref(request)

    files.trap = failing(number, error=error)
    requests = [refused(lambda request: append(log, request))]
    requests += [refused(lambda request: append(log, request)) for _ in range(2)]
    requests.append(refused(lambda request: log.read(0, len(request))))
    gc.collect()
    assert [request() for request in requests] == [None] * 4
    assert [log.failure.message] == (told or [log.failure.message])
    assert len(told) == (number == errno.ENOSPC)


@pytest.mark.parametrize("part", [".index", ".timeindex", ".snapshot", "0003.log"])
def test_roll_that_fails_anywhere_can_be_tried_again(tmp_path, part):
    files = BrokenFiles()
    log = open_log(files, tmp_path, SMALL)
    for _ in range(3):
        append(log, batch(1))
    files.trap = failing(errno.ENOSPC, ("open", "append", "pwrite", "truncate"), part)
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            append(log, batch(1))
    assert (log.log_end_offset, log.segments_count) == (3, 1)
    files.trap = ignore
    assert append(log, batch(1)).first_offset == 3
    assert log.segments_count == 2
    assert len(contents(log)) == 4 * len(batch(1))
    assert open_log(files, tmp_path, SMALL).log_end_offset == 4


def test_failed_sync_takes_the_log_offline(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1))
    files.trap = failing(errno.EIO, ("sync",))
    with pytest.raises(StorageError, match="Input/output error"):
        run(log.sync())
    files.trap = ignore  # the page cache may have thrown away what it could not write: no second try
    with pytest.raises(KafkaError):
        run(log.sync())
    with pytest.raises(KafkaError):
        append(log, batch(1))
    run(log.close())
    assert log.recovery_point == 0


def test_start_after_a_failed_sync_writes_again_what_the_disk_may_not_have(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path, SMALL)
    for _ in range(4):
        append(log, batch(1))
    run(log.sync())
    for _ in range(4):
        append(log, batch(1))
    files.trap = failing(errno.EIO, ("sync",), "0006.log")
    with pytest.raises(StorageError):
        run(log.sync())
    note = tmp_path / "t-0" / "sync-failed"
    assert "Input/output error" in note.read_text()
    # The disk is still broken: the log is not served, and the error says what it was about.
    with pytest.raises(StorageError, match=r"cannot open .*0006\.log\.tmp: Input/output error"):
        open_log(files, tmp_path, SMALL, recovery_point=4)
    assert note.exists()
    files.trap = ignore
    before = len(files.calls)
    log = open_log(files, tmp_path, SMALL, recovery_point=4)
    again = [(kind, path[-12:]) for kind, path in files.calls[before:] if ".log" in path or kind == "sync_directory"]
    last = max(number for number, (kind, _) in enumerate(again) if kind == "sync_directory")
    for name in ("0003.log.tmp", "0006.log.tmp"):
        assert again.index(("append", name)) < again.index(("sync", name)) < again.index(("rename", name)) < last
    assert not [name for _, name in again if name == "0000.log.tmp"]  # it was synced before
    assert not list((tmp_path / "t-0").glob("*.tmp"))
    assert not note.exists() and log.log_end_offset == 8
    assert any("a sync or an append had failed" in line for line in log.recovery_notes)
    assert run(log.sync()) is None


@pytest.mark.parametrize("is_let_go", [True, False])
def test_what_is_written_again_is_what_was_found_to_be_valid(tmp_path, is_let_go):
    """The system may let go of pages that a sync could not write: read again, they are what the disk has."""
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1))
    run(log.sync())
    append(log, batch(1))
    files.trap = failing(errno.ENOSPC, ("sync",))
    with pytest.raises(StorageError):
        run(log.sync())
    path = tmp_path / "t-0" / "00000000000000000000.log"

    def let_go(kind, name):
        if kind == "open" and name == f"{path}.tmp" and is_let_go:
            path.write_bytes(path.read_bytes()[: len(batch(1))].ljust(path.stat().st_size, b"\0"))

    files.trap = let_go
    if is_let_go:
        with pytest.raises(StorageError, match="a second read gave other bytes than the first"):
            open_log(files, tmp_path, recovery_point=1)
        assert (tmp_path / "t-0" / "sync-failed").exists()
        files.trap = ignore
    assert open_log(files, tmp_path, recovery_point=1).log_end_offset == (1 if is_let_go else 2)
    assert not (tmp_path / "t-0" / "sync-failed").exists()


def test_note_of_a_failed_sync_is_there_though_the_process_is_killed_at_once(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1))
    files.trap = failing(errno.EIO, ("sync",))
    pool, jobs = files.run, []

    async def one_job(work, *arguments):
        jobs.append(work)
        if len(jobs) > 1:
            raise SystemExit("killed")
        return await pool(work, *arguments)

    files.run = one_job
    with pytest.raises((StorageError, SystemExit)):
        run(log.sync())
    assert (tmp_path / "t-0" / "sync-failed").exists()


def test_note_of_a_failed_sync_that_cannot_be_left_is_said(tmp_path, caplog):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1))
    files.trap = failing(errno.EIO, ("sync", "open"))
    with pytest.raises(StorageError):
        run(log.sync())
    assert "unless the machine is started again" in caplog.text


def test_full_disk_does_not_end_a_sync_that_reached_it(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    append(log, batch(1), epoch=3)
    files.trap = failing(errno.ENOSPC, ("write_atomic",))
    run(log.sync())  # the data was synced; only the epochs' file is behind
    assert (log.failure, log.recovery_point) == (None, 0)
    files.trap = ignore
    assert open_log(files, tmp_path).epochs.entries() == [(3, 0)]
    run(log.sync())
    assert log.recovery_point == 1
    assert (tmp_path / "t-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


@pytest.mark.parametrize(("number", "goes_on"), [(errno.EMFILE, True), (errno.EIO, False)])
def test_failed_deletion_loses_nothing(tmp_path, number, goes_on):
    files = BrokenFiles()
    log = open_log(files, tmp_path, SMALL)
    for _ in range(9):
        append(log, batch(1))
    log.advance_start(6)
    files.trap = failing(number, ("unlink",))
    with pytest.raises(StorageError):
        run(log.enforce_retention(9, NOW_MS))
    files.trap = ignore
    assert (log.failure is None) == goes_on
    if goes_on:
        assert append(log, batch(1)).first_offset == 9
    assert open_log(files, tmp_path, SMALL, log_start_offset=6).log_end_offset == 9 + goes_on


@pytest.mark.parametrize("kind", ["truncate", "unlink", "write_atomic"])
def test_failed_truncation_takes_the_log_offline(tmp_path, kind):
    files = BrokenFiles()
    log = open_log(files, tmp_path, SMALL)
    for _ in range(9):
        append(log, batch(1))
    files.trap = failing(errno.EIO, (kind,))
    with pytest.raises(StorageError):
        run(log.truncate_to(4))
    with pytest.raises(KafkaError):
        append(log, batch(1))
    files.trap = ignore
    assert 4 <= open_log(files, tmp_path, SMALL).log_end_offset <= 9


def reopened(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    for _ in range(3):
        append(log, batch(1))
    run(log.close())
    return files, open_log(files, tmp_path, clean=True)


@pytest.mark.parametrize("use", [lambda log: log.read(1, 1000), lambda log: run(log.offset_for_timestamp(0))])
def test_log_that_cannot_be_read_is_offline_until_the_next_start(tmp_path, use, caplog):
    files, log = reopened(tmp_path)
    files.trap = failing(errno.EMFILE, ("pread",))
    with pytest.raises(StorageError, match="Too many open files"):
        use(log)
    assert log.failure is None
    files.trap = failing(errno.EIO, ("pread",))
    with pytest.raises(StorageError, match="Input/output error"):
        use(log)
    files.trap = ignore
    with pytest.raises(KafkaError, match="Input/output error"):
        append(log, batch(1))
    assert "t-0 is offline until the broker starts again: cannot read from" in caplog.text
    assert open_log(files, tmp_path).read(1, 1000).size_bytes


def test_range_that_cannot_be_read_takes_its_log_offline(tmp_path):
    files, log = reopened(tmp_path)
    [part] = log.read(0, 1000).ranges
    assert part.read()
    files.trap = failing(errno.EIO, ("pread",))
    with pytest.raises(OSError, match="Input/output error"):
        part.read()
    with pytest.raises(KafkaError, match="Input/output error"):
        log.read(0, 1000)


def test_bytes_that_are_no_batch_any_more_are_an_error_of_the_read(tmp_path):
    files = BrokenFiles()
    log = open_log(files, tmp_path)
    for _ in range(2):
        append(log, batch(1))
    assert log.read(1, 10).size_bytes == len(batch(1))
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(bytes(path.stat().st_size))
    with pytest.raises(KafkaError, match="no batch at position") as caught:
        log.read(1, 10)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
