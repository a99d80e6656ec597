"""From fetched bytes to Arrow: every codec in one buffer, spans checked against headers, values not altered."""

import pyarrow as pa
import pytest

from isthmus.connectors.errors import SourceError
from isthmus.connectors.reading import ARROW, Span, to_arrow
from isthmus.protocol import records
from isthmus.protocol.records import BatchBuilder, build_batch, iter_columns, with_append_time

ALL = ARROW.names
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def mixed(count=5):
    """One batch of each codec, `count` records each, offsets 0, 1, 2, …"""
    batches = []
    for i, codec in enumerate(CODECS):
        rows = [
            (1000 * i + n, None if n == 0 else b"k%d" % n, None if n == 1 else codec.encode(), ()) for n in range(count)
        ]
        batches.append(build_batch(rows, codec, base_offset=i * count))
    return b"".join(batches)


def decode_columns(data, **options):
    [found] = iter_columns(data, **options)
    return found


def rows(data, columns=ALL, **span):
    found = decode_columns(data, **span)
    return [row for batch in to_arrow(found, "t", 3, columns) for row in batch.to_pylist()]


def test_batches_of_every_codec_mix_in_one_fetch():
    found = rows(mixed())
    assert [row["offset"] for row in found] == list(range(25))
    assert [row["value"] for row in found[2::5]] == [codec.encode() for codec in CODECS]
    assert found[0]["key"] is None and found[1]["value"] is None
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in found} == {("t", 3, 0)}
    assert found[6]["timestamp"].timestamp() == 1.001


def test_types_are_exactly_those_that_spark_asks_for():
    [batch] = to_arrow(decode_columns(mixed()), "t", 3, ALL)
    assert batch.schema.equals(ARROW)
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    batch.validate(full=True)


def test_columns_come_in_the_order_asked_for():
    [batch] = to_arrow(decode_columns(mixed()), "t", 3, ["offset", "value"])
    assert batch.schema.names == ["offset", "value"]


def test_a_span_cuts_batches():
    assert [row["offset"] for row in rows(mixed(), from_offset=3, to_offset=12)] == list(range(3, 12))


def test_headers_and_their_absence():
    data = build_batch([(0, b"k", b"v", (("a", b"1"), ("a", None))), (0, None, None, ())])
    found = rows(data)
    assert found[0]["headers"] == [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]
    assert found[1]["headers"] is None
    assert rows(mixed())[0]["headers"] is None


def test_header_keys_that_are_not_utf8_are_read():
    data = build_batch([(0, None, b"v", (("a?", b"1"),))]).replace(b"a?", b"a\xff")
    found = decode_columns(data, check_crc=False)
    [batch] = to_arrow(found, "t", 3, ["headers"])
    assert batch.to_pylist() == [{"headers": [{"key": "a\ufffd", "value": b"1"}]}]


def test_a_timestamp_in_nanoseconds_is_an_error_that_says_where():
    data = build_batch([(1_700_000_000_000_000_000, None, b"v", ())], base_offset=40)
    with pytest.raises(SourceError, match="t-3, offsets 40 to 40: a record's timestamp is no time in ms"):
        rows(data)


def test_append_time_of_the_broker_is_told():
    data = build_batch([(5, None, b"v", ())])
    stamped = with_append_time(data, 0, 777_000) + data[61:]
    [row] = rows(stamped)
    assert row["timestampType"] == 1
    assert row["timestamp"].timestamp() == 777


def test_record_batches_are_bounded_in_bytes():
    data = build_batch([(0, None, b"x" * 1000, ()) for _ in range(100)])
    batches = to_arrow(decode_columns(data), "t", 0, ALL, max_bytes=10_000)
    assert len(batches) == 10
    assert sum(batch.num_rows for batch in batches) == 100


def test_nothing_decoded_gives_no_batch():
    assert to_arrow(decode_columns(b""), "t", 0, ALL) == []


# --- The span is checked ----------------------------------------------------------------------------


def check(data, start, end, found=None):
    span = Span("t-3", data, start, end)
    span.add(found or decode_columns(data, from_offset=start, to_offset=end))
    span.finish()


@pytest.mark.parametrize(("start", "end"), [(0, 25), (3, 12), (0, 1), (24, 25), (5, 10), (0, 100), (7, 7)])
def test_whole_spans_pass(start, end):
    check(mixed(), start, end)


@pytest.mark.parametrize("codec", range(5))
def test_a_decoder_that_loses_a_batch_of_one_codec_is_caught(codec):
    data = mixed()
    lost = b"".join(data[at : at + header.size_bytes] for at, header in records.walk(data) if header.codec != codec)
    with pytest.raises(SourceError, match=r"t-3: .* claim 25 to 25 records, but 20 were decoded"):
        check(data, 0, 25, decode_columns(lost))


def test_a_record_lost_of_a_cut_batch_is_caught():
    with pytest.raises(SourceError, match="claim 9 to 9 records, but 8"):
        check(mixed(), 3, 12, decode_columns(mixed(), from_offset=3, to_offset=11))


def test_rows_from_outside_the_span_are_caught():
    for outside in ({"from_offset": 4, "to_offset": 13}, {"from_offset": 2, "to_offset": 11}):
        with pytest.raises(SourceError):
            check(mixed(), 3, 12, decode_columns(mixed(), **outside))


def test_rows_that_come_twice_are_caught():
    span = Span("t-3", mixed(), 0, 25)
    span.add(decode_columns(mixed(), to_offset=5))
    with pytest.raises(SourceError):
        span.add(decode_columns(mixed(), to_offset=5))


def test_control_batches_hold_no_rows():
    marker = BatchBuilder(max_bytes=1000, control=True, transactional=True, producer_id=7, producer_epoch=0)
    marker.base_offset = 25
    marker.append(0, b"\0\0\0\1", b"\0\0\0\0\0\0")
    data = mixed() + marker.build()
    check(data, 0, 26)
    assert len(rows(data)) == 25
