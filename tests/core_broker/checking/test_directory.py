"""What a check says of a data directory as a whole: exit codes, words, JSON, and what a repair leaves."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isthmus.core_broker.checking.command import main
from isthmus.core_broker.checking.directory import CannotCheck
from isthmus.core_broker.storage.disk.files import Held
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.manager import LogManager
from isthmus.protocol.errors import KafkaError
from tests.core_broker.storage.support import append, batch, run

from .made import DIRTY, MARKS, POINTS, RUNTIME, SMALL, STARTS, check, found, make, stored

NO_METADATA = "missing __cluster_metadata-0"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def swap(one: Path, other: Path) -> None:
    aside = one.with_name("aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def unlink(directory: Path, pattern: str) -> None:
    (path,) = directory.glob(pattern)
    path.unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: replace(d / POINTS, "plain 0 ", "plain 0 9"), f"plain-0 checkpoint {POINTS}"),
        (lambda d: replace(d / POINTS, "plain 1", "plain 7"), f"plain-1 checkpoint {POINTS}"),
        (lambda d: (d / POINTS).write_text("1\n0\n"), f"checkpoint {POINTS}"),
        (lambda d: (d / POINTS).unlink(), f"mirrored-0 checkpoint {POINTS}"),
        (lambda d: replace(d / STARTS, "mirrored 1 0", "mirrored 1 9999"), f"mirrored-1 checkpoint {STARTS}"),
        (lambda d: replace(d / MARKS, "mirrored 1 1", "mirrored 1 99"), f"mirrored-1 checkpoint {MARKS}"),
        (lambda d: (d / DIRTY).write_text("0\n1\nplain 0 900\n"), f"plain-0 checkpoint {DIRTY}"),
        (lambda d: (d / "plain-0/leader-epoch-checkpoint").unlink(), "plain-0 epoch leader-epoch-checkpoint"),
        (lambda d: (d / "plain-0/00000000000000000009.index").touch(), "plain-0 orphan 00000000000000000009.index"),
        (lambda d: (d / "plain-0/partition.metadata").unlink(), "plain-0 identity partition.metadata"),
    ],
)
def test_what_does_not_fit_the_log_is_found_and_mended(
    tmp_path: Path, damage: Callable[[Path], object], says: str
) -> None:
    directory = make(tmp_path / "data")
    points = (directory / POINTS).read_text()
    damage(directory)
    assert says in found(directory)
    assert check(directory, repair=True).still_wrong == 0
    assert found(directory) == []
    after = (directory / POINTS).read_text()
    assert [line for line in after.split("\n")[2:] if "plain 7" not in line] == points.split("\n")[2:]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda d: (d / "plain-0").rename(d / "moved"), "missing plain-0"),
        (lambda d: (d / "plain-0").rename(d / "other-0"), "other-0 stray "),
        (lambda d: unlink(d, "plain-0/0000000000000000002?.log"), "plain-0 gap"),
        (lambda d: swap(d / "plain-0", d / "mirrored-0"), "plain-0 foreign partition.metadata"),
        (lambda d: swap(d / "plain-0", d / "mirrored-0"), "mirrored-0 foreign partition.metadata"),
    ],
)
def test_what_no_repair_can_mend_stays(tmp_path: Path, damage: Callable[[Path], object], says: str) -> None:
    directory = make(tmp_path / "data")
    damage(directory)
    before = stored(directory) if says.endswith("metadata") else None
    assert any(says in line for line in found(directory))
    assert check(directory, repair=True).still_wrong
    assert any(says in line for line in found(directory))
    assert before in (None, stored(directory))


@pytest.mark.parametrize(
    ("damage", "stays"),
    [
        (lambda d: (d / "plain-0/partition.metadata").unlink(), []),
        (lambda d: unlink(d, "plain-0/0000000000000000002?.log"), ["plain-0 gap"]),
        (lambda d: (d / "plain-0").rename(d / "other-0"), ["other-0 stray", "missing plain-0"]),
    ],
)
def test_what_only_the_metadata_tells_is_found_once_the_metadata_is_mended(
    tmp_path: Path, damage: Callable[[Path], object], stays: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make(tmp_path / "data")
    damage(directory)
    (directory / "__cluster_metadata-0/00000000000000000009.index").touch()
    assert main([str(directory), "--repair"]) == bool(stays)
    said = capsys.readouterr().out
    left = found(directory)
    assert len(left) == len(stays) and all(any(each in line for line in left) for each in stays)
    assert said.count("\nleft: ") == len(stays)
    assert main([str(directory), "--repair"]) == bool(stays)
    assert found(directory) == left


@pytest.mark.parametrize("stopped", ["clean", "killed"])
def test_what_belongs_to_no_topic_is_left_as_it_is_also_behind_a_link(tmp_path: Path, stopped: str) -> None:
    """A repair made a log, indexes and checkpoints in it, and in whatever folder a link that is named like a partition
    leads to."""
    directory = make(tmp_path / "data")
    if stopped == "killed":
        (directory / ".kafka_cleanshutdown").unlink()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "mine.txt").write_text("mine")
    (directory / "link-0").symlink_to(elsewhere)
    (directory / "other-99999999999").mkdir()  # more than Kafka reads from a checkpoint
    (directory / "other-0").mkdir()
    (directory / "other-0" / "00000000000000000000.log").write_bytes(b"no batch")
    path = sorted((directory / "plain-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)  # the control: this one is mended
    after = check(directory, repair=True)
    assert [str(each.relative_to(elsewhere)) for each in elsewhere.rglob("*")] == ["mine.txt"]
    assert list((directory / "other-99999999999").iterdir()) == []
    assert (directory / "other-0" / "00000000000000000000.log").read_bytes() == b"no batch"
    assert not path.exists()
    for name in (POINTS, STARTS, MARKS):
        assert "link" not in (directory / name).read_text() and "other" not in (directory / name).read_text()
    if stopped == "clean":
        stray = ["link-0 stray ", "other-0 stray ", "other-99999999999 stray "]
        assert [line for line in found(directory) if "torn" not in line] == stray
        assert after.still_wrong == len(found(directory))


def test_a_batch_in_the_middle_costs_what_is_behind_it_and_the_check_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = make(tmp_path / "data")
    path = sorted((directory / "plain-0").glob("*.log"))[1]
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    count = sum(base > int(path.stem) for base, _ in stored(directory)["plain-0"])
    later = sum(each.stat().st_size for each in (directory / "plain-0").glob("*.log") if each.stem >= path.stem)
    assert main([str(directory)]) == 1
    said = capsys.readouterr().out
    assert "plain-0: 1 wrong, offsets 0 to 126, 5 segments" in said
    start = int(path.stem)
    assert f"crc: {path.name}: the batch at position 0, offsets {start} to {start + 1}, does not match" in said
    assert (
        f"would cut off all from offset {start} on, {later} bytes, in it {count} valid batches up to offset 126" in said
    )
    assert "1 wrong; --repair repairs 1 of them" in said

    assert main([str(directory), "--repair"]) == 0
    said = capsys.readouterr().out
    assert f"cut off all from offset {start} on, {later} bytes, in it {count} valid batches up to offset 126" in said
    assert f"{POINTS}: {start} instead of 127" in said
    assert "all repaired" in said
    assert main([str(directory)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out


def test_json_has_what_the_words_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make(tmp_path / "data")
    path = max((directory / "mirrored-1").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-3])
    assert main([str(directory), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (answer["wrong"], answer["clean"], answer["node_id"]) == (1, True, "1")
    (one,) = [each for each in answer["partitions"] if each["problems"]]
    assert one["name"] == "mirrored-1"
    assert one["problems"][0]["kind"] == "torn"
    assert one["cut"]["segment"] == int(path.stem)
    assert main([str(directory), "--json", "--repair"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["left"] == 0
    assert any("cut off" in line for each in answer["partitions"] for line in each["done"])


def test_a_directory_in_use_is_not_touched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = make(tmp_path / "data")

    async def work() -> None:
        files = RealFiles(1)
        logs = LogManager(files, str(directory), RUNTIME)
        await logs.open(1)
        for repair in ([], ["--repair"]):
            assert main([str(directory), *repair]) == 1
            assert "in use by another process" in capsys.readouterr().err
        await logs.close()
        files.close()

    run(work())
    assert main([str(directory)]) == 0


@pytest.mark.parametrize(
    ("code", "way_out"),
    [
        (errno.EACCES, "Permission denied; run this as the owner of the directory"),
        (errno.EROFS, "Read-only file system; check a copy of it, or make the file system writable"),
    ],
)
def test_a_directory_that_may_not_be_written_to_is_named_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, way_out: str
) -> None:
    directory = make(tmp_path / "data")

    def lock(self: RealFiles, path: str) -> Held:
        raise OSError(code, os.strerror(code), path)

    monkeypatch.setattr(RealFiles, "lock", lock)
    assert main([str(directory)]) == 1
    assert capsys.readouterr().err == f"isthmus broker check: {directory}/.lock: {way_out}\n"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [("version=1", "version=2", "version is 2"), ("isthmus.format=1", "isthmus.format=8", "isthmus.format is 8")],
)
def test_an_unknown_format_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, named: str
) -> None:
    directory = make(tmp_path / "data")
    replace(directory / "meta.properties", f"\n{old}\n", f"\n{new}\n")
    with pytest.raises(CannotCheck, match=named):
        check(directory)
    assert main([str(directory), "--repair"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert str(directory / "meta.properties") in error
    files = RealFiles(1)
    with pytest.raises(KafkaError, match=named):
        run(LogManager(files, str(directory), RUNTIME).open(1))
    files.close()


@pytest.mark.parametrize("what", ["version=1", "cluster.id=", "node.id=1", ""])
def test_a_damaged_identity_is_told_as_that_and_no_cluster_is_made_up(tmp_path: Path, what: str) -> None:
    """What a broker took for a directory of no cluster yet got a new cluster id, under the topics that it had."""
    directory = make(tmp_path / "data")
    path = directory / "meta.properties"
    lines = path.read_text().splitlines()
    path.write_text("".join(f"{line}\n" for line in lines if not line.startswith(what)))
    text = path.read_text()
    missing = what.partition("=")[0]
    with pytest.raises(CannotCheck, match=f"meta.properties is damaged: .*{missing}.* missing"):
        check(directory)
    files = RealFiles(1)
    with pytest.raises(KafkaError, match=f"meta.properties is damaged: .*{missing}.* missing"):
        run(LogManager(files, str(directory), RUNTIME).open(1))
    files.close()
    assert path.read_text() == text


def test_partitions_whose_metadata_log_is_gone_are_not_well(tmp_path: Path) -> None:
    directory = make(tmp_path / "data")
    log = directory / "__cluster_metadata-0"
    log.rename(tmp_path / "moved")
    assert found(directory) == [NO_METADATA]
    log.mkdir()  # a start that was refused makes it
    assert found(directory) == [NO_METADATA]
    assert check(directory, repair=True).still_wrong == 1
    log.rmdir()
    (tmp_path / "moved").rename(log)
    assert found(directory) == []


@pytest.mark.parametrize(("text", "lacks"), [("", "version"), ("version: 0\n", "topic_id")])
def test_a_partition_whose_name_a_full_disk_has_cut_short_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, lacks: str
) -> None:
    directory = make(tmp_path / "data")
    (directory / "plain-0/partition.metadata").write_text(text)
    assert main([str(directory)]) == 1
    said = capsys.readouterr().out
    assert f"identity: partition.metadata: not a partition.metadata file: it has no {lacks}\n" in said
    assert main([str(directory), "--repair"]) == 0


def test_a_directory_that_is_not_there_is_told_as_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gone")]) == 1
    assert f"{tmp_path / 'gone'}: No such file or directory" in capsys.readouterr().err


def test_a_directory_without_identity_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 1
    assert "not a data directory" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_kafkas_own_directory_is_checked_without_its_metadata(tmp_path: Path) -> None:
    directory = make(tmp_path / "data")
    replace(directory / "meta.properties", "isthmus.format=1\n", "")
    assert found(directory) == []
    assert any("Kafka wrote the directory" in note for note in check(directory).notes)
    path = max((directory / "plain-0").glob("*.log"))
    path.write_bytes(path.read_bytes()[:-3])
    assert any("plain-0 torn" in line for line in found(directory))


@pytest.mark.parametrize("ends", ["stopped", "killed", "stopped twice"])
def test_a_partition_that_was_never_written_to_is_as_it_should_be(tmp_path: Path, ends: str) -> None:
    async def live() -> None:
        files = RealFiles(1)
        logs = LogManager(files, str(tmp_path), RUNTIME)
        await logs.open(1)
        log = await logs.create("t", 0, bytes(range(16)), SMALL)
        log.assign_epoch(int(logs.was_clean))
        await log.sync()  # leaves a leader-epoch-checkpoint where there is no segment
        if ends == "killed":
            log.abandon()
            logs._release()
        else:
            await logs.close()
        files.close()

    for _ in range(2 if ends == "stopped twice" else 1):
        run(live())
    assert [path.name for path in (tmp_path / "t-0").iterdir() if "epoch" in path.name] == ["leader-epoch-checkpoint"]
    assert found(tmp_path) == [NO_METADATA]


@pytest.mark.parametrize("is_synced", [False, True])
def test_leader_epochs_of_a_partition_that_was_killed_are_missed_once_a_sync_has_written_them(
    tmp_path: Path, is_synced: bool
) -> None:
    async def live() -> None:
        files = RealFiles(1)
        logs = LogManager(files, str(tmp_path), RUNTIME)
        await logs.open(1)
        log = await logs.create("t", 0, bytes(range(16)), SMALL)
        append(log, batch(3))
        if is_synced:
            await log.sync()
            await logs.checkpoints.save_recovery_points()
            unlink(tmp_path / "t-0", "leader-epoch-checkpoint")
        log.abandon()
        logs._release()
        files.close()

    run(live())
    assert not list(tmp_path.glob("t-0/leader-epoch-checkpoint"))
    assert found(tmp_path) == [NO_METADATA, *(["t-0 epoch leader-epoch-checkpoint"] if is_synced else [])]
