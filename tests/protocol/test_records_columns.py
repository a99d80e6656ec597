"""Columns decoded from many batches: what Arrow makes of the buffers, and that no row is lost."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isthmus.protocol.compression import NAMES

from .records_forms import FORMS, decode_columns
from .test_records import ROWS, T0, headers, payloads, records

pa = pytest.importorskip("pyarrow")

__all__ = ["records"]


def binary(count: int, offsets: Any, data: Any, valid: Any, nulls: int) -> Any:
    buffers = [pa.py_buffer(valid) if valid is not None else None, pa.py_buffer(offsets), pa.py_buffer(data)]
    array = pa.Array.from_buffers(pa.binary(), count, buffers, nulls)
    array.validate(full=True)
    return array


def table(columns: Any) -> dict[str, list[Any]]:
    count = columns.count
    out = {
        "offset": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        "timestamp": pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.timestamps)]),
        "key": binary(count, columns.key_offsets, columns.key_data, columns.key_valid, columns.key_nulls),
        "value": binary(count, columns.value_offsets, columns.value_data, columns.value_valid, columns.value_nulls),
    }
    h = columns.headers
    if h is not None:
        nulls = -1 if h.value_valid is not None else 0
        keys = binary(h.count, h.key_offsets, h.key_data, None, 0)
        values = binary(h.count, h.value_offsets, h.value_data, h.value_valid, nulls)
        pairs = pa.StructArray.from_arrays([keys, values], ["key", "value"])
        lists = pa.ListArray.from_buffers(pa.list_(pairs.type), count, [None, pa.py_buffer(h.rows)], children=[pairs])
        lists.validate(full=True)
        out["headers"] = lists
    return {name: array.to_pylist() for name, array in out.items()}


def wanted_headers(rows: list[Any]) -> list[Any]:
    return [[{"key": k.encode("utf-8", "surrogateescape"), "value": v} for k, v in row[3]] for row in rows]


@given(
    batches=st.lists(
        st.tuples(
            st.sampled_from(NAMES),
            st.lists(st.tuples(st.integers(T0, T0 + 999), payloads, payloads, headers), min_size=1, max_size=40),
        ),
        max_size=6,
    )
)
@settings(max_examples=40, deadline=None)
def test_arrow_sees_every_record_of_mixed_batches(batches: list[Any]) -> None:
    for form in FORMS.values():
        buf, rows = b"", []
        for codec, some in batches:
            buf += form.build_batch(some, codec, base_offset=len(rows))
            rows += some
        columns = decode_columns(form, buf)
        assert columns.count == len(rows)
        assert columns.next_offset == (len(rows) or -1)
        got = table(columns)
        assert got["offset"] == list(range(len(rows)))
        assert got["timestamp"] == [row[0] for row in rows]
        assert got["key"] == [row[1] for row in rows]
        assert got["value"] == [row[2] for row in rows]
        assert (columns.headers is None) == (not any(row[3] for row in rows))
        if columns.headers is not None:
            assert got["headers"] == wanted_headers(rows)


def test_a_batch_left_plain_between_compressed_ones_is_not_lost(records: ModuleType) -> None:
    """librdkafka leaves a batch plain when the codec does not shrink it: the codec is each batch's own."""
    compressible = [(T0, b"k", b"abc" * 200, ())] * 50
    random_bytes = bytes((i * 7919 + i // 256 * 31) % 256 for i in range(97))
    parts, offset = [], 0
    for codec, rows in (
        ("lz4", compressible),
        ("none", [(T0, None, random_bytes, ())] * 12),
        ("lz4", compressible),
        ("zstd", compressible),
        ("snappy", compressible),
        ("none", [(T0, b"", b"", ())]),
        ("gzip", compressible),
    ):
        parts.append(records.build_batch(rows, codec, base_offset=offset))
        offset += len(rows)
    buf = b"".join(parts)
    columns = decode_columns(records, buf)
    assert columns.count == columns.next_offset == offset
    assert list(columns.offsets) == list(range(offset))
    assert records.decode_lists(buf).offsets == list(range(offset))
    assert [r.offset for r in records.iter_records(buf)] == list(range(offset))


def test_no_bitmap_without_nulls_and_no_headers_without_headers(records: ModuleType) -> None:
    columns = decode_columns(records, records.build_batch([(T0, b"k", b"v", ())] * 20))
    assert columns.key_valid is columns.value_valid is columns.headers is columns.append_time is None
    assert (bytes(columns.key_data), bytes(columns.value_data)) == (b"k" * 20, b"v" * 20)


def test_headers_in_the_middle_leave_the_other_rows_empty(records: ModuleType) -> None:
    rows = [(T0, None, None, (("a", b"1"), ("b", None)) if i in (3, 4, 11) else ()) for i in range(17)]
    buf = records.build_batch(rows[:9]) + records.build_batch(rows[9:], "zstd", base_offset=9)
    columns = decode_columns(records, buf)
    assert table(columns)["headers"] == wanted_headers(rows)
    cut = decode_columns(records, buf, from_offset=4, to_offset=12)
    assert table(cut)["headers"] == wanted_headers(rows[4:12])
    assert decode_columns(records, buf, from_offset=5, to_offset=11).headers is None


def test_bounds_cut_within_batches(records: ModuleType) -> None:
    buf = b"".join(records.build_batch(ROWS, codec, base_offset=6 * i) for i, codec in enumerate(NAMES))
    for low in range(0, 31, 5):
        for high in range(low, 31, 4):
            got = table(decode_columns(records, buf, from_offset=low, to_offset=high))
            assert got["offset"] == list(range(low, high))
            assert got["value"] == [(ROWS * 5)[i][2] for i in range(low, high)]
            assert got["key"] == [(ROWS * 5)[i][1] for i in range(low, high)]


def test_cut_tail_is_left_out(records: ModuleType) -> None:
    first, second = records.build_batch(ROWS), records.build_batch(ROWS, base_offset=6)
    columns = decode_columns(records, first + second[:-1])
    assert (columns.count, columns.next_offset) == (6, 6)
    nothing = decode_columns(records, first[:-1])
    assert (nothing.count, nothing.next_offset) == (0, -1)
    assert table(nothing)["key"] == []
