"""Which aborted transactions a reader is told of, by the indexes that are kept in memory."""

from __future__ import annotations

import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.core_broker.storage.disk.real_files import RealFiles
from isthmus.core_broker.storage.log.aborted_indexes import AbortedIndex, AbortedIndexes
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.index_files import AbortedTransaction
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.core_broker.storage.log.transactions import TransactionIndex, end_marker

from ..support import NOW_MS, append, at, batch, open_log, run


class Segment:
    """Stands for one, as a key."""


def entry(producer: int, first: int, last: int, stable: int = 0) -> AbortedTransaction:
    return AbortedTransaction(producer, first, last, stable)


def held(indexes: AbortedIndexes, *segments: Segment) -> list[bool]:
    return [indexes.get(each) is not None for each in segments]


def test_those_that_were_kept_last_stay_within_the_bound():
    indexes, first, second, third = AbortedIndexes(4), Segment(), Segment(), Segment()
    indexes.keep(first, AbortedIndex([entry(1, 0, 1)] * 2))
    indexes.keep(second, AbortedIndex([entry(1, 2, 3)] * 2))
    assert held(indexes, first, second) == [True, True]
    indexes.keep(third, AbortedIndex([entry(1, 4, 5)]))
    assert held(indexes, first, second, third) == [False, True, True]
    indexes.keep(first, AbortedIndex([entry(1, 0, 1)] * 5))
    assert held(indexes, first) == [False]  # it is too large for all of them


def test_what_grows_over_the_bound_goes():
    indexes, segment = AbortedIndexes(2), Segment()
    indexes.keep(segment, AbortedIndex([entry(1, 0, 1)]))
    indexes.added(segment, entry(2, 2, 3))
    assert len(indexes) == 2
    indexes.added(segment, entry(3, 4, 5))
    assert len(indexes) == 0
    indexes.added(segment, entry(4, 6, 7))  # it is read when it is asked for


def test_a_segment_that_is_gone_leaves_no_index():
    indexes, segment = AbortedIndexes(2), Segment()
    indexes.keep(segment, AbortedIndex([entry(1, 0, 1)]))
    del segment
    assert len(indexes) == 0


# Lengths and producers of transactions that are written one after the other, and whether each is aborted.
HISTORY = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30)


@settings(max_examples=150, deadline=None)
@given(HISTORY, st.sampled_from([200, 1 << 30]), st.randoms())
def test_a_reader_is_told_of_all_that_overlap_and_of_no_others(files_and_path, history, segment_bytes, chance):
    files, path = files_and_path
    log = open_log(files, tempfile.mkdtemp(dir=path), LogConfig(segment_bytes=segment_bytes))
    begun: dict[int, int] = {}
    aborted: list[tuple[int, int, int]] = []
    for producer, is_abort in history:
        end = log.log_end_offset
        if producer not in begun:
            begun[producer] = end
            data = batch(1, producer_id=producer, producer_epoch=0, base_sequence=-1, transactional=True)
            append(log, at(data, end), origin=Origin.REPLICATION)
        else:
            first = begun.pop(producer)
            marker = end_marker(producer, 0, not is_abort, 0, NOW_MS)
            append(log, at(marker, end), origin=Origin.REPLICATION)
            if is_abort:
                aborted.append((first, producer, end))
        if chance.random() < 0.3:  # it is kept in memory from now on
            log.aborted_transactions(0, end)
    stable = log.stable_offset(log.log_end_offset)
    for offset in range(stable):
        upper = chance.randint(offset + 1, stable)
        told = log.aborted_transactions(offset, upper)
        needed = sorted((first, producer) for first, producer, last in aborted if first < upper and last >= offset)
        assert told == [(producer, first) for first, producer in needed]
    run(log.leave())


@pytest.fixture(scope="module")
def files_and_path(tmp_path_factory):
    files = RealFiles(1)
    yield files, tmp_path_factory.mktemp("aborted")
    files.close()


def test_a_reader_is_told_of_nothing_behind_what_it_gets(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(index_interval_bytes=0))
    for producer in range(20):
        data = batch(1, producer_id=producer, producer_epoch=0, base_sequence=-1, transactional=True)
        append(log, at(data, 2 * producer), origin=Origin.REPLICATION)
        marker = end_marker(producer, 0, False, 0, NOW_MS)
        append(log, at(marker, 2 * producer + 1), origin=Origin.REPLICATION)
    found = log.read(10, 400)
    end = log.ranges.end_of(found.ranges, 10, log.log_end_offset)
    assert 10 < end < 20
    assert log.aborted_transactions(10, end) == [(number, 2 * number) for number in range(5, (end + 1) // 2)]
    everything = log.read(10, 1 << 20)
    assert log.ranges.end_of(everything.ranges, 10, log.log_end_offset) == 40
    assert log.ranges.end_of(everything.ranges, 10, 30) == 30


@pytest.mark.parametrize("is_known", [True, False])
def test_the_end_of_what_is_read_of_a_closed_segment(files, tmp_path, is_known):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=1000, index_interval_bytes=0))
    for offset in range(30):
        append(log, at(batch(1), offset), origin=Origin.REPLICATION)
    closed = log.ranges.segments[0]
    found = log.read(0, 300)
    if is_known:
        log.read(1, 300)  # its index is in memory then
    end = log.ranges.end_of(found.ranges, 0, 30)
    assert 300 // len(batch(1)) <= end <= closed.last_offset + 1


def test_a_cut_index_is_read_again(files, tmp_path):
    log = open_log(files, tmp_path)
    for producer in (1, 2):
        data = batch(1, producer_id=producer, producer_epoch=0, base_sequence=-1, transactional=True)
        append(log, at(data, log.log_end_offset), origin=Origin.REPLICATION)
        append(log, at(end_marker(producer, 0, False, 0, NOW_MS), log.log_end_offset), origin=Origin.REPLICATION)
    assert log.aborted_transactions(0, 4) == [(1, 0), (2, 2)]
    run(log.truncate_to(3))
    assert log.aborted_transactions(0, 4) == [(1, 0)]


def test_each_file_is_read_once(files, tmp_path, monkeypatch):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300))
    for producer in range(8):
        data = batch(1, producer_id=producer, producer_epoch=0, base_sequence=-1, transactional=True)
        append(log, at(data, log.log_end_offset), origin=Origin.REPLICATION)
        append(log, at(end_marker(producer, 0, False, 0, NOW_MS), log.log_end_offset), origin=Origin.REPLICATION)
    read = []
    once = TransactionIndex.read
    monkeypatch.setattr(TransactionIndex, "read", lambda files, segment: read.append(segment) or once(files, segment))
    for _ in range(3):
        assert len(log.aborted_transactions(0, log.log_end_offset)) == 8
    assert len(read) == len(set(read)) <= log.segments_count
