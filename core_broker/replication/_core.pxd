# C declarations for _core.py, read by the compiler only, as protocol/_records.pxd is.

from isthmus.core_broker.storage.log._ranges cimport LogRanges
from isthmus.core_broker.storage.log._tail cimport LogTail

cdef int _NOT_SERVED
cdef int _NO_APPENDS
cdef int _MIRRORED
cdef int _IN_LINE
cdef int _TOO_FEW_IN_SYNC
cdef int _AGAINST_ACKS_1
cdef int _AGAINST_ACKS_ALL


cdef class Traffic:
    cdef public long long appends
    cdef public long long failed_appends
    cdef public long long bytes_in
    cdef public long long bytes_refused
    cdef public long long messages_in
    cdef public long long fetches
    cdef public long long failed_fetches
    cdef public long long bytes_out


cdef class PartitionCore:
    cdef readonly object partition
    cdef readonly LogTail tail
    cdef readonly LogRanges ranges
    cdef readonly Traffic traffic
    cdef readonly long long high_watermark
    cdef readonly int obstacles
    cdef public long long leader_epoch
    cdef public bint lags
    cdef list _end_waiters
    cdef dict _data_waiters
    cdef long long _sequence

    cpdef bint is_served(self) noexcept
    cdef int advance(self, long long offset) except? -1
    cpdef int appended(self, long long end) except? -1
    cpdef bint is_acknowledged(self, long long next_offset) except? -1
    cdef long long records_plain(self, const unsigned char* b, Py_ssize_t size, int acks, long long wall_ms) except? -1
    cdef long long append_plain(self, const unsigned char* b, Py_ssize_t size, long long records, long long wall_ms) except? -1
