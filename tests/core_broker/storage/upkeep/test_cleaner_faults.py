"""Log compaction where the disk refuses or has rotted: what is left, and what the next start finds after any crash."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ..compacting import COMPACT, Bench
from ..support import BrokenFiles, Died, contents, open_log, place, run


@pytest.mark.parametrize("kind", ["open", "append", "pwrite", "sync", "rename", "sync_directory", "pread", "unlink"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_disk_that_refuses_leaves_the_log_as_it_was_and_the_round_is_tried_again(
    bench: Bench, kind: str, number: int, caplog: Any
) -> None:
    for n in range(30):
        bench.put((b"k%d" % (n % 3), b"v%d" % n))
    before = bench.records()
    run(bench.log.sync())

    def trap(what: str, path: str) -> None:
        if what == kind and (kind in ("sync_directory", "pread") or "cleaned" in place(path) or "swap" in place(path)):
            raise OSError(number, os.strerror(number), path)

    bench.files.trap = trap
    done = bench.clean()
    bench.files.trap = lambda kind, path: None
    if kind == "unlink":  # nothing was there to be removed
        assert done
        return
    assert not done
    assert any(os.strerror(number) in record.message for record in caplog.records)
    last = {key: value for _, key, value in before}
    if bench.log.failure is None:
        assert {key: value for _, key, value in bench.records()} == last
        assert not list((bench.path / "t-0").glob("*.cleaned")) and not list((bench.path / "t-0").glob("*.swap"))
        assert bench.clean()
    else:
        bench.use(open_log(bench.files, bench.path, COMPACT, recovery_point=30))
    assert {key: value for _, key, value in bench.records()} == last
    assert bench.log.log_end_offset == 30


def test_bit_rot_is_not_sealed_by_a_new_checksum(bench: Bench, caplog: Any) -> None:
    for n in range(30):
        bench.put((b"k%d" % (n % 3), b"v%d" % n))
    path = min((bench.path / "t-0").glob("*.log"))
    with path.open("r+b") as file:
        file.seek(66)
        byte = file.read(1)
        file.seek(66)
        file.write(bytes([byte[0] ^ 1]))
    assert not bench.clean() and not bench.clean()
    [said] = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert "t-0 cannot be compacted" in said and "CRC" in said
    assert bench.log.failure is None and len(contents(bench.log)) > 0


def death_points(path: Path) -> int:
    """How many calls of the file seam one round makes."""
    bench = Bench(path)
    fill(bench)
    start = len(bench.files.calls)
    assert bench.clean()
    return len(bench.files.calls) - start


def fill(bench: Bench) -> dict[bytes | None, bytes | None]:
    for n in range(9):
        bench.put((b"k%d" % (n % 2), b"v%d" % n), (b"once%d" % n, b"x" * 60))
    return {key: value for _, key, value in bench.records()}


def test_death_at_every_call_of_a_round_loses_nothing_and_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    for call in ("fsync", "fdatasync"):  # the death of a process takes nothing from the page cache; power: simulation
        monkeypatch.setattr(os, call, lambda fd: None)
    count = death_points(tmp_path / "count")
    assert count > 30
    for number in range(count):
        path = tmp_path / str(number)
        bench = Bench(path)
        last = fill(bench)
        bench.files.die_at(number)
        with pytest.raises(Died):
            bench.clean()
        for clean in (False, True):  # the second: what a start that was itself clean believes
            bench.use(open_log(BrokenFiles(), path, COMPACT, recovery_point=18, clean=clean))
            assert bench.log.recovery_notes == []
            assert bench.log.log_end_offset == 18
            assert {key: value for _, key, value in bench.records()} == last
            offsets = [offset for offset, _, _ in bench.records()]
            assert offsets == sorted(set(offsets))
            assert not [p for p in (path / "t-0").iterdir() if p.suffix in (".cleaned", ".swap")]
            if not clean:
                run(bench.log.close())
        while bench.clean():
            pass
        assert {key: value for _, key, value in bench.records()} == last
        active = bench.log.active_segment.base_offset
        assert sum(1 for offset, key, _ in bench.records() if offset < active and key and key[:1] == b"k") <= 2
        shutil.rmtree(path)


def test_swap_that_kafka_left_is_finished_and_an_undecided_one_undone(tmp_path: Path) -> None:
    for leftover, decided in ((".swap", True), (".cleaned", False)):
        bench = Bench(tmp_path / leftover)
        before = fill(bench)
        folder = tmp_path / leftover / "t-0"
        run(bench.log.close())
        bases = sorted(int(path.stem) for path in folder.glob("*.log"))
        merged = b"".join((folder / f"{base:020d}.log").read_bytes() for base in bases[:2])
        name = folder / f"{bases[0]:020d}"
        Path(f"{name}.log{leftover}").write_bytes(merged)
        Path(f"{name}.index.swap").write_bytes(b"")
        Path(f"{name}.timeindex.swap").write_bytes(b"")
        bench.use(open_log(bench.files, tmp_path / leftover, COMPACT, recovery_point=18))
        assert {key: value for _, key, value in bench.records()} == before
        assert (bases[1] not in [int(path.stem) for path in folder.glob("*.log")]) == decided
        assert not list(folder.glob("*.swap")) and not list(folder.glob("*.cleaned"))


def test_lost_epoch_checkpoint_does_not_make_holes_of_compaction_look_like_a_lost_tail(bench: Bench) -> None:
    last = fill(bench)
    for n in range(24, 40):
        bench.put((b"k%d" % (n % 2), b"v%d" % n), (b"k5", b"x"))
        last |= {b"k%d" % (n % 2): b"v%d" % n, b"k5": b"x"}
    bench.log.tail.config = replace(COMPACT, segment_bytes=200)
    assert bench.clean()
    dirty = bench.log.progress.first_dirty_offset
    (bench.path / "t-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
    for points in ({"recovery_point": 50}, {"first_dirty_offset": dirty}):
        bench.use(open_log(bench.files, bench.path, COMPACT, **points))
        assert bench.log.recovery_notes == []
        assert {key: value for _, key, value in bench.records()} == last
        (bench.path / "t-0" / "leader-epoch-checkpoint").unlink(missing_ok=True)
