# C declarations for _writing.py, read by the compiler only, as _records.pxd is.

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memcpy

cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t _RECORD_MAX

# Also used by the other compiled modules.
cdef long long _minus(long long a, long long b) noexcept
cdef Py_ssize_t _varint_size(long long v) noexcept
cdef Py_ssize_t _put_varint(unsigned char* out, Py_ssize_t at, long long v) noexcept
cdef void _put_int32(unsigned char* out, long long value) noexcept
cdef void _put_int64(unsigned char* out, long long value) noexcept
cdef Py_ssize_t _uvarint_size(unsigned long long z) noexcept
cdef Py_ssize_t _put_uvarint(unsigned char* out, Py_ssize_t at, unsigned long long z) noexcept


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
