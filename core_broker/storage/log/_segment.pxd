# C declarations for _segment.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.bytes cimport PyBytes_AS_STRING

from isthmus.core_broker.storage.disk._data_file cimport size_of
from isthmus.core_broker.storage.log._indexes cimport OffsetIndex, TimeIndex
from isthmus.core_broker.storage.log._limits cimport AppendLimits
from isthmus.protocol._batch_header cimport _int32, _int64

# See protocol/batch_layout.py.
cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t LAST_OFFSET_DELTA_AT
cdef Py_ssize_t LENGTH_AT
cdef Py_ssize_t LENGTH_OVERHEAD

cdef long long _MAX_RELATIVE
cdef long long _SCAN_BYTES


cdef class Segment:
    cdef object __weakref__
    cdef public object file
    cdef public str directory
    cdef public str tail
    cdef public OffsetIndex offsets
    cdef public TimeIndex times
    cdef public long long base_offset
    cdef public long long created_ms
    cdef public long long last_offset
    cdef public long long max_timestamp
    cdef public long long max_timestamp_offset
    cdef public long long first_timestamp
    cdef public long long bytes_since_index
    cdef public bint synced
    cdef public object aborted
    cdef public object has_aborted

    cdef bint surely_fits(self, AppendLimits limits, long long size, long long last, long long stamp, long long wall_ms) except? -1
    cpdef int note(
        self, long long position, long long size_bytes, long long last_offset, long long max_timestamp,
        long long interval_bytes) except? -1
    cpdef long long start_of(self, long long offset) except? -2
    cpdef long long indexed_before(self, long long position) except? -2
    cpdef tuple seek(self, long long offset, long long position, bint may_wait)
