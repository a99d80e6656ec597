# C declarations for _sending.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE

from isthmus.core_broker.storage.disk._data_file cimport FileRange

cdef extern from *:
    """
    #include <errno.h>
    #include <sys/socket.h>

    static inline Py_ssize_t isthmus_send_now(int fd, const void *data, Py_ssize_t n, int flags)
    {
        Py_ssize_t sent;
        do {
            sent = send(fd, data, n, flags | MSG_DONTWAIT | MSG_NOSIGNAL);
        } while (sent < 0 && errno == EINTR);
        return sent < 0 ? -errno : sent;
    }
    """
    Py_ssize_t _send_now "isthmus_send_now" (int fd, const char* data, Py_ssize_t n, int flags) noexcept nogil
    int MSG_MORE

cdef long long _JOIN_BYTES
cdef long long _SMALL_RANGE_BYTES
cdef long long _PIECE_BYTES


cdef class Sender:
    cdef object _owner
    cdef object _transport
    cdef object _cold_sends
    cdef object _loop
    cdef readonly list _parts
    cdef Py_ssize_t _first
    cdef long long _turn_bytes
    cdef long long _position
    cdef long long _left
    cdef long long _ready_to
    cdef int _dup
    cdef int _fd
    cdef bint _waits_for_disk

    cdef _let_go(self)
    cdef _finish(self, bint done)
    cdef bint _run(self) except? -1
    cdef bint _write_joined(self) except? -1
    cdef long long _send_some(self, long long budget) except? -2
    cdef _advance(self, long long sent)
    cdef _cause(self, FileRange source, error)
    cdef _begin(self, FileRange source)
    cdef bint _is_cached(self, FileRange source) except? -1
    cdef bint _follows_at_once(self, FileRange source) except? -1
    cdef bint _is_ready(self, FileRange source) except? -1
    cdef _range_done(self)
    cdef _pop(self)
    cdef _wait_writable(self)
    cdef _stop_waiting(self)
    cdef _fail(self, error)


cpdef bint is_buffer(part) noexcept
cdef _whole(FileRange source)
cpdef int write_by(int fd, transport, bytes data, bint more) except? -1
cdef Py_ssize_t _send(int fd, bytes data, bint more) noexcept
cdef _too_short(FileRange source, long long position, long long left)
