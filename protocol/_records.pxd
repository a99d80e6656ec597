# C declarations for _records.py, read by the compiler only: what the interpreted form has no names for, and the
# layout of its classes. Methods and their types stay in the .py file.

from cpython.array cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef Py_ssize_t _HEADER_SIZE
cdef Py_ssize_t _LENGTH_MIN
cdef long long _OFFSET_MAX
cdef Py_ssize_t _RECORD_MIN
cdef Py_ssize_t _RECORD_MAX

# Also used by the other compiled modules.
cdef Py_ssize_t _varint_size(long long v) noexcept
cdef Py_ssize_t _put_varint(unsigned char* out, Py_ssize_t at, long long v) noexcept
cdef Py_ssize_t _uvarint_size(unsigned long long z) noexcept
cdef Py_ssize_t _put_uvarint(unsigned char* out, Py_ssize_t at, unsigned long long z) noexcept
cdef int _int16(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _uint32(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _int32(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _int64(const unsigned char* b, Py_ssize_t p) noexcept


cdef class BatchHeader:
    cdef readonly long long base_offset
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef readonly long long producer_id
    cdef readonly unsigned int crc
    cdef readonly int length
    cdef readonly int partition_leader_epoch
    cdef readonly int last_offset_delta
    cdef readonly int base_sequence
    cdef readonly int records_count
    cdef readonly short attributes
    cdef readonly short producer_epoch
    cdef readonly signed char magic


cdef class Record:
    cdef readonly long long offset
    cdef readonly long long timestamp_ms
    cdef readonly object key
    cdef readonly object value
    cdef readonly tuple headers


cdef class Section:
    cdef Py_buffer view
    cdef bint held
    cdef const unsigned char* b
    cdef BatchHeader header
    cdef Py_ssize_t p
    cdef Py_ssize_t stop
    cdef Py_ssize_t row
    cdef long long from_offset
    cdef long long to_offset
    cdef bint append_time
    cdef long long delta
    cdef long long offset
    cdef long long timestamp_ms
    cdef Py_ssize_t key_at
    cdef Py_ssize_t key_size
    cdef Py_ssize_t value_at
    cdef Py_ssize_t value_size
    cdef Py_ssize_t headers_at
    cdef Py_ssize_t headers

    cdef _corrupt(self, str what)
    cdef int next(self) except? -1
    cdef Py_ssize_t _walk_headers(self, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef list read_headers(self)


cdef class ColumnWriter:
    cdef readonly Py_ssize_t rows
    cdef Py_ssize_t capacity
    cdef Py_ssize_t data_capacity
    cdef Py_ssize_t data_used
    cdef Py_ssize_t key_room
    cdef readonly Py_ssize_t key_size
    cdef readonly Py_ssize_t value_size
    cdef readonly Py_ssize_t key_nulls
    cdef readonly Py_ssize_t value_nulls
    cdef readonly array offsets
    cdef readonly array timestamps
    cdef readonly array key_offsets
    cdef readonly array value_offsets
    cdef readonly bytearray key_data
    cdef readonly bytearray value_data
    cdef readonly bytearray key_valid
    cdef readonly bytearray value_valid
    cdef readonly array header_rows
    cdef readonly array header_key_offsets
    cdef readonly array header_value_offsets
    cdef readonly bytearray header_key_data
    cdef readonly bytearray header_value_data
    cdef readonly list header_nulls

    cdef _grow_keys(self, Py_ssize_t needed)
    cdef _add_headers(self, list headers, Py_ssize_t row)
    cdef _pad_header_rows(self, Py_ssize_t rows)


cdef class RecordsWriter:
    cdef readonly Py_ssize_t max_bytes
    cdef readonly Py_ssize_t size_bytes
    cdef readonly int count
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef bytearray _out
    cdef Py_ssize_t _capacity

    cdef int _put(self, long long timestamp_ms, key, value, headers) except? -1
    cdef _grow(self, Py_ssize_t needed)
