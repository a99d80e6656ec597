# C declarations for _records.py, read by the compiler only: what the interpreted form has no names for, and the
# layout of its classes. Methods and their types stay in the .py file.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy

from ._batch_header cimport BatchHeader
from ._columns cimport ColumnBuffers

cdef Py_ssize_t _RECORD_MIN
cdef long long _RECORD_MAX
cdef Py_ssize_t _VARINT_MAX


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
    cdef readonly bint append_time
    cdef readonly bint partial
    cdef Py_ssize_t needed
    cdef long long delta
    cdef long long offset
    cdef long long timestamp_ms
    cdef Py_ssize_t key_at
    cdef Py_ssize_t key_size
    cdef Py_ssize_t value_at
    cdef Py_ssize_t value_size
    cdef Py_ssize_t headers_at
    cdef Py_ssize_t headers

    cdef _open(self, buf, Py_ssize_t start, Py_ssize_t stop, bint partial)
    cdef _corrupt(self, str what)
    cdef bint _is_cut(self, Py_ssize_t p, long long size) noexcept
    cdef int next(self) except? -1
    cdef Py_ssize_t _walk_headers(self, Py_ssize_t p, Py_ssize_t end) noexcept
    cdef list read_headers(self)
