# C declarations for _walk.py, read by the compiler only, as _records.pxd is.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

from ._batch_header cimport _int16, _int32, _int64, _uint32

cdef Py_ssize_t LENGTH_AT
cdef Py_ssize_t LEADER_EPOCH_AT
cdef Py_ssize_t MAGIC_AT
cdef Py_ssize_t CRC_AT
cdef Py_ssize_t CRC_FROM
cdef Py_ssize_t ATTRIBUTES_AT
cdef Py_ssize_t LAST_OFFSET_DELTA_AT
cdef Py_ssize_t MAX_TIMESTAMP_AT
cdef Py_ssize_t PRODUCER_ID_AT
cdef Py_ssize_t BASE_SEQUENCE_AT
cdef Py_ssize_t RECORDS_COUNT_AT
cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t LENGTH_OVERHEAD
cdef int MAGIC
cdef int _UNDECIDED
cdef long long _MAX_RELATIVE


cdef class BatchScan:
    cdef readonly long long base_offset
    cdef readonly long long end
    cdef readonly long long wanted
    cdef readonly bint stopped
    cdef readonly long long last_offset
    cdef readonly long long max_timestamp
    cdef readonly long long max_timestamp_offset
    cdef readonly long long first_timestamp
    cdef readonly long long bytes_since_index
    cdef readonly long long batches
    cdef readonly list points
    cdef readonly list epochs
    cdef readonly list producers
    cdef long long interval_bytes
    cdef int keeps
    cdef long long epoch
