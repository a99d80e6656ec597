# C declarations for _limits.py, read by the compiler only, as protocol/_records.pxd is.

cdef class AppendLimits:
    cdef readonly long long segment_bytes
    cdef readonly long long batch_bytes
    cdef readonly long long index_interval_bytes
    cdef readonly long long index_entries_safe
    cdef readonly long long roll_ms
    cdef readonly long long timestamp_after_max_ms
    cdef readonly bint keeps_batches
