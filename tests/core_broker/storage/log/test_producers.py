"""Idempotent producers: what is a repeat, what is out of order, and what is known after a restart."""

from __future__ import annotations

import struct

import pytest

from isthmus.core_broker.storage.log._producers import ProducerStates, SnapshotError
from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import ErrorCode, KafkaError

from ..support import NOW_MS, append, at, batch, contents, open_log, run

MAX = 2**31 - 1


def produce(log, sequence, count=1, pid=7, epoch=0, **more):
    data = batch(count, producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    return append(log, data, **more)


def refused(log, code, *args, **more):
    end = log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        produce(log, *args, **more)
    assert caught.value.code == code
    assert log.log_end_offset == end


def test_repeat_of_the_last_five_is_answered_with_the_first_answer(files, tmp_path):
    log = open_log(files, tmp_path)
    first = [produce(log, n * 2, 2) for n in range(7)]
    for n in range(2, 7):
        again = produce(log, n * 2, 2)
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (first[n].first_offset, first[n].last_offset)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2, 2)  # the sixth from the end
    assert log.log_end_offset == 14


def test_only_the_exact_span_is_a_repeat(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, 0, 3)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 2)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, 2)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0, 4)


def test_gap_is_out_of_order(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, 0)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 2)
    assert produce(log, 1).next_offset == 2


def test_who_had_no_epoch_may_begin_anywhere_with_its_first(files, tmp_path):
    log = open_log(files, tmp_path)
    for sequence, epoch in ((18, -1), (19, -1), (40, 0), (41, 0)):
        produce(log, sequence, epoch=epoch)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 43, epoch=1)


def test_unknown_producer_may_begin_anywhere(files, tmp_path):
    assert produce(open_log(files, tmp_path), 1234).next_offset == 1


def test_sequence_wraps_to_zero_within_and_between_batches(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, MAX - 1, 2)
    produce(log, 0, 1)
    assert produce(log, MAX - 1, 2).duplicate
    other = open_log(files, tmp_path / "other")
    produce(other, MAX - 1, 5)  # MAX-1, MAX, 0, 1, 2
    refused(other, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 4)
    produce(other, 3)
    assert produce(other, MAX - 1, 5).duplicate


def test_new_epoch_begins_at_zero_and_ends_the_old_one(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, 0, epoch=1)
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, epoch=2)
    produce(log, 0, epoch=2)
    refused(log, ErrorCode.INVALID_PRODUCER_EPOCH, 1, epoch=1)
    assert produce(log, 0, epoch=2).duplicate


def test_producers_do_not_know_of_each_other(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, 0, pid=1)
    produce(log, 9, pid=2)
    produce(log, 1, pid=1)
    produce(log, 10, pid=2)


def test_batches_of_one_append_are_checked_in_turn(files, tmp_path):
    log = open_log(files, tmp_path)
    made = [batch(2, producer_id=7, producer_epoch=0, base_sequence=n) for n in (0, 2, 4)]
    for bad in (made[0] + made[2], made[0] + made[0], made[1] + made[0]):
        with pytest.raises(KafkaError) as caught:
            append(log, bad)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert log.log_end_offset == 0 and log.producers.get(7) is None
    assert append(log, b"".join(made)).next_offset == 6
    assert produce(log, 4, 2).duplicate


def test_refused_append_leaves_no_trace_in_producer_state(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(max_message_bytes=200))
    produce(log, 0)
    with pytest.raises(KafkaError):
        append(log, batch(1, size=500, producer_id=7, producer_epoch=0, base_sequence=1))
    assert produce(log, 1).next_offset == 2


def test_replica_appends_follow_without_checks(files, tmp_path):
    log = open_log(files, tmp_path)
    for offset, sequence in ((0, 5), (1, 90), (2, 90)):
        data = at(batch(1, producer_id=7, producer_epoch=3, base_sequence=sequence), offset)
        append(log, data, origin=Origin.MIRROR)
    data = at(batch(1, producer_id=7, producer_epoch=2, base_sequence=4), 3)
    append(log, data, origin=Origin.REPLICATION)
    assert log.log_end_offset == 4


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("segment_bytes", [1 << 30, 300])
def test_five_batches_are_known_after_a_restart(files, tmp_path, clean, segment_bytes):
    config = LogConfig(segment_bytes=segment_bytes)
    log = open_log(files, tmp_path, config)
    first = [produce(log, n * 3, 3) for n in range(8)]
    produce(log, 50, pid=8)
    run(log.close() if clean else log.sync())
    again = open_log(files, tmp_path, config, clean=clean, recovery_point=log.recovery_point)
    for n in range(3, 8):
        info = produce(again, n * 3, 3)
        assert info.duplicate and info.first_offset == first[n].first_offset
    refused(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 6, 3)
    assert produce(again, 24).next_offset == 26
    assert produce(again, 51, pid=8).next_offset == 27


def test_producer_whose_records_a_crash_took_is_told(files, tmp_path):
    log = open_log(files, tmp_path)
    produce(log, 0, pid=1)
    kept = log.size_bytes
    produce(log, 0, pid=2)
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:kept])
    again = open_log(files, tmp_path)
    refused(again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 1, pid=2)
    assert produce(again, 1, pid=1).first_offset == 1
    assert produce(again, 0, pid=2).first_offset == 2


def test_producer_whose_records_retention_took_is_not_held_up(files, tmp_path):
    log = open_log(files, tmp_path)
    for n in range(3):
        produce(log, n)
    run(log.truncate_to(2))
    log.advance_start(1)
    assert produce(open_log(files, tmp_path, log_start_offset=1), 77, pid=9).next_offset == 3


def test_unreadable_snapshot_is_made_up_for_by_the_log(files, tmp_path):
    log = open_log(files, tmp_path)
    for n in range(6):
        produce(log, n)
    run(log.close())
    (snapshot,) = (tmp_path / "t-0").glob("*.snapshot")
    snapshot.write_bytes(snapshot.read_bytes()[:-3])
    again = open_log(files, tmp_path, clean=True)
    assert produce(again, 5).duplicate
    assert produce(again, 6).next_offset == 7


def test_truncation_takes_producer_state_back(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300))
    for n in range(10):
        produce(log, n)
    run(log.truncate_to(4))
    refused(log, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 5)
    assert produce(log, 3).duplicate
    assert produce(log, 4).next_offset == 5


def test_expiry_counts_from_the_append_not_from_the_records_time(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(producer_id_expiration_ms=1000, retention_ms=-1))
    data = batch(1, timestamp=5, producer_id=7, producer_epoch=0, base_sequence=0)  # records of 1970
    append(log, data)
    run(log.enforce_retention(1, NOW_MS + 999))
    assert append(log, data).duplicate
    run(log.enforce_retention(1, NOW_MS + 1000))
    assert log.producers.get(7) is None
    assert len(contents(log)) == len(data)


def test_snapshot_file_is_kafkas():
    states = ProducerStates()
    for n in range(3):
        states.update(7, 2, n * 2, n * 2, n * 2 + 1, 100 + n, 200 + n)
    data = states.encode()
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, crc, count) == (1, crc32c(data[6:]), 3)
    rows = list(struct.iter_unpack(">qhiqiqiq", data[10:]))
    # producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, transaction start
    assert rows == [(7, 2, 1, 1, 1, 100, -1, -1), (7, 2, 3, 3, 1, 101, -1, -1), (7, 2, 5, 5, 1, 202, -1, -1)]
    assert ProducerStates.decode(data, "f").encode() == data


def test_snapshot_with_one_entry_a_producer_as_kafka_writes_it_is_read():
    body = struct.pack(">iqhiqiqiq", 1, 7, 2, 5, 5, 1, 102, 3, -1)
    entry = ProducerStates.decode(struct.pack(">hI", 1, crc32c(body)) + body, "f").get(7)
    assert entry is not None
    assert (entry.epoch, entry.last_sequence, entry.coordinator_epoch) == (2, 5, 3)
    assert entry.batches[0].first_offset == 4


def test_every_broken_snapshot_is_named():
    states = ProducerStates()
    states.update(7, 2, 0, 0, 1, 1, 1)
    data = states.encode()
    broken = [data[:n] for n in range(len(data))]
    broken += [data[:n] + bytes([data[n] ^ 1]) + data[n + 1 :] for n in range(len(data))]
    for bad in broken:
        with pytest.raises(SnapshotError, match="some/file"):
            ProducerStates.decode(bad, "some/file")
