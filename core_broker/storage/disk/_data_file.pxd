# C declarations for _data_file.py, read by the compiler only, as protocol/_records.pxd is.

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize

cdef extern from *:
    """
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <sys/syscall.h>
    #include <sys/uio.h>
    #include <time.h>
    #include <unistd.h>

    #ifndef SYS_cachestat
    #define SYS_cachestat 451  /* on every architecture, since Linux 6.5 */
    #endif

    /* As many as _ZEROS_BYTES. Not constant, and never written to: so all of them are one page of the system's. */
    static char isthmus_zeros[64 * 1024];

    static inline Py_ssize_t isthmus_write_two(
        int fd, const void *head, Py_ssize_t head_bytes, const void *rest, Py_ssize_t rest_bytes, Py_ssize_t zeros,
        long long position)
    {
        struct iovec parts[3] = {
            {(void *)head, (size_t)head_bytes}, {(void *)rest, (size_t)rest_bytes}, {isthmus_zeros, (size_t)zeros}};
        return pwritev(fd, parts, zeros ? 3 : 2, position);
    }

    static inline void isthmus_space_ahead(int fd, long long position, long long n)
    {
        /* What it had got of the last of a full disk, others need more. */
        if (fallocate(fd, 1 /* FALLOC_FL_KEEP_SIZE */, position, n) && errno == ENOSPC && ftruncate(fd, position))
            return;
    }

    static inline Py_ssize_t isthmus_preadv_now(int fd, void *data, Py_ssize_t n, long long position)
    {
        struct iovec one = {data, (size_t)n};
        Py_ssize_t got;
        do {
            got = preadv2(fd, &one, 1, position, RWF_NOWAIT);
        } while (got < 0 && errno == EINTR);
        return got < 0 ? -errno : got;
    }

    static inline long long isthmus_now_ms(void)
    {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
    }

    /* What the page cache does not have of a range, in whole pages; -1 where that is not known. Reads nothing. */
    static inline long long isthmus_bytes_missing(int fd, long long position, long long n)
    {
        struct {uint64_t position, n;} range = {(uint64_t)position, (uint64_t)n};
        struct {uint64_t cached, dirty, writeback, evicted, recently_evicted;} counted;
        long long page = getpagesize();
        if (n <= 0)
            return 0;
        if (syscall(SYS_cachestat, fd, &range, &counted, 0))
            return -1;
        return ((position + n - 1) / page - position / page + 1 - (long long)counted.cached) * page;
    }
    """
    Py_ssize_t _write_two "isthmus_write_two" (
        int fd, const unsigned char* head, Py_ssize_t head_bytes, const unsigned char* rest, Py_ssize_t rest_bytes,
        Py_ssize_t zeros, long long position) noexcept nogil
    void _space_ahead "isthmus_space_ahead" (int fd, long long position, long long n) noexcept nogil
    long long _bytes_missing "isthmus_bytes_missing" (int fd, long long position, long long n) noexcept nogil
    long long _now_ms "isthmus_now_ms" () noexcept nogil
    Py_ssize_t _preadv_now "isthmus_preadv_now" (int fd, void* data, Py_ssize_t n, long long position) noexcept nogil

cdef Py_ssize_t _CACHED_BYTES_MIN
cdef long long _LOOK_BYTES
cdef long long _KNOWN_BYTES
cdef long long _KNOWN_MS
cdef long long _LOOKS_APART_BYTES
cdef long long _AHEAD_FROM_BYTES
cdef long long _AHEAD_SHARE
cdef long long _AHEAD_BYTES_MAX
cdef long long _ZEROS_BYTES


cdef class DataFile:
    cdef object __weakref__
    cdef public object _descriptor
    cdef public object _open_files
    cdef public unsigned long long _inode
    cdef public bint _is_new
    cdef public bint _is_closed
    cdef public bint is_kept
    cdef public bint is_used
    cdef public str path
    cdef public long long size
    cdef public long long asked_end
    cdef public long long zeros_end
    cdef public bint tells_cached
    cdef public long long known_start
    cdef public long long known_end
    cdef public long long known_until_ms

    cdef opened(self)
    cdef bint _look_ahead(self, int fd, long long position, long long end) except? -1
    cdef void _ask_ahead(self, int fd, long long start, Py_ssize_t total) noexcept
    cdef int append_batch(
        self, const unsigned char* head, Py_ssize_t head_bytes, const unsigned char* rest, Py_ssize_t rest_bytes) except? -1


cdef class FileRange:
    cdef readonly object file
    cdef readonly long long position
    cdef readonly Py_ssize_t size_bytes
    cdef readonly object unreadable


cdef _memory(Py_ssize_t n)
cdef Py_ssize_t _read_now(int fd, data, Py_ssize_t n, long long position) noexcept
cdef long long size_of(file) except? -1
cdef int append_to(file, const unsigned char* head, Py_ssize_t head_bytes, const unsigned char* rest, Py_ssize_t size) except? -1
