# C declarations for _ranges.py, read by the compiler only, as protocol/_records.pxd is.

from isthmus.core_broker.storage.disk._data_file cimport FileRange, size_of
from isthmus.core_broker.storage.log._limits cimport AppendLimits
from isthmus.core_broker.storage.log._segment cimport Segment
from isthmus.core_broker.storage.log._tail cimport LogTail

cdef long long _ANY_OFFSET
cdef long long _INTERVALS_MIN
cdef long long _SURE_SHARE


cdef class LogRanges:
    cdef public LogTail tail
    cdef public object status
    cdef public object files
    cdef public list segments
    cdef public list bases
    cdef public object windows
    cdef public object unreadable
    cdef public long long cuts

    cdef list ranges_up_to(self, long long offset, long long max_bytes, long long upper, bint min_one, bint may_wait)
    cpdef long long end_with_batch(self, long long offset, list ranges) except? -1
    cdef tuple _locate(self, Segment segment, long long offset, bint may_wait)
    cdef long long _size_at(self, Segment segment, long long position, bint may_wait) except? -1
    cdef bint has_none_aborted(self, long long offset) except? -1


cdef bint _is_longer(Segment segment, long long position, long long bytes_left) except? -1
