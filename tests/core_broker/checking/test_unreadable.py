"""A check and a repair where files cannot be read or removed: each is named with the reason, the others are done."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.core_broker.checking.command import main
from isthmus.core_broker.storage.check import index_check
from isthmus.core_broker.storage.disk import real_files
from isthmus.core_broker.storage.disk._data_file import DataFile
from isthmus.core_broker.storage.disk.real_files import RealFiles
from tests.core_broker.storage.support import NO_FILES

from .made import DIRTY, MARKS, POINTS, STARTS, check, found, make


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


REFUSED = "it cannot be read: a {} is in its place: move it away, and restore the file if you have it\n"
NO_DIRECTORIES = [kind for kind in NO_FILES if kind != "directory"]


@contextlib.contextmanager
def unreadable(path: Path, aside: Path, what: str = "directory") -> Iterator[None]:
    """Something else in place of a file, which nobody may read from."""
    if path.exists():
        path.rename(aside)
    with NO_FILES[what](path):
        yield
    if aside.exists():
        aside.rename(path)


@pytest.mark.parametrize(
    ("number", "what"), [*((number, "directory") for number in (0, 1, 2, -1)), *((0, what) for what in NO_DIRECTORIES)]
)
@pytest.mark.parametrize(
    "kind", ["*.log", "*.index", "*.timeindex", "*.txnindex", "*.snapshot", "*epoch*", "*.metadata"]
)
def test_a_file_that_cannot_be_read_is_named_with_the_reason_and_the_others_are_checked(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    number: int,
    what: str,
) -> None:
    directory = make(tmp_path / "data")
    found_here = sorted((directory / "plain-0").glob(kind))
    path = found_here[number % len(found_here)]
    snapshots = [each for each in sorted((directory / "plain-0").glob("*.snapshot")) if each != path]
    damaged = [sorted((directory / "plain-0").glob("*.index"))[3], snapshots[-1]]
    for each in damaged:
        flip(each)
    (directory / "mirrored-1" / "partition.metadata").unlink()
    others = {f"plain-0 index {damaged[0].name}", f"plain-0 snapshot {damaged[1].name}"}
    others.add("mirrored-1 identity partition.metadata")
    assert set(found(directory)) == others
    with unreadable(path, tmp_path / "aside", what):
        with monkeypatch.context() as patch:
            patch.setattr(index_check, "SPARSE_BYTES", 900)
            lines = found(directory)
        assert set(lines) == {*others, f"plain-0 unreadable {path.name}"} and len(lines) == 4
        assert main([str(directory)]) == 1
        said = capsys.readouterr().out
        assert f"  unreadable: {path.name}: {REFUSED.format(what)}" in said
        assert "4 wrong; --repair repairs 1 of them" in said
        assert main([str(directory), "--repair"]) == 1
        said = capsys.readouterr().out
        assert "mirrored-1: repaired" in said
        assert f"left: plain-0: {REFUSED.format(what)}" in said
    others.remove("mirrored-1 identity partition.metadata")
    assert set(found(directory)) == others
    assert check(directory, repair=True).still_wrong == 0
    assert found(directory) == []


@pytest.mark.parametrize("what", ["FIFO", "directory"])
@pytest.mark.parametrize("name", [POINTS, STARTS, MARKS, DIRTY])
def test_a_checkpoint_that_cannot_be_read_is_named_and_stays_and_the_logs_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    directory = make(tmp_path / "data")
    path = max((directory / "mirrored-1").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-3])
    with unreadable(directory / name, tmp_path / "aside", what):
        assert found(directory) == [f"unreadable {name}", "mirrored-1 torn " + path.name]
        assert main([str(directory), "--repair"]) == 1
        said = capsys.readouterr().out
        assert f"{name}: unreadable: {REFUSED.format(what)}" in said
        assert "mirrored-1: repaired" in said and f"left: {name}: it cannot be read" in said
        assert f"  {name}: " not in said and f"wrote {name}" not in said
        assert found(directory) == [f"unreadable {name}"]
    assert found(directory) == ([f"mirrored-1 checkpoint {name}"] if name in (POINTS, MARKS) else [])


@pytest.mark.parametrize("what", ["FIFO", "directory"])
@pytest.mark.parametrize("name", [f"{0:020}.log", f"{3:020}-{1:010}.checkpoint"])
def test_metadata_that_cannot_be_read_is_named_and_the_logs_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, what: str
) -> None:
    directory = make(tmp_path / "data")
    path = directory / "__cluster_metadata-0" / name
    (directory / "plain-0" / "leader-epoch-checkpoint").unlink()
    others = ["plain-0 epoch leader-epoch-checkpoint"]
    with unreadable(path, tmp_path / "aside", what):
        assert found(directory) == [f"__cluster_metadata-0 unreadable {path.name}", *others]
        assert main([str(directory)]) == 1
        assert f"  unreadable: {path.name}: {REFUSED.format(what)}" in capsys.readouterr().out
    assert found(directory) == others


def test_a_log_that_cannot_be_read_on_in_its_middle_is_named_and_the_rest_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a disk with a sector that is gone tells it."""
    directory = make(tmp_path / "data")
    path = sorted((directory / "plain-0").glob("*.log"))[1]
    flip(sorted((directory / "plain-0").glob("*.index"))[2])
    flip(sorted((directory / "plain-0").glob("*.log"))[3])
    damages = found(directory)
    assert len(damages) == 2

    class Sick(DataFile):
        def pread(self, n: int, position: int) -> bytes:
            if self.path == str(path):
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
            return super().pread(n, position)

    monkeypatch.setattr(real_files, "DataFile", Sick)
    assert sorted(found(directory)) == sorted([f"plain-0 unreadable {path.name}", *damages])
    assert check(directory).checked["plain", 0].report.cut is None  # nobody knows what, and a repair makes none


def test_a_snapshot_of_the_first_segment_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Where a log begins later, its producers do."""
    directory = make(tmp_path / "data")
    for path in (directory / "plain-0").glob(f"{0:020}.*"):
        path.unlink()
    before = found(directory)
    path = min((directory / "plain-0").glob("*.snapshot"))
    assert path.with_suffix(".log").exists() and not any("unreadable" in line for line in before)
    with unreadable(path, tmp_path / "aside"):
        assert sorted(found(directory)) == sorted([*before, f"plain-0 unreadable {path.name}"])


def test_a_file_that_cannot_be_removed_is_told_and_the_other_partitions_are_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = make(tmp_path / "data")
    paths = [max((directory / name).glob("*.snapshot")) for name in ("mirrored-0", "plain-0")]
    for path in paths:
        flip(path)
    unlink = RealFiles.unlink

    def refuse(self: RealFiles, path: str) -> None:
        if path == str(paths[0]):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        unlink(self, path)

    monkeypatch.setattr(RealFiles, "unlink", refuse)
    assert main([str(directory), "--repair"]) == 1
    said = capsys.readouterr().out
    assert f"mirrored-0: 1 left\n  gave up: {paths[0]}: Permission denied\n" in said
    assert "plain-0: repaired" in said
    assert found(directory) == [f"mirrored-0 snapshot {paths[0].name}"]
