"""Directories of stores: what is there, whose they are, and which ones go."""

import os
from pathlib import Path

import orjson
import pytest

from isthmus.streams.engine.stores.layout import (
    LOCK,
    SUMMARY,
    Found,
    Lock,
    Summary,
    clean,
    directory_of,
    found,
    remove,
    write_summary,
)
from isthmus.streams.errors import StoreError

HOUR_MS = 3_600_000


def made(state_dir: Path, table: str, partition: int, written_ms: int = 0) -> Found:
    directory = directory_of(state_dir, "app", table, partition)
    Lock(directory).release()
    summary = Summary(f"{table}-{partition}", 7, 3, written_ms)
    write_summary(directory, summary)
    return Found(table, partition, directory, summary)


def test_what_is_there_is_found_in_order_and_nothing_else(tmp_path: Path) -> None:
    assert found(tmp_path, "app") == []
    stores = [made(tmp_path, "b", 10), made(tmp_path, "b", 9), made(tmp_path, "a", 0)]
    (tmp_path / "app" / "a" / "x").mkdir()
    (tmp_path / "app" / "file").touch()
    made_by_other_app = directory_of(tmp_path, "other", "c", 1)
    made_by_other_app.mkdir(parents=True)
    assert found(tmp_path, "app") == [stores[2], stores[1], stores[0]]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format": 1}', orjson.dumps(Summary("c", 1, 1, 1, format=2))])
def test_a_summary_that_cannot_be_read_is_none(tmp_path: Path, data: bytes) -> None:
    store = made(tmp_path, "a", 0)
    (store.directory / SUMMARY).write_bytes(data)
    assert [each.summary for each in found(tmp_path, "app")] == [None]


def test_clean_deletes_what_is_not_owned_and_idle_for_long(tmp_path: Path) -> None:
    idle, fresh, owned, used = (
        made(tmp_path, "a", 0, 0), made(tmp_path, "a", 1, 1), made(tmp_path, "a", 2, 0), made(tmp_path, "a", 3, 0),
    )  # fmt: skip
    lock = Lock(used.directory)
    assert clean(tmp_path, "app", {("a", 2)}, HOUR_MS, HOUR_MS) == [idle]
    assert found(tmp_path, "app") == [fresh, owned, used]
    lock.release()
    assert clean(tmp_path, "app", {("a", 2)}, HOUR_MS, HOUR_MS) == [used]


def test_clean_goes_by_when_a_directory_was_locked_if_it_has_no_summary(tmp_path: Path) -> None:
    store = made(tmp_path, "a", 0)
    (store.directory / SUMMARY).unlink()
    os.utime(store.directory / LOCK, (100, 100))
    assert clean(tmp_path, "app", (), 100_000 + HOUR_MS - 1, HOUR_MS) == []
    assert len(clean(tmp_path, "app", (), 100_000 + HOUR_MS, HOUR_MS)) == 1
    assert found(tmp_path, "app") == []


def test_clean_ends_what_a_killed_removal_began(tmp_path: Path) -> None:
    store = made(tmp_path, "a", 0)
    half = store.directory.rename(store.directory.with_name("0.removed"))
    assert found(tmp_path, "app") == []
    clean(tmp_path, "app", (), 0, HOUR_MS)
    assert not half.exists()


def test_a_directory_in_use_is_not_removed(tmp_path: Path) -> None:
    store = made(tmp_path, "a", 0)
    lock = Lock(store.directory)
    with pytest.raises(StoreError, match=f"process {os.getpid()}"):
        remove(store.directory)
    lock.release()
    remove(store.directory)
    assert not store.directory.exists()
    remove(store.directory)  # what is not there is removed


def test_a_lock_that_was_waited_for_is_not_on_a_removed_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between open and flock another process may remove the directory: the lock is taken on the new one."""
    store = made(tmp_path, "a", 0)
    real_open = os.open

    def removed_after_open(path: Path, *arguments: int) -> int:
        fd = real_open(path, *arguments)
        monkeypatch.undo()
        remove(store.directory)
        return fd

    monkeypatch.setattr(os, "open", removed_after_open)
    lock = Lock(store.directory)
    with pytest.raises(StoreError):
        Lock(store.directory)
    lock.release()
