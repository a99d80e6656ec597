# C declarations for _produce.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from isthmus.core_broker.replication._core cimport PartitionCore
from isthmus.core_broker.server._frames cimport Asking, AtOnce, Body
from isthmus.protocol._batch_header cimport _int16, _int32
from isthmus.protocol._writing cimport _put_int32, _put_int64, _put_uvarint, _uvarint_size

cdef Py_ssize_t _ROW_BYTES
cdef Py_ssize_t _HEAD_BYTES
cdef Py_ssize_t _TAIL_BYTES
cdef Py_ssize_t _COMPARED_MAX
cdef int _TOPIC_IDS_SINCE


cdef class Part:
    cdef PartitionCore partition
    cdef const unsigned char* b
    cdef Py_ssize_t size
    cdef long long records
    cdef readonly long long index
    cdef readonly long long base_offset
    cdef readonly object error


cdef class Asked:
    cdef readonly object topic
    cdef readonly str name
    cdef readonly list parts


cdef class ProduceFrame(Body):
    cdef int acks
    cdef long long timeout_ms
    cdef list topics
    cdef Py_ssize_t answer_bytes

    cdef bint read(self, int version, object services, long long wall_ms) except? -1
    cdef Asked read_topic(self, int version, object services, long long wall_ms)
    cdef Part read_part(self, dict partitions, long long wall_ms)
    cdef bint append(self, long long wall_ms) except? -1
    cdef list outcomes(self, int version)
    cdef bytes answer(self, long long correlation)


cdef class ProduceAtOnce(AtOnce):
    cdef object other_answer
    cdef int version

    cdef object answer(self, const unsigned char* b, Py_ssize_t body, Py_ssize_t end, long long correlation, Asking context)
