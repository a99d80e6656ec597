"""A savepoint's folder: what is written comes back, or it is said what is wrong with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.streams.errors import AppError
from isthmus.streams.savepoints.format import (
    Input,
    Manifest,
    PartWriter,
    Reached,
    Savepoint,
    Topic,
    begin,
    file_of,
    finish,
)

ROW = st.tuples(st.integers(0, 1 << 40), st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=9))
FILE = file_of("tables", "t", 0)


def columns(rows: list[tuple[int, bytes | None, bytes | None]]) -> list[list[object]]:
    return [[row[number] for row in rows] for number in range(3)]


def written(folder: Path, rows: list[tuple[int, bytes | None, bytes | None]]) -> Savepoint:
    writer = PartWriter(folder, FILE)
    writer.write(*columns(rows))  # type: ignore[arg-type]
    part = writer.close(0, b"a marker")
    topic = Topic("app-t-changelog", 1, {"cleanup.policy": "compact"}, (part,))
    return finish(
        folder, Manifest("app", "cluster", 5, {"t": topic}, {}, {"in": Input("id", 2, {1: Reached(9, 3, 77)})})
    )


@settings(deadline=None)
@given(st.lists(st.lists(ROW, max_size=4), max_size=6), st.data())
def test_records_come_back_up_to_where_the_file_was_cut(
    tmp_path_factory: pytest.TempPathFactory,
    chunks: list[list[tuple[int, bytes | None, bytes | None]]],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("saved")
    writer = PartWriter(folder, FILE)
    snapshots = [writer.snapshot()]
    has_headers = data.draw(st.booleans())
    for chunk in chunks:
        headers = [(("h", key),) for _, key, _ in chunk] if has_headers else None
        writer.write(*columns(chunk), headers)  # type: ignore[arg-type]
        snapshots.append(writer.snapshot())
    chosen = data.draw(st.integers(0, len(chunks)))
    writer.cut(snapshots[chosen])
    last = data.draw(st.lists(ROW, max_size=2))
    writer.write(*columns(last))  # type: ignore[arg-type]
    want = [row for chunk in chunks[:chosen] for row in chunk] + last
    part = writer.close(0)
    saved = finish(folder, Manifest("app", "", 0, {"t": Topic("t", 1, {}, (part,))}))
    saved.check()
    found = [row for read in saved.read(part) for row in zip(*read[1:4], strict=True)]
    assert (found, part.records) == (want, len(want))
    offsets = [offset for read in saved.read(part) for offset in read.offsets]
    assert offsets == list(range(len(want)))


def test_all_of_a_savepoint_is_on_the_disk_once_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    sync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.fstat(fd).st_ino), sync(fd)))
    folder = tmp_path / "saved"
    begin(folder)
    written(folder, [(1, b"k", b"v")])
    assert {each.stat().st_ino for each in (folder, *folder.rglob("*"))} <= synced


def test_a_manifest_comes_back(tmp_path: Path) -> None:
    saved = written(tmp_path, [(1, b"k", b"v")])
    again = Savepoint.open(tmp_path)
    assert again.manifest == saved.manifest
    again.check()


def test_what_is_no_savepoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AppError, match=r"has no manifest\.json\. If one was begun there, it was not finished"):
        Savepoint.open(tmp_path)
    written(tmp_path, [])
    with pytest.raises(AppError, match="is not empty: name another folder"):
        begin(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 99}')
    with pytest.raises(AppError, match="is a savepoint of format 99; this release reads 1"):
        Savepoint.open(tmp_path)
    (tmp_path / "manifest.json").write_text('{"format": 1}')
    with pytest.raises(AppError, match="cannot be read: KeyError"):
        Savepoint.open(tmp_path)
    with pytest.raises(AppError, match=r"manifest\.json is no savepoint"):
        Savepoint.open(tmp_path / "manifest.json")
    with pytest.raises(AppError, match=r"manifest\.json cannot be made: there is a file of this name"):
        begin(tmp_path / "manifest.json")
    with pytest.raises(AppError, match="/proc/saved cannot be made: No such file or directory"):
        begin(Path("/proc/saved"))


def test_a_file_that_is_not_what_was_saved_is_refused(tmp_path: Path) -> None:
    saved = written(tmp_path, [(1, b"k%d" % n, b"v" * 100) for n in range(50)])
    file = tmp_path / FILE
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    [part] = saved.manifest.tables["t"].parts
    with pytest.raises(AppError, match="is not the file that was saved"):
        saved.check()
    with pytest.raises(AppError, match="is damaged: "):
        list(saved.read(part))
    file.write_bytes(data[:-5])
    with pytest.raises(AppError, match="it ends within a batch"):
        list(saved.read(part))
    file.unlink()
    with pytest.raises(AppError, match=r"lacks tables/t/0\.batches: copy it again as a whole"):
        saved.check()
