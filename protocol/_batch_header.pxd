# C declarations for _batch_header.py, read by the compiler only, as _records.pxd is.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer

cdef Py_ssize_t LENGTH_AT
cdef Py_ssize_t LEADER_EPOCH_AT
cdef Py_ssize_t MAGIC_AT
cdef Py_ssize_t CRC_AT
cdef Py_ssize_t ATTRIBUTES_AT
cdef Py_ssize_t LAST_OFFSET_DELTA_AT
cdef Py_ssize_t BASE_TIMESTAMP_AT
cdef Py_ssize_t MAX_TIMESTAMP_AT
cdef Py_ssize_t PRODUCER_ID_AT
cdef Py_ssize_t PRODUCER_EPOCH_AT
cdef Py_ssize_t BASE_SEQUENCE_AT
cdef Py_ssize_t RECORDS_COUNT_AT
cdef Py_ssize_t HEADER_SIZE
cdef Py_ssize_t LENGTH_OVERHEAD
cdef Py_ssize_t _LENGTH_MIN
cdef int MAGIC
cdef int CODEC_MASK
cdef int LOG_APPEND_TIME
cdef int TRANSACTIONAL
cdef int CONTROL
cdef long long SEQUENCE_MASK
cdef long long _OFFSET_MAX

# Also used by the other compiled modules.
cdef int _int16(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _uint32(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _int32(const unsigned char* b, Py_ssize_t p) noexcept
cdef long long _int64(const unsigned char* b, Py_ssize_t p) noexcept


cdef class BatchHeader:
    cdef readonly long long base_offset
    cdef readonly long long base_timestamp
    cdef readonly long long max_timestamp
    cdef readonly long long producer_id
    cdef readonly unsigned int crc
    cdef readonly int length
    cdef readonly int partition_leader_epoch
    cdef readonly int last_offset_delta
    cdef readonly int base_sequence
    cdef readonly int records_count
    cdef readonly short attributes
    cdef readonly short producer_epoch
    cdef readonly signed char magic
