"""What an append checks, changes and answers, by its origin."""

from __future__ import annotations

import os

import pytest

from isthmus.core_broker.storage.log.append import Origin
from isthmus.core_broker.storage.log.errors import OffsetMismatch
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.crc import crc32c
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.records import build_batch, decode_batch, iter_records, read_header, verify_crc

from ..support import NOW_MS, append, at, batch, contents, open_log, spans


def patched(data: bytes, at: int, value: bytes, *, crc: bool = True) -> bytes:
    """Bytes changed in a batch, under a right CRC unless told otherwise."""
    out = bytearray(data)
    out[at : at + len(value)] = value
    if crc:
        out[17:21] = crc32c(bytes(out[21:])).to_bytes(4, "big")
    return bytes(out)


def refused(log, data, code, **more) -> KafkaError:
    before = (log.log_end_offset, contents(log), log.size_bytes)
    with pytest.raises(KafkaError) as caught:
        append(log, data, **more)
    assert caught.value.code == code
    assert (log.log_end_offset, contents(log), log.size_bytes) == before
    return caught.value


def test_client_batch_is_given_offset_and_epoch_and_keeps_every_other_byte(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(3), epoch=4)
    data = batch(2, codec="lz4")
    info = append(log, data, epoch=5)
    assert (info.first_offset, info.last_offset, info.next_offset, info.records_count) == (3, 4, 5, 2)
    assert (info.max_timestamp, info.log_append_time_ms, info.duplicate) == (NOW_MS + 1, -1, False)
    stored = contents(log, 3)
    assert stored == at(data, 3, 5)
    assert verify_crc(stored, 0, len(stored))
    assert log.end_offset_for_epoch(4) == (4, 3)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_batches_may_come_in_any_buffer(files, tmp_path, kind):
    log = open_log(files, tmp_path)
    assert append(log, kind(batch(3))).next_offset == 3


def test_several_batches_are_given_offsets_in_turn(files, tmp_path):
    log = open_log(files, tmp_path)
    info = append(log, batch(3) + batch(2) + batch(1))
    assert (info.first_offset, info.last_offset, info.records_count) == (0, 5, 6)
    assert spans(contents(log)) == [(0, 2), (3, 4), (5, 5)]


def test_one_bad_batch_among_good_ones_refuses_all(files, tmp_path):
    log = open_log(files, tmp_path)
    refused(log, batch(3) + patched(batch(2), 70, b"!", crc=False), ErrorCode.CORRUPT_MESSAGE)


def test_every_flipped_byte_under_the_crc_is_refused(files, tmp_path):
    log = open_log(files, tmp_path)
    data = batch(2)
    for position in range(16, len(data)):
        flipped = patched(data, position, bytes([data[position] ^ 0x41]), crc=False)
        with pytest.raises(KafkaError):
            append(log, flipped)
    assert log.log_end_offset == 0 == log.size_bytes


@pytest.mark.parametrize(
    ("position", "value", "code"),
    [
        (0, (5).to_bytes(8, "big"), ErrorCode.INVALID_RECORD),  # base offset
        (16, b"\1", ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (16, b"\3", ErrorCode.CORRUPT_MESSAGE),
        (23, (7).to_bytes(4, "big"), ErrorCode.INVALID_RECORD),  # last offset delta
        (23, (-1).to_bytes(4, "big", signed=True), ErrorCode.INVALID_RECORD),
        (57, (0).to_bytes(4, "big"), ErrorCode.INVALID_RECORD),  # count
        (57, (-1).to_bytes(4, "big", signed=True), ErrorCode.INVALID_RECORD),
        (22, b"\x20", ErrorCode.INVALID_RECORD),  # control
        (22, b"\x08", ErrorCode.INVALID_TIMESTAMP),  # LogAppendTime
        (22, b"\x05", ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (43, (9).to_bytes(8, "big"), ErrorCode.INVALID_RECORD),  # a producer id without a sequence
        (8, (-1).to_bytes(4, "big", signed=True), ErrorCode.CORRUPT_MESSAGE),  # length
        (8, (10).to_bytes(4, "big"), ErrorCode.CORRUPT_MESSAGE),
        (8, (1 << 20).to_bytes(4, "big"), ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_client_batch_that_kafka_refuses_is_refused(files, tmp_path, position, value, code):
    refused(open_log(files, tmp_path), patched(batch(2), position, value), code)


def test_nothing_is_not_a_client_append_but_is_a_replica_append(files, tmp_path):
    log = open_log(files, tmp_path)
    refused(log, b"", ErrorCode.CORRUPT_MESSAGE)
    info = append(log, b"", origin=Origin.MIRROR)
    assert (info.next_offset, info.size_bytes, info.records_count) == (0, 0, 0)


def test_batch_size_is_bounded_by_max_message_bytes_to_the_byte(files, tmp_path):
    data = batch(1, size=100)
    refused(open_log(files, tmp_path, LogConfig(max_message_bytes=len(data) - 1)), data, ErrorCode.MESSAGE_TOO_LARGE)
    assert append(open_log(files, tmp_path, LogConfig(max_message_bytes=len(data))), data).next_offset == 1


def test_append_larger_than_a_segment_is_refused_to_clients_only(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(segment_bytes=300))
    many = [at(batch(1, size=100), n) for n in range(3)]
    refused(log, batch(1, size=100) * 3, ErrorCode.RECORD_LIST_TOO_LARGE)
    assert append(log, b"".join(many), origin=Origin.MIRROR).next_offset == 3


def test_timestamps_too_far_from_now_are_refused_under_create_time(files, tmp_path):
    config = LogConfig(message_timestamp_after_max_ms=1000, message_timestamp_before_max_ms=5000)
    log = open_log(files, tmp_path, config)
    refused(log, batch(1, timestamp=NOW_MS + 1001), ErrorCode.INVALID_TIMESTAMP)
    refused(log, batch(1, timestamp=NOW_MS - 5001), ErrorCode.INVALID_TIMESTAMP)
    append(log, batch(1, timestamp=NOW_MS + 1000))
    append(log, batch(1, timestamp=NOW_MS - 5000))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_every_record_is_looked_at_where_the_past_is_limited(files, tmp_path, codec):
    log = open_log(files, tmp_path, LogConfig(message_timestamp_before_max_ms=5000))
    rows = [(NOW_MS, b"k", b"v", ()), (NOW_MS - 5001, b"k", b"v", ())]
    refused(log, build_batch(rows, codec), ErrorCode.INVALID_TIMESTAMP)
    assert append(log, build_batch([rows[0], (-1, b"k", b"v", ())], codec)).next_offset == 2
    log = open_log(files, tmp_path / "stamped", LogConfig(message_timestamp_type="LogAppendTime"))
    assert append(log, build_batch(rows, codec)).next_offset == 2


@pytest.mark.parametrize("kind", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("source", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compression_type_brings_clients_batches_into_its_codec(files, tmp_path, kind, source):
    log = open_log(files, tmp_path, LogConfig(compression_type=kind))
    data = batch(3, size=200, codec=source, producer_id=7, producer_epoch=1, base_sequence=0)
    first, again = append(log, data, epoch=4), append(log, data, epoch=4)
    assert (first.next_offset, again.duplicate, again.first_offset) == (3, True, 0)
    stored = contents(log)
    assert first.size_bytes == len(stored) == log.size_bytes
    header = read_header(stored)
    assert header.codec == {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}[kind]
    assert verify_crc(stored, 0, len(stored)) and header.partition_leader_epoch == 4
    assert decode_batch(stored) == decode_batch(data)
    if kind == {"none": "uncompressed"}.get(source, source):
        assert stored[16:] == data[16:]  # of that codec already: as it came, at whatever level
    assert open_log(files, tmp_path, recovery_point=0).log_end_offset == 3


def test_compression_level_and_log_append_time_together(files, tmp_path):
    rows = [(5, b"k%d" % n, b"value %d" % (n * n), ()) for n in range(500)]
    sizes = {}
    for level in (1, 19):
        config = LogConfig(
            compression_type="zstd", compression_zstd_level=level, message_timestamp_type="LogAppendTime"
        )
        log = open_log(files, tmp_path / str(level), config)
        sizes[level] = append(log, build_batch(rows)).size_bytes
        assert {record.timestamp_ms for record in decode_batch(contents(log))} == {NOW_MS}
    assert sizes[19] < sizes[1]


def test_max_message_bytes_holds_before_and_after_the_codec_is_changed(files, tmp_path):
    data = batch(20, size=300, codec="gzip")
    config = LogConfig(compression_type="uncompressed", max_message_bytes=len(data))
    refused(open_log(files, tmp_path, config), data, ErrorCode.MESSAGE_TOO_LARGE)
    plain = batch(20, size=300)
    config = LogConfig(compression_type="gzip", max_message_bytes=len(plain) - 1)
    refused(open_log(files, tmp_path, config), plain, ErrorCode.MESSAGE_TOO_LARGE)


def test_batch_that_cannot_be_decompressed_is_refused_where_its_codec_changes(files, tmp_path):
    broken = patched(batch(2, codec="gzip"), 61, b"not gzip")
    assert append(open_log(files, tmp_path / "kept"), broken).next_offset == 2
    log = open_log(files, tmp_path, LogConfig(compression_type="lz4"))
    refused(log, broken, ErrorCode.INVALID_RECORD)


@pytest.mark.parametrize("origin", [Origin.REPLICATION, Origin.MIRROR])
def test_other_logs_batches_keep_their_codec(files, tmp_path, origin):
    log = open_log(files, tmp_path, LogConfig(compression_type="zstd"))
    data = at(batch(2, codec="gzip"), 0)
    append(log, data, origin=origin)
    assert contents(log) == data


def test_log_append_time_stamps_the_batch_under_a_new_crc(files, tmp_path):
    log = open_log(files, tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    info = append(log, batch(3, timestamp=5, codec="gzip"), epoch=7)
    assert (info.max_timestamp, info.log_append_time_ms) == (NOW_MS, NOW_MS)
    stored = contents(log)
    header = read_header(stored)
    assert verify_crc(stored, 0, len(stored))
    assert (header.is_log_append_time, header.max_timestamp, header.partition_leader_epoch) == (True, NOW_MS, 7)
    assert [record.timestamp_ms for record in decode_batch(stored)] == [NOW_MS] * 3


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_compacted_topic_takes_no_record_without_key(files, tmp_path, codec):
    log = open_log(files, tmp_path, LogConfig(cleanup_policy="compact"))
    refused(log, batch(1, key=None, codec=codec), ErrorCode.INVALID_RECORD)
    assert append(log, batch(1, key=b"", codec=codec)).next_offset == 1


@pytest.mark.parametrize("origin", [Origin.REPLICATION, Origin.MIRROR])
def test_replica_append_keeps_every_byte_holes_and_empty_batches(files, tmp_path, origin):
    log = open_log(files, tmp_path, LogConfig(message_timestamp_type="LogAppendTime", cleanup_policy="compact"))
    sparse = patched(at(batch(2, key=None), 20, 3), 23, (9).to_bytes(4, "big"))  # compacted: 2 records of 10
    empty = patched(at(batch(1)[:61], 40, 3), 8, (49).to_bytes(4, "big") + (3).to_bytes(4, "big"))
    empty = patched(empty, 57, (0).to_bytes(4, "big"))
    unknown = patched(at(batch(1), 50, 4), 21, b"\0\x05" + batch(1)[23:61] + os.urandom(500))
    unknown = patched(unknown, 8, (len(unknown) - 12).to_bytes(4, "big"))
    data = sparse + empty + unknown
    info = append(log, data, origin=origin, epoch=99, expected_next_offset=0)
    assert (info.first_offset, info.last_offset, info.next_offset) == (20, 50, 51)
    assert contents(log, 20) == data
    assert log.latest_epoch == 4
    assert log.end_offset_for_epoch(3) == (3, 50)


def test_replica_append_still_checks_crc(files, tmp_path):
    log = open_log(files, tmp_path)
    refused(log, patched(batch(1), 65, b"!", crc=False), ErrorCode.CORRUPT_MESSAGE, origin=Origin.REPLICATION)


def test_batch_cut_off_at_the_end_of_a_fetch_is_left_out(files, tmp_path):
    log = open_log(files, tmp_path)
    first, second = at(batch(2), 0), at(batch(2), 2)
    for cut in range(1, len(second)):
        assert append(log, first + second[:cut], origin=Origin.MIRROR).next_offset == 2
        assert contents(log) == first
        log = open_log(files, tmp_path / str(cut))


def test_append_elsewhere_than_expected_says_where_the_log_ends(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(5))
    for expected in (4, 6, 0):
        with pytest.raises(OffsetMismatch) as caught:
            append(log, at(batch(1), expected), origin=Origin.MIRROR, expected_next_offset=expected)
        assert caught.value.next_offset == 5


def test_replica_append_below_the_end_is_refused_whole(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(5))
    error = refused(log, at(batch(1), 5) + at(batch(1), 5), ErrorCode.OFFSET_OUT_OF_RANGE, origin=Origin.REPLICATION)
    assert isinstance(error, OffsetMismatch)
    refused(log, at(batch(3), 3), ErrorCode.OFFSET_OUT_OF_RANGE, origin=Origin.MIRROR)


def test_first_batch_of_a_mirrored_log_may_begin_anywhere(files, tmp_path):
    far = 10**12
    log = open_log(files, tmp_path)
    append(log, at(batch(10), far), origin=Origin.MIRROR, expected_next_offset=0)
    assert (log.log_start_offset, log.log_end_offset) == (far, far + 10)
    log.advance_start(far + 3)
    assert [record.offset for record in iter_records(contents(log))][:1] == [far]
    again = open_log(files, tmp_path, log_start_offset=far + 3)
    assert (again.log_start_offset, again.log_end_offset) == (far + 3, far + 10)


def test_hole_that_an_index_cannot_span_begins_a_segment(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(2))
    append(log, at(batch(1), 2**40), origin=Origin.MIRROR)
    assert log.segments_count == 2
    assert spans(contents(log)) == [(0, 1), (2**40, 2**40)]
    assert spans(contents(log, 2)) == [(2**40, 2**40)]
    assert open_log(files, tmp_path).log_end_offset == 2**40 + 1


def test_offsets_that_cannot_be_are_refused(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(1))
    refused(log, at(batch(2), 2**63 - 2), ErrorCode.INVALID_RECORD, origin=Origin.MIRROR)
    refused(log, at(batch(1), 5) + at(batch(1), 2**32), ErrorCode.INVALID_RECORD, origin=Origin.MIRROR)


def test_coordinator_may_write_control_and_transactional_batches(files, tmp_path):
    log = open_log(files, tmp_path)
    assert append(log, batch(1, control=True), origin=Origin.COORDINATOR).next_offset == 1


def counted(count: int, size: int = 5000) -> bytes:
    """A batch whose header claims so many records; the log does not look at them."""
    data = patched(batch(1, size=size), 23, (count - 1).to_bytes(4, "big"))
    return patched(data, 57, count.to_bytes(4, "big"))


def test_batches_that_claim_more_offsets_than_a_segment_can_hold_are_refused_whole(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(1))
    refused(log, counted(2**31 - 1) + counted(2**31 - 1), ErrorCode.INVALID_RECORD)
    assert append(log, counted(2**31 - 1)).last_offset == 2**31 - 1
    assert append(log, batch(1)).first_offset == 2**31
    assert spans(contents(log, 2**31)) == [(2**31, 2**31)]


def test_repeated_batch_behind_another_producers_is_refused(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, batch(2, producer_id=7, producer_epoch=0, base_sequence=0))
    other = batch(1, producer_id=8, producer_epoch=0, base_sequence=0)
    again = batch(2, producer_id=7, producer_epoch=0, base_sequence=0)
    refused(log, other + again, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


def test_mirrored_batch_of_an_earlier_epoch_than_the_logs_is_refused(files, tmp_path):
    log = open_log(files, tmp_path)
    append(log, at(batch(2), 0, 5), origin=Origin.MIRROR)
    refused(log, at(batch(1), 2, 4), ErrorCode.FENCED_LEADER_EPOCH, origin=Origin.MIRROR)
    refused(log, at(batch(1), 2, 6) + at(batch(1), 3, 5), ErrorCode.FENCED_LEADER_EPOCH, origin=Origin.MIRROR)
    append(log, at(batch(1), 2, -1), origin=Origin.MIRROR)  # of a source that kept none
    assert log.end_offset_for_epoch(5) == (5, 3)
