# C declarations for _tail.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.buffer cimport PyBUF_READ
from cpython.memoryview cimport PyMemoryView_FromMemory

from isthmus.core_broker.storage.disk._data_file cimport append_to, size_of
from isthmus.core_broker.storage.log._limits cimport AppendLimits
from isthmus.core_broker.storage.log._producers cimport ProducerEntry, ProducerStates
from isthmus.core_broker.storage.log._segment cimport Segment
from isthmus.protocol._batch_header cimport _int16, _int32, _int64, _uint32

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

cdef long long _NOT_PLAIN
cdef long long _OFFSETS_PLAIN
cdef int _NOT_FOR_CLIENTS
cdef long long _POSITIONS_KEPT


cdef class RecentPositions:
    cdef long long _count
    cdef long long _offsets[64]
    cdef long long _positions[64]

    cpdef int append(self, long long offset, long long position) except? -1


cdef class LogTail:
    cdef public object config
    cdef public ProducerStates producers
    cdef public object epochs
    cdef public object failure
    cdef public object long_way
    cdef public Segment active
    cdef public RecentPositions recent
    cdef public long long log_start_offset
    cdef public long long log_end_offset
    cdef public long long wall_ms
    cdef public bint is_noted

    cdef long long records_plain(self, const unsigned char* b, Py_ssize_t size, long long wall_ms) except? -1
    cdef long long append_plain(self, const unsigned char* b, Py_ssize_t size, long long leader_epoch, long long wall_ms) except? -1
