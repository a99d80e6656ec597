# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: B007
"""The loops over the records of a batch v2, one file in two forms: compiled by Cython, or run as plain Python.

It has no policy: no codec, no checksum, no I/O. Every length that comes from the bytes is compared with what is left
before it is used, in `_varint` and `Section` alone, so hostile bytes give `CorruptBatch` in both forms. Integers that
may wrap go through `_add`, since C wraps and Python does not. What each record calls is in this file: the compiler
inlines nothing from another module.

Compiled, one core, 100 B records in batches of 5000, CRC checked: 41 million records/s into columns, 4.5 into lists,
12 into Records; plain 0.4, 0.5, 0.45.

Layout of a batch: KIP-98, and Kafka's DefaultRecordBatch and DefaultRecord.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, TypeAlias

import cython

from ._batch_header import BatchHeader, CorruptBatch
from ._columns import ColumnBuffers

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING
    from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
    from cython.cimports.libc.string import memcpy


if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ..compiled import Readonly

    Bytes: TypeAlias = "bytes | None"
    Headers: TypeAlias = "tuple[tuple[str, Bytes], ...]"

COMPILED = cython.compiled

_RECORD_MIN: cython.Py_ssize_t = 7  # bytes of a record with a null key, a null value and deltas of 0
_RECORD_MAX: cython.longlong = 2**31 - 1  # Java's int
_VARINT_MAX: cython.Py_ssize_t = 10  # bytes of 64 bits

if not cython.compiled:
    warnings.warn(
        "isthmus runs its record loops as plain Python, many times slower than compiled: install a C compiler "
        "and reinstall isthmus to build isthmus.protocol._records",
        RuntimeWarning,
        stacklevel=2,
    )


@cython.no_gc
@cython.cclass
class Record:
    """One record. key and value are bytes or None; headers a tuple of (str, bytes or None)."""

    offset: Readonly[cython.longlong]
    timestamp_ms: Readonly[cython.longlong]
    key: Readonly[Bytes]
    value: Readonly[Bytes]
    headers: Readonly[tuple[tuple[str, Bytes], ...]]

    def __init__(
        self,
        offset: cython.longlong,
        timestamp_ms: cython.longlong,
        key: Bytes,
        value: Bytes,
        headers: Headers = (),
    ) -> None:
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def _fields(self) -> tuple[int, int, Bytes, Bytes, Headers]:
        return self.offset, self.timestamp_ms, self.key, self.value, self.headers

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash(self._fields())

    def __reduce__(self) -> tuple[type[Record], tuple]:
        return type(self), self._fields()

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """a + b modulo 2**64, as Java adds timestamps."""
    if cython.compiled:
        return cython.cast(cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b))
    else:
        return (a + b + 2**63) % 2**64 - 2**63


# `b` is a pointer in the compiled form, bytes in the plain one.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    b: cython.p_const_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A zigzag varint of at most 64 bits and the position after it, which is -1 when it is cut or too long."""
    x: cython.ulonglong
    r: cython.ulonglong = 0
    half: cython.longlong
    sign: cython.longlong
    shift: cython.int = 0
    while True:
        if p >= end:
            return 0, -1
        x = b[p]
        p += 1
        if shift == 63 and x > 1:
            return 0, -1
        r |= (x & 0x7F) << shift
        if x < 0x80:
            break
        shift += 7
    half = r >> 1
    sign = r & 1
    return half ^ -sign, p


@cython.cfunc
@cython.inline
def _bytes(b: cython.p_const_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t) -> Bytes:
    if n < 0:
        return None
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, b) + p, n)
    else:
        return b[p : p + n]


@cython.no_gc  # it is in no cycle, and the collector would drop its buffer without releasing it
@cython.final
@cython.cclass
class Section:
    """A cursor over a batch's records, which lie uncompressed in buf[start:stop].

    `next` goes to the next record with from_offset <= offset < to_offset; all its parts lie within the section.
    partial: more of the batch comes later, so that the last record may be cut. Then `next` stops before that record,
    and `go_on` gives the bytes from there.
    """

    view: cython.Py_buffer
    held: cython.bint
    b: cython.p_const_uchar
    header: BatchHeader
    p: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    row: cython.Py_ssize_t
    from_offset: cython.longlong
    to_offset: cython.longlong
    append_time: Readonly[cython.bint]
    partial: Readonly[cython.bint]
    needed: cython.Py_ssize_t
    delta: cython.longlong
    offset: cython.longlong
    timestamp_ms: cython.longlong
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    headers: cython.Py_ssize_t

    def __init__(
        self,
        buf: Buffer,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        header: BatchHeader,
        from_offset: cython.longlong = 0,
        to_offset: cython.longlong = 2**63 - 1,
        partial: cython.bint = False,
    ) -> None:
        if cython.compiled:
            if self.held:
                raise TypeError("a section is opened once")
        self.header = header
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.row = 0
        self.delta = -1
        self.append_time = (header.attributes & 8) != 0
        self._open(buf, start, stop, partial)
        if not partial and header.records_count > (stop - start) // _RECORD_MIN:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} claims {header.records_count} records in "
                f"{stop - start} bytes"
            )

    @cython.cfunc
    def _open(self, buf: Buffer, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, partial: cython.bint):
        size: cython.Py_ssize_t
        if cython.compiled:
            if self.held:
                self.held = False
                PyBuffer_Release(cython.address(self.view))
            PyObject_GetBuffer(buf, cython.address(self.view), PyBUF_SIMPLE)
            self.held = True
            self.b = cython.cast(cython.p_const_uchar, self.view.buf)
            size = self.view.len
        else:
            size = memoryview(buf).nbytes
        if start < 0 or start > stop or stop > size:
            self.stop = self.p = 0
            raise ValueError(f"bytes {start} to {stop} are not within a buffer of {size} bytes")
        if not cython.compiled:
            self.b = bytes(memoryview(buf)[start:stop])  # whose slices are bytes
            start, stop = 0, stop - start
        self.p = start
        self.stop = stop
        self.partial = partial
        self.needed = 0

    def go_on(self, buf: Buffer, partial: cython.bint) -> None:
        """Read on in `buf`, which begins with the bytes that are left."""
        self._open(buf, 0, memoryview(buf).nbytes, partial)

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return self.stop - self.p

    @property
    def rows_at_most(self) -> int:
        """How many records can be in these bytes."""
        return min(self.header.records_count - self.row, (self.stop - self.p) // _RECORD_MIN)

    @property
    def next_offset(self) -> int:
        """After the last record read or passed over."""
        return self.header.base_offset + self.delta + 1

    @property
    def record_bytes(self) -> int:
        """Size of the record that is cut, 0 where not even that is known."""
        return self.needed

    def __dealloc__(self) -> None:
        if cython.compiled:
            if self.held:
                PyBuffer_Release(cython.address(self.view))

    @cython.cfunc
    def _corrupt(self, what: str) -> CorruptBatch:
        return CorruptBatch(
            f"record {self.row} of {self.header.records_count} in the batch at offset {self.header.base_offset} {what}"
        )

    @cython.cfunc
    @cython.inline
    @cython.exceptval(-1)
    def next(self) -> cython.int:
        """1 at a record, 0 after the last. Raises CorruptBatch. One-byte varints are read in place."""
        b: cython.p_const_uchar = self.b
        p: cython.Py_ssize_t = self.p
        end: cython.Py_ssize_t
        x: cython.uchar
        size: cython.longlong
        stamp: cython.longlong
        delta: cython.longlong
        while True:
            if self.row == self.header.records_count:
                if p != self.stop:
                    raise self._corrupt(f"is not claimed, but {self.stop - p} bytes are left")
                return 0
            end = self.stop
            size, p = _varint(b, p, end)
            if p < 0 or size < _RECORD_MIN - 1 or size > end - p:
                if self.partial and self._is_cut(p, size):
                    return 0
                raise self._corrupt("is cut or has a wrong length")
            end = p + size
            p += 1  # the attributes mean nothing; the varints have five bytes at least, the first is there
            x = b[p]
            if x < 0x80:
                stamp = (x >> 1) ^ -(x & 1)
                p += 1
            else:
                stamp, p = _varint(b, p, end)
                if p < 0:
                    raise self._corrupt("has a cut timestamp")
            if p < end and b[p] < 0x80:
                delta = (b[p] >> 1) ^ -(b[p] & 1)
                p += 1
            else:
                delta, p = _varint(b, p, end)
            if p < 0 or delta <= self.delta or delta > self.header.last_offset_delta:
                raise self._corrupt(f"has offset delta {delta} after {self.delta}, of {self.header.last_offset_delta}")
            if p < end and b[p] < 0x80:
                size = (b[p] >> 1) ^ -(b[p] & 1)
                p += 1
            else:
                size, p = _varint(b, p, end)
            if p < 0 or size < -1 or size > end - p:
                raise self._corrupt("has a key with a wrong length")
            self.key_at = p
            self.key_size = size
            if size > 0:
                p += size
            if p < end and b[p] < 0x80:
                size = (b[p] >> 1) ^ -(b[p] & 1)
                p += 1
            else:
                size, p = _varint(b, p, end)
            if p < 0 or size < -1 or size > end - p:
                raise self._corrupt("has a value with a wrong length")
            self.value_at = p
            self.value_size = size
            if size > 0:
                p += size
            if p < end and b[p] == 0:
                p += 1
                self.headers = 0
            else:
                p = self._walk_headers(p, end)
            if p != end:
                raise self._corrupt("has wrong headers or a wrong length")
            self.p = p
            self.delta = delta
            self.row += 1
            self.offset = self.header.base_offset + delta
            if self.from_offset <= self.offset < self.to_offset:
                self.timestamp_ms = (
                    self.header.max_timestamp if self.append_time else _add(self.header.base_timestamp, stamp)
                )
                return 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_cut(self, p: cython.Py_ssize_t, size: cython.longlong) -> cython.bint:
        """Whether the record at `self.p` may be whole once more bytes come. p, size: as `_varint` has them of its
        length."""
        if p < 0:
            return self.stop - self.p < _VARINT_MAX
        if size < _RECORD_MIN - 1 or size > _RECORD_MAX:
            return False
        self.needed = p - self.p + size
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _walk_headers(self, p: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """The position after the headers, or -1."""
        n: cython.longlong
        count: cython.longlong
        i: cython.longlong
        count, p = _varint(self.b, p, end)
        if p < 0 or count < 0 or count > end - p:
            return -1
        self.headers_at = p
        self.headers = count
        for i in range(count):
            n, p = _varint(self.b, p, end)
            if p < 0 or n < 0 or n > end - p:
                return -1
            n, p = _varint(self.b, p + n, end)
            if p < 0 or n < -1 or n > end - p:
                return -1
            if n > 0:
                p += n
        return p

    @cython.cfunc
    def read_headers(self) -> list:
        """The record's headers as (bytes, bytes or None), which `next` has walked."""
        n: cython.longlong
        i: cython.Py_ssize_t
        p: cython.Py_ssize_t = self.headers_at
        out: list = []
        for i in range(self.headers):
            n, p = _varint(self.b, p, self.p)
            key = _bytes(self.b, p, n)
            n, p = _varint(self.b, p + n, self.p)
            out.append((key, _bytes(self.b, p, n)))
            if n > 0:
                p += n
        return out

    @cython.cfunc
    def named_headers(self) -> tuple:
        """The same as (str, bytes or None). Names that are not UTF-8 keep their bytes as surrogates."""
        n: cython.longlong
        i: cython.Py_ssize_t
        p: cython.Py_ssize_t = self.headers_at
        out: list = []
        for i in range(self.headers):
            n, p = _varint(self.b, p, self.p)
            if cython.compiled:
                name = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, self.b) + p, n, b"surrogateescape")
            else:
                name = self.b[p : p + n].decode("utf-8", "surrogateescape")
            n, p = _varint(self.b, p + n, self.p)
            out.append((name, _bytes(self.b, p, n)))
            if n > 0:
                p += n
        return tuple(out)


def read_lists(
    section: Section,
    offsets: list[int],
    timestamps: list[int],
    keys: list[Bytes],
    values: list[Bytes],
    headers: list[Headers] | None = None,
) -> None:
    """Appends the section's records to four lists, or to five. Records without headers cost next to nothing more: they
    share one empty tuple, and are counted only."""
    while section.next():
        offsets.append(section.offset)
        timestamps.append(section.timestamp_ms)
        keys.append(_bytes(section.b, section.key_at, section.key_size))
        values.append(_bytes(section.b, section.value_at, section.value_size))
        if section.headers and headers is not None:
            headers.extend([()] * (len(offsets) - 1 - len(headers)))
            headers.append(section.named_headers())
    if headers is not None:
        headers.extend([()] * (len(offsets) - len(headers)))


def read_records(section: Section, out: list[Record]) -> None:
    """Appends the section's records."""
    record: Record
    while section.next():
        record = Record.__new__(Record)
        record.offset = section.offset
        record.timestamp_ms = section.timestamp_ms
        record.key = _bytes(section.b, section.key_at, section.key_size)
        record.value = _bytes(section.b, section.value_at, section.value_size)
        record.headers = ()
        if section.headers:
            record.headers = section.named_headers()
        out.append(record)


def read_columns(section: Section, columns: ColumnBuffers) -> None:
    """Appends the section's records to Arrow's buffers, if they fit."""
    row: cython.Py_ssize_t = columns.rows
    key_end: cython.Py_ssize_t = columns.key_size
    value_end: cython.Py_ssize_t = columns.value_size
    n: cython.Py_ssize_t
    at: cython.Py_ssize_t
    offsets: cython.p_longlong
    timestamps: cython.p_longlong
    key_offsets: cython.p_int
    value_offsets: cython.p_int
    key_data: cython.p_uchar
    value_data: cython.p_uchar
    if section.rows_at_most > columns.capacity - row:
        raise ValueError(f"{section.rows_at_most} rows more than {row} do not fit in {columns.capacity}")
    if section.stop - section.p > columns.data_capacity - columns.data_used:
        raise ValueError(f"{section.stop - section.p} bytes do not fit in {columns.data_capacity - columns.data_used}")
    columns.data_used += section.stop - section.p
    if cython.compiled:
        offsets = columns.offsets.data.as_longlongs
        timestamps = columns.timestamps.data.as_longlongs
        key_offsets = columns.key_offsets.data.as_ints
        value_offsets = columns.value_offsets.data.as_ints
        key_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(columns.key_data))
        value_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(columns.value_data))
    else:
        offsets, timestamps = columns.offsets, columns.timestamps
        key_offsets, value_offsets = columns.key_offsets, columns.value_offsets
        key_data, value_data = columns.key_data, columns.value_data
    while section.next():
        offsets[row] = section.offset
        timestamps[row] = section.timestamp_ms
        n = section.key_size
        at = section.key_at
        if n > 0:
            if n > columns.key_capacity - key_end:
                columns.grow_keys(key_end + n)
                if cython.compiled:
                    key_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(columns.key_data))
            if cython.compiled:
                memcpy(key_data + key_end, section.b + at, n)
            else:
                key_data[key_end : key_end + n] = section.b[at : at + n]
            key_end += n
        elif n < 0:
            columns.key_valid[row >> 3] &= 255 - (1 << (row & 7))
            columns.key_nulls += 1
        n = section.value_size
        at = section.value_at
        if n > 0:
            if cython.compiled:
                memcpy(value_data + value_end, section.b + at, n)
            else:
                value_data[value_end : value_end + n] = section.b[at : at + n]
            value_end += n
        elif n < 0:
            columns.value_valid[row >> 3] &= 255 - (1 << (row & 7))
            columns.value_nulls += 1
        if section.headers:
            columns.add_headers(section.read_headers(), row)
        row += 1
        key_offsets[row] = key_end
        value_offsets[row] = value_end
    columns.rows = row
    columns.key_size = key_end
    columns.value_size = value_end


def check_records(section: Section) -> tuple[int, int, int, int, bool]:
    """(max timestamp, offset of its first record, min timestamp, null keys, whether deltas are 0, 1, 2, …).

    The three are -1 without records; so is the smallest timestamp where no record has one.
    """
    best: cython.longlong = -1
    best_offset: cython.longlong = -1
    least: cython.longlong = -1
    null_keys: cython.Py_ssize_t = 0
    dense: cython.bint = True
    while section.next():
        if best_offset < 0 or section.timestamp_ms > best:
            best = section.timestamp_ms
            best_offset = section.offset
        if section.timestamp_ms != -1 and (least == -1 or section.timestamp_ms < least):
            least = section.timestamp_ms
        if section.key_size < 0:
            null_keys += 1
        if section.delta != section.row - 1:
            dense = False
    return best, best_offset, least, null_keys, dense
