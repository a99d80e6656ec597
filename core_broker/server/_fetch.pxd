# C declarations for _fetch.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

from isthmus.core_broker.replication._core cimport PartitionCore
from isthmus.core_broker.server._frames cimport Asking, AtOnce, Body
from isthmus.core_broker.server._wanted cimport Wanted
from isthmus.core_broker.storage.disk._data_file cimport FileRange
from isthmus.core_broker.storage.log._ranges cimport LogRanges
from isthmus.core_broker.storage.log._tail cimport LogTail
from isthmus.protocol._batch_header cimport _int32, _int64
from isthmus.protocol._writing cimport _put_int32, _put_int64, _put_uvarint

cdef int _TOPIC_IDS_SINCE
cdef int _REPLICA_STATE_SINCE
cdef Py_ssize_t _LIMITS_BYTES
cdef Py_ssize_t _ASKED_BYTES
cdef Py_ssize_t _HEAD_BYTES
cdef Py_ssize_t _ROW_BYTES
cdef Py_ssize_t _TOPIC_BYTES
cdef long long _ANSWER_BYTES_SAFE
cdef long long _NO_SESSION
cdef long long _FINAL_EPOCH
cdef Py_ssize_t _STRING_BYTES_MAX
cdef Py_ssize_t _ELEMENTS_MAX


cdef class Row:
    cdef Wanted wanted
    cdef PartitionCore partition
    cdef object place
    cdef list ranges
    cdef long long size
    cdef long long high_watermark
    cdef long long log_start_offset
    cdef Py_ssize_t cut
    cdef bint has_list
    cdef bint is_full


cdef class FetchBody(Body):
    cdef int version
    cdef bint by_id
    cdef bint is_committed
    cdef long long max_wait_ms
    cdef long long min_bytes
    cdef long long most_bytes
    cdef long long session_id
    cdef long long session_epoch
    cdef object sessions
    cdef object session
    cdef dict wanted
    cdef list rows
    cdef list idle

    cdef bint read(self, object services) except? -1
    cdef bint _is_whole(self) except? -1
    cdef bint _skip_name(self) except? -1
    cdef bint _find_session(self, object sessions) except? -1
    cdef bint _find_wanted(self, object services) except? -1
    cdef bint _take(self, object key, str name, bytes topic_id) except? -1
    cdef bint _look(self, object partitions) except? -1
    cdef Row _look_at(self, Wanted wanted, object partitions, long long left, bint min_one)
    cdef answer(self, long long correlation)
    cdef _encoded(self, list rows, long long correlation, long long session_id)
    cdef Py_ssize_t _put_topic(self, unsigned char* out, Py_ssize_t n, Wanted wanted, Py_ssize_t count) except? -1


cdef bint _is_of_one_topic(Row one, Row other) except? -1
cdef Py_ssize_t _put_row(unsigned char* out, Py_ssize_t n, Row row) noexcept
cdef _cut(bytes made, Py_ssize_t size, list rows)


cdef class FetchAtOnce(AtOnce):
    cdef int version

    cdef object answer(self, const unsigned char* b, Py_ssize_t body, Py_ssize_t end, long long correlation, Asking context)
