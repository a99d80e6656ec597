"""Record batches v2, the same for the compiled and the plain form of the loops."""

from __future__ import annotations

import itertools
import mmap
import pickle
import re
import struct
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES
from isthmus.protocol.errors import ErrorCode, KafkaError

from .records_forms import COMPILED, FORMS, PLAIN, PLAIN_WARNINGS, decode_columns

ROOT = Path(__file__).resolve().parents[2]
T0 = 1_357_000_000_000

ROWS: list[Any] = [
    (T0, b"N14228", b'{"row": 1}', ()),
    (T0 + 5, None, b"no key", ()),
    (T0 - 900, b"tombstone", None, ()),
    (T0, b"", b"", (("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("æøå", b"x"))),
    (T0 + 70_000, None, None, ()),
    (T0 + 1, b"k" * 200, b"v" * 70_000, (("h" * 300, b"y" * 300),)),
]


@pytest.fixture(params=list(FORMS))
def records(request: pytest.FixtureRequest) -> ModuleType:
    form = FORMS[request.param]
    if request.param == "compiled" and not form.COMPILED:
        pytest.skip("the module is not compiled here")
    return form


def fields(found: list[Any]) -> list[Any]:
    return [(r.timestamp_ms, r.key, r.value, r.headers) for r in found]


def repacked(records: ModuleType, batch: bytes, **changes: int) -> bytes:
    """The batch with header fields changed and its CRC made right."""
    layout = {
        "base_offset": (">q", 0),
        "length": (">i", 8),
        "leader_epoch": (">i", 12),
        "magic": (">b", 16),
        "attributes": (">h", 21),
        "last_offset_delta": (">i", 23),
        "base_timestamp": (">q", 27),
        "max_timestamp": (">q", 35),
        "records_count": (">i", 57),
    }
    out = bytearray(batch)
    for name, value in changes.items():
        code, at = layout[name]
        struct.pack_into(code, out, at, value)
    struct.pack_into(">I", out, 17, records.crc32c(memoryview(out)[21:]))
    return bytes(out)


def raw_batch(records: ModuleType, body: bytes, count: int, **changes: int) -> bytes:
    """A batch around any bytes, with a right length and CRC."""
    header = records.build_batch([(T0, None, None, ())])[:61]
    changes = {"length": 49 + len(body), "records_count": count, "last_offset_delta": max(count - 1, 0)} | changes
    return repacked(records, header + body, **changes)


# The two forms


def test_plain_form_gives_exactly_one_warning() -> None:
    assert [w.category for w in PLAIN_WARNINGS] == [RuntimeWarning]
    assert "compiler" in str(PLAIN_WARNINGS[0].message)
    assert not PLAIN.COMPILED


def test_all_that_is_compiled_here_is_plain_in_the_plain_form() -> None:
    compiled = re.findall(r'^    "protocol/(\w+)",$', (ROOT / "setup.py").read_text(), re.MULTILINE)
    assert len(compiled) >= 6
    assert [name for name in compiled if f"isthmus.protocol.{name}_plain" not in sys.modules] == []


def test_both_forms_build_the_same_bytes() -> None:
    for codec in NAMES:
        assert COMPILED.build_batch(ROWS, codec, base_offset=7) == PLAIN.build_batch(ROWS, codec, base_offset=7)


# Header


def test_header_fields(records: ModuleType) -> None:
    batch = records.build_batch(
        ROWS,
        "lz4",
        base_offset=1000,
        producer_id=2**40 + 3,
        producer_epoch=7,
        base_sequence=2**31 - 3,
        partition_leader_epoch=9,
        transactional=True,
    )
    header = records.read_header(batch)
    assert header.size_bytes == len(batch) == header.length + 12
    assert (header.base_offset, header.last_offset, header.next_offset) == (1000, 1005, 1006)
    assert (header.magic, header.codec, header.attributes, header.records_count) == (2, 3, 3 | 16, 6)
    assert (header.base_timestamp, header.max_timestamp) == (T0, T0 + 70_000)
    assert (header.producer_id, header.producer_epoch, header.partition_leader_epoch) == (2**40 + 3, 7, 9)
    assert (header.base_sequence, header.last_sequence) == (2**31 - 3, 2)
    assert (header.is_transactional, header.is_control, header.is_log_append_time) == (True, False, False)
    assert struct.unpack_from(">I", batch, 17)[0] == header.crc
    assert records.verify_crc(batch, 0, len(batch))
    assert "base_offset=1000" in repr(header)


def test_header_without_producer_has_no_sequence(records: ModuleType) -> None:
    header = records.read_header(records.build_batch(ROWS))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (-1,) * 4
    assert header.partition_leader_epoch == -1


def test_crc_does_not_cover_base_offset_and_leader_epoch(records: ModuleType) -> None:
    batch = records.build_batch(ROWS, "zstd")
    header = records.read_header(batch)
    moved = records.batch_prefix(77, header.length, 5) + batch[16:]
    assert records.verify_crc(moved, 0, len(moved))
    assert [r.offset for r in records.decode_batch(moved)] == [77, 78, 79, 80, 81, 82]
    assert records.read_header(moved).partition_leader_epoch == 5
    for at in range(17, len(moved), 7):
        bad = bytearray(moved)
        bad[at] ^= 1
        assert not records.verify_crc(bad, 0, len(bad))


@pytest.mark.parametrize("size", [-1, 0, 12, 60])
def test_crc_of_too_few_bytes_is_wrong(records: ModuleType, size: int) -> None:
    assert not records.verify_crc(records.build_batch(ROWS), 0, size)
    assert not records.verify_crc(b"", 0, 61)


@pytest.mark.parametrize(
    "change",
    [
        {"magic": 1},
        {"magic": -1},
        {"length": 48},
        {"length": -1},
        {"length": -(2**31)},
        {"base_offset": -1},
        {"base_offset": 2**63 - 1},
        {"last_offset_delta": -1},
        {"records_count": -1},
    ],
)
def test_impossible_header_is_corrupt(records: ModuleType, change: dict[str, int]) -> None:
    batch = repacked(records, records.build_batch(ROWS), **change)
    with pytest.raises(records.CorruptBatch) as caught:
        records.read_header(batch)
    assert isinstance(caught.value, KafkaError) and caught.value.code == ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(records.CorruptBatch):
        list(records.walk(batch))
    with pytest.raises(records.CorruptBatch):
        records.decode_batch(batch)


@pytest.mark.parametrize("position", [-1, -(2**63), 1, 2**63 - 1])
def test_header_outside_the_buffer_is_corrupt(records: ModuleType, position: int) -> None:
    with pytest.raises(records.CorruptBatch):
        records.read_header(records.build_batch(ROWS)[:61], position)


@pytest.mark.parametrize("length", [2**31 - 13, 2**31 - 12, 2**31 - 1])
def test_a_batch_as_long_as_its_length_field_can_tell_is_cut(records: ModuleType, length: int) -> None:
    batch = repacked(records, records.build_batch(ROWS), length=length)
    assert records.read_header(batch).size_bytes == length + 12
    assert list(records.walk(batch)) == []
    with pytest.raises(records.CorruptBatch, match=f"has {length + 12} bytes"):
        records.decode_batch(batch)


# Walking


def test_walk_gives_whole_batches_and_stops_at_the_cut_one(records: ModuleType) -> None:
    batches = [records.build_batch(ROWS, codec, base_offset=6 * i) for i, codec in enumerate(NAMES)]
    buf = b"".join(batches)
    starts = [sum(map(len, batches[:i])) for i in range(len(batches))]
    assert [(p, h.base_offset) for p, h in records.walk(buf)] == list(zip(starts, range(0, 30, 6), strict=True))
    assert [p for p, _ in records.walk(buf, starts[2])] == starts[2:]
    last = len(batches[-1])
    for cut in (1, last - 61, last - 60, last - 12, last - 1):
        assert [p for p, _ in records.walk(buf[:-cut])] == starts[:-1]
    assert list(records.walk(b"")) == []


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda b: memoryview(bytearray(b)).cast("b")])
def test_any_buffer_is_read(records: ModuleType, wrap: Any) -> None:
    batch = records.build_batch(ROWS, "snappy") + records.build_batch(ROWS, base_offset=6)
    assert len(list(records.walk(wrap(batch)))) == 2
    assert fields(list(records.iter_records(wrap(batch)))) == ROWS * 2
    assert records.decode_lists(wrap(batch)).values == [row[2] for row in ROWS] * 2
    assert decode_columns(records, wrap(batch)).count == 12


def test_mmap_is_read_and_can_be_closed_afterwards(records: ModuleType) -> None:
    batch = records.build_batch(ROWS)
    with mmap.mmap(-1, len(batch)) as memory:
        memory[:] = batch
        assert records.read_header(memory).records_count == 6
        assert fields(records.decode_batch(memory)) == ROWS
        assert records.verify_crc(memory, 0, len(batch))


def test_a_buffer_is_free_after_a_failure(records: ModuleType) -> None:
    buf = bytearray(raw_batch(records, b"\xff" * 70, 10))
    for decode in (records.decode_batch, records.decode_lists, records.validate_batch):
        with pytest.raises(records.CorruptBatch):
            decode(buf)
    buf.append(0)  # would raise BufferError


# Round trips

timestamps = st.integers(-(2**63), 2**63 - 1) | st.integers(T0, T0 + 10**6)
payloads = st.none() | st.binary(max_size=200) | st.integers(0, 40_000).map(lambda n: b"z" * n)
headers = st.lists(st.tuples(st.text(max_size=10), st.none() | st.binary(max_size=20)), max_size=3).map(tuple)
rows_of = st.lists(st.tuples(timestamps, payloads, payloads, headers), min_size=1, max_size=200)


@pytest.mark.parametrize("codec", NAMES)
@given(rows=rows_of, base_offset=st.integers(0, 2**62))
@settings(max_examples=12, deadline=None)
def test_what_is_built_is_read_back(codec: str, rows: list[Any], base_offset: int) -> None:
    for records in FORMS.values():
        batch = records.build_batch(rows, codec, base_offset=base_offset)
        found = records.decode_batch(batch)
        assert fields(found) == rows
        offsets = list(range(base_offset, base_offset + len(rows)))
        assert [r.offset for r in found] == offsets
        lists = records.decode_lists(batch)
        assert lists == (offsets, [r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows])
        assert records.decode_lists_with_headers(batch) == (*lists, [r[3] for r in rows])
        stamps = [row[0] for row in rows]
        summary = records.validate_batch(batch)
        assert summary.max_timestamp == summary.header.max_timestamp == max(stamps)
        assert summary.offset_of_max_timestamp == base_offset + stamps.index(max(stamps))
        assert summary.null_keys == sum(row[1] is None for row in rows)
        assert summary.dense


def test_records_of_several_batches_come_in_order_and_bounded(records: ModuleType) -> None:
    buf = b"".join(records.build_batch(ROWS, codec, base_offset=10 * i) for i, codec in enumerate(NAMES))
    offsets = [10 * i + j for i in range(5) for j in range(6)]
    assert [r.offset for r in records.iter_records(buf)] == offsets
    for low, high in ((0, 50), (3, 12), (6, 10), (12, 43), (44, 99), (50, 60), (5, 5)):
        within = [offset for offset in offsets if low <= offset < high]
        bounds = {"from_offset": low, "to_offset": high}
        assert [r.offset for r in records.iter_records(buf, **bounds)] == within
        assert records.decode_lists(buf, **bounds).offsets == within
        assert list(decode_columns(records, buf, **bounds).offsets) == within


def test_lists_have_the_headers_of_each_record_and_one_empty_tuple_for_those_without(records: ModuleType) -> None:
    headers = (("h", b"1"), ("h", None), ("\udcff", b""))
    without = (T0, b"k", b"v", ())
    rows = [without, without, (T0, b"k", b"v", headers), without, (T0, b"k", b"v", headers[:1]), without]
    buf = b"".join(records.build_batch(rows, codec, base_offset=6 * i) for i, codec in enumerate(NAMES))
    plain = records.build_batch([without] * 3, base_offset=30)
    found = records.decode_lists_with_headers(buf + plain, from_offset=1)
    assert found[:4] == records.decode_lists(buf + plain, from_offset=1)
    assert found.headers == ([row[3] for row in rows] * len(NAMES) + [()] * 3)[1:]
    assert records.decode_lists_with_headers(plain).headers == [(), (), ()]
    assert len({id(each) for each in found.headers if not each}) == 1


def test_log_append_time_gives_every_record_the_max_timestamp(records: ModuleType) -> None:
    batch = records.build_batch(ROWS, "gzip", base_offset=4)
    stamped = records.with_append_time(batch, 0, T0 + 12345) + batch[61:]
    assert records.read_header(stamped).is_log_append_time
    assert records.read_header(stamped).base_timestamp == T0
    assert {r.timestamp_ms for r in records.decode_batch(stamped)} == {T0 + 12345}
    assert set(records.decode_lists(stamped).timestamps) == {T0 + 12345}
    assert records.validate_batch(stamped)[1:3] == (T0 + 12345, 4)
    both = decode_columns(records, batch + stamped)
    assert list(both.timestamps) == [row[0] for row in ROWS] + [T0 + 12345] * 6
    assert list(both.append_time) == [0] * 6 + [1] * 6
    assert decode_columns(records, batch).append_time is None


def test_control_batches_are_skipped_but_can_be_read(records: ModuleType) -> None:
    marker = (T0, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 3), ())
    control = records.build_batch([marker], control=True, transactional=True, producer_id=1, base_offset=6)
    buf = records.build_batch(ROWS) + control + records.build_batch(ROWS, base_offset=7)
    assert records.read_header(control).is_control
    assert [r.offset for r in records.iter_records(buf)] == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    assert records.decode_lists(buf).offsets == [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12]
    columns = decode_columns(records, buf)
    assert (columns.count, columns.next_offset) == (12, 13)
    assert decode_columns(records, control).next_offset == 7
    assert fields(records.decode_batch(control)) == [marker]


def test_holes_left_by_compaction_are_kept(records: ModuleType) -> None:
    body = b"".join(b"\x0c\x00\x00" + bytes([2 * delta]) + b"\x01\x01\x00" for delta in (1, 4, 5))
    batch = raw_batch(records, body, 3, last_offset_delta=9, base_offset=100)
    assert [r.offset for r in records.decode_batch(batch)] == [101, 104, 105]
    assert not records.validate_batch(batch).dense
    columns = decode_columns(records, batch)
    assert (columns.count, columns.next_offset, columns.key_nulls, columns.value_nulls) == (3, 110, 3, 3)


def test_batch_emptied_by_compaction_is_read_as_none(records: ModuleType) -> None:
    batch = raw_batch(records, b"", 0, last_offset_delta=3, base_offset=5)
    assert records.decode_batch(batch) == []
    assert records.validate_batch(batch)[1:] == (-1, -1, -1, 0, False)
    columns = decode_columns(records, batch + batch)
    assert (columns.count, columns.next_offset, list(columns.key_offsets)) == (0, 9, [0])


@pytest.mark.parametrize("source", NAMES)
@pytest.mark.parametrize("target", NAMES)
def test_batch_in_another_codec_holds_the_same_and_says_the_same(records: ModuleType, source: str, target: str) -> None:
    head = {"producer_id": 5, "producer_epoch": 2, "base_sequence": 9, "base_offset": 7, "partition_leader_epoch": 3}
    batch = records.build_batch(ROWS, source, **head)
    made, summary = records.with_codec(b"xx" + batch, 2, target)
    before, after = records.read_header(batch), records.read_header(made)
    assert records.verify_crc(made, 0, len(made)) and after.codec == NAMES.index(target)
    assert fields(records.decode_batch(made)) == ROWS
    for name in ("base_offset", "last_offset", "base_timestamp", "max_timestamp", "last_sequence", "producer_epoch"):
        assert getattr(after, name) == getattr(before, name)
    assert (summary.null_keys, summary.min_timestamp, summary.max_timestamp) == (2, T0 - 900, T0 + 70_000)
    assert made == records.build_batch(ROWS, target, **head)


def test_smallest_timestamp_is_that_of_a_record_that_has_one(records: ModuleType) -> None:
    batch = records.build_batch([(-1, b"k", b"v", ()), (T0 + 3, b"k", b"v", ()), (T0 - 3, b"k", b"v", ())])
    assert records.validate_batch(batch).min_timestamp == T0 - 3
    assert records.validate_batch(records.build_batch([(-1, b"k", b"v", ())])).min_timestamp == -1


def test_timestamps_wrap_as_in_java(records: ModuleType) -> None:
    rows = [(2**63 - 1, None, None, ()), (-(2**63), None, None, ()), (-1, None, None, ())]
    batch = records.build_batch(rows)
    assert fields(records.decode_batch(batch)) == rows
    far = repacked(records, batch, base_timestamp=0)
    assert [r.timestamp_ms for r in records.decode_batch(far)] == [0, 1, -(2**63)]


def test_header_key_that_is_not_utf8_survives(records: ModuleType) -> None:
    body = b"\x14\x00\x00\x00\x01\x01\x02" + b"\x04\xff\xfe" + b"\x01"
    found = records.decode_batch(raw_batch(records, body, 1))
    assert records.decode_batch(records.build_batch(fields(found)))[0].headers == found[0].headers
    assert decode_columns(records, raw_batch(records, body, 1)).headers.key_data == b"\xff\xfe"


def test_record_is_a_value(records: ModuleType) -> None:
    record = records.Record(5, T0, b"k", None, (("h", b"v"),))
    assert record == records.Record(5, T0, b"k", None, (("h", b"v"),))
    assert record != records.Record(6, T0, b"k", None, (("h", b"v"),)) and record != 5
    assert len({record, pickle.loads(pickle.dumps(record))}) == 1
    assert repr(record) == f"Record(offset=5, timestamp_ms={T0}, key=b'k', value=None, headers=(('h', b'v'),))"


# Builder


def test_builder_says_when_it_is_full(records: ModuleType) -> None:
    builder = records.BatchBuilder("none", max_bytes=1000)
    sizes = []
    while builder.append(T0, b"key", b"x" * 100):
        sizes.append(builder.size_bytes)
    assert len(builder.build()) == sizes[-1] == builder.size_bytes <= 1000 < sizes[-1] + (sizes[-1] - sizes[-2])
    assert builder.count == len(sizes)
    assert builder.append(T0, None, b"")  # a smaller one may still fit


def test_first_record_goes_in_whatever_its_size(records: ModuleType) -> None:
    builder = records.BatchBuilder("none", max_bytes=10)
    assert builder.append(T0, None, b"x" * 100_000)
    assert not builder.append(T0, None, None)
    assert records.decode_batch(builder.build())[0].value == b"x" * 100_000


def test_builder_takes_what_the_producer_learns_late(records: ModuleType) -> None:
    builder = records.BatchBuilder("lz4", max_bytes=1000)
    builder.append(T0, None, b"v")
    builder.producer_id, builder.producer_epoch, builder.base_sequence = 5, 6, 7
    header = records.read_header(builder.build())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)


def test_builder_can_go_on_after_build(records: ModuleType) -> None:
    builder = records.BatchBuilder("none", max_bytes=100_000)
    for i in range(1, 500):
        assert builder.append(T0 + i, None, b"%d" % i, None)
        assert len(records.decode_batch(builder.build())) == i


def test_builder_takes_bytes_alone(records: ModuleType) -> None:
    builder = records.BatchBuilder(max_bytes=1000)
    for bad in (5, "text", 1.5, [1]):
        with pytest.raises(TypeError):
            builder.append(T0, bad, None)
        with pytest.raises(TypeError):
            builder.append(T0, None, bad)
        with pytest.raises(TypeError):
            builder.append(T0, None, None, [("h", bad)])
    for bad in ((5, b"v"), (b"bytes", b"v"), (None, b"v")):
        with pytest.raises((TypeError, AttributeError)):
            builder.append(T0, None, None, [bad])
    for far in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            builder.append(far, None, None)
    with pytest.raises(ValueError, match="needs a record"):
        builder.build()
    builder.append(T0, bytearray(b"k"), memoryview(b"value")[1:3], [("h", bytearray(b"x"))])
    assert fields(records.decode_batch(builder.build())) == [(T0, b"k", b"al", (("h", b"x"),))]


def test_unknown_codec_is_refused(records: ModuleType) -> None:
    for codec in ("brotli", 5, -1):
        with pytest.raises(ValueError, match="codec"):
            records.BatchBuilder(codec, max_bytes=1000)


def test_extend_stops_at_the_record_that_does_not_fit(records: ModuleType) -> None:
    rows = [(T0 + i, None, b"x" * 100, ()) for i in range(20)]
    builder = records.BatchBuilder(max_bytes=1000)
    went_in = builder.extend(rows)
    assert fields(records.decode_batch(builder.build())) == rows[:went_in]
    assert 5 < went_in < 10


@pytest.mark.parametrize("codec", NAMES)
def test_columns_become_batches_of_bounded_size(records: ModuleType, codec: str) -> None:
    stamps = [T0 + i for i in range(1000)]
    keys = [None if i % 7 == 0 else b"key-%d" % i for i in range(1000)]
    values = [b"value-%d" % i * (i % 20) for i in range(1000)]
    batches = records.build_columns(
        stamps, keys, values, codec, max_bytes=4096, base_offset=50, base_sequence=2**31 - 100, producer_id=9
    )
    assert len(batches) > 20 and all(len(batch) <= 4096 for batch in batches)
    assert records.decode_lists(b"".join(batches)) == (list(range(50, 1050)), stamps, keys, values)
    found = [records.read_header(batch) for batch in batches]
    for before, after in itertools.pairwise(found):
        assert after.base_sequence == (before.last_sequence + 1) % 2**31
        assert after.base_offset == before.next_offset


def test_chosen_rows_of_columns_are_appended_in_their_order_with_their_headers(records: ModuleType) -> None:
    stamps, keys, values, headers = map(list, zip(*ROWS, strict=True))
    builder = records.BatchBuilder(max_bytes=1 << 20)
    assert builder.extend_columns(stamps, keys, values, headers=headers) == 6
    assert builder.extend_columns(stamps, keys, values, 1, headers, [0, 4, 2, 2]) == 4
    assert builder.extend_columns(stamps, keys, values, rows=[5]) == 1
    wanted = [*ROWS, ROWS[4], ROWS[2], ROWS[2], (*ROWS[5][:3], ())]
    assert fields(records.decode_batch(builder.build())) == wanted
    small = records.BatchBuilder(max_bytes=500)
    values = [b"x" * 200] * 6
    assert small.extend_columns(stamps, keys, values, rows=[4, 3, 2, 1]) == 2, "the place of the first that did not fit"


@pytest.mark.parametrize("row", [-1, 5, 6])
def test_a_row_that_is_not_in_all_columns_is_refused(records: ModuleType, row: int) -> None:
    stamps, keys, values, headers = map(list, zip(*ROWS, strict=True))
    builder = records.BatchBuilder(max_bytes=1 << 20)
    with pytest.raises(IndexError, match=f"there is no record {row} of 5"):
        builder.extend_columns(stamps, keys, values, 0, headers[:5], [0, row])
    assert builder.count == 1
