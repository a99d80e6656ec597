"""What a start finds after the process or the machine died: never more than whole valid batches, in order."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from isthmus.core_broker.storage.check.findings import Kind, Known
from isthmus.core_broker.storage.check.partition_check import check_partition
from isthmus.core_broker.storage.disk._data_file import AHEAD_FROM_BYTES, ZEROS_BYTES
from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.records import build_batch

from ..support import NOW_MS, BrokenFiles, Died, append, at, batch, contents, open_log, run, spans

ABORT = (NOW_MS, b"\0\0\0\0", b"\0\0\0\0\0\0", ())  # a marker
SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def fill(log, batches, first=0):
    for n in range(first, first + batches):
        append(
            log,
            batch(2, timestamp=NOW_MS - 5000 + n, producer_id=7, producer_epoch=0, base_sequence=n * 2),
            epoch=n // 5,
        )


def indexes(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.suffix.endswith("index")}


def active(path: Path) -> Path:
    return max((path / "t-0").glob("*.log"))


def check_usable(log):
    """What was recovered agrees with itself and can go on."""
    found = spans(contents(log))
    assert log.log_end_offset == (found[-1][1] + 1 if found else log.log_start_offset)
    entry = log.producers.get(7)
    assert (entry.last_sequence if entry else -1) == (found[-1][1] if found else -1)
    if found:
        for base, last in found:
            assert spans(contents(log, last))[0] == (base, last)
        epoch = max(base // 10 for base, _ in found)
        assert log.latest_epoch == epoch
        assert log.end_offset_for_epoch(epoch) == (epoch, log.log_end_offset)
    fill(log, 1, log.log_end_offset // 2)


def test_tail_torn_at_any_byte_is_cut_at_the_last_whole_batch(files, tmp_path):
    log = open_log(files, tmp_path)
    fill(log, 4)
    path = active(tmp_path)
    data = path.read_bytes()
    size = len(data) // 4
    for length in range(len(data) + 1):
        path.write_bytes(data[:length])
        again = open_log(files, tmp_path)
        assert contents(again) == data[: length - length % size]
        assert path.stat().st_size == length - length % size
        check_usable(again)


def test_any_flipped_byte_under_a_crc_cuts_the_log_before_its_batch(files, tmp_path):
    log = open_log(files, tmp_path)
    fill(log, 3)
    path = active(tmp_path)
    data = path.read_bytes()
    size = len(data) // 3
    for position in range(len(data)):
        if position % size in (*range(8), *range(12, 16)):
            continue  # base offset and leader epoch are outside of the CRC
        path.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        again = open_log(files, tmp_path)
        assert contents(again) == data[: position - position % size]
        check_usable(again)


@pytest.mark.parametrize("tail", [b"\0" * 500, b"\xff" * 500, b"\0" * 8 + b"\x7f\xff\xff\xff" + b"\0" * 400])
def test_tail_of_a_file_that_was_grown_but_not_written_is_cut(files, tmp_path, tail):
    log = open_log(files, tmp_path)
    fill(log, 3)
    data = contents(log)
    path = active(tmp_path)
    path.write_bytes(data + tail)
    again = open_log(files, tmp_path)
    assert contents(again) == path.read_bytes() == data and again.recovery_notes


def test_batch_larger_than_what_is_read_at_once_is_checked(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(max_message_bytes=1 << 30))
    for n in (100, 3 << 20, 1 << 20, 50, (1 << 20) - 100, 200):
        append(log, batch(1, size=n))
    data = contents(log)
    assert contents(open_log(files, tmp_path)) == data
    path = active(tmp_path)
    for position in (len(data) - 100, 3 << 20):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        again = open_log(files, tmp_path)
        assert again.log_end_offset == (5 if position > 4 << 20 else 1)


def test_damage_in_a_segment_removes_the_later_ones(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 30)
    data = contents(log)
    paths = sorted((tmp_path / "t-0").glob("*.log"))
    assert len(paths) > 4
    damaged = paths[2]
    damaged.write_bytes(damaged.read_bytes()[:-1])
    again = open_log(files, tmp_path, SMALL)
    assert data.startswith(contents(again))
    assert again.log_end_offset == int(paths[3].stem) - 2
    assert sorted((tmp_path / "t-0").glob("*.log")) == paths[:3]
    assert again.recovery_notes
    check_usable(again)


LARGE = LogConfig(segment_bytes=AHEAD_FROM_BYTES + (1 << 20), max_message_bytes=1 << 30)


def large_segments(files, path):
    """The log, and its two segments, of which the first is as large as one that has zeros behind its end."""
    log = open_log(files, path, LARGE)
    while len(paths := sorted((path / "t-0").glob("*.log"))) == 1:
        append(log, batch(1, size=1 << (20 if log.log_end_offset < 8 else 12)))
    return log, *paths


def says(directory, recovery_point, clean=False):
    """What a check says of a directory that was killed, problems and notes."""
    report = check_partition(RealFiles(), str(directory), Known(clean=clean, recovery_point=recovery_point))
    return [each.kind for each in report.problems], [note for note in report.notes if "zeros" in note]


@pytest.mark.parametrize("clean", [False, True])
def test_zeros_behind_a_large_segment_do_not_end_the_log(files, tmp_path, clean):
    """As an append brings them: a crash, or a copy that was made meanwhile, may leave them behind a segment that others
    follow, too."""
    log, first, last = large_segments(files, tmp_path)
    data = contents(log)
    run(log.close())
    valid = first.read_bytes()
    assert len(valid) > AHEAD_FROM_BYTES and len(valid) + last.stat().st_size == len(data)
    first.write_bytes(valid + bytes(ZEROS_BYTES))
    problems, notes = says(tmp_path / "t-0", log.log_end_offset if clean else 0, clean)
    assert not problems and str(ZEROS_BYTES) in notes[0]
    again = open_log(files, tmp_path, LARGE, clean=clean)
    assert contents(again) == data and first.read_bytes() == valid
    assert clean or not again.recovery_notes
    append(again, batch(1))
    for tail in bytes(ZEROS_BYTES + 1), bytes(100) + b"x":  # the controls
        first.write_bytes(valid + tail)
        assert says(tmp_path / "t-0", 0) == ([Kind.TORN], [])
        again = open_log(files, tmp_path, LARGE)
        assert contents(again) == valid and again.recovery_notes


@pytest.mark.parametrize("behind", ["the last segment", "a segment before it"])
def test_records_that_have_become_zeros_are_missed(files, tmp_path, behind):
    """Where they were put on disk before, or others follow: they are not what an append has brought."""
    log, first, last = large_segments(files, tmp_path)
    end = log.log_end_offset
    run(log.close())
    if behind == "the last segment":
        end = int(last.stem)
        last.unlink()
    valid = first.read_bytes()
    size = 1 << 13  # what is left of them is at least one batch less
    first.write_bytes(valid[:-size] + bytes(size))
    kinds, notes = says(tmp_path / "t-0", end)
    assert Kind.TORN in kinds and not notes
    again = open_log(files, tmp_path, LARGE, recovery_point=end)
    assert any("not valid" in note for note in again.recovery_notes)
    assert AHEAD_FROM_BYTES < len(contents(again)) < len(valid) and again.log_end_offset < end


def test_lost_end_of_a_closed_segment_removes_the_later_ones(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 30)
    paths = sorted((tmp_path / "t-0").glob("*.log"))
    size = len(contents(log)) // 30
    paths[1].write_bytes(paths[1].read_bytes()[:-size])  # a whole batch: nothing is torn
    again = open_log(files, tmp_path, SMALL)
    assert again.log_end_offset == int(paths[2].stem) - 2
    check_usable(again)


def test_recovered_indexes_equal_those_of_a_clean_shutdown(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 40)
    run(log.close())
    before = indexes(tmp_path / "t-0")
    assert sum(map(len, before.values())) > 200
    for path in (tmp_path / "t-0").glob("*index"):
        path.unlink()
    again = open_log(files, tmp_path, SMALL)
    run(again.close())
    assert indexes(tmp_path / "t-0") == before


@pytest.mark.parametrize("how", ["missing", "short", "empty", "wild"])
def test_bad_index_of_a_synced_segment_is_made_anew(files, tmp_path, how):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 40)
    run(log.close())
    before = indexes(tmp_path / "t-0")
    for path in sorted((tmp_path / "t-0").glob("*index"))[:-2]:
        if how == "missing":
            path.unlink()
        elif how == "short":
            path.write_bytes(path.read_bytes()[:-1])
        elif how == "empty":
            path.write_bytes(b"")
        else:
            path.write_bytes(b"\xff" * path.stat().st_size)
    again = open_log(files, tmp_path, SMALL, recovery_point=log.log_end_offset, clean=True)
    for offset in range(80):
        assert spans(contents(again, offset))[0][0] == offset - offset % 2
    assert run(again.offset_for_timestamp(NOW_MS - 5000 + 20)).offset in (39, 40)
    run(again.close())
    if how != "empty":
        assert indexes(tmp_path / "t-0") == before


def test_clean_start_reads_no_batch_of_closed_segments(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 40)
    run(log.close())
    broken = BrokenFiles()
    again = open_log(broken, tmp_path, SMALL, clean=True)
    assert not again.recovery_notes
    assert again.log_end_offset == 80
    assert not [path for kind, path in broken.calls if kind in ("truncate", "append", "unlink")]


def test_segments_before_the_recovery_point_are_not_read_through(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 20)
    run(log.sync())
    fill(log, 20, 20)
    broken = BrokenFiles()
    open_log(broken, tmp_path, SMALL, recovery_point=log.recovery_point)
    truncated = [path for kind, path in broken.calls if kind == "open" and path.endswith(".timeindex")]
    first = broken.calls.index(("open", next(p for _, p in broken.calls if p.endswith(".log"))))
    assert first >= 0 and truncated


def test_recovery_of_a_recovered_log_changes_nothing(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 30)
    active(tmp_path).write_bytes(active(tmp_path).read_bytes()[:-5])
    first = open_log(files, tmp_path, SMALL)
    stored = contents(first)
    second = open_log(files, tmp_path, SMALL)
    assert contents(second) == stored
    assert not second.recovery_notes


def test_start_offset_past_the_end_begins_an_empty_log_there(files, tmp_path):
    fill(open_log(files, tmp_path, SMALL), 10)
    again = open_log(files, tmp_path, SMALL, log_start_offset=100)
    assert (again.log_start_offset, again.log_end_offset) == (100, 100)
    assert contents(again) == b""
    assert append(again, batch(1)).first_offset == 100


def test_lost_epoch_file_is_made_up_for_by_the_log(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 30)
    entries = log.epochs.entries()
    run(log.close())
    for damage in (None, b"0\n3\n0 0\n"):
        path = tmp_path / "t-0" / "leader-epoch-checkpoint"
        path.unlink()
        if damage:
            path.write_bytes(damage)
        again = open_log(files, tmp_path, SMALL, recovery_point=60)
        assert again.epochs.entries() == entries


def test_leftovers_of_a_crash_are_removed(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    fill(log, 10)
    run(log.close())
    directory = tmp_path / "t-0"
    stray = [
        "leader-epoch-checkpoint.3.tmp",
        "00000000000000000900.index",
        "00000000000000000900.timeindex",
        "x.deleted",
    ]
    for name in stray:
        (directory / name).write_bytes(b"x")
    (directory / "notes.txt").write_bytes(b"not ours")
    open_log(files, tmp_path, SMALL)
    assert not [name for name in stray if (directory / name).exists()]
    assert (directory / "notes.txt").exists()


def live(files, path, log_of=None):
    """Everything that a log does, so that a death can come anywhere in it. Yields (log, what it must hold at least)."""
    log = open_log(files, path, SMALL)
    yield log, 0
    fill(log, 12)
    run(log.sync())
    yield log, 24
    fill(log, 12, 12)
    run(log.truncate_to(30))
    yield log, 24
    fill(log, 6, log.log_end_offset // 2)
    run(log.sync())
    yield log, log.log_end_offset
    log.advance_start(20)
    run(log.enforce_retention(log.log_end_offset, NOW_MS))
    yield log, log.log_end_offset
    run(log.close())
    yield log, log.log_end_offset


def test_death_at_any_call_leaves_a_log_that_goes_on(tmp_path, files):
    rehearsal = BrokenFiles()
    for _ in live(rehearsal, tmp_path / "rehearsal"):
        pass
    assert len(rehearsal.calls) > 100
    for number in range(len(rehearsal.calls)):
        path = tmp_path / str(number)
        broken = BrokenFiles()
        broken.die_at(number)
        promised, point = 0, 0
        try:
            for log, end in live(broken, path):
                promised, point = end, log.recovery_point
        except Died:
            pass
        # Truncation lowers the checkpoint first; here the checkpoint is as old as can be.
        again = open_log(files, path, SMALL, recovery_point=min(point, 24))
        assert again.log_end_offset >= promised, f"call {number}: {rehearsal.calls[number]}"
        found = spans(contents(again))
        assert [base for base, _ in found] == list(range(found[0][0] if found else 0, again.log_end_offset, 2))
        check_usable(again)
        shutil.rmtree(path)


def test_death_during_recovery_leaves_a_log_that_recovers(tmp_path, files):
    def damaged(path):
        log = open_log(files, path, SMALL)
        fill(log, 20)
        victim = sorted((path / "t-0").glob("*.log"))[3]
        victim.write_bytes(victim.read_bytes()[:-7])
        return victim

    damaged(tmp_path / "rehearsal")
    rehearsal = BrokenFiles()
    recovered = open_log(rehearsal, tmp_path / "rehearsal", SMALL)
    calls = len(rehearsal.calls)
    assert calls > 25
    expected = contents(recovered)
    for number in range(calls):
        path = tmp_path / str(number)
        damaged(path)
        broken = BrokenFiles()
        broken.die_at(number)
        with pytest.raises(Died):
            open_log(broken, path, SMALL)
        again = open_log(files, path, SMALL)
        assert contents(again) == expected
        check_usable(again)


def test_directory_that_cannot_be_read_is_named(files, tmp_path):
    (tmp_path / "t-0").write_text("a file")
    with pytest.raises(StorageError, match="t-0"):
        open_log(files, tmp_path)
    assert issubclass(StorageError, KafkaError)


def test_lost_index_in_the_middle_costs_no_epoch_and_doubles_no_aborted_transaction(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    for n in range(12):
        begun = batch(1, transactional=True, producer_id=50 + n, producer_epoch=0, base_sequence=0)
        append(log, at(begun, log.log_end_offset, n // 3), origin=Origin.REPLICATION)
        marker = build_batch([ABORT], control=True, transactional=True, producer_id=50 + n, producer_epoch=0)
        append(log, at(marker, log.log_end_offset, n // 3), origin=Origin.REPLICATION)
    epochs, aborted = log.epochs.entries(), log.aborted_transactions(0, log.log_end_offset)
    assert (len(epochs), len(aborted)) == (4, 12)
    run(log.close())
    paths = sorted((tmp_path / "t-0").glob("*.index"))
    assert len(paths) > 3
    paths[1].unlink()
    again = open_log(files, tmp_path, SMALL, recovery_point=log.log_end_offset, clean=True)
    assert again.recovery_notes
    assert again.epochs.entries() == epochs
    assert again.aborted_transactions(0, again.log_end_offset) == aborted


def test_snapshots_of_earlier_closes_do_not_pile_up(files, tmp_path):
    for n in range(6):
        log = open_log(files, tmp_path, LogConfig(segment_bytes=300), clean=n > 0)
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=n))
        run(log.close())
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300), clean=True)
    found = sorted(int(path.stem) for path in (tmp_path / "t-0").glob("*.snapshot"))
    assert found == sorted({segment.base_offset for segment in log.ranges.segments} - {0} | {6})
    assert log.producers.get(7).last_sequence == 5
