# C declarations for _reading.py, read by the compiler only, as protocol/_records.pxd is.

from isthmus.core_broker.storage.disk._data_file cimport FileRange
from isthmus.core_broker.storage.log._tail cimport AppendLimits, LogTail, SegmentTail, size_bytes_of

cdef long long _ANY_OFFSET
cdef long long _INTERVALS_MIN
cdef long long _SURE_SHARE


cdef class LogRanges(LogTail):
    cdef public list _segments
    cdef public list _bases
    cdef public object _unreadable
    cdef public str directory
    cdef public object files
    cdef public str name
    cdef public object windows

    cdef list ranges_up_to(self, long long offset, long long max_bytes, long long upper, bint min_one, bint may_wait)
    cpdef long long end_with_batch(self, long long offset, list ranges) except? -1
    cdef tuple _locate(self, SegmentTail segment, long long offset, bint may_wait)
    cdef long long _size_at(self, SegmentTail segment, long long position, bint may_wait) except? -1
    cdef bint has_none_aborted(self, long long offset) except? -1


cdef bint _is_longer(SegmentTail segment, long long position, long long room) except? -1
