# C declarations for _tail.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.buffer cimport PyBUF_READ
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.memoryview cimport PyMemoryView_FromMemory

from isthmus.core_broker.storage.log._appended cimport OffsetTail, Positions, TimeTail
from isthmus.core_broker.storage.disk._data_file cimport DataFile
from isthmus.protocol._batch_header cimport _int16, _int32, _int64, _uint32

cdef long long _NOT_PLAIN
cdef long long _OFFSETS_PLAIN
cdef long long _MAX_RELATIVE
cdef int _BATCHES_KEPT
cdef int _NOT_FOR_CLIENTS

# See protocol/batch_layout.py.
cdef Py_ssize_t ATTRIBUTES_LOW_AT
cdef Py_ssize_t BASE_SEQUENCE_AT
cdef int CODEC_MASK
cdef Py_ssize_t CRC_AT
cdef Py_ssize_t CRC_FROM
cdef Py_ssize_t HEADER_SIZE
cdef int LAST_CODEC
cdef Py_ssize_t LAST_OFFSET_DELTA_AT
cdef Py_ssize_t LENGTH_AT
cdef Py_ssize_t LENGTH_OVERHEAD
cdef int MAGIC
cdef Py_ssize_t MAGIC_AT
cdef Py_ssize_t MAX_TIMESTAMP_AT
cdef Py_ssize_t PREFIX_SIZE
cdef Py_ssize_t PRODUCER_EPOCH_AT
cdef Py_ssize_t PRODUCER_ID_AT
cdef Py_ssize_t RECORDS_COUNT_AT
cdef long long SEQUENCE_MASK

cdef long long _SCAN_BYTES


cdef class AppendLimits:
    cdef readonly long long segment_bytes
    cdef readonly long long batch_bytes
    cdef readonly long long index_interval_bytes
    cdef readonly long long index_entries_safe
    cdef readonly long long roll_ms
    cdef readonly long long timestamp_after_max_ms
    cdef readonly bint keeps_batches


cdef class SegmentTail:
    cdef public object file
    cdef public OffsetTail offsets
    cdef public TimeTail times
    cdef public long long base_offset
    cdef public long long created_ms
    cdef public long long last_offset
    cdef public long long max_timestamp
    cdef public long long max_timestamp_offset
    cdef public long long first_timestamp
    cdef public long long bytes_since_index

    cpdef long long start_of(self, long long offset) except? -2
    cpdef long long indexed_before(self, long long position) except? -2
    cdef tuple sought(self, long long offset, long long position, bint may_wait)
    cdef bint _surely_fits(self, AppendLimits limits, long long size, long long last, long long stamp, long long wall_ms) except? -1


cdef class ProducerTail:
    cdef public long long epoch
    cdef public long long timestamp
    cdef public long long coordinator_epoch
    cdef public long long transaction_start
    cdef int _kept
    cdef long long _first_sequences[5]
    cdef long long _last_sequences[5]
    cdef long long _first_offsets[5]
    cdef long long _last_offsets[5]
    cdef long long _timestamps[5]


cdef class ProducerTails:
    cdef public dict entries
    cdef public dict open
    cdef public bint complete


cdef class LogTail:
    cdef public object config
    cdef public ProducerTails producers
    cdef public object epochs
    cdef public object failure
    cdef public SegmentTail _active
    cdef public Positions _positions
    cdef public long long log_start_offset
    cdef public long long log_end_offset
    cdef public long long _wall_ms
    cdef public bint is_noted

    cdef long long records_plain(self, const unsigned char* b, Py_ssize_t size, long long wall_ms) except? -1
    cdef long long append_plain(self, const unsigned char* b, Py_ssize_t size, long long leader_epoch, long long wall_ms) except? -1


cdef long long size_bytes_of(file) except? -1
