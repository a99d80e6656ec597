"""The system calls by which the real files put contents and names on disk, and their order."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.storage.disk.files import NEVER_SYNCED, make_directory
from isthmus.core_broker.storage.disk.real_files import RealFiles

Call = tuple[str, ...]  # the system call, and the paths in the test's directory; '.' is that directory

OF_DESCRIPTORS = ("write", "pwrite", "pwritev", "ftruncate", "fsync", "fdatasync")
OF_PATHS = ("mkdir", "rename", "unlink", "rmdir")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Call]]:
    """What changes files or their names, or syncs them. An `open` counts where it may make the file."""
    seen: list[Call] = []

    def relative(path: Any) -> str:
        return os.path.relpath(os.fspath(path), tmp_path)

    def watch(name: str, said: Callable[..., Call | None]) -> None:
        real = getattr(os, name)

        def call(*args: Any, **options: Any) -> Any:
            if (each := said(*args)) is not None:
                seen.append(each)
            return real(*args, **options)

        monkeypatch.setattr(os, name, call)

    for name in OF_DESCRIPTORS:
        watch(name, lambda fd, *_, name=name: (name, relative(os.readlink(f"/proc/self/fd/{fd}"))))
    for name in OF_PATHS:
        watch(name, lambda *paths, name=name: (name, *(relative(each) for each in paths if isinstance(each, str))))
    watch("open", lambda path, flags, *_: ("create", relative(path)) if flags & os.O_CREAT else None)
    yield seen


def take(calls: list[Call]) -> list[Call]:
    found = calls[:]
    calls.clear()
    return found


def test_an_atomic_write_syncs_the_content_before_the_name_and_the_name_before_it_returns(
    files: RealFiles, tmp_path: Path, calls: list[Call]
) -> None:
    files.write_atomic(f"{tmp_path}/a", b"content")
    temporary = calls[0][1]
    assert temporary.endswith(".tmp") and take(calls) == [
        ("create", temporary),
        ("write", temporary),
        ("fsync", temporary),
        ("rename", temporary, "a"),
        ("fsync", "."),
    ]


def test_the_first_sync_of_a_new_file_syncs_its_name_after_its_content(
    files: RealFiles, tmp_path: Path, calls: list[Call]
) -> None:
    first = [("create", "a"), ("pwritev", "a"), ("fdatasync", "a"), ("fsync", ".")]
    file = files.open(f"{tmp_path}/a")
    file.append([b"content"])
    file.sync()
    assert take(calls) == first
    file.append([b"more"])
    file.sync()
    assert take(calls) == [("pwritev", "a"), ("fdatasync", "a")]
    there = files.open(f"{tmp_path}/a")
    there.sync()
    assert take(calls) == [("fdatasync", "a")]

    os.mkdir(tmp_path / "b")
    take(calls)
    later = files.new(f"{tmp_path}/b/c")
    assert take(calls) == []
    later.append([b"content"])
    later.sync()
    assert take(calls) == [("create", "b/c"), ("pwritev", "b/c"), ("fdatasync", "b/c"), ("fsync", "b")]


def test_a_new_file_that_was_closed_for_another_still_has_its_name_synced(tmp_path: Path, calls: list[Call]) -> None:
    files = RealFiles(max_open=1)
    try:
        file = files.open(f"{tmp_path}/a")
        file.append([b"content"])
        files.open(f"{tmp_path}/b").append([b"content"])
        take(calls)
        file.sync()
        assert take(calls) == [("fdatasync", "a"), ("fsync", ".")]
    finally:
        files.close()


def test_a_name_whose_sync_failed_is_synced_by_the_next(
    files: RealFiles, tmp_path: Path, calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.open(f"{tmp_path}/a")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(OSError):
            file.sync()
    take(calls)
    file.sync()
    assert take(calls) == [("fdatasync", "a"), ("fsync", ".")]


def refuse(fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_changes_of_names_are_one_call_each_and_synced_by_the_directory(
    files: RealFiles, tmp_path: Path, calls: list[Call]
) -> None:
    make_directory(files, f"{tmp_path}/d/e")
    assert take(calls) == [("fsync", ".."), ("mkdir", "d"), ("fsync", "."), ("mkdir", "d/e"), ("fsync", "d")]
    make_directory(files, f"{tmp_path}/d/e")
    assert take(calls) == [("fsync", "d")]  # it is empty
    make_directory(files, f"{tmp_path}/d")
    assert take(calls) == []
    files.open(f"{tmp_path}/d/a").close()
    files.rename(f"{tmp_path}/d/a", f"{tmp_path}/d/b")
    files.unlink(f"{tmp_path}/d/b")
    assert take(calls) == [("create", "d/a"), ("rename", "d/a", "d/b"), ("unlink", "d/b")]
    files.sync_directory(f"{tmp_path}/d")
    assert take(calls) == [("fsync", "d")]


def refused_in(directory: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """That directory may be entered and written to, and not be read, whoever runs the tests."""

    def refuse_reads(name: str) -> None:
        real = getattr(os, name)

        def call(path: Any, *args: Any, **options: Any) -> Any:
            if path == directory:
                raise OSError(number, os.strerror(number), path)
            return real(path, *args, **options)

        monkeypatch.setattr(os, name, call)

    refuse_reads("listdir")
    refuse_reads("open")


@pytest.mark.parametrize("number", NEVER_SYNCED)
def test_a_directory_is_made_in_one_that_may_not_be_read(
    files: RealFiles, tmp_path: Path, calls: list[Call], number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_in(str(tmp_path), number, monkeypatch)
    make_directory(files, f"{tmp_path}/d/e")
    assert take(calls) == [("mkdir", "d"), ("mkdir", "d/e"), ("fsync", "d")]


def test_a_directory_is_not_made_in_one_that_the_disk_cannot_read(
    files: RealFiles, tmp_path: Path, calls: list[Call], monkeypatch: pytest.MonkeyPatch
) -> None:
    refused_in(str(tmp_path), errno.EIO, monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        make_directory(files, f"{tmp_path}/d/e")
    assert take(calls) == []
