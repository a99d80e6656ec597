# C declarations for _wanted.py, read by the compiler only, as protocol/_records.pxd is.

from isthmus.core_broker.replication._core cimport PartitionCore


cdef class Wanted:
    cdef public object topic
    cdef readonly object topic_id
    cdef readonly long long index
    cdef readonly long long fetch_offset
    cdef readonly long long current_leader_epoch
    cdef readonly long long last_fetched_epoch
    cdef readonly long long max_bytes
    cdef public long long high_watermark
    cdef public long long log_start_offset
    cdef public object partition
    cdef public PartitionCore idle
    cdef public long long idle_epoch
    cdef public long long size
    cdef public object cancel

    cdef void ask(self, long long fetch_offset, long long current_leader_epoch, long long last_fetched_epoch, long long max_bytes) noexcept
    cdef bint has_no_news(self) except? -1
    cdef bint told(self, bint news, int error_code, long long high_watermark, long long log_start_offset) except? -1
