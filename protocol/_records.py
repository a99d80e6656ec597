# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
# ruff: noqa: B007, F821, RUF059  (names declared in _records.pxd)
# mypy: ignore-errors
"""The loops over bytes of a record batch v2, one file in two forms: compiled by Cython, or run as plain Python.

It has no policy: no codec, no checksum, no I/O; `records.py` is its only user. Every length that comes from the
bytes is compared with what is left before it is used, in `_varint`, `_record` and `_header` alone, so hostile
bytes give `CorruptBatch` in both forms. Integers that may wrap go through `_add`, since C wraps and Python does not.

Layout of a batch: KIP-98, and Kafka's DefaultRecordBatch and DefaultRecord.
"""

import warnings
from array import array

import cython

from .errors import ErrorCode, KafkaError

COMPILED = cython.compiled

HEADER_SIZE = 61
LENGTH_MIN = HEADER_SIZE - 12  # the length field counts from the leader epoch on
RECORD_SIZE_MIN = 7  # a null key and value at delta 0
RECORD_SIZE_MAX = 2**31 - 1 - 128  # sizes are int32 on the wire; 128: header of the batch, varints of the record
_RECORD_ROOM = 5 + 1 + 10 + 5 + 5 + 5  # most that a record needs besides key, value and headers
_OFFSET_MAX = 2**63 - 2**32  # so that base offset + int32 never wraps

if not cython.compiled:
    warnings.warn(
        "isthmus runs its record loops as plain Python, many times slower than compiled: install a C compiler "
        "and reinstall isthmus to build isthmus.protocol._records",
        RuntimeWarning,
        stacklevel=2,
    )


class CorruptBatch(KafkaError):
    """Bytes that are not the record batch they claim to be. The code is CORRUPT_MESSAGE."""

    def __init__(self, message):
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)


@cython.cclass
class BatchHeader:
    """The 61 bytes before a batch's records, read once. Sizes in bytes, timestamps in ms since the epoch."""

    __slots__ = (
        "attributes",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "crc",
        "last_offset_delta",
        "length",
        "magic",
        "max_timestamp",
        "partition_leader_epoch",
        "producer_epoch",
        "producer_id",
        "records_count",
    )

    @property
    def size_bytes(self):
        """The whole batch, base offset and length field included."""
        return 12 + self.length

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self):
        """0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd; 5 to 7 are reserved."""
        return self.attributes & 7

    @property
    def is_log_append_time(self):
        return (self.attributes & 8) != 0

    @property
    def is_transactional(self):
        return (self.attributes & 16) != 0

    @property
    def is_control(self):
        return (self.attributes & 32) != 0

    @property
    def last_sequence(self):
        """Sequence of the last record, -1 without a producer; wraps from 2**31-1 to 0."""
        if self.base_sequence < 0:
            return -1
        last: cython.longlong = self.base_sequence
        last += self.last_offset_delta
        return last if last < 2147483648 else last - 2147483648

    def __repr__(self):
        return (
            f"BatchHeader(base_offset={self.base_offset}, last_offset_delta={self.last_offset_delta}, "
            f"size_bytes={self.size_bytes}, partition_leader_epoch={self.partition_leader_epoch}, "
            f"attributes={self.attributes:#x}, records_count={self.records_count}, "
            f"base_timestamp={self.base_timestamp}, max_timestamp={self.max_timestamp}, "
            f"producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"base_sequence={self.base_sequence}, crc={self.crc:#010x})"
        )


@cython.cclass
class Record:
    """One record. key and value are bytes or None; headers a tuple of (str, bytes or None)."""

    __slots__ = ("headers", "key", "offset", "timestamp_ms", "value")

    def __init__(self, offset, timestamp_ms, key, value, headers=()):
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.key = key
        self.value = value
        self.headers = headers

    def _fields(self):
        return self.offset, self.timestamp_ms, self.key, self.value, self.headers

    def __eq__(self, other):
        if not isinstance(other, Record):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return type(self), self._fields()

    def __repr__(self):
        return (
            f"{type(self).__name__}(offset={self.offset}, timestamp_ms={self.timestamp_ms}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


# Reading. `b` is a pointer in the compiled form and bytes (or a memoryview) in the plain one.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _add(a: cython.longlong, b: cython.longlong) -> cython.longlong:
    """a + b modulo 2**64, as Java adds timestamps."""
    if cython.compiled:
        return cython.cast(cython.longlong, cython.cast(cython.ulonglong, a) + cython.cast(cython.ulonglong, b))
    else:
        return (a + b + 2**63) % 2**64 - 2**63


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int16(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.int:
    v: cython.int = (b[p] << 8) | b[p + 1]
    return v - ((v & 0x8000) << 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    v: cython.longlong = (cython.cast(cython.longlong, b[p]) << 24) | (b[p + 1] << 16) | (b[p + 2] << 8) | b[p + 3]
    return v - ((v & 0x80000000) << 1)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    return _int32(b, p) * 4294967296 + (_int32(b, p + 4) & 0xFFFFFFFF)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    b: cython.p_const_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[cython.longlong, cython.Py_ssize_t]:
    """A zigzag varint of at most 64 bits and the position after it, which is -1 when it is cut or too long."""
    x: cython.uchar
    r: cython.ulonglong
    shift: cython.int
    if p >= end:
        return 0, -1
    x = b[p]
    p += 1
    r = x & 0x7F
    if x >= 0x80:
        shift = 7
        while True:
            if p >= end:
                return 0, -1
            x = b[p]
            p += 1
            if shift == 63 and x > 1:
                return 0, -1
            r |= cython.cast(cython.ulonglong, x & 0x7F) << shift
            if x < 0x80:
                break
            shift += 7
    return cython.cast(cython.longlong, r >> 1) ^ -cython.cast(cython.longlong, r & 1), p


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _record(
    b: cython.p_const_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t
) -> tuple[
    cython.Py_ssize_t,
    cython.longlong,
    cython.longlong,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
    cython.Py_ssize_t,
]:
    """Where a record's parts lie, all within `end`: (position after it or -1, timestamp delta, offset delta,
    key position, key size or -1, value position, value size or -1, position of the first header, headers)."""
    size: cython.longlong
    stamp: cython.longlong
    delta: cython.longlong
    key_size: cython.longlong
    value_size: cython.longlong
    count: cython.longlong
    n: cython.longlong
    i: cython.longlong
    key_at: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    size, p = _varint(b, p, end)
    if p < 0 or size < RECORD_SIZE_MIN - 1 or size > end - p:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    end = p + size
    stamp, p = _varint(b, p + 1, end)  # past the attributes, which mean nothing
    if p < 0:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    delta, p = _varint(b, p, end)
    if p < 0:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    key_size, key_at = _varint(b, p, end)
    if key_at < 0 or key_size < -1 or key_size > end - key_at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    p = key_at + key_size if key_size > 0 else key_at
    value_size, value_at = _varint(b, p, end)
    if value_at < 0 or value_size < -1 or value_size > end - value_at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    p = value_at + value_size if value_size > 0 else value_at
    count, headers_at = _varint(b, p, end)
    if headers_at < 0 or count < 0 or count > end - headers_at:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    p = headers_at
    for i in range(count):
        n, p = _varint(b, p, end)
        if p < 0 or n < 0 or n > end - p:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        n, p = _varint(b, p + n, end)
        if p < 0 or n < -1 or n > end - p:
            return -1, 0, 0, 0, 0, 0, 0, 0, 0
        if n > 0:
            p += n
    if p != end:
        return -1, 0, 0, 0, 0, 0, 0, 0, 0
    return end, stamp, delta, key_at, key_size, value_at, value_size, headers_at, count


@cython.cfunc
@cython.inline
def _bytes(b: cython.p_const_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t):
    if n < 0:
        return None
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, b) + p, n)
    else:
        return b[p : p + n]


@cython.cfunc
def _headers(b: cython.p_const_uchar, p: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.Py_ssize_t) -> tuple:
    """Headers that `_record` has walked. Keys that are not UTF-8 keep their bytes as surrogates."""
    n: cython.longlong
    i: cython.Py_ssize_t
    out: list = []
    for i in range(count):
        n, p = _varint(b, p, end)
        key = _bytes(b, p, n).decode("utf-8", "surrogateescape")
        n, p = _varint(b, p + n, end)
        out.append((key, _bytes(b, p, n)))
        if n > 0:
            p += n
    return tuple(out)


@cython.cfunc
def _header(b: cython.p_const_uchar, p: cython.Py_ssize_t, size: cython.Py_ssize_t) -> BatchHeader:
    h: BatchHeader
    length: cython.longlong
    base_offset: cython.longlong
    if p < 0 or size - p < HEADER_SIZE:
        raise CorruptBatch(f"a batch header needs {HEADER_SIZE} bytes, {max(size - p, 0)} are left at byte {p}")
    h = BatchHeader.__new__(BatchHeader)
    base_offset = _int64(b, p)
    length = _int32(b, p + 8)
    h.base_offset = base_offset
    h.length = length
    h.partition_leader_epoch = _int32(b, p + 12)
    h.magic = b[p + 16] - ((b[p + 16] & 0x80) << 1)
    h.crc = _int32(b, p + 17) & 0xFFFFFFFF
    h.attributes = _int16(b, p + 21)
    h.last_offset_delta = _int32(b, p + 23)
    h.base_timestamp = _int64(b, p + 27)
    h.max_timestamp = _int64(b, p + 35)
    h.producer_id = _int64(b, p + 43)
    h.producer_epoch = _int16(b, p + 51)
    h.base_sequence = _int32(b, p + 53)
    h.records_count = _int32(b, p + 57)
    if h.magic != 2:
        raise CorruptBatch(f"record batch of magic {h.magic} at byte {p}; only magic 2 is known")
    if length < LENGTH_MIN:
        raise CorruptBatch(f"record batch of {length} bytes at byte {p}; its header alone has {LENGTH_MIN}")
    if base_offset < 0 or base_offset > _OFFSET_MAX or h.last_offset_delta < 0 or h.records_count < 0:
        raise CorruptBatch(
            f"record batch at byte {p} claims base offset {base_offset}, last offset delta {h.last_offset_delta} "
            f"and {h.records_count} records"
        )
    return h


def read_header(buf, position: cython.Py_ssize_t = 0):
    """The header at `position`. Raises CorruptBatch for one that is cut, not of magic 2, or impossible."""
    view: Py_buffer
    if cython.compiled:
        PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
        try:
            return _header(cython.cast(cython.p_const_uchar, view.buf), position, view.len)
        finally:
            PyBuffer_Release(cython.address(view))
    else:
        with memoryview(buf) as whole, whole.cast("B") as data:
            return _header(data, position, len(data))


@cython.cfunc
def _corrupt(header: BatchHeader, row: cython.Py_ssize_t, what: str):
    return CorruptBatch(f"record {row} of {header.records_count} in the batch at offset {header.base_offset} {what}")


@cython.cfunc
@cython.exceptval(-1)
def _room(
    header: BatchHeader, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, size: cython.Py_ssize_t
) -> cython.int:
    """Refuses a count that the bytes cannot hold, before anything is allocated for it."""
    if start < 0 or start > stop or stop > size:
        raise ValueError(f"bytes {start} to {stop} are not within a buffer of {size} bytes")
    if header.records_count > (stop - start) // RECORD_SIZE_MIN:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} claims {header.records_count} records in {stop - start} bytes"
        )
    return 0


def read_lists(
    buf,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    header: BatchHeader,
    from_offset: cython.longlong,
    to_offset: cython.longlong,
    offsets: list,
    timestamps: list,
    keys: list,
    values: list,
):
    """Appends the records in buf[start:stop] (not compressed) with from_offset <= offset < to_offset to four lists."""
    view: Py_buffer
    b: cython.p_const_uchar
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    p: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    stamp: cython.longlong
    delta: cython.longlong
    last: cython.longlong = -1
    offset: cython.longlong
    append_time: cython.bint = (header.attributes & 8) != 0
    if cython.compiled:
        PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
        b = cython.cast(cython.p_const_uchar, view.buf)
        size = view.len
    else:
        b = bytes(memoryview(buf)[start:stop])
        start, stop, size = 0, stop - start, len(b)
    try:
        _room(header, start, stop, size)
        p = start
        for i in range(header.records_count):
            p, stamp, delta, key_at, key_size, value_at, value_size, headers_at, headers = _record(b, p, stop)
            if p < 0:
                raise _corrupt(header, i, "is cut or has a wrong length")
            if delta <= last or delta > header.last_offset_delta:
                raise _corrupt(header, i, f"has offset delta {delta} after {last}, of {header.last_offset_delta}")
            last = delta
            offset = header.base_offset + delta
            if offset < from_offset or offset >= to_offset:
                continue
            offsets.append(offset)
            timestamps.append(header.max_timestamp if append_time else _add(header.base_timestamp, stamp))
            keys.append(_bytes(b, key_at, key_size))
            values.append(_bytes(b, value_at, value_size))
        if p != stop:
            raise _corrupt(header, header.records_count, f"is not claimed, but {stop - p} bytes are left")
    finally:
        if cython.compiled:
            PyBuffer_Release(cython.address(view))


def read_records(
    buf,
    start: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
    header: BatchHeader,
    from_offset: cython.longlong,
    to_offset: cython.longlong,
    out: list,
):
    """Appends the records in buf[start:stop] (not compressed) with from_offset <= offset < to_offset as Records."""
    view: Py_buffer
    b: cython.p_const_uchar
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    p: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    stamp: cython.longlong
    delta: cython.longlong
    last: cython.longlong = -1
    offset: cython.longlong
    record: Record
    append_time: cython.bint = (header.attributes & 8) != 0
    if cython.compiled:
        PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
        b = cython.cast(cython.p_const_uchar, view.buf)
        size = view.len
    else:
        b = bytes(memoryview(buf)[start:stop])
        start, stop, size = 0, stop - start, len(b)
    try:
        _room(header, start, stop, size)
        p = start
        for i in range(header.records_count):
            p, stamp, delta, key_at, key_size, value_at, value_size, headers_at, headers = _record(b, p, stop)
            if p < 0:
                raise _corrupt(header, i, "is cut or has a wrong length")
            if delta <= last or delta > header.last_offset_delta:
                raise _corrupt(header, i, f"has offset delta {delta} after {last}, of {header.last_offset_delta}")
            last = delta
            offset = header.base_offset + delta
            if offset < from_offset or offset >= to_offset:
                continue
            record = Record.__new__(Record)
            record.offset = offset
            record.timestamp_ms = header.max_timestamp if append_time else _add(header.base_timestamp, stamp)
            record.key = _bytes(b, key_at, key_size)
            record.value = _bytes(b, value_at, value_size)
            record.headers = _headers(b, headers_at, p, headers) if headers else ()
            out.append(record)
        if p != stop:
            raise _corrupt(header, header.records_count, f"is not claimed, but {stop - p} bytes are left")
    finally:
        if cython.compiled:
            PyBuffer_Release(cython.address(view))


def check_records(buf, start: cython.Py_ssize_t, stop: cython.Py_ssize_t, header: BatchHeader):
    """(max timestamp, offset of its first record, null keys, whether deltas are 0, 1, 2, …) of buf[start:stop].

    Raises CorruptBatch exactly where the readers do. Without records the first two are -1.
    """
    view: Py_buffer
    b: cython.p_const_uchar
    i: cython.Py_ssize_t
    size: cython.Py_ssize_t
    p: cython.Py_ssize_t
    key_at: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    value_at: cython.Py_ssize_t
    value_size: cython.Py_ssize_t
    headers_at: cython.Py_ssize_t
    headers: cython.Py_ssize_t
    null_keys: cython.Py_ssize_t = 0
    stamp: cython.longlong
    delta: cython.longlong
    last: cython.longlong = -1
    best: cython.longlong = -1
    best_offset: cython.longlong = -1
    append_time: cython.bint = (header.attributes & 8) != 0
    dense: cython.bint = True
    if cython.compiled:
        PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
        b = cython.cast(cython.p_const_uchar, view.buf)
        size = view.len
    else:
        b = bytes(memoryview(buf)[start:stop])
        start, stop, size = 0, stop - start, len(b)
    try:
        _room(header, start, stop, size)
        p = start
        for i in range(header.records_count):
            p, stamp, delta, key_at, key_size, value_at, value_size, headers_at, headers = _record(b, p, stop)
            if p < 0:
                raise _corrupt(header, i, "is cut or has a wrong length")
            if delta <= last or delta > header.last_offset_delta:
                raise _corrupt(header, i, f"has offset delta {delta} after {last}, of {header.last_offset_delta}")
            last = delta
            if delta != i:
                dense = False
            stamp = header.max_timestamp if append_time else _add(header.base_timestamp, stamp)
            if i == 0 or stamp > best:
                best = stamp
                best_offset = header.base_offset + delta
            if key_size < 0:
                null_keys += 1
        if p != stop:
            raise _corrupt(header, header.records_count, f"is not claimed, but {stop - p} bytes are left")
        return best, best_offset, null_keys, dense
    finally:
        if cython.compiled:
            PyBuffer_Release(cython.address(view))


@cython.cfunc
def _blank(size: cython.Py_ssize_t) -> bytearray:
    """A bytearray whose pages, when compiled, are not touched before they are written."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


@cython.cclass
class ColumnWriter:
    """Arrow's buffers for the records of many batches, at most `rows` of them with `data_bytes` of keys and values.

    `add` once a batch, then `finish`, which cuts the buffers to what was written. Offsets into data are int32, as
    in Arrow's Binary; `data_bytes` is bounded by the caller to fit.
    """

    __slots__ = (
        "capacity",
        "data_capacity",
        "header_key_data",
        "header_key_offsets",
        "header_nulls",
        "header_rows",
        "header_value_data",
        "header_value_offsets",
        "key_data",
        "key_nulls",
        "key_offsets",
        "key_size",
        "key_valid",
        "offsets",
        "rows",
        "timestamps",
        "value_data",
        "value_nulls",
        "value_offsets",
        "value_size",
        "value_valid",
    )

    def __init__(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        if rows < 0 or data_bytes < 0 or data_bytes > 2147483647:
            raise ValueError(f"{rows} rows of {data_bytes} bytes do not fit in int32 offsets")
        self.rows = self.key_size = self.value_size = self.key_nulls = self.value_nulls = 0
        self.capacity = rows
        self.data_capacity = data_bytes
        self.offsets = array("q", (0,)) * rows
        self.timestamps = array("q", (0,)) * rows
        self.key_offsets = array("i", (0,)) * (rows + 1)
        self.value_offsets = array("i", (0,)) * (rows + 1)
        self.key_data = _blank(data_bytes)
        self.value_data = _blank(data_bytes)
        self.key_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.value_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.header_rows = None

    def add(
        self,
        buf,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        header: BatchHeader,
        from_offset: cython.longlong,
        to_offset: cython.longlong,
    ):
        """Adds the records in buf[start:stop] (not compressed) with from_offset <= offset < to_offset."""
        view: Py_buffer
        b: cython.p_const_uchar
        i: cython.Py_ssize_t
        size: cython.Py_ssize_t
        p: cython.Py_ssize_t
        key_at: cython.Py_ssize_t
        key_size: cython.Py_ssize_t
        value_at: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        headers_at: cython.Py_ssize_t
        headers: cython.Py_ssize_t
        stamp: cython.longlong
        delta: cython.longlong
        last: cython.longlong = -1
        offset: cython.longlong
        base_offset: cython.longlong = header.base_offset
        base_timestamp: cython.longlong = header.base_timestamp
        max_timestamp: cython.longlong = header.max_timestamp
        last_delta: cython.longlong = header.last_offset_delta
        append_time: cython.bint = (header.attributes & 8) != 0
        count: cython.Py_ssize_t = header.records_count
        row: cython.Py_ssize_t = self.rows
        key_end: cython.Py_ssize_t = self.key_size
        value_end: cython.Py_ssize_t = self.value_size
        offsets: cython.p_longlong
        timestamps: cython.p_longlong
        key_offsets: cython.p_int
        value_offsets: cython.p_int
        key_data: cython.p_uchar
        value_data: cython.p_uchar
        key_valid: cython.p_uchar
        value_valid: cython.p_uchar
        if cython.compiled:
            PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
            b = cython.cast(cython.p_const_uchar, view.buf)
            size = view.len
            offsets = self.offsets.data.as_longlongs
            timestamps = self.timestamps.data.as_longlongs
            key_offsets = self.key_offsets.data.as_ints
            value_offsets = self.value_offsets.data.as_ints
            key_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.key_data))
            value_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.value_data))
            key_valid = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.key_valid))
            value_valid = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.value_valid))
        else:
            b = bytes(memoryview(buf)[start:stop])
            start, stop, size = 0, stop - start, len(b)
            offsets, timestamps = self.offsets, self.timestamps
            key_offsets, value_offsets = self.key_offsets, self.value_offsets
            key_data, value_data = self.key_data, self.value_data
            key_valid, value_valid = self.key_valid, self.value_valid
        try:
            _room(header, start, stop, size)
            size = stop - start
            if count > self.capacity - row or size > self.data_capacity - max(key_end, value_end):
                raise ValueError(f"{row + count} rows do not fit in columns of {self.capacity}")
            p = start
            for i in range(count):
                p, stamp, delta, key_at, key_size, value_at, value_size, headers_at, headers = _record(b, p, stop)
                if p < 0:
                    raise _corrupt(header, i, "is cut or has a wrong length")
                if delta <= last or delta > last_delta:
                    raise _corrupt(header, i, f"has offset delta {delta} after {last}, of {last_delta}")
                last = delta
                offset = base_offset + delta
                if offset < from_offset or offset >= to_offset:
                    continue
                offsets[row] = offset
                timestamps[row] = max_timestamp if append_time else _add(base_timestamp, stamp)
                if key_size > 0:
                    if cython.compiled:
                        memcpy(key_data + key_end, b + key_at, key_size)
                    else:
                        key_data[key_end : key_end + key_size] = b[key_at : key_at + key_size]
                    key_end += key_size
                elif key_size < 0:
                    key_valid[row >> 3] &= ~(1 << (row & 7))
                    self.key_nulls += 1
                if value_size > 0:
                    if cython.compiled:
                        memcpy(value_data + value_end, b + value_at, value_size)
                    else:
                        value_data[value_end : value_end + value_size] = b[value_at : value_at + value_size]
                    value_end += value_size
                elif value_size < 0:
                    value_valid[row >> 3] &= ~(1 << (row & 7))
                    self.value_nulls += 1
                if headers > 0:
                    self._add_headers(b, headers_at, p, headers, row)
                row += 1
                key_offsets[row] = key_end
                value_offsets[row] = value_end
            if p != stop:
                raise _corrupt(header, count, f"is not claimed, but {stop - p} bytes are left")
            self.rows = row
            self.key_size = key_end
            self.value_size = value_end
        finally:
            if cython.compiled:
                PyBuffer_Release(cython.address(view))

    @cython.cfunc
    def _add_headers(
        self,
        b: cython.p_const_uchar,
        p: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        row: cython.Py_ssize_t,
    ):
        """Headers that `_record` has walked. They are rare: the buffers grow by Python's own methods."""
        n: cython.longlong
        i: cython.Py_ssize_t
        if self.header_rows is None:
            self.header_rows = array("i", (0,))
            self.header_key_offsets = array("i", (0,))
            self.header_value_offsets = array("i", (0,))
            self.header_key_data = bytearray()
            self.header_value_data = bytearray()
            self.header_nulls = []
        self._pad_header_rows(row + 1)
        for i in range(count):
            n, p = _varint(b, p, end)
            self.header_key_data += _bytes(b, p, n)
            self.header_key_offsets.append(len(self.header_key_data))
            n, p = _varint(b, p + n, end)
            if n < 0:
                self.header_nulls.append(len(self.header_value_offsets) - 1)
            else:
                self.header_value_data += _bytes(b, p, n)
                p += n
            self.header_value_offsets.append(len(self.header_value_data))
        self.header_rows.append(len(self.header_key_offsets) - 1)

    @cython.cfunc
    def _pad_header_rows(self, rows: cython.Py_ssize_t):
        """Rows without headers since the last that had some."""
        missing: cython.Py_ssize_t = rows - len(self.header_rows)
        if missing > 0:
            self.header_rows.extend(array("i", (len(self.header_key_offsets) - 1,)) * missing)

    def finish(self):
        """Cuts the buffers to the rows and bytes written."""
        rows: cython.Py_ssize_t = self.rows
        if rows < self.capacity:
            del self.offsets[rows:]
            del self.timestamps[rows:]
            del self.key_offsets[rows + 1 :]
            del self.value_offsets[rows + 1 :]
            del self.key_valid[(rows + 7) // 8 :]
            del self.value_valid[(rows + 7) // 8 :]
        del self.key_data[self.key_size :]
        del self.value_data[self.value_size :]
        if self.header_rows is not None:
            self._pad_header_rows(rows + 1)


# Writing.


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint_size(v: cython.longlong) -> cython.Py_ssize_t:
    z: cython.ulonglong = cython.cast(cython.ulonglong, (v << 1) ^ (v >> 63))
    n: cython.Py_ssize_t = 1
    while z > 127:
        z >>= 7
        n += 1
    return n


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_varint(out: cython.p_uchar, at: cython.Py_ssize_t, v: cython.longlong) -> cython.Py_ssize_t:
    z: cython.ulonglong = cython.cast(cython.ulonglong, (v << 1) ^ (v >> 63))
    while z > 127:
        out[at] = (z & 127) | 128
        z >>= 7
        at += 1
    out[at] = z
    return at + 1


@cython.cfunc
@cython.inline
def _put_bytes(out: cython.p_uchar, at: cython.Py_ssize_t, data: bytes, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    if cython.compiled:
        memcpy(out + at, PyBytes_AS_STRING(data), size)
    else:
        out[at : at + size] = data
    return at + size


@cython.cfunc
def _as_bytes(data) -> bytes:
    """Any buffer as bytes. An int or a str is refused: bytes(5) would be five zeros."""
    return bytes(memoryview(data))


@cython.cfunc
def _pack_headers(headers) -> bytes:
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
    z: cython.ulonglong = cython.cast(cython.ulonglong, (v << 1) ^ (v >> 63))
    while z > 127:
        out.append((z & 127) | 128)
        z >>= 7
    out.append(z)


@cython.cclass
class RecordsWriter:
    """Records of one batch as they are appended, behind room for the batch's header.

    max_bytes: bound of the batch before compression, header included; the first record goes in whatever its size.
    size_bytes: that size so far. count: records so far. base_timestamp is the first record's, max_timestamp the
    largest; both -1 without records.
    """

    def __init__(self, max_bytes: cython.Py_ssize_t):
        self.max_bytes = max_bytes
        self.size_bytes = HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._capacity = min(max(max_bytes, 256), 16384) + HEADER_SIZE
        self._out = bytearray(self._capacity)

    def append(self, timestamp_ms: cython.longlong, key, value, headers=()) -> bool:
        """Adds a record; False, and nothing added, when it would take the batch past max_bytes.

        key, value: bytes-like or None. headers: (str, bytes-like or None) pairs. Raises ValueError for a record
        past the wire's 2 GiB.
        """
        return self._put(timestamp_ms, key, value, headers) == 1

    @cython.cfunc
    @cython.exceptval(-1)
    def _put(self, timestamp_ms: cython.longlong, key, value, headers) -> cython.int:
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
            delta = _add(timestamp_ms, -self.base_timestamp)
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
        if body > RECORD_SIZE_MAX:
            raise ValueError(f"a record of {body} bytes; at most {RECORD_SIZE_MAX} fit in a batch")
        total = _varint_size(body) + body
        if self.count > 0 and (self.size_bytes + total > self.max_bytes or self.size_bytes + total > RECORD_SIZE_MAX):
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
        capacity: cython.Py_ssize_t = max(needed, 2 * self._capacity)
        if cython.compiled:
            PyByteArray_Resize(self._out, capacity)
        else:
            self._out.extend(bytes(capacity - self._capacity))
        self._capacity = capacity

    def extend(self, records) -> int:
        """Appends (timestamp_ms, key, value, headers) tuples until one does not fit; returns how many went in.

        Of an iterator the one that did not fit is gone: give a list, or a max_bytes that all will fit.
        """
        n: cython.Py_ssize_t = 0
        for timestamp_ms, key, value, headers in records:
            if not self._put(timestamp_ms, key, value, headers):
                break
            n += 1
        return n

    def extend_columns(self, timestamps, keys, values, start: cython.Py_ssize_t = 0) -> int:
        """Appends records without headers from three sequences of one length, from index `start` until one does
        not fit; returns the index after the last that went in."""
        i: cython.Py_ssize_t = start
        n: cython.Py_ssize_t = min(len(timestamps), len(keys), len(values))
        while i < n:
            if not self._put(timestamps[i], keys[i], values[i], None):
                break
            i += 1
        return i

    def buffer(self):
        """The bytes so far as a writable view, its first 61 left for the header; ends with the next append."""
        return memoryview(self._out)[: self.size_bytes]
