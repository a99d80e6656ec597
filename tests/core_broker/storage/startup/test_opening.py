"""Partitions' directories that are new or were left by a clean stop: few calls, no writes, and the same log as ever."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from isthmus.core_broker.storage.log.epochs import EPOCH_CHECKPOINT
from isthmus.core_broker.storage.log.log import Log
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.startup.opening import LogToOpen, OfOtherTopic, Points, open_one, opened_clean
from isthmus.core_broker.storage.startup.recovery import load
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.primitives import uuid_to_str

from ..support import NOW_MS, BrokenFiles, append, batch, contents, run

TOPIC_ID = bytes(range(16))
SMALL = LogConfig(segment_bytes=2000, index_interval_bytes=200)
NOTHING = Points()  # what checkpoints that are not there say
WRITES = {"append", "pwrite", "truncate", "sync", "rename", "unlink", "makedirs", "write_atomic", "sync_directory"}


def wanted(config=SMALL, topic_id=TOPIC_ID):
    return LogToOpen("t", 0, topic_id, config)


def opened(files, path, points=NOTHING, config=SMALL):
    directory = f"{path}/t-0"
    return Log(files, directory, config, open_one(files, directory, wanted(config), points, NOW_MS), NOW_MS)


def clean(log):
    return Points(log.log_end_offset, log.log_start_offset, 0, True)


def filled(files, path, count, config=SMALL, seed=0, producers=True):
    chance = random.Random(seed)
    log = opened(files, path, config=config)
    for number in range(count):
        more = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number} if producers else {}
        append(log, batch(1, timestamp=NOW_MS + chance.randint(0, 500), size=chance.randint(1, 90), **more))
    return log


def state(loaded):
    """What a log starts with, but for what is in memory of its indexes."""
    return (
        [(s.base_offset, s.last_offset, s.size_bytes, s.max_timestamp, s.max_timestamp_offset, s.first_timestamp,
          s.bytes_since_index, s.synced, None if s.offsets is None else (len(s.offsets), len(s.times), s.times.last))
         for s in loaded.segments],
        loaded.epochs.entries(), loaded.producers.encode(), loaded.log_start_offset, loaded.log_end_offset,
        loaded.recovery_point, loaded.first_dirty_offset,
    )  # fmt: skip


def test_new_log_has_no_file_until_it_has_a_record(tmp_path):
    files = BrokenFiles()
    log = opened(files, tmp_path)
    assert os.listdir(tmp_path / "t-0") == ["partition.metadata"]
    assert not [kind for kind, _ in files.calls if "sync" in kind or kind == "write_atomic"]
    append(log, batch(3))
    assert sorted(os.listdir(tmp_path / "t-0")) == ["00000000000000000000.log", "partition.metadata"]
    assert (tmp_path / "t-0/partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_to_str(TOPIC_ID)}"
    run(log.sync())
    assert [path.rpartition("/")[2] for kind, path in files.calls if kind == "sync"][:2] == [
        "partition.metadata", "00000000000000000000.log",
    ]  # fmt: skip


def test_log_that_was_never_written_to_opens_and_closes_by_nothing_but_a_look(tmp_path):
    files = BrokenFiles()
    run(opened(files, tmp_path).close())
    for points in (Points(is_clean=True), Points(is_clean=False)):
        files.calls.clear()
        log = opened(files, tmp_path, points)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)
        run(log.close())
        assert files.calls == []
    append(opened(files, tmp_path), batch(1))


def test_start_after_a_clean_stop_writes_nothing_and_neither_does_the_next_stop(tmp_path):
    files = BrokenFiles()
    log = filled(files, tmp_path, 100)
    before = contents(log)
    run(log.close())
    files.calls.clear()
    again = opened(files, tmp_path, clean(log))
    kinds = Counter(kind for kind, _ in files.calls)
    assert not WRITES & kinds.keys()
    # Each segment's log and two indexes.
    assert kinds["open"] == 3 * again.segments_count and kinds["pread"] <= 4 * again.segments_count
    assert contents(again) == before
    files.calls.clear()
    run(again.close())
    assert files.calls == []


def test_what_has_changed_is_written_by_the_next_stop(tmp_path):
    """The control of the test above."""
    files = BrokenFiles()
    log = filled(files, tmp_path, 10)
    run(log.close())
    again = opened(files, tmp_path, clean(log))
    append(again, batch(1))
    files.calls.clear()
    run(again.close())
    assert {"sync", "append"} <= {kind for kind, _ in files.calls}
    assert opened(files, tmp_path, clean(again)).log_end_offset == 11


def test_start_that_is_not_clean_looks_at_all_of_it(tmp_path):
    files = BrokenFiles()
    log = filled(files, tmp_path, 100)
    run(log.close())
    files.calls.clear()
    opened(files, tmp_path, Points())
    made = {path.rpartition("/")[2] for kind, path in files.calls if kind in ("pwrite", "truncate")}
    logs = {name for name in os.listdir(tmp_path / "t-0") if name.endswith(".log")}
    assert len(logs) > 1 and made == {
        name.replace(".log", suffix) for name in logs for suffix in (".index", ".timeindex")
    }


@pytest.mark.parametrize("seed", range(8))
def test_clean_opening_gives_what_the_full_one_gives(files, tmp_path, seed):
    chance = random.Random(seed)
    config = LogConfig(segment_bytes=chance.choice((1500, 100_000)), index_interval_bytes=chance.choice((50, 4096)))
    log = filled(files, tmp_path, chance.randint(0, 60), config, seed, producers=chance.random() < 0.5)
    if log.log_end_offset > 20 and chance.random() < 0.5:
        log.advance_start(chance.randint(1, 20))
        run(log.enforce_retention(log.log_end_offset, NOW_MS))
    run(log.close())
    directory, points = f"{tmp_path}/t-0", clean(log)
    quick = opened_clean(files, directory, files.listdir(directory), points, NOW_MS)
    if not log.log_end_offset:
        assert quick is None  # nothing is there
        return
    assert quick is not None and quick.is_closed
    assert state(quick) == state(load(files, directory, config, NOW_MS, *points[:4]))


def test_several_stops_and_starts_stay_quick(files, tmp_path):
    """Each leaves a snapshot of producers, and takes that of the one before away."""
    log = filled(files, tmp_path, 5)
    for _ in range(3):
        run(log.close())
        directory = f"{tmp_path}/t-0"
        assert opened_clean(files, directory, files.listdir(directory), clean(log), NOW_MS) is not None
        log = opened(files, tmp_path, clean(log))
        append(log, batch(1))
    assert len([name for name in os.listdir(tmp_path / "t-0") if name.endswith(".snapshot")]) == 1


def cut(name, size):
    return lambda d: os.truncate(d / name, size)


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: (d / "00000000000000000000.index").unlink(),
        lambda d: (d / "00000000000000000000.timeindex").unlink(),
        cut("00000000000000000000.timeindex", 5),
        cut("00000000000000000000.index", 7),
        cut("00000000000000000000.log", 100),
        lambda d: (d / "sync-failed").touch(),
        lambda d: (d / "00000000000000000050.index").touch(),
        lambda d: (d / "00000000000000000000.log.swap").touch(),
        lambda d: (d / "leader-epoch-checkpoint").write_text("7\n"),
        lambda d: (d / "00000000000000000003.snapshot").write_bytes((d / "00000000000000000040.snapshot").read_bytes()),
        lambda d: (d / "00000000000000000040.snapshot").unlink(),
        cut("00000000000000000040.snapshot", 9),
    ],
)
def test_what_is_not_as_it_should_be_is_left_to_the_full_opening(files, tmp_path, damage):
    log = filled(files, tmp_path, 40, LogConfig(index_interval_bytes=200))
    run(log.close())
    directory = tmp_path / "t-0"
    assert opened_clean(files, str(directory), files.listdir(str(directory)), clean(log), NOW_MS) is not None
    damage(directory)
    assert opened_clean(files, str(directory), files.listdir(str(directory)), clean(log), NOW_MS) is None
    assert opened(files, tmp_path, clean(log)).log_end_offset <= 40


def test_log_start_past_the_end_is_left_to_the_full_opening(files, tmp_path):
    log = filled(files, tmp_path, 4)
    run(log.close())
    names = files.listdir(f"{tmp_path}/t-0")
    assert opened_clean(files, f"{tmp_path}/t-0", names, Points(4, 9, 0, True), NOW_MS) is None


# --- Which topic a directory is of ------------------------------------------------------------------------------------


def test_directory_of_another_topic_is_told(files, tmp_path):
    opened(files, tmp_path)
    with pytest.raises(OfOtherTopic):
        open_one(files, f"{tmp_path}/t-0", wanted(topic_id=bytes(16)), Points(), NOW_MS)


@pytest.mark.parametrize("left", [0, 1, 20, 42])
def test_name_that_a_power_cut_tore_is_written_again(files, tmp_path, left):
    log = filled(files, tmp_path, 2)
    os.truncate(tmp_path / "t-0/partition.metadata", left)
    again = open_one(files, f"{tmp_path}/t-0", wanted(), Points(), NOW_MS)
    assert again.is_new and again.log_end_offset == log.log_end_offset
    assert (tmp_path / "t-0/partition.metadata").stat().st_size == 43


def test_name_that_says_something_else_is_not_overwritten(files, tmp_path):
    opened(files, tmp_path)
    (tmp_path / "t-0/partition.metadata").write_text("version: 0\ntopic_id: nobody")
    with pytest.raises(KafkaError, match=r"partition\.metadata"):
        open_one(files, f"{tmp_path}/t-0", wanted(), Points(), NOW_MS)


# --- Indexes that stay in their files ---------------------------------------------------------------------------------


@pytest.mark.parametrize("stops", [(), (50,), (10, 50, 51, 90)])
def test_index_of_a_log_that_was_stopped_is_that_of_one_that_was_not(files, tmp_path, stops):
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=100)
    path = tmp_path / "-".join(map(str, ("after", *stops)))
    log = opened(files, path, config=config)
    positions: list[int] = []
    for number in range(120):
        if number in stops:
            run(log.close())
            log = opened(files, path, clean(log), config)
            assert not log.active_segment.offsets.is_whole and not log.active_segment.times.is_whole
            for offset in range(number):  # found through the file, the memory has none of them
                assert log.read(offset, 1).ranges[0].position == positions[offset]
        positions.append(log.size_bytes)
        append(log, batch(1, timestamp=NOW_MS + number, size=30))
    for offset, position in enumerate(positions):
        assert log.read(offset, 1).ranges[0].position == position
        assert run(log.offset_for_timestamp(NOW_MS + offset)).offset == offset
    run(log.close())
    index = (path / "t-0/00000000000000000000.index").read_bytes()
    reference = tmp_path / "reference"
    whole = opened(files, reference, config=config)
    for number in range(120):
        append(whole, batch(1, timestamp=NOW_MS + number, size=30))
    run(whole.close())
    assert index == (reference / "t-0/00000000000000000000.index").read_bytes() != b""


def test_log_is_cut_within_what_only_the_file_of_its_index_has(files, tmp_path):
    config = LogConfig(index_interval_bytes=100)
    log = filled(files, tmp_path, 80, config)
    before = contents(log)
    run(log.close())
    log = opened(files, tmp_path, clean(log), config)
    append(log, batch(1))
    run(log.truncate_to(30))
    assert (log.log_end_offset, contents(log)) == (30, before[: log.size_bytes])
    for number in range(50):
        append(log, batch(1, timestamp=NOW_MS + 600 + number))
    assert [log.read(offset, 1).ranges[0].position for offset in range(80)] == sorted(
        {log.read(offset, 1).ranges[0].position for offset in range(80)}
    )
    run(log.close())
    quick = opened(files, tmp_path, clean(log), config)
    assert quick.log_end_offset == 80 and contents(quick) == contents_of(log)


def contents_of(log):
    return b"".join(segment.file.path and open(segment.file.path, "rb").read() for segment in log.ranges.segments)


def test_epochs_without_records_need_no_file(files, tmp_path):
    log = filled(files, tmp_path, 3)
    run(log.close())
    written = (tmp_path / "t-0" / EPOCH_CHECKPOINT).read_bytes()
    log = opened(files, tmp_path, clean(log))
    log.assign_epoch(5)
    run(log.close())
    assert (tmp_path / "t-0" / EPOCH_CHECKPOINT).read_bytes() == written
    log = opened(files, tmp_path, clean(log))
    log.assign_epoch(6)
    append(log, batch(1), epoch=6)
    run(log.close())
    assert (tmp_path / "t-0" / EPOCH_CHECKPOINT).read_bytes() != written
