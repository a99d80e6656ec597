"""What a process leaves for the next: after a clean stop, a kill, a power cut, and a disk that refused something."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from unittest import mock

import pytest

from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.disk.small_files import BROKER_EPOCH, CLEAN_SHUTDOWN
from isthmus.core_broker.storage.startup.last_process import NO_EPOCH, LastProcess

ID = bytes(range(16))  # of an incarnation


def next_process(folder: Path, boot_id: str | None = None) -> LastProcess:
    files = RealFiles(1)
    if boot_id is not None:
        files.boot_id = lambda: boot_id  # type: ignore[method-assign]
    found = LastProcess(files, str(folder))
    found.take()
    return found


def left(folder: Path, *, clean: bool = False, doubt: bool = False, boot_id: str | None = None) -> None:
    process = next_process(folder, boot_id)
    asyncio.run(process.note(7, ID))
    if doubt:
        process.doubt()
    if clean:
        asyncio.run(process.mark_clean())


def test_a_new_directory_has_no_last_process(tmp_path: Path) -> None:
    found = next_process(tmp_path)
    assert (found.was_clean, found.broker_epoch) == (False, NO_EPOCH)


@pytest.mark.parametrize("boot_id", ["the same", "another"])
def test_a_clean_stop_has_lost_nothing_and_is_told_once(tmp_path: Path, boot_id: str) -> None:
    left(tmp_path, clean=True, boot_id="the same")
    found = next_process(tmp_path, boot_id)
    assert (found.was_clean, found.broker_epoch) == (True, 7)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    assert not next_process(tmp_path, boot_id).was_clean


def test_a_killed_process_has_lost_nothing_while_the_machine_runs_on(tmp_path: Path) -> None:
    left(tmp_path, boot_id="first")
    assert next_process(tmp_path, "first").broker_epoch == 7
    assert next_process(tmp_path, "second").broker_epoch == NO_EPOCH
    left(tmp_path, boot_id="")  # a system that does not tell
    assert next_process(tmp_path, "").broker_epoch == NO_EPOCH


def test_who_follows_registers_as_the_same_incarnation_until_it_has_heard_of_its_registration(tmp_path: Path) -> None:
    assert next_process(tmp_path, "first").successor_id is None
    left(tmp_path, boot_id="first")
    first = next_process(tmp_path, "first").successor_id
    assert first is not None and first != ID
    assert next_process(tmp_path, "first").successor_id == first, "the one before has not heard of it"
    asyncio.run(next_process(tmp_path, "first").note(8, first))
    assert next_process(tmp_path, "first").successor_id not in (None, first)
    assert next_process(tmp_path, "second").successor_id is None


def test_an_epoch_that_cannot_be_saved_leaves_nothing_of_the_one_before(tmp_path: Path) -> None:
    left(tmp_path)
    process = next_process(tmp_path)
    with mock.patch.object(RealFiles, "write_atomic", side_effect=OSError(errno.ENOSPC, "full")):
        with pytest.raises(StorageError):
            asyncio.run(process.note(8, ID))
    found = next_process(tmp_path)
    assert (found.broker_epoch, found.successor_id) == (NO_EPOCH, None)


def test_a_process_whose_disk_refused_something_may_have_lost_it(tmp_path: Path) -> None:
    left(tmp_path, doubt=True)
    assert next_process(tmp_path).broker_epoch == NO_EPOCH


@pytest.mark.parametrize("text", ["", "{", "[]", '{"brokerEpoch":"x","bootId":"b"}', "{}"])
def test_files_that_say_nothing_are_no_error(tmp_path: Path, text: str) -> None:
    (tmp_path / BROKER_EPOCH).write_text(text)
    (tmp_path / CLEAN_SHUTDOWN).write_text(text)
    found = next_process(tmp_path, "b")
    assert (found.was_clean, found.broker_epoch) == (True, NO_EPOCH)
