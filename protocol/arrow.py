"""Decoded records as Arrow's arrays, which share the memory that `records.iter_columns` has read them into.

pyarrow is no dependency of the protocol: who imports this module needs it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute

from .records import Columns

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TIMESTAMP = pa.timestamp("ms", "UTC")


def keys(found: Columns) -> pa.Array:
    return _binary(found.count, found.key_offsets, found.key_data, found.key_valid)


def values(found: Columns) -> pa.Array:
    return _binary(found.count, found.value_offsets, found.value_data, found.value_valid)


def offsets(found: Columns) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), found.count, [None, pa.py_buffer(found.offsets)])


def timestamps(found: Columns) -> pa.Array:
    return pa.Array.from_buffers(TIMESTAMP, found.count, [None, pa.py_buffer(found.timestamps)])


def headers(found: Columns) -> pa.Array:
    """Null where a record has none, as Spark's Kafka source gives it."""
    if found.headers is None:
        return pa.nulls(found.count, HEADERS)
    given = found.headers
    names = _binary(given.count, given.key_offsets, given.key_data, None)
    contents = _binary(given.count, given.value_offsets, given.value_data, given.value_valid)
    try:
        names = names.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8, which Kafka does not look at
        names = pa.array([key.decode(errors="replace") for key in names.to_pylist()], pa.string())
    structs = pa.StructArray.from_arrays([names, contents], fields=list(HEADERS.value_type))
    rows = pa.Array.from_buffers(pa.int32(), found.count + 1, [None, pa.py_buffer(given.rows)])
    lists = pa.ListArray.from_arrays(rows, structs, type=HEADERS)
    return pa.compute.if_else(pa.compute.equal(pa.compute.list_value_length(lists), 0), pa.scalar(None, HEADERS), lists)


def _binary(count: int, offsets: object, data: object, valid: object | None) -> pa.Array:
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)
