"""Reads: which bytes an offset, a bound or a time gives."""

from __future__ import annotations

import errno
import os
import random
import struct
from itertools import accumulate
from types import SimpleNamespace

import pytest

from isthmus.core_broker.storage.disk._data_file import FileRange
from isthmus.core_broker.storage.log._ranges import ANY_OFFSET, NotCached
from isthmus.core_broker.storage.log._segment import Segment
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.cold_reads import bring
from isthmus.core_broker.storage.log.index_window import IndexWindow
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import CorruptBatch, iter_records, walk

from ..support import NOW_MS, append, at, batch, contents, open_log, run, spans

SMALL = LogConfig(segment_bytes=700, index_interval_bytes=200)


def filled(files, path, config=SMALL, batches=40):
    """3 records a batch."""
    log = open_log(files, path, config)
    for n in range(batches):
        append(log, batch(3, timestamp=NOW_MS - 100_000 + n * 10))
    return log


@pytest.mark.parametrize("reopened", [False, True])
def test_every_offset_gives_the_batch_that_holds_it(files, tmp_path, reopened):
    log = filled(files, tmp_path)
    if reopened:
        run(log.close())
        log = open_log(files, tmp_path, SMALL, clean=True)
    assert log.segments_count > 5
    for offset in range(120):
        assert spans(contents(log, offset))[0] == (offset - offset % 3, offset - offset % 3 + 2)
    assert contents(log, 120) == b""


@pytest.mark.parametrize("sizes", [[1] * 200, [4000, 1, 4096, 30, 9000, 4016], [100, 70_000, 3]])
def test_a_search_by_headers_finds_what_a_walk_finds(files, tmp_path, sizes):
    """Headers that lie across what is read at once, and batches larger than that."""
    log = open_log(files, tmp_path)
    for size in sizes:
        append(log, batch(2, size=size))
    segment = log.tail.active
    batches = list(segment.batches())
    assert [each.base_offset for each in batches] == list(range(0, 2 * len(sizes), 2))
    for number, start in enumerate(batches):
        for offset in range(2 * len(sizes) + 1):
            rest = [each for each in batches[number:] if each.last_offset >= offset]
            expected = (rest[0].position, rest[0].size_bytes) if rest else (segment.file.size, 0)
            assert segment.seek(offset, start.position, True) == expected
            assert segment.seek(offset, start.position, False) == expected
    segment.file.truncate(segment.file.size - 1)
    last = batches[-1]
    assert segment.seek(last.last_offset, last.position, True) == (segment.file.size, 0)  # half a batch is none


@pytest.mark.parametrize("offset", [-1, 121])
def test_outside_of_the_log_is_out_of_range(files, tmp_path, offset):
    with pytest.raises(KafkaError) as caught:
        filled(files, tmp_path).read(offset, 100)
    assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_upper_offset_bounds_what_is_read(files, tmp_path):
    log = filled(files, tmp_path)
    for offset in range(0, 120, 7):
        for upper in range(offset - 5, 121, 11):
            part = log.read(offset, 1 << 20, upper)
            found = spans(b"".join(piece.read() for piece in part.ranges))
            whole = upper - upper % 3
            assert found == [(n, n + 2) for n in range(offset - offset % 3, whole, 3)] if offset < upper else not found


def test_max_bytes_is_kept_but_for_the_first_batch(files, tmp_path):
    log = filled(files, tmp_path)
    size = len(contents(log, 117))
    for limit in range(0, 3 * size, 7):
        part = log.read(30, limit)
        assert part.size_bytes == max(limit, size)
        part = log.read(30, limit, min_one=False)
        assert part.size_bytes == (limit if limit >= size else 0)


ROOM = 120_000


def read_whole(log, offset):
    """What a fetch with room for so much gives."""
    part = log.read(offset, ROOM)
    left_out = log.ranges.end_with_batch(offset, part.ranges) if part.size_bytes == ROOM else 0
    assert left_out == part.size_bytes - sum(map(len, part.ranges))
    return part.ranges


@pytest.mark.parametrize("sizes", [(30_000, 70_000), (1, 3_000), (1, 100_000), (70_000, 70_001)])
@pytest.mark.parametrize("segment_bytes", [1 << 20, 1 << 30])
def test_what_has_no_room_for_all_ends_with_a_batch(files, tmp_path, sizes, segment_bytes):
    """What a reader gets of a batch that does not end, it gets once more. Batches that fit are left out, too, but less
    than an index' interval of them."""
    picks = random.Random(7)
    log = open_log(files, tmp_path, LogConfig(segment_bytes=segment_bytes))
    while log.size_bytes < 3 << 20:
        append(log, batch(1, size=picks.randint(*sizes)))
    assert (log.segments_count > 1) == (segment_bytes < 3 << 20)
    for segment in log.ranges.segments[:-1]:  # as `locate` has it in memory once a reader asked
        log.ranges.windows.keep(segment, IndexWindow.load(files, segment, 0))
    interval = log.config.index_interval_bytes
    everything = contents(log)
    ends = [0, *accumulate(header.size_bytes for _, header in walk(everything))]
    offset = answers = cut = 0
    while offset < log.log_end_offset:
        start = ends[offset]
        part = read_whole(log, offset)
        given = sum(map(len, part))
        assert b"".join(piece.read() for piece in part) == everything[start : start + given]
        end, fits = (max(each for each in ends if each <= start + size) for size in (given, ROOM))
        assert start < end <= fits < end + interval
        answers, cut = answers + 1, cut + (given > end - start)
        offset = ends.index(end)
    # Of the beginning of a segment nothing is known, nor are there enough intervals in what is left for it.
    assert cut <= log.segments_count < answers // 2


def test_what_has_no_room_for_all_is_cut_where_an_index_does_not_know_better(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(index_interval_bytes=50_000))
    for size in [1_000] * 300:
        append(log, batch(1, size=size))
    assert sum(map(len, read_whole(log, 0))) == ROOM  # few intervals
    log.tail.config = LogConfig()
    assert sum(map(len, read_whole(log, 0))) == ROOM  # an index that was written with others: what is behind may fit
    file = log.tail.active.file
    for refused in (_not_cached, _refused):
        log.tail.active.file = SimpleNamespace(size=file.size, pread_cached=refused)
        assert log.ranges.end_with_batch(0, [FileRange(log.tail.active.file, 0, ROOM)]) == 0  # it cannot be looked at
    log.tail.active.file = file
    append(log, batch(1, size=300_000))
    append(log, batch(1, size=300_000))
    assert sum(map(len, read_whole(log, 200))) < 100 * 1_100  # the control: it does not fit


def _refused(n, position):
    raise OSError(errno.EIO, "no")


def test_a_first_batch_that_fits_to_the_byte_is_given_where_none_has_to_be(files, tmp_path):
    log = filled(files, tmp_path)
    size = log.read(0, 1).size_bytes
    assert log.read(0, size, min_one=False).size_bytes == size
    assert log.read(0, size - 1, min_one=False).size_bytes == 0


def test_where_a_position_is_remembered_the_first_batch_is_given_whole(files, tmp_path):
    log = filled(files, tmp_path)
    size, position = len(contents(log, 117)), log.tail.recent.get(117)
    assert position is not None
    for limit in (0, 1, size - 1, size, size + 1):
        assert log.read(117, limit).size_bytes == size
    file = log.tail.active.file
    log.tail.active.file = SimpleNamespace(size=file.size, pread_cached=_not_cached)
    with pytest.raises(NotCached):
        log.read(117, 1, may_wait=False)
    log.tail.active.file = file
    os.truncate(file.path, position)
    with pytest.raises(KafkaError) as caught:
        log.read(117, 1)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def _not_cached(n, position):
    raise BlockingIOError


def test_a_read_looks_for_nothing_that_it_does_not_need(files, tmp_path):
    """It may not wait; of all segments but the first nothing can be found without the disk."""
    log = filled(files, tmp_path)
    size, active, file = log.read(117, 1).size_bytes, log.tail.active, log.tail.active.file
    (first, second), whole = log.ranges.segments[:2], log.ranges.segments[0].file.size
    run(bring(NotCached(log.ranges, first, 0)))
    active.file = SimpleNamespace(size=file.size, pread_cached=_not_cached)
    assert log.read(117, size, may_wait=False).size_bytes == size  # where it begins is remembered
    log.tail.recent = None
    assert log.read(0, whole, 118, may_wait=False).size_bytes == whole
    assert log.read(0, 1 << 20, second.base_offset, may_wait=False).size_bytes == whole
    for offset, limit, upper in ((117, 0, 120), (117, 100, 117), (120, 100, 120), (120, 100, 130)):
        assert log.read(offset, limit, upper, min_one=False, may_wait=False).ranges == []
    for offset, limit, upper in ((117, 100, 120), (0, 1 << 20, 118), (0, 1 << 20, second.base_offset + 1)):
        with pytest.raises(NotCached):  # these need it
            log.read(offset, limit, upper, may_wait=False)
    active.file = file


def test_a_first_batch_is_looked_at_once(files, tmp_path):
    log = filled(files, tmp_path)
    file, looks = log.ranges.segments[0].file, []
    log.ranges.segments[0].file = SimpleNamespace(
        size=file.size, pread=lambda n, position: looks.append(position) or file.pread(n, position)
    )
    assert log.read(3, 1).size_bytes > 1
    assert len(looks) == 1
    log.ranges.segments[0].file = file


def test_an_offset_before_the_first_segment_reads_on_from_there(files, tmp_path):
    log = filled(files, tmp_path)
    gone = log.ranges.segments[:2]
    del log.ranges.segments[:2], log.ranges.bases[:2]
    assert contents(log, 0) == contents(log, log.ranges.segments[0].base_offset) != b""
    log.ranges.segments[:0], log.ranges.bases[:0] = gone, [each.base_offset for each in gone]


def test_hole_in_the_offsets_reads_on_after_it(files, tmp_path):
    log = open_log(files, tmp_path)
    for offset in (0, 10, 20):
        append(log, at(batch(2), offset), origin=Origin.MIRROR)
    assert spans(contents(log, 5))[0] == (10, 11)
    assert spans(b"".join(p.read() for p in log.read(0, 1000, 15).ranges)) == [(0, 1), (10, 11)]
    assert spans(b"".join(p.read() for p in log.read(3, 1000, 9).ranges)) == []


def test_hole_at_the_beginning_of_a_segment_reads_on_after_it(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=100))
    for offset in (0, 10, 20):
        append(log, at(batch(2), offset), origin=Origin.MIRROR)
    assert log.ranges.bases == [0, 2, 12]
    for offset in range(2, 10):
        [part] = log.read(offset, 1).ranges
        assert spans(part.read()) == [(10, 11)]


def test_where_a_segment_ends_before_an_offset_the_next_is_read(files, tmp_path):
    """As where compaction has left nothing of its last batches."""
    log = filled(files, tmp_path)
    gone = log.ranges.segments.pop(1), log.ranges.bases.pop(1)
    following = log.ranges.segments[1].base_offset
    for offset in range(gone[1], following):
        [part] = log.read(offset, 1).ranges
        assert spans(part.read()) == [(following, following + 2)]
    log.ranges.segments.insert(1, gone[0])
    log.ranges.bases.insert(1, gone[1])


def test_whoever_cannot_read_a_range_tells_the_log(files, tmp_path):
    log = filled(files, tmp_path)
    [part, *_] = log.read(0, 100).ranges
    part.unreadable(OSError(errno.EIO, "broken"))
    with pytest.raises(KafkaError):
        log.read(0, 100)


def test_range_stays_readable_after_its_segment_is_deleted(files, tmp_path):
    log = filled(files, tmp_path)
    part = log.read(0, 200)
    before = part.ranges[0].read()
    log.advance_start(60)
    assert run(log.enforce_retention(120, NOW_MS)) > 0
    assert not (tmp_path / "t-0" / "00000000000000000000.log").exists()
    assert part.ranges[0].read() == before


def test_time_gives_the_first_record_of_that_time_or_later(files, tmp_path):
    log = filled(files, tmp_path)
    run(log.close())
    for log in (filled(files, tmp_path / "live"), open_log(files, tmp_path, SMALL, clean=True)):
        records = list(iter_records(contents(log)))
        for timestamp in range(NOW_MS - 100_010, NOW_MS - 99_590, 3):
            expected = next((r for r in records if r.timestamp_ms >= timestamp), None)
            found = run(log.offset_for_timestamp(timestamp))
            if expected is None:
                assert found is None
            else:
                assert (found.timestamp, found.offset, found.leader_epoch) == (
                    expected.timestamp_ms,
                    expected.offset,
                    0,
                )


def test_time_search_begins_at_the_log_start(files, tmp_path):
    log = filled(files, tmp_path)
    log.advance_start(50)
    assert run(log.offset_for_timestamp(0)).offset == 50


def test_time_search_with_times_out_of_order(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    times = [500, 100, 900, 300, 900, 200, 50] * 5
    for time in times:
        append(log, batch(1, timestamp=time, size=40))
    for wanted in (0, 100, 101, 500, 501, 900):
        expected = next(n for n, time in enumerate(times) if time >= wanted)
        assert run(log.offset_for_timestamp(wanted)).offset == expected
    assert run(log.offset_for_timestamp(901)) is None
    assert tuple(run(log.max_timestamp_offset()))[:2] == (900, 2)


def test_largest_time_is_of_its_record_not_of_the_last(files, tmp_path):
    log = open_log(files, tmp_path)
    assert run(log.max_timestamp_offset()) is None
    append(log, batch(3, timestamp=1000))
    append(log, batch(2, timestamp=10))
    assert tuple(run(log.max_timestamp_offset()))[:2] == (1002, 2)


def test_largest_time_of_records_without_one_is_that_of_the_first(files, tmp_path):
    log = open_log(files, tmp_path, SMALL)
    for _ in range(5):
        append(log, batch(1, timestamp=-1, size=40))
    assert tuple(run(log.max_timestamp_offset()))[:2] == (-1, 0)
    append(log, batch(1, timestamp=0, size=40))
    assert tuple(run(log.max_timestamp_offset()))[:2] == (0, 5)


def test_time_in_a_batch_that_nobody_can_decode_gives_the_batch(files, tmp_path, monkeypatch):
    log = open_log(files, tmp_path)
    append(log, batch(3, timestamp=1000))
    append(log, batch(3, timestamp=2000))

    def refuse(*args, **more):
        raise CorruptBatch("unknown codec")

    monkeypatch.setattr("isthmus.core_broker.storage.log.timestamps.decode_batch", refuse)
    assert run(log.offset_for_timestamp(2001)).offset == 3


def test_search_by_time_does_not_unpack_a_bomb(files, tmp_path, monkeypatch):
    monkeypatch.setattr("isthmus.core_broker.storage.log.timestamps.SEARCH_BYTES_MAX", 1000)
    log = open_log(files, tmp_path)
    append(log, batch(2, timestamp=NOW_MS))
    append(log, batch(50, timestamp=NOW_MS + 10, size=1000, codec="zstd"))
    found = run(log.offset_for_timestamp(NOW_MS + 30))
    assert (found.offset, found.timestamp) == (2, NOW_MS + 59)  # the batch's first: nothing later is missed


def test_seek_finds_what_a_look_at_each_header_does(files, tmp_path):
    """Batches of no record (61 bytes) and more, whose headers lie across each place where a read may end."""
    segment = Segment.create(files, str(tmp_path), 0, 0)
    chance, at, rows = random.Random(5), 0, []
    for _ in range(300):
        data, delta = bytearray(chance.choice([61, 62, 80, 121])), chance.randrange(3)
        struct.pack_into(">qi11xi", data, 0, at, len(data) - 12, delta)
        rows.append((segment.size_bytes, len(data), at + delta))
        segment.file.append([data])
        at += delta + 1 + chance.randrange(2)
    assert [(each.position, each.size_bytes, each.last_offset) for each in segment.batches()] == rows
    for offset in range(at + 2):
        found = next(((position, size) for position, size, last in rows if last >= offset), (segment.size_bytes, 0))
        assert segment.seek(offset, 0, True) == segment.seek(offset, 0, False) == found
    for position, size, _ in rows:
        assert segment.seek(ANY_OFFSET, position, True) == (position, size)
        assert segment.seek(rows[-1][2], position, True) == rows[-1][:2]
        assert segment.seek(at, position, True) == (segment.size_bytes, 0)


@pytest.mark.parametrize("kept_bytes", [0, 1, 23, 60, 61, 62, 121])
def test_seek_in_a_file_that_somebody_has_cut_finds_nothing_after_its_end(files, tmp_path, kept_bytes):
    segment = Segment.create(files, str(tmp_path), 0, 0)
    for base in range(3):
        segment.file.append([struct.pack(">qi11xi", base, 61 - 12, 0).ljust(61, b"\0")])
    os.truncate(segment.file.path, kept_bytes)
    last_whole = kept_bytes // 61 - 1
    assert segment.seek(2, 0, True) == (183, 0)
    if last_whole >= 0:
        assert segment.seek(last_whole, 0, True) == (61 * last_whole, 61)
