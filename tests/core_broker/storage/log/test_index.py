"""The index files: Kafka's bytes, and equal answers from memory and from the file."""

from __future__ import annotations

import contextlib
import random
import resource
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from isthmus.core_broker.storage.log._indexes import OffsetIndex, TimeIndex
from isthmus.core_broker.storage.log._segment import Segment
from isthmus.core_broker.storage.log._tail import POSITIONS_KEPT, RecentPositions
from isthmus.core_broker.storage.log.index_files import search_offset_index, search_time_index
from isthmus.core_broker.storage.log.log_config import LogConfig

from ..support import NOW_MS, append, batch, open_log, run


def test_entries_are_of_the_batch_that_crosses_the_interval(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(index_interval_bytes=200))
    times = [10, 30, 20, 40, 15, 50, 60]
    size = len(batch(2))
    for time in times:
        append(log, batch(2, timestamp=time))
    run(log.close())
    step = 200 // size + 1  # batches until more than 200 bytes have gone by
    at = range(step, len(times), step)
    stored = (tmp_path / "t-0" / "00000000000000000000.index").read_bytes()
    assert list(struct.iter_unpack(">ii", stored)) == [(n * 2 + 1, n * size) for n in at]
    stored = (tmp_path / "t-0" / "00000000000000000000.timeindex").read_bytes()
    expected = []
    for n in [*at, len(times) - 1]:
        newest = max(range(n + 1), key=lambda m: times[m])
        entry = (times[newest] + 1, newest * 2 + 1)
        if not expected or entry[0] > expected[-1][0]:
            expected.append(entry)
    assert list(struct.iter_unpack(">qi", stored)) == expected


def test_memory_and_file_answer_alike(files, tmp_path):
    chance = random.Random(1)
    offsets, times = OffsetIndex(), TimeIndex()
    relative = position = 0
    timestamp = NOW_MS
    for _ in range(200):
        relative += chance.randint(1, 50)
        position += chance.randint(61, 500)
        timestamp += chance.randint(-20, 40)
        offsets.append(relative, position)
        times.append(timestamp, relative)
    offset_path, time_path = str(tmp_path / "a.index"), str(tmp_path / "a.timeindex")
    offsets.write(files, offset_path)
    times.write(files, time_path)
    for wanted in range(-1, relative + 10):
        assert search_offset_index(files, offset_path, wanted) == offsets.lookup(wanted)
    for wanted in range(NOW_MS - 30, timestamp + 30):
        assert search_time_index(files, time_path, wanted) == times.lookup(wanted)
    assert OffsetIndex.load(files.read(offset_path)).encode() == offsets.encode()
    assert TimeIndex.load(files.read(time_path)).encode() == times.encode()


def test_file_follows_through_growth_and_truncation(files, tmp_path):
    chance = random.Random(2)
    index, path = OffsetIndex(), str(tmp_path / "a.index")
    for step in range(300):
        if chance.random() < 0.2:
            index.truncate(chance.randint(0, step * 100))
        last = index.lookup(2**31 - 1)
        index.append(last // 10 + 10, last + 100)
        if chance.random() < 0.3:
            index.write(files, path)
            assert files.read(path) == index.encode()


def test_no_time_is_taken_that_is_not_after_the_last_in_the_file():
    index = TimeIndex(3, (100, 5))
    for timestamp in (50, 100):
        index.append(timestamp, 6)
    assert (len(index), index.last) == (3, (100, 5))
    index.append(101, 7)
    assert (len(index), index.last) == (4, (101, 7))


def test_the_last_positions_of_appends_are_kept_and_no_others():
    positions = RecentPositions()
    assert positions.rows() == [] and positions.get(0) is None
    for number in range(1, 2 * POSITIONS_KEPT + 2):
        positions.append(number * 10, number * 100)
        first = max(number - POSITIONS_KEPT + 1, 1)
        kept = [(each * 10, each * 100) for each in range(first, number + 1)]
        assert positions.rows() == kept
        assert [(offset, positions.get(offset)) for offset, _ in kept] == kept
        assert positions.get((first - 1) * 10) is None


@pytest.mark.parametrize("position,last_offset", [(2**31, 1), (1, 2**31), (1, -(2**31) - 1)])
def test_what_an_entry_cannot_hold_is_refused(files, tmp_path, position, last_offset):
    segment = Segment.create(files, str(tmp_path), 0, 0)
    segment.bytes_since_index = 1
    with pytest.raises(OverflowError):
        segment.note(position, 100, last_offset, NOW_MS, 0)
    assert len(segment.offsets) == 0
    segment.offsets.append(30, 300)
    assert segment.offsets.encode() == struct.pack(">ii", 30, 300)  # no half of the other is left


@contextlib.contextmanager
def no_more_memory() -> Iterator[None]:
    """Than there is, but for a megabyte."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 20), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.parametrize(
    "made, first, second", [(OffsetIndex, "_positions", "_relative"), (TimeIndex, "_relative", "_timestamps")]
)
def test_an_entry_for_half_of_which_there_is_no_memory_is_none(made, first, second):
    index = made()
    for name in (first, second):
        values = getattr(index, name)
        values.append(1)
        setattr(index, name, values * (1 << 24))  # 64 MB: more than the heap keeps free
    with_room = getattr(index, first)
    with_room.append(1)
    with_room.pop()
    with no_more_memory(), pytest.raises(MemoryError):
        index.append(2, 2)
    assert len(getattr(index, first)) == len(getattr(index, second)) == 1 << 24


def test_the_most_that_an_entry_holds_is_taken(files, tmp_path):
    segment = Segment.create(files, str(tmp_path), 0, 0)
    segment.bytes_since_index = 1
    segment.note(2**31 - 1, 100, 2**31 - 1, NOW_MS, 0)
    assert segment.offsets.encode() == struct.pack(">ii", 2**31 - 1, 2**31 - 1)
