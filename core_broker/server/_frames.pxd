# C declarations for _frames.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp

from isthmus.core_broker.server._sending cimport write_by
from isthmus.protocol._batch_header cimport _int16, _int32

cdef Py_ssize_t _SIZE_BYTES
cdef Py_ssize_t _HEAD_BYTES
cdef Py_ssize_t _MIN_HELD_BYTES
cdef Py_ssize_t _GROWTH
cdef int _REQUESTS_A_TURN


cdef class Asking:
    cdef public object services
    cdef public str listener
    cdef public str client_host
    cdef public str client_id
    cdef public int version


cdef class Body:
    cdef const unsigned char* b
    cdef Py_ssize_t p
    cdef Py_ssize_t end

    cdef Py_ssize_t uvarint(self) noexcept


cdef class AtOnce:
    cdef object answer(self, const unsigned char* b, Py_ssize_t body, Py_ssize_t end, long long correlation, Asking context)


cdef class Routed:
    cdef public AtOnce answer_at_once
    cdef public object decode
    cdef public object handle
    cdef public object latency
    cdef public long long requests
    cdef public int version
    cdef public bint flexible_request


cdef class Serving:
    cdef public object routes
    cdef public object scratch
    cdef public object buffers
    cdef public object clock
    cdef public object tell
    cdef public long long tick
    cdef public long long max_request_bytes


cdef class Receiving:
    cdef public Serving _server
    cdef public Asking context
    cdef public object _transport
    cdef public object _scratch
    cdef public bytearray _held
    cdef public bytes _client
    cdef public object _due
    cdef public list _out
    cdef public Routed _route
    cdef public long long _number
    cdef public Py_ssize_t _filled
    cdef public Py_ssize_t _need
    cdef public int _fd
    cdef public long long tick
    cdef public bint busy
    cdef public bint writable
    cdef public bint _waits_for_due
    cdef public int obstacles

    cdef int _hold(self, object view, Py_ssize_t start, Py_ssize_t end) except? -1
    cdef Py_ssize_t _cut(self, object view, Py_ssize_t end) except? -1
    cdef Py_ssize_t _frames(self, object view, const unsigned char* b, Py_ssize_t end) except? -1
    cdef int _request(self, object view, const unsigned char* b, Py_ssize_t start, Py_ssize_t end) except? -1
    cdef int _take_client(self, const unsigned char* b, Py_ssize_t start, Py_ssize_t end) except? -1


cdef int _write(Receiving receiving) except? -1
