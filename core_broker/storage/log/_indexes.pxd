# C declarations for _indexes.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.array cimport array, resize_smart


cdef class OffsetIndex:
    cdef public Py_ssize_t _before
    cdef public Py_ssize_t _written
    cdef public array _positions
    cdef public array _relative

    cpdef int append(self, long long relative_offset, long long position) except? -1
    cpdef long long lookup(self, long long relative_offset) noexcept
    cpdef long long position_before(self, long long position) noexcept


cdef class TimeIndex:
    cdef public Py_ssize_t _before
    cdef public Py_ssize_t _written
    cdef public tuple _last_before
    cdef public array _relative
    cdef public array _timestamps

    cpdef int append(self, long long timestamp, long long relative_offset) except? -1


cdef int _push_int(array values, long long value) except? -1
cdef int _push_long(array values, long long value) except? -1
cdef Py_ssize_t _count_up_to(array values, long long most) noexcept
cdef long long _int_at(array values, Py_ssize_t i) noexcept
cdef long long _last_long(array values) noexcept
