"""When segments begin and end: rolling, retention, and where the log starts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.status import LogHooks
from isthmus.protocol.errors import ErrorCode, KafkaError

from ..support import NOW_MS, append, at, batch, contents, open_log, run

HOUR = 3_600_000


def bases(log):
    return [int(path.stem) for path in sorted((Path(log.directory)).glob("*.log"))]


@pytest.fixture
def make(files, tmp_path):
    def make(batches=0, **config):
        log = open_log(files, tmp_path, LogConfig(**{"segment_bytes": 300, **config}))
        for n in range(batches):
            append(log, batch(1, timestamp=NOW_MS - HOUR + n * 1000))  # 85 bytes: three a segment
        return log

    return make


def test_segment_ends_before_the_append_that_would_not_fit(make):
    log = make(9)
    assert bases(log) == [0, 3, 6]


def test_segment_ends_by_record_time_since_its_first_batch(make):
    log = make(segment_bytes=1 << 30, segment_ms=1000)
    for timestamp in (5000, 6000, 6001, 3000, 7001, 7002):
        append(log, batch(1, timestamp=timestamp))
    assert bases(log) == [0, 2, 5]


def test_jitter_ends_each_segment_earlier_by_its_own_part(make):
    log = make(segment_bytes=1 << 30, segment_ms=1000, segment_jitter_ms=400)
    for timestamp in range(5000, 25_000, 10):
        append(log, batch(1, timestamp=timestamp))
    ages = [(b - a) * 10 for a, b in itertools.pairwise(bases(log))]
    assert all(600 <= age <= 1010 for age in ages) and len(set(ages)) > 5


def test_segment_without_times_ends_by_the_clock(make):
    log = make(segment_bytes=1 << 30, segment_ms=1000)
    for wall_ms in (NOW_MS, NOW_MS + 1000, NOW_MS + 1001):
        log.append(batch(1, timestamp=-1), Origin.CLIENT, 0, wall_ms)
    assert bases(log) == [0, 2]


def test_segment_ends_when_its_index_is_full(make):
    log = make(segment_bytes=1 << 30, segment_index_bytes=64, index_interval_bytes=0)
    for n in range(20):
        append(log, batch(1, timestamp=NOW_MS - n))
    assert len(bases(log)) > 2
    assert all(path.stat().st_size <= 64 for path in Path(log.directory).glob("*.index"))


def test_time_retention_counts_from_the_largest_record_time(make):
    log = make(9, retention_ms=HOUR)
    assert run(log.enforce_retention(9, NOW_MS + 2000)) == 0  # the third record is not older than an hour
    assert run(log.enforce_retention(9, NOW_MS + 2001)) == 1
    assert (log.log_start_offset, bases(log)) == (3, [3, 6])
    with pytest.raises(KafkaError) as caught:
        log.read(2, 100)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_log_that_has_expired_as_a_whole_begins_anew_at_its_end(make):
    log = make(8, retention_ms=HOUR)
    assert run(log.enforce_retention(8, NOW_MS + HOUR)) == 3
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (8, 8, [8])
    assert run(log.enforce_retention(8, NOW_MS + 9 * HOUR)) == 0
    assert append(log, batch(1)).first_offset == 8


@pytest.mark.parametrize("high_watermark", range(10))
def test_nothing_at_or_above_the_high_watermark_is_deleted(make, high_watermark):
    log = make(9, retention_ms=1, retention_bytes=0)
    run(log.enforce_retention(high_watermark, NOW_MS + HOUR))
    assert log.log_start_offset == high_watermark - high_watermark % 3


def test_size_retention_keeps_at_least_what_is_asked(make):
    size = len(batch(1))
    log = make(9, retention_ms=-1, retention_bytes=5 * size)
    assert run(log.enforce_retention(9, NOW_MS)) == 1
    assert log.size_bytes == 6 * size
    log.tail.config = LogConfig(retention_ms=-1, retention_bytes=1)
    run(log.enforce_retention(9, NOW_MS))
    assert bases(log) == [6]  # the active segment stays


def test_log_that_is_to_keep_no_bytes_begins_anew_at_its_end(make):
    log = make(8, retention_ms=-1, retention_bytes=0)
    assert run(log.enforce_retention(7, NOW_MS)) == 2  # the last one reaches past the high watermark
    assert run(log.enforce_retention(8, NOW_MS)) == 1
    assert (log.log_start_offset, log.log_end_offset, bases(log)) == (8, 8, [8])
    assert run(log.enforce_retention(8, NOW_MS)) == 0


def test_no_limit_deletes_nothing(make):
    assert run(make(9, retention_ms=-1).enforce_retention(9, NOW_MS * 2)) == 0


def test_compacted_topic_is_not_deleted_by_time_or_size_but_below_its_start(make):
    log = make(9, retention_ms=1, retention_bytes=0, cleanup_policy="compact")
    assert run(log.enforce_retention(9, NOW_MS * 2)) == 0
    log.advance_start(7)
    assert run(log.enforce_retention(9, NOW_MS)) == 2
    assert (log.log_start_offset, bases(log)) == (7, [6])
    log.tail.config = LogConfig(retention_ms=1, cleanup_policy="compact,delete")
    assert run(log.enforce_retention(9, NOW_MS * 2)) == 1


def test_log_start_only_rises_and_not_past_the_end(make):
    log = make(9)
    log.advance_start(4)
    log.advance_start(2)
    assert log.log_start_offset == 4
    with pytest.raises(KafkaError) as caught:
        log.advance_start(10)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    log.advance_start(9)
    assert contents(log) == b""
    run(log.enforce_retention(9, NOW_MS))
    assert bases(log) == [9]


def test_epochs_and_snapshots_of_deleted_segments_go(make, files, tmp_path):
    log = make(retention_ms=HOUR)
    for n in range(9):
        append(log, batch(1, timestamp=NOW_MS - HOUR + n), epoch=n // 2)
    run(log.enforce_retention(6, NOW_MS + 2000))
    assert log.log_start_offset == 6
    assert log.epochs.entries() == [(3, 6), (4, 8)]
    assert sorted(path.stem for path in Path(log.directory).glob("*.snapshot")) == ["00000000000000000006"]
    run(log.close())
    again = open_log(files, tmp_path, clean=True)
    assert (again.log_start_offset, again.epochs.entries()) == (6, [(3, 6), (4, 8)])


@pytest.mark.parametrize("offset", range(11))
def test_truncation_cuts_at_the_batch_that_holds_the_offset(files, tmp_path, offset):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=400, index_interval_bytes=0))
    for n in range(5):
        append(log, batch(2, timestamp=NOW_MS - 100 + n), epoch=n)
    run(log.truncate_to(offset))
    end = offset - offset % 2
    assert log.log_end_offset == end
    assert log.latest_epoch == end // 2 - 1
    assert append(log, batch(1), epoch=9).first_offset == end
    stored = contents(log)
    assert contents(open_log(files, tmp_path)) == stored


def test_truncation_saves_the_lowered_recovery_point_before_it_cuts(files, tmp_path):
    """Down to the segment that is cut: its new end may be in the page cache alone when the next start trusts it."""
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300))
    for _ in range(9):
        append(log, batch(1))
    run(log.sync())
    seen = []

    async def save():
        seen.append((log.recovery_point, log.log_end_offset))

    log.status.hooks = LogHooks(save_points=save)
    run(log.truncate_to(7))
    assert seen == [(6, 9)]
    assert (log.recovery_point, log.log_end_offset) == (6, 7)
    run(log.truncate_to(6))
    assert seen[1:] == [(3, 7)]


def test_reset_begins_anew(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300))
    for n in range(9):
        append(log, batch(1, producer_id=7, producer_epoch=0, base_sequence=n), epoch=3)
    run(log.reset_to(1000))
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch, len(log.producers)) == (1000, 1000, -1, 0)
    append(log, at(batch(2), 1000, 4), origin=Origin.MIRROR)
    again = open_log(files, tmp_path)
    assert (again.log_start_offset, again.log_end_offset) == (1000, 1002)
