"""Transactions that a mirror brings: where the stable part ends, and which spans are void."""

from __future__ import annotations

import struct

import pytest

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.records import build_batch

from ..support import NOW_MS, append, at, batch, open_log, run

ABORT, COMMIT = 0, 1


def data(offset, count, pid, sequence=0):
    return at(batch(count, producer_id=pid, producer_epoch=0, base_sequence=sequence, transactional=True), offset)


def marker(offset, pid, kind):
    record = (NOW_MS, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 3), ())
    return at(build_batch([record], control=True, transactional=True, producer_id=pid, producer_epoch=0), offset)


def history():
    return [
        data(0, 3, 1),
        data(3, 2, 2),
        at(batch(1), 5),
        marker(6, 2, ABORT),
        data(7, 1, 1, 3),
        marker(8, 1, ABORT),
        data(9, 1, 2),
        marker(10, 2, COMMIT),
        data(11, 2, 3),
    ]


def check(log):
    assert log.first_undecided_offset == 11
    assert log.aborted_transactions(0, 13) == [(1, 0), (2, 3)]
    assert log.aborted_transactions(6, 13) == [(1, 0), (2, 3)]
    assert log.aborted_transactions(7, 13) == [(1, 0)]
    assert log.aborted_transactions(0, 3) == [(1, 0)]
    assert log.aborted_transactions(9, 13) == []
    assert log.producers.get(1).coordinator_epoch == 3


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200])
@pytest.mark.parametrize("clean", [True, False])
def test_spans_are_known_at_once_and_after_a_restart(files, tmp_path, segment_bytes, clean):
    config = LogConfig(segment_bytes=segment_bytes)
    log = open_log(files, tmp_path, config)
    for part in history():
        append(log, part, origin=Origin.MIRROR)
    check(log)
    if clean:
        run(log.close())
    again = open_log(files, tmp_path, config, clean=clean)
    check(again)
    append(again, marker(13, 3, COMMIT), origin=Origin.MIRROR)
    assert again.first_undecided_offset is None


def test_stable_end_follows_the_earliest_open_transaction(files, tmp_path):
    log = open_log(files, tmp_path)
    seen = []
    for part in history():
        append(log, part, origin=Origin.MIRROR)
        seen.append(log.first_undecided_offset)
    assert seen == [0, 0, 0, 0, 0, None, 9, None, 11]


@pytest.mark.parametrize("segment_bytes", [1 << 30, 200])
def test_truncation_reopens_a_transaction_and_forgets_its_end(files, tmp_path, segment_bytes):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=segment_bytes))
    for part in history():
        append(log, part, origin=Origin.MIRROR)
    run(log.truncate_to(8))
    assert log.first_undecided_offset == 0
    assert [producer for producer, _ in log.aborted_transactions(0, 100)] == [2]
    append(log, marker(8, 1, ABORT), origin=Origin.MIRROR)
    assert [producer for producer, _ in log.aborted_transactions(0, 100)] == [1, 2]


def test_index_file_is_kafkas(files, tmp_path):
    log = open_log(files, tmp_path)
    for part in history():
        append(log, part, origin=Origin.MIRROR)
    stored = (tmp_path / "t-0" / "00000000000000000000.txnindex").read_bytes()
    # version, producer id, first offset, last offset, last stable offset
    assert list(struct.iter_unpack(">hqqqq", stored)) == [(0, 2, 3, 6, 0), (0, 1, 0, 8, 9)]


def test_the_disk_is_asked_once_whether_a_segment_has_aborted_transactions(files, tmp_path, monkeypatch):
    """Each fetch of read_committed asks it, of all segments to the end of the log."""
    log = open_log(files, tmp_path, LogConfig(segment_bytes=200))
    plain = [at(batch(1), offset) for offset in (1, 3)]
    *before, last = data(0, 1, 1), plain[0], data(2, 1, 2), plain[1], marker(4, 1, ABORT), marker(5, 2, ABORT)
    for each in before:
        append(log, each, origin=Origin.MIRROR)
    asked = []
    exists = files.exists
    monkeypatch.setattr(files, "exists", lambda path: asked.append(path) or exists(path))
    for _ in range(3):
        assert [producer for producer, _ in log.aborted_transactions(0, 100)] == [1]
    absent = [path for path in asked if not exists(path)]
    assert absent and len(absent) == len(set(absent))
    append(log, last, origin=Origin.MIRROR)
    assert [producer for producer, _ in log.aborted_transactions(0, 100)] == [1, 2]
