"""Log compaction: what a round leaves and what it must not touch."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from isthmus.core_broker.storage.disk.errors import StorageError
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.compaction_swap import CompactionSwap
from isthmus.core_broker.storage.log.log_config import DAY_MS, MAX_INT64, LogConfig
from isthmus.core_broker.storage.startup import opening
from isthmus.core_broker.storage.upkeep.cleaner import Cleaner, CleanerConfig, assess
from isthmus.protocol.compaction import delete_horizon_ms
from isthmus.protocol.records import build_batch, decode_batch, iter_records, walk

from ..compacting import COMPACT, ROOMY, SMALL_STEPS, Bench
from ..support import NOW_MS, append, at, contents, open_log, run

# What stays


def test_last_record_of_each_key_stays_with_its_offset_and_the_active_segment_is_left_alone(bench: Bench) -> None:
    for n in range(30):
        bench.put((b"k%d" % (n % 3), b"v%d" % n))
    active = bench.log.active_segment.base_offset
    assert bench.clean()
    kept = [r for r in bench.records() if r[0] < active]
    assert kept == [(n, b"k%d" % (n % 3), b"v%d" % n) for n in range(active - 3, active)]
    assert [r[0] for r in bench.records() if r[0] >= active] == list(range(active, 30))
    assert bench.log.progress.first_dirty_offset == active
    assert (bench.log.log_start_offset, bench.log.log_end_offset) == (0, 30)
    assert not bench.clean()


def test_values_of_the_dirty_part_replace_those_of_the_clean_part(bench: Bench) -> None:
    bench.put((b"a", b"1"), (b"b", b"1"))
    bench.close_segment()
    bench.put((b"c", b"1"))
    bench.close_segment()
    assert bench.clean()
    bench.put((b"a", b"2"))
    bench.put((b"b" * 300, b"3"))
    bench.close_segment()
    assert bench.clean()
    assert bench.records() == [(1, b"b", b"1"), (2, b"c", b"1"), (3, b"a", b"2"), (4, b"b" * 300, b"3")]


def test_last_batch_of_a_round_stays_so_that_the_end_is_known(bench: Bench) -> None:
    bench.put((b"a", b"1"))
    bench.put((None, b"no key"), (None, b"none"))
    bench.close_segment()
    assert bench.clean()
    assert bench.spans() == [(0, 0), (1, 2)]
    assert bench.records() == [(0, b"a", b"1")]
    bench.use(open_log(bench.files, bench.path, COMPACT))
    assert bench.log.log_end_offset == 3


def test_last_batch_of_a_producer_stays_empty_and_its_sequences_go_on_after_a_restart(bench: Bench) -> None:
    for sequence in range(3):
        bench.put((b"k", b"%d" % sequence), producer_id=9, producer_epoch=4, base_sequence=sequence)
    bench.put((b"k", b"last"))
    bench.put((b"k", b"very last"))
    bench.close_segment()
    assert bench.clean()
    assert bench.spans() == [(2, 2), (4, 4)]
    (batch, *_), *_ = [list(walk(contents(bench.log)))]
    assert (batch[1].records_count, batch[1].last_sequence) == (0, 2)
    for path in (bench.path / "t-0").glob("*.snapshot"):
        path.unlink()
    bench.use(open_log(bench.files, bench.path, COMPACT, recovery_point=5))
    client: Any = {"producer_id": 9, "producer_epoch": 4, "origin": Origin.CLIENT}
    again = bench.put((b"k", b"2"), base_sequence=2, **client)
    assert again.duplicate and again.first_offset == 2
    assert bench.put((b"k", b"3"), base_sequence=3, **client).first_offset == 5


def test_producer_that_is_forgotten_keeps_no_batch(bench: Bench) -> None:
    bench.put((b"k", b"1"), producer_id=9, producer_epoch=4, base_sequence=0)
    bench.put((b"k", b"2"))
    bench.close_segment()
    bench.log.producers.expire(NOW_MS + 2 * DAY_MS, DAY_MS)
    assert bench.clean()
    assert bench.spans() == [(1, 1)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_keep_their_codec(bench: Bench, codec: str) -> None:
    bench.put((b"a", b"1" * 50), (b"b", b"2" * 50), codec=codec)
    bench.put((b"a", b"3"), codec=codec)
    bench.close_segment()
    assert bench.clean()
    assert bench.records() == [(1, b"b", b"2" * 50), (2, b"a", b"3")]
    assert {h.codec for _, h in walk(contents(bench.log))} == {["", "gzip", "snappy", "lz4", "zstd"].index(codec)}


# Tombstones


def test_tombstone_stays_from_its_first_cleaning_for_delete_retention_ms(bench: Bench) -> None:
    def round_after(ms: int) -> None:
        bench.now_ms += ms
        bench.put((b"filler%d" % bench.now_ms, b"x"))
        bench.close_segment()
        assert bench.clean()

    bench.put((b"a", b"1"))
    bench.put((b"a", None), age_ms=30 * DAY_MS)  # how old it is does not count
    bench.close_segment()
    assert bench.clean()
    first = bench.now_ms
    assert bench.records() == [(1, b"a", None)]
    [header] = [h for _, h in walk(contents(bench.log))]
    assert delete_horizon_ms(header) == first + DAY_MS
    round_after(DAY_MS - 1)
    assert bench.records()[0] == (1, b"a", None)
    round_after(1)
    assert all(key != b"a" for _, key, _ in bench.records())


# What is not cleaned


def test_nothing_undecided_is_looked_at(bench: Bench) -> None:
    for n in range(20):
        bench.put((b"k", b"v%d" % n))
    bench.undecided = 9  # in the second or third segment
    limit = max(s.base_offset for s in bench.log.closed_segments() if s.base_offset <= 9)
    assert bench.clean()
    assert bench.spans() == [(n, n) for n in range(limit - 1, 20)]
    assert bench.log.progress.first_dirty_offset == limit


def test_min_compaction_lag_spares_young_segments(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(COMPACT, min_compaction_lag_ms=1000))
    for age_ms in (5000, 1500, 900, 100):
        bench.put((b"k", b"v"), age_ms=age_ms)
        bench.close_segment()
    assert bench.clean()
    assert bench.spans() == [(1, 1), (2, 2), (3, 3)]
    bench.now_ms += 500
    assert bench.clean()
    assert bench.spans() == [(2, 2), (3, 3)]


def test_dirty_part_must_be_large_enough_unless_it_is_late(tmp_path: Path) -> None:
    config = replace(ROOMY, min_cleanable_dirty_ratio=0.5)
    bench = Bench(tmp_path, config)
    bench.put((b"a", b"x" * 1000))
    bench.close_segment()
    assert bench.clean()
    bench.put((b"b", b"y" * 100), age_ms=60_000)
    bench.close_segment()
    found = assess(bench.log, MAX_INT64, bench.now_ms)
    assert found is not None and 0.1 < found.dirty_ratio < 0.2
    assert not bench.clean()
    bench.log.tail.config = replace(config, max_compaction_lag_ms=60_001)
    assert not bench.clean()
    bench.log.tail.config = replace(config, max_compaction_lag_ms=59_999)
    assert bench.clean()


def test_segments_of_a_compacted_log_close_after_max_compaction_lag() -> None:
    assert LogConfig(cleanup_policy="compact", max_compaction_lag_ms=10, segment_ms=20).roll_ms == 10
    assert LogConfig(cleanup_policy="delete", max_compaction_lag_ms=10, segment_ms=20).roll_ms == 20


def test_log_that_is_not_compacted_is_left_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, LogConfig(segment_bytes=200))
    for _ in range(9):
        bench.put((b"k", b"v"))
    assert not bench.clean()
    assert len(bench.spans()) == 9


def test_dirtiest_log_goes_first(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    other = run(opening.open_log(bench.files, f"{tmp_path}/u-0", COMPACT, wall_ms=NOW_MS))
    for log in (bench.log, other):
        for n in range(4):
            append(log, build_batch([(NOW_MS, b"k%d" % n, b"v" * 300, ())]))
    cleaner = Cleaner(
        {("t", 0): bench.log, ("u", 0): other}, SMALL_STEPS, bench.runtime, lambda key, log: log.log_end_offset,
        bench.save,
    )  # fmt: skip
    bench.log.progress.first_dirty_offset = 1
    assert run(cleaner.clean_filthiest())
    assert (bench.log.progress.first_dirty_offset, other.progress.first_dirty_offset) == (1, 3)
    assert run(cleaner.clean_filthiest())
    assert bench.log.progress.first_dirty_offset == 3
    assert not run(cleaner.clean_filthiest())


# How it goes


def test_small_segments_are_joined_up_to_segment_bytes(bench: Bench) -> None:
    for n in range(60):
        bench.put((b"k%d" % (n % 4), b"v"))
    assert bench.log.segments_count > 10
    bench.log.tail.config = ROOMY
    assert bench.clean()
    assert bench.log.segments_count == 2
    names = sorted(path.name for path in (bench.path / "t-0").glob("*.log*"))
    assert len(names) == 2 and not any("cleaned" in name or "swap" in name for name in names)
    bases = {segment.base_offset for segment in (*bench.log.closed_segments(), bench.log.active_segment)}
    assert {int(path.stem) for path in (bench.path / "t-0").glob("*.snapshot")} <= bases | {60}


def test_map_that_is_full_cleans_what_it_holds_and_the_rest_in_further_rounds(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleaner=CleanerConfig(map_bytes=24 * 8))  # 7 keys
    for n in range(40):
        bench.put((b"k%d" % (n % 20), b"v%d" % n))
    active = bench.log.active_segment.base_offset
    assert bench.clean() and bench.log.progress.first_dirty_offset == 7
    assert [r[0] for r in bench.records()] == list(range(40))
    while bench.clean():
        pass
    assert bench.log.progress.first_dirty_offset == active
    kept = {n % 20: n for n in range(active)}
    assert [r[0] for r in bench.records() if r[0] < active] == sorted(kept.values())


def test_map_too_small_for_one_batch_is_said_once_and_not_tried_for_ever(tmp_path: Path, caplog: Any) -> None:
    bench = Bench(tmp_path, cleaner=CleanerConfig(map_bytes=24 * 4))
    bench.put(*[(b"k%d" % n, b"v") for n in range(9)])
    bench.close_segment()
    assert not bench.clean() and not bench.clean()
    [said] = [r.message for r in caplog.records if r.levelname == "ERROR"]
    assert "t-0 cannot be compacted" in said and "log.cleaner.dedupe.buffer.size=96" in said


def test_batch_larger_than_the_buffer_is_read_alone(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ROOMY)
    bench.put((b"a", b"x" * 5000), (b"b", b"y"))
    bench.put((b"b", b"z"))
    bench.close_segment()
    assert bench.clean()
    assert bench.records() == [(0, b"a", b"x" * 5000), (2, b"b", b"z")]


def test_segment_that_would_stay_as_it_is_is_not_written_again(bench: Bench) -> None:
    bench.put((b"a", b"1" * 300))
    bench.close_segment()
    bench.put((b"b", b"2" * 300))
    bench.close_segment()
    inodes = {path.name: path.stat().st_ino for path in (bench.path / "t-0").glob("*.log")}
    assert bench.clean()
    assert {path.name: path.stat().st_ino for path in (bench.path / "t-0").glob("*.log")} == inodes
    assert bench.log.progress.first_dirty_offset == 2


def test_speed_is_bounded(tmp_path: Path) -> None:
    bench = Bench(tmp_path, cleaner=CleanerConfig(buffer_bytes=200, max_bytes_per_s=10_000))
    for n in range(30):
        bench.put((b"k%d" % n, b"v"))
    waits: list[float] = []

    async def pause(seconds: float) -> None:
        waits.append(seconds)

    bench.cleaner._pauses.pause = pause  # type: ignore[method-assign,assignment]
    read = bench.log.size_bytes - bench.log.active_segment.size_bytes
    assert bench.clean()
    assert max(waits) > read / 10_000 / 2


@pytest.mark.parametrize("most_open", [1, 1000])
def test_reads_that_were_answered_before_the_swap_are_sent_whole(bench: Bench, most_open: int) -> None:
    bench.files.open_files.limit = most_open
    for n in range(30):
        bench.put((b"k", b"v%d" % n))
    before = contents(bench.log)
    ranges = bench.log.read(0, 1 << 20).ranges
    assert bench.clean()
    assert b"".join(each.read() for each in ranges) == before
    assert bench.spans()[0][0] > 0


def test_reads_and_searches_work_in_every_hole(bench: Bench) -> None:
    for n in range(40):
        bench.put((b"k%d" % (n % 3), b"v%d" % n), age_ms=100 - n)
    bench.put((b"k0", b"last"))
    assert bench.clean()
    offsets = [r[0] for r in bench.records()]
    for offset in range(42):
        if offset > 40:
            continue
        first = next(iter_records(contents(bench.log, offset)), None)
        assert first is not None and first.offset == next(o for o in offsets if o >= offset)
    for stamp in range(NOW_MS - 105, NOW_MS + 1):
        found = run(bench.log.offset_for_timestamp(stamp))
        expected = next((o for o in offsets if (NOW_MS if o == 40 else NOW_MS - 100 + o) >= stamp), None)
        assert (found and found.offset) == expected


def test_truncation_during_a_round_throws_its_work_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(30):
        bench.put((b"k%d" % (n % 3), b"v%d" % n))

    real = CompactionSwap.step

    async def cut_first(compaction: CompactionSwap, work: Any) -> Any:
        if bench.log.ranges.cuts == 0:
            await bench.log.truncate_to(12)
            for n in range(12, 24):
                bench.put((b"z%d" % n, b"other"))
        return await real(compaction, work)

    monkeypatch.setattr(CompactionSwap, "step", cut_first)
    bench.clean()
    assert [r[0] for r in bench.records()] == list(range(24))
    assert not list((bench.path / "t-0").glob("*.cleaned"))
    assert bench.log.progress.first_dirty_offset <= 12
    assert bench.clean()
    keys = {key for _, key, _ in bench.records()}
    assert keys == {b"k0", b"k1", b"k2"} | {b"z%d" % n for n in range(12, 24)}


def test_compact_and_delete_together(tmp_path: Path) -> None:
    bench = Bench(tmp_path, replace(COMPACT, cleanup_policy="compact,delete", retention_ms=1000, segment_bytes=200))
    for n in range(12):
        bench.put((b"k%d" % (n % 5), b"v"), age_ms=2000 if n < 6 else 0)
    assert bench.clean()
    assert run(bench.log.enforce_retention(12, bench.now_ms))
    assert bench.log.log_start_offset > 0
    assert all(offset >= 6 for offset, _, _ in bench.records())


def test_index_of_a_cleaned_segment_is_sparse_and_right(bench: Bench) -> None:
    for n in range(200):
        bench.put((b"k%d" % (n % 60), b"v" * 40))
    bench.log.tail.config = replace(ROOMY, index_interval_bytes=1000)
    assert bench.clean()
    [closed] = bench.log.closed_segments()
    index = (bench.path / "t-0" / f"{closed.base_offset:020d}.index").read_bytes()
    entries = list(struct.iter_unpack(">ii", index))
    assert 3 <= len(entries) <= closed.size_bytes // 1000
    data = closed.file.pread(closed.size_bytes, 0)
    for relative, position in entries:
        assert decode_batch(data[position:])[-1].offset == closed.base_offset + relative
    with pytest.raises(StorageError):
        bench.files.trap = lambda kind, path: (_ for _ in ()).throw(OSError(5, "x", path)) if kind == "open" else None
        bench.log.read(closed.base_offset + 1, 10)


# Transactions


def transaction(bench: Bench, producer: int, rows: list[tuple[bytes, bytes]], commits: bool) -> None:
    for n, row in enumerate(rows):
        data = build_batch(
            [(NOW_MS, *row, ())], transactional=True, producer_id=producer, producer_epoch=0, base_sequence=n
        )
        append(bench.log, at(data, bench.log.log_end_offset), origin=Origin.MIRROR)
    marker = (NOW_MS, struct.pack(">hh", 0, int(commits)), struct.pack(">hi", 0, 1), ())
    data = build_batch([marker], control=True, transactional=True, producer_id=producer, producer_epoch=0)
    append(bench.log, at(data, bench.log.log_end_offset), origin=Origin.MIRROR)


def test_aborted_records_go_at_once_and_markers_after_their_records(bench: Bench) -> None:
    transaction(bench, 1, [(b"a", b"kept"), (b"b", b"kept")], True)
    transaction(bench, 2, [(b"a", b"void"), (b"c", b"void")], False)
    bench.log.producers.clear()  # long ago
    bench.close_segment()
    bench.put((b"z", b"1"))
    bench.close_segment()
    assert bench.clean()
    # The abort marker stays this time: its records were met on the way.
    assert [s[0] for s in bench.spans()] == [0, 1, 2, 5, 6]
    assert bench.records() == [(0, b"a", b"kept"), (1, b"b", b"kept"), (6, b"z", b"1")]
    assert bench.log.aborted_transactions(0, 6) == [(2, 3)]
    bench.put((b"a", b"new"), (b"b", b"new"))
    bench.close_segment()
    assert bench.clean()
    # No record of the aborted one was left: its marker has a time to go at now. The committed one's were met.
    headers = {h.base_offset: delete_horizon_ms(h) for _, h in walk(contents(bench.log))}
    assert headers == {2: None, 5: bench.now_ms + DAY_MS, 6: None, 7: None}
    assert bench.log.aborted_transactions(0, 8) == []
    bench.now_ms += DAY_MS
    bench.put((b"x", b"1"), (b"y" * 200, b"1"))
    bench.close_segment()
    assert bench.clean()
    assert [h.base_offset for _, h in walk(contents(bench.log))] == [2, 6, 7, 9]


def test_what_a_producer_commits_after_an_abort_that_was_cleaned_replaces_what_was_before(bench: Bench) -> None:
    bench.put((b"a", b"old"))
    transaction(bench, 2, [(b"a", b"void")], False)
    bench.close_segment()
    assert bench.clean()
    # The abort is in the part that is clean now. It says nothing of the next transaction.
    transaction(bench, 2, [(b"a", b"new")], True)
    bench.close_segment()
    assert bench.clean()
    assert bench.records() == [(3, b"a", b"new")]
