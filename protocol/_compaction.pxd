# C declarations for _compaction.py, read by the compiler only, as _records.pxd is.

from cpython.array cimport array
from cpython.bytearray cimport PyByteArray_AS_STRING
from libc.string cimport memcpy

from ._records cimport Section
from ._writing cimport _minus, _put_varint, _varint_size

cdef unsigned long long _MASK
cdef unsigned long long _INIT_0
cdef unsigned long long _INIT_1
cdef unsigned long long _INIT_2
cdef unsigned long long _INIT_3
cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t _GROWTH


cdef class OffsetMap:
    cdef readonly Py_ssize_t slots
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t size
    cdef public long long latest_offset
    cdef array _table
    cdef unsigned long long _k0
    cdef unsigned long long _k1

    cdef (unsigned long long, unsigned long long) _hash(self, const unsigned char* b, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef Py_ssize_t _find(self, const unsigned char* b, Py_ssize_t at, Py_ssize_t size) noexcept
    cdef void _put(self, const unsigned char* b, Py_ssize_t at, Py_ssize_t size, long long offset) noexcept
    cdef long long _get(self, const unsigned char* b, Py_ssize_t at, Py_ssize_t size) noexcept
