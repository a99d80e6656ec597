# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
"""The loops that write records one after another, in the two forms of `_records.py`, and the varints they write.

It has no policy: `records.py` gives a batch its header, codec and checksum. Timestamps that may wrap go through
`_minus`, since C wraps and Python does not.

Compiled, one core, records of 100 B: 12 million appended one by one per second; plain 0.35.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import cython

from .batch_layout import HEADER_SIZE

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_Resize
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING
    from cython.cimports.libc.string import memcpy

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ..compiled import Readonly

# Sizes are int32 on the wire; the rest is for the header and the record's own varints.
_RECORD_MAX: cython.Py_ssize_t = 2**31 - 256


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _minus(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """a - b modulo 2**64, as Java subtracts timestamps."""
    if cython.compiled:
        return cython.cast(cython.longlong, cython.cast(cython.ulonglong, a) - cython.cast(cython.ulonglong, b))
    else:
        return (a - b + 2**63) % 2**64 - 2**63


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _zigzag(v: cython.longlong) -> cython.ulonglong:
    z: cython.ulonglong = v if v >= 0 else ~v
    return (z << 1) | (v < 0)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(v: cython.longlong) -> cython.Py_ssize_t:
    return _uvarint_size(_zigzag(v))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _uvarint_size(z: cython.ulonglong) -> cython.Py_ssize_t:
    n: cython.Py_ssize_t = 1
    while z > 127:
        z >>= 7
        n += 1
    return n


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(out: cython.p_uchar, at: cython.Py_ssize_t, v: cython.longlong) -> cython.Py_ssize_t:
    return _put_uvarint(out, at, _zigzag(v))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_uvarint(out: cython.p_uchar, at: cython.Py_ssize_t, z: cython.ulonglong) -> cython.Py_ssize_t:
    while z > 127:
        out[at] = (z & 127) | 128
        z >>= 7
        at += 1
    out[at] = z
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int32(out: cython.p_uchar, value: cython.longlong) -> cython.void:
    out[0] = (value >> 24) & 0xFF
    out[1] = (value >> 16) & 0xFF
    out[2] = (value >> 8) & 0xFF
    out[3] = value & 0xFF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_int64(out: cython.p_uchar, value: cython.longlong) -> cython.void:
    _put_int32(out, value >> 32)
    _put_int32(out + 4, value)


@cython.cfunc
@cython.inline
def _put_bytes(out: cython.p_uchar, at: cython.Py_ssize_t, data: bytes, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(out + at, PyBytes_AS_STRING(data), size)
    else:
        out[at : at + size] = data
    return at + size


@cython.cfunc
def _as_bytes(data: Buffer) -> bytes:
    """Any buffer as bytes. An int or a str is refused: bytes(5) would be five zeros."""
    return bytes(memoryview(data))


@cython.cfunc
def _pack_headers(headers: Iterable[tuple[str, Buffer | None]]) -> bytes:
    """The count and the headers, as they stand at the end of a record."""
    out: bytearray = bytearray()
    pairs = [(key.encode("utf-8", "surrogateescape"), value) for key, value in headers]
    _append_varint(out, len(pairs))
    for key, value in pairs:
        _append_varint(out, len(key))
        out += key
        if value is None:
            _append_varint(out, -1)
        else:
            value = _as_bytes(value)
            _append_varint(out, len(value))
            out += value
    return bytes(out)


@cython.cfunc
def _append_varint(out: bytearray, v: cython.longlong):
    z: cython.ulonglong = _zigzag(v)
    while z > 127:
        out.append((z & 127) | 128)
        z >>= 7
    out.append(z)


@cython.cclass
class RecordsWriter:
    """Records of one batch as they are appended, behind space for the batch's header.

    max_bytes: bound of the batch before compression, header included; the first record goes in whatever its size.
    size_bytes: that size so far. count: records so far. base_timestamp is the first record's, max_timestamp the
    largest; both -1 without records.
    """

    max_bytes: Readonly[cython.Py_ssize_t]
    size_bytes: Readonly[cython.Py_ssize_t]
    count: Readonly[cython.int]
    base_timestamp: Readonly[cython.longlong]
    max_timestamp: Readonly[cython.longlong]
    _out: bytearray
    _capacity: cython.Py_ssize_t

    def __init__(self, max_bytes: cython.Py_ssize_t) -> None:
        self.max_bytes = max_bytes
        self.size_bytes = HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._capacity = min(max(max_bytes, 256), 16384) + HEADER_SIZE
        self._out = bytearray(self._capacity)

    def append(
        self,
        timestamp_ms: cython.longlong,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] | None = (),
    ) -> bool:
        """Adds a record; False, and nothing added, when it would take the batch past max_bytes.

        key, value: bytes-like or None. headers: (str, bytes-like or None) pairs. Raises ValueError for a record
        past the wire's 2 GiB.
        """
        return self._put(timestamp_ms, key, value, headers) == 1

    @cython.cfunc
    @cython.exceptval(-1)
    def _put(
        self,
        timestamp_ms: cython.longlong,
        key: Buffer | None,
        value: Buffer | None,
        headers: Iterable[tuple[str, Buffer | None]] | None,
    ) -> cython.int:
        at: cython.Py_ssize_t
        total: cython.Py_ssize_t
        body: cython.Py_ssize_t
        key_size: cython.Py_ssize_t = -1
        value_size: cython.Py_ssize_t = -1
        headers_size: cython.Py_ssize_t = 1
        delta: cython.longlong = 0
        out: cython.p_uchar
        key_bytes: bytes = b""
        value_bytes: bytes = b""
        headers_bytes: bytes = b"\0"
        if key is not None:
            key_bytes = key if type(key) is bytes else _as_bytes(key)
            key_size = len(key_bytes)
        if value is not None:
            value_bytes = value if type(value) is bytes else _as_bytes(value)
            value_size = len(value_bytes)
        if headers:
            headers_bytes = _pack_headers(headers)
            headers_size = len(headers_bytes)
        if not cython.compiled:
            if not -(2**63) <= timestamp_ms < 2**63:
                raise OverflowError(f"a timestamp of {timestamp_ms} ms does not fit in 64 bits")
        if self.count > 0:
            delta = _minus(timestamp_ms, self.base_timestamp)
        body = (
            1
            + _varint_size(delta)
            + _varint_size(self.count)
            + _varint_size(key_size)
            + max(key_size, 0)
            + _varint_size(value_size)
            + max(value_size, 0)
            + headers_size
        )
        if body > _RECORD_MAX:
            raise ValueError(f"a record of {body} bytes; at most {_RECORD_MAX} fit in a batch")
        total = _varint_size(body) + body
        if self.count > 0 and (self.size_bytes + total > self.max_bytes or self.size_bytes + total > _RECORD_MAX):
            return False
        at = self.size_bytes
        if total > self._capacity - at:
            self._grow(at + total)
        if cython.compiled:
            out = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self._out))
        else:
            out = self._out
        at = _put_varint(out, at, body)
        out[at] = 0
        at = _put_varint(out, at + 1, delta)
        at = _put_varint(out, at, self.count)
        at = _put_varint(out, at, key_size)
        if key_size > 0:
            at = _put_bytes(out, at, key_bytes, key_size)
        at = _put_varint(out, at, value_size)
        if value_size > 0:
            at = _put_bytes(out, at, value_bytes, value_size)
        if headers_size == 1:
            out[at] = 0
        else:
            _put_bytes(out, at, headers_bytes, headers_size)
        self.size_bytes += total
        if self.count == 0:
            self.base_timestamp = timestamp_ms
            self.max_timestamp = timestamp_ms
        elif timestamp_ms > self.max_timestamp:
            self.max_timestamp = timestamp_ms
        self.count += 1
        return True

    @cython.cfunc
    def _grow(self, needed: cython.Py_ssize_t):
        if self._out is None:
            raise TypeError("RecordsWriter.__init__ has not run")
        capacity: cython.Py_ssize_t = max(needed, 2 * self._capacity)
        if cython.compiled:
            PyByteArray_Resize(self._out, capacity)
        else:
            self._out.extend(bytes(capacity - self._capacity))
        self._capacity = capacity

    def extend(
        self, records: Iterable[tuple[int, Buffer | None, Buffer | None, Sequence[tuple[str, Buffer | None]]]]
    ) -> int:
        """Appends (timestamp_ms, key, value, headers) tuples until one does not fit; returns how many went in.

        Of an iterator the one that did not fit is gone: give a list, or a max_bytes that all will fit.
        """
        n: cython.Py_ssize_t = 0
        for timestamp_ms, key, value, headers in records:
            if not self._put(timestamp_ms, key, value, headers):
                break
            n += 1
        return n

    def extend_columns(
        self,
        timestamps: Sequence[int],
        keys: Sequence[Buffer | None],
        values: Sequence[Buffer | None],
        start: cython.Py_ssize_t = 0,
        headers: Sequence[Iterable[tuple[str, Buffer | None]]] | None = None,
        rows: Sequence[int] | None = None,
    ) -> int:
        """Appends records from sequences of one length, from the one at `start` until one does not fit; returns the
        place after the last that went in. headers: None for records without any. rows: indexes of the records to
        append, in their order, and `start` is a place among them; None: all."""
        i: cython.Py_ssize_t = start
        row: cython.Py_ssize_t
        count: cython.Py_ssize_t = min(len(timestamps), len(keys), len(values))
        if headers is not None:
            count = min(count, len(headers))
        n: cython.Py_ssize_t = count if rows is None else len(rows)
        while i < n:
            row = i if rows is None else rows[i]
            if row < 0 or row >= count:
                raise IndexError(f"there is no record {row} of {count}")
            if not self._put(timestamps[row], keys[row], values[row], None if headers is None else headers[row]):
                break
            i += 1
        return i

    def buffer(self) -> memoryview:
        """The bytes so far as a writable view, its first 61 left for the header; ends with the next append."""
        return memoryview(self._out)[: self.size_bytes]
