# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: B007, F821  (names declared in _records.pxd)
# mypy: ignore-errors
"""The loops over bytes of a record batch v2, one file in two forms: compiled by Cython, or run as plain Python.

It has no policy: no codec, no checksum, no I/O; `records.py` is its only user. Every length that comes from the
bytes is compared with what is left before it is used, in `_varint` and `Section` alone, so hostile bytes give
`CorruptBatch` in both forms. Integers that may wrap go through `_add`, since C wraps and Python does not.

Compiled, one core, 100 B records in batches of 5000, CRC checked: 41 million records/s into columns, 4.5 into lists,
12 into Records, 12 appended one by one; plain 0.4, 0.5, 0.45, 0.35. A header is read in 0.07 µs (6 plain).

Layout of a batch: KIP-98, and Kafka's DefaultRecordBatch and DefaultRecord.
"""

import warnings
from array import array

import cython

from .errors import ErrorCode, KafkaError

COMPILED = cython.compiled

HEADER_SIZE = 61

# C variables when compiled, see _records.pxd.
_HEADER_SIZE = HEADER_SIZE
_LENGTH_MIN = 49  # of the length field, which counts from the leader epoch on
_OFFSET_MAX = 2**63 - 2**32  # so that base offset + int32 never wraps
_RECORD_MIN = 7  # bytes of a record with a null key, a null value and deltas of 0
_RECORD_MAX = 2**31 - 256  # sizes are int32 on the wire; the rest is for the header and the record's own varints

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
        return last & 0x7FFFFFFF

    def __repr__(self):
        return (
            f"BatchHeader(base_offset={self.base_offset}, last_offset_delta={self.last_offset_delta}, "
            f"size_bytes={self.size_bytes}, partition_leader_epoch={self.partition_leader_epoch}, "
            f"attributes={self.attributes:#x}, records_count={self.records_count}, "
            f"base_timestamp={self.base_timestamp}, max_timestamp={self.max_timestamp}, "
            f"producer_id={self.producer_id}, producer_epoch={self.producer_epoch}, "
            f"base_sequence={self.base_sequence}, crc={self.crc:#010x})"
        )


@cython.no_gc
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


# Reading. `b` is a pointer in the compiled form, bytes or a memoryview in the plain one.


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
def _uint32(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    v: cython.longlong = b[p]  # no literal past 31 bits here: such are Python objects to Cython
    return (v << 24) | (b[p + 1] << 16) | (b[p + 2] << 8) | b[p + 3]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int32(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    v: cython.longlong = _uint32(b, p)
    return v - ((v >> 31) << 32)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _int64(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> cython.longlong:
    return _int32(b, p) * 65536 * 65536 + _uint32(b, p + 4)


@cython.cfunc
def _header(b: cython.p_const_uchar, p: cython.Py_ssize_t) -> BatchHeader:
    h: BatchHeader = BatchHeader.__new__(BatchHeader)
    h.base_offset = _int64(b, p)
    h.length = _int32(b, p + 8)
    h.partition_leader_epoch = _int32(b, p + 12)
    h.magic = b[p + 16] - ((b[p + 16] & 0x80) << 1)
    h.crc = _uint32(b, p + 17)
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
    if h.length < _LENGTH_MIN:
        raise CorruptBatch(f"record batch of {h.length} bytes at byte {p}; its header alone has {_LENGTH_MIN}")
    if h.base_offset < 0 or h.base_offset > _OFFSET_MAX or h.last_offset_delta < 0 or h.records_count < 0:
        raise CorruptBatch(
            f"record batch at byte {p} claims base offset {h.base_offset}, last offset delta {h.last_offset_delta} "
            f"and {h.records_count} records"
        )
    return h


def read_header(buf, position: cython.Py_ssize_t = 0, whole: cython.bint = False):
    """The header at `position`. Raises CorruptBatch for one that is cut, not of magic 2, or impossible.

    With `whole`, None instead when the header or the batch is cut by the end of the buffer.
    """
    view: Py_buffer
    b: cython.p_const_uchar
    left: cython.Py_ssize_t
    if cython.compiled:
        PyObject_GetBuffer(buf, cython.address(view), PyBUF_SIMPLE)
        b = cython.cast(cython.p_const_uchar, view.buf)
        left = view.len - position
    else:
        b = memoryview(buf).cast("B")
        left = len(b) - position
    try:
        if position < 0 or left < _HEADER_SIZE:
            if whole and position >= 0:
                return None
            raise CorruptBatch(f"a batch header has {_HEADER_SIZE} bytes, {max(left, 0)} are left at byte {position}")
        if whole and _int32(b, position + 8) > left - 12:
            return None
        return _header(b, position)
    finally:
        if cython.compiled:
            PyBuffer_Release(cython.address(view))
        else:
            b.release()


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
def _bytes(b: cython.p_const_uchar, p: cython.Py_ssize_t, n: cython.Py_ssize_t):
    if n < 0:
        return None
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.cast(cython.p_char, b) + p, n)
    else:
        return b[p : p + n]


@cython.final
@cython.cclass
class Section:
    """A cursor over a batch's records, which lie uncompressed in buf[start:stop].

    `next` goes to the next record with from_offset <= offset < to_offset; all its parts lie within the section.
    """

    def __init__(
        self,
        buf,
        start: cython.Py_ssize_t,
        stop: cython.Py_ssize_t,
        header: BatchHeader,
        from_offset: cython.longlong = 0,
        to_offset: cython.longlong = 2**63 - 1,
    ):
        size: cython.Py_ssize_t
        if cython.compiled:
            if self.held:
                raise TypeError("a section is opened once")
            PyObject_GetBuffer(buf, cython.address(self.view), PyBUF_SIMPLE)
            self.held = True
            self.b = cython.cast(cython.p_const_uchar, self.view.buf)
            size = self.view.len
        else:
            size = memoryview(buf).nbytes
        if start < 0 or start > stop or stop > size:
            raise ValueError(f"bytes {start} to {stop} are not within a buffer of {size} bytes")
        if not cython.compiled:
            self.b = bytes(memoryview(buf)[start:stop])  # whose slices are bytes
            start, stop = 0, stop - start
        if header.records_count > (stop - start) // _RECORD_MIN:
            raise CorruptBatch(
                f"the batch at offset {header.base_offset} claims {header.records_count} records in "
                f"{stop - start} bytes"
            )
        self.p = start
        self.stop = stop
        self.header = header
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.row = 0
        self.delta = -1
        self.append_time = (header.attributes & 8) != 0

    def __dealloc__(self):
        if cython.compiled:
            if self.held:
                PyBuffer_Release(cython.address(self.view))

    @cython.cfunc
    def _corrupt(self, what: str):
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


def read_lists(section: Section, offsets: list, timestamps: list, keys: list, values: list):
    """Appends the section's records to four lists."""
    while section.next():
        offsets.append(section.offset)
        timestamps.append(section.timestamp_ms)
        keys.append(_bytes(section.b, section.key_at, section.key_size))
        values.append(_bytes(section.b, section.value_at, section.value_size))


def read_records(section: Section, out: list):
    """Appends the section's records. Header keys that are not UTF-8 keep their bytes as surrogates."""
    record: Record
    while section.next():
        record = Record.__new__(Record)
        record.offset = section.offset
        record.timestamp_ms = section.timestamp_ms
        record.key = _bytes(section.b, section.key_at, section.key_size)
        record.value = _bytes(section.b, section.value_at, section.value_size)
        record.headers = ()
        if section.headers:
            record.headers = tuple(
                [(key.decode("utf-8", "surrogateescape"), value) for key, value in section.read_headers()]
            )
        out.append(record)


def check_records(section: Section):
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


@cython.cfunc
def _blank(size: cython.Py_ssize_t) -> bytearray:
    """A bytearray whose pages, when compiled, are not touched before they are written."""
    if cython.compiled:
        return PyByteArray_FromStringAndSize(cython.NULL, size)
    else:
        return bytearray(size)


@cython.final
@cython.cclass
class ColumnWriter:
    """Arrow's buffers for the records of many sections: at most `rows` of them, in sections of `data_bytes` in all.

    `add` each section, then `finish`, which cuts the buffers to what was written. Offsets into data are int32, as
    in Arrow's Binary. Validity bitmaps have a 1 for each value that is there. After CorruptBatch it is of no use.
    """

    def __init__(self, rows: cython.Py_ssize_t, data_bytes: cython.Py_ssize_t):
        if rows < 0 or data_bytes < 0 or data_bytes > 2147483647:
            raise ValueError(f"{rows} rows of {data_bytes} bytes do not fit in int32 offsets")
        self.rows = self.data_used = self.key_size = self.value_size = self.key_nulls = self.value_nulls = 0
        self.capacity = rows
        self.data_capacity = data_bytes
        self.offsets = array("q", (0,)) * rows
        self.timestamps = array("q", (0,)) * rows
        self.key_offsets = array("i", (0,)) * (rows + 1)
        self.value_offsets = array("i", (0,)) * (rows + 1)
        self.key_room = data_bytes // 8  # grows; room for all twice over would be given back and faulted in each time
        self.key_data = _blank(self.key_room)
        self.value_data = _blank(data_bytes)
        self.key_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.value_valid = bytearray(b"\xff") * ((rows + 7) // 8)
        self.header_rows = None

    def add(self, section: Section):
        row: cython.Py_ssize_t = self.rows
        key_end: cython.Py_ssize_t = self.key_size
        value_end: cython.Py_ssize_t = self.value_size
        n: cython.Py_ssize_t
        at: cython.Py_ssize_t
        offsets: cython.p_longlong
        timestamps: cython.p_longlong
        key_offsets: cython.p_int
        value_offsets: cython.p_int
        key_data: cython.p_uchar
        value_data: cython.p_uchar
        if section.header.records_count - section.row > self.capacity - row:
            raise ValueError(f"{section.header.records_count} rows more than {row} do not fit in {self.capacity}")
        if section.stop - section.p > self.data_capacity - self.data_used:
            raise ValueError(f"{section.stop - section.p} bytes do not fit in {self.data_capacity - self.data_used}")
        self.data_used += section.stop - section.p
        if cython.compiled:
            offsets = self.offsets.data.as_longlongs
            timestamps = self.timestamps.data.as_longlongs
            key_offsets = self.key_offsets.data.as_ints
            value_offsets = self.value_offsets.data.as_ints
            key_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.key_data))
            value_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.value_data))
        else:
            offsets, timestamps = self.offsets, self.timestamps
            key_offsets, value_offsets = self.key_offsets, self.value_offsets
            key_data, value_data = self.key_data, self.value_data
        while section.next():
            offsets[row] = section.offset
            timestamps[row] = section.timestamp_ms
            n = section.key_size
            at = section.key_at
            if n > 0:
                if n > self.key_room - key_end:
                    self._grow_keys(key_end + n)
                    if cython.compiled:
                        key_data = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(self.key_data))
                if cython.compiled:
                    memcpy(key_data + key_end, section.b + at, n)
                else:
                    key_data[key_end : key_end + n] = section.b[at : at + n]
                key_end += n
            elif n < 0:
                self.key_valid[row >> 3] &= 255 - (1 << (row & 7))
                self.key_nulls += 1
            n = section.value_size
            at = section.value_at
            if n > 0:
                if cython.compiled:
                    memcpy(value_data + value_end, section.b + at, n)
                else:
                    value_data[value_end : value_end + n] = section.b[at : at + n]
                value_end += n
            elif n < 0:
                self.value_valid[row >> 3] &= 255 - (1 << (row & 7))
                self.value_nulls += 1
            if section.headers:
                self._add_headers(section.read_headers(), row)
            row += 1
            key_offsets[row] = key_end
            value_offsets[row] = value_end
        self.rows = row
        self.key_size = key_end
        self.value_size = value_end

    @cython.cfunc
    def _grow_keys(self, needed: cython.Py_ssize_t):
        room: cython.Py_ssize_t = min(max(needed, 2 * self.key_room), self.data_capacity)
        if cython.compiled:
            PyByteArray_Resize(self.key_data, room)
        else:
            self.key_data.extend(bytes(room - self.key_room))
        self.key_room = room

    @cython.cfunc
    def _add_headers(self, headers: list, row: cython.Py_ssize_t):
        """Headers are rare: their buffers are made with the first and grow by Python's own methods."""
        if self.header_rows is None:
            self.header_rows = array("i", (0,))
            self.header_key_offsets = array("i", (0,))
            self.header_value_offsets = array("i", (0,))
            self.header_key_data = bytearray()
            self.header_value_data = bytearray()
            self.header_nulls = []
        self._pad_header_rows(row + 1)
        for key, value in headers:
            self.header_key_data += key
            self.header_key_offsets.append(len(self.header_key_data))
            if value is None:
                self.header_nulls.append(len(self.header_value_offsets) - 1)
            else:
                self.header_value_data += value
            self.header_value_offsets.append(len(self.header_value_data))
        self.header_rows.append(len(self.header_key_offsets) - 1)

    @cython.cfunc
    def _pad_header_rows(self, rows: cython.Py_ssize_t):
        """Rows without headers since the last that had some."""
        missing: cython.Py_ssize_t = rows - len(self.header_rows)
        if missing > 0:
            self.header_rows.extend(array("i", (len(self.header_key_offsets) - 1,)) * missing)

    def finish(self):
        """Cuts the buffers to the rows and bytes written. Nothing can be added afterwards."""
        rows: cython.Py_ssize_t = self.rows
        self.capacity = rows
        self.data_capacity = self.data_used
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
    z: cython.ulonglong = _zigzag(v)
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
        self.size_bytes = _HEADER_SIZE
        self.count = 0
        self.base_timestamp = -1
        self.max_timestamp = -1
        self._capacity = min(max(max_bytes, 256), 16384) + _HEADER_SIZE
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
