# C declarations for _leading.py, read by the compiler only, as protocol/_records.pxd is.

from isthmus.core_broker.storage.log._ranges cimport LogRanges
from isthmus.core_broker.storage.log._tail cimport LogTail


cdef class Counts:
    cdef public long long appends
    cdef public long long failed_appends
    cdef public long long bytes_in
    cdef public long long bytes_refused
    cdef public long long messages_in
    cdef public long long fetches
    cdef public long long failed_fetches
    cdef public long long bytes_out


cdef class Leading:
    cdef public object log
    cdef public LogTail tail
    cdef public LogRanges ranges
    cdef public Counts traffic
    cdef public object failure
    cdef public str refusal
    cdef public str mirror_link
    cdef public object line
    cdef public list isr
    cdef public list _end_waiters
    cdef public dict _data_waiters
    cdef public long long leader_epoch
    cdef public long long least_in_sync
    cdef public long long high_watermark
    cdef public bint _holds_back

    cdef long long records_plain(self, const unsigned char* b, Py_ssize_t size, int acks, long long wall_ms) except? -1
    cdef long long append_plain(self, const unsigned char* b, Py_ssize_t size, long long records, long long wall_ms) except? -1
