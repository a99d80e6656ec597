# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (functions of _C_CODE are declared by annotations alone)
"""A file of the operating system: what `real_files.RealFiles` opens.

Compiled are an append of a batch, a read, and the look whether a read has to wait for the disk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import cython

from .descriptor import Descriptor
from .errors import TornWrite

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
else:  # only compiled code calls them
    isthmus_write_two: Any
    isthmus_space_ahead: Any
    isthmus_preadv_now: Any
    isthmus_now_ms: Any
    isthmus_bytes_missing: Any
    PyBytes_AS_STRING: Any
    PyBytes_FromStringAndSize: Any

if TYPE_CHECKING:
    from ....compiled import Public, Readonly
    from .files import Buffer, File

_C_CODE = """
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

_CACHED_BYTES_MIN: cython.Py_ssize_t = 4096
_LOOK_BYTES: cython.longlong = 256 * 1024
_KNOWN_BYTES: cython.longlong = 8 * 1024 * 1024
_KNOWN_MS: cython.longlong = 100
_LOOKS_APART_BYTES: cython.longlong = 1024 * 1024
_AHEAD_FROM_BYTES: cython.longlong = 8 * 1024 * 1024
_AHEAD_SHARE: cython.longlong = 8
_AHEAD_BYTES_MAX: cython.longlong = 16 * 1024 * 1024
_ZEROS_BYTES: cython.longlong = 64 * 1024

CACHED_BYTES_MIN = _CACHED_BYTES_MIN  # that `pread_cached` gives, if so much was asked for and is there
LOOK_BYTES = _LOOK_BYTES  # `is_cached` looks at the first byte of each so many
KNOWN_BYTES = _KNOWN_BYTES  # where it is asked of as much as that, it looks so far,
KNOWN_MS = _KNOWN_MS  # and does not look again for so long where it found all
AHEAD_FROM_BYTES = _AHEAD_FROM_BYTES  # a smaller file asks for no space ahead of what it writes
AHEAD_SHARE = _AHEAD_SHARE  # a larger one asks for one part in so many of what it has,
AHEAD_BYTES_MAX = _AHEAD_BYTES_MAX  # and at most for so much
IOV_MAX = 1024  # buffers in one writev (Linux)
_READ_WRITE = os.O_RDWR | os.O_CLOEXEC
ZEROS_BYTES = _ZEROS_BYTES  # appends to such a file bring zeros behind its end, up to a multiple of so many


class OpenedFiles(Protocol):
    """Where a file is opened: bounds how many are. See `real_files.OpenFiles`."""

    def open(self, path: str, flags: int) -> tuple[Descriptor, os.stat_result]: ...

    def admit(self, file: DataFile) -> None: ...

    def forget(self, file: DataFile) -> None: ...

    def keep(self, file: DataFile) -> None: ...


@cython.cclass
class DataFile:
    """A file of the operating system, by its name, and its descriptor while it is open."""

    path: Public[str]
    size: Public[cython.longlong]  # what this object has written or found
    is_used: Public[cython.bint]  # since OpenFiles last looked for one to close
    is_kept: Public[cython.bint]  # it stays open whatever the bound
    asked_end: Public[cython.longlong]  # up to where the file system was asked for space
    zeros_end: Public[cython.longlong]  # up to where zeros were written behind the end
    tells_cached: Public[cython.bint]  # the file system has said of one place whether it is cached
    known_start: Public[cython.longlong]  # all from here
    known_end: Public[cython.longlong]  # to here was cached when that was asked,
    known_until_ms: Public[cython.longlong]  # which counts until then
    _descriptor: Public[Descriptor | None]
    _open_files: Public[OpenedFiles]
    _inode: Public[cython.ulonglong]  # 0: the file does not exist yet
    _is_new: Public[cython.bint]  # its name may not be on disk
    _is_closed: Public[cython.bint]
    __weakref__: object

    def __init__(self, path: str, open_files: OpenedFiles, *, create: bool, later: bool = False) -> None:
        """create: make the file if it does not exist. later: it does not, and is made when it is first used."""
        self._descriptor = None
        self._open_files = open_files
        self._is_new = self._is_closed = False
        self.is_kept = False
        self.is_used = False
        self.tells_cached = False
        self.path = path
        self.size = self.asked_end = self.zeros_end = 0
        self.known_start = self.known_end = self.known_until_ms = 0
        self._inode = 0
        if later:
            return
        try:
            self._descriptor, about = open_files.open(path, _READ_WRITE)
        except FileNotFoundError:
            if not create:
                raise
            self._descriptor, about = open_files.open(path, _READ_WRITE | os.O_CREAT)
            self._is_new = True
        self.size = about.st_size
        self._inode = about.st_ino
        open_files.admit(self)

    @cython.cfunc
    def opened(self):
        """The Descriptor. Whoever refers to it keeps it open, though another thread may close the file meanwhile."""
        held = self._descriptor
        self.is_used = True
        return self._open_again() if held is None else held

    def hold(self) -> Descriptor:
        return self.opened()

    @cython.cfunc
    @cython.exceptval(-1)
    def append_batch(
        self,
        head: cython.p_const_uchar,
        head_bytes: cython.Py_ssize_t,
        rest: cython.p_const_uchar,
        rest_bytes: cython.Py_ssize_t,
    ) -> cython.int:
        """`File.append` of two pieces of memory.

        File systems make large folios only for large writes that begin where such a folio may. For small ones that is
        most of what they cost, and readers pay for each folio, too. So what passes a bound brings zeros up to the next
        one, over which others are written.
        """
        held = self.opened()
        fd: cython.int = held.fd
        start: cython.longlong = self.size
        total: cython.Py_ssize_t = head_bytes + rest_bytes
        end: cython.longlong = start + total
        zeros: cython.Py_ssize_t = 0
        written: cython.Py_ssize_t
        if start >= _AHEAD_FROM_BYTES:
            if end > self.asked_end:
                self._ask_ahead(fd, start, total)
            if end > self.zeros_end:
                zeros = -end & (_ZEROS_BYTES - 1)
        with cython.nogil:
            written = isthmus_write_two(fd, head, head_bytes, rest, rest_bytes, zeros, start)
        if written >= total:
            self.size = end
            if written > total:
                self.zeros_end = start + written
        else:  # once more, by what goes on after a short write and tells what an error is of
            self.append([head[:head_bytes], rest[:rest_bytes]])
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _ask_ahead(self, fd: cython.int, start: cython.longlong, total: cython.Py_ssize_t) -> cython.void:
        """Ask for space past the end, where a write costs the file system less.

        Where there is none to be had, or the file system does not know the question, the write is what it would be.
        """
        ahead: cython.longlong = start // _AHEAD_SHARE
        if ahead > _AHEAD_BYTES_MAX:
            ahead = _AHEAD_BYTES_MAX
        ahead += total
        if cython.compiled:  # plain Python has no call that leaves the size as it is
            with cython.nogil:
                isthmus_space_ahead(fd, start, ahead)
        self.asked_end = start + ahead

    def pread(self, n: cython.Py_ssize_t, position: cython.longlong) -> bytes:
        held = self.opened()
        got: cython.Py_ssize_t
        data: bytes
        try:
            data = os.pread(held.fd, n, position)
            got = len(data)
            if got == n or not got:
                return data
            pieces = [data]  # a read stops short at 2 GiB or a signal
            while got < n:
                data = os.pread(held.fd, n - got, position + got)
                if not data:
                    break
                pieces.append(data)
                got += len(data)
            return b"".join(pieces)
        except OSError as error:
            error.filename = self.path
            raise

    def pread_cached(self, n: cython.Py_ssize_t, position: cython.longlong) -> bytes:
        held = self.opened()
        data = _memory(n)
        got: cython.Py_ssize_t = _read_now(held.fd, data, n, position)
        if got == -errno.EOPNOTSUPP:
            return self.pread(n, position)  # a file system that cannot say, such as an overlay
        if got >= 0 and got < min(n, _CACHED_BYTES_MIN, self.size - position):
            got = -errno.EAGAIN
        if got < 0:
            raise OSError(-got, os.strerror(-got), self.path)
        return bytes(data) if got == n else bytes(memoryview(data)[:got])  # bytes of bytes: the same

    def is_cached(self, position: cython.longlong, n: cython.longlong, missing_max_bytes: cython.longlong = 0) -> bool:
        """See `File`. A read that does not wait tells most, but makes the system read what is not cached.

        So where the system counts cached pages, the count is asked first. Where all are there, some may be being read
        just now, in order: a look at both ends shows that, but for a gap between what two readers have. An overlay
        counts nothing, and is recognised by its answer to a read. What was found is not asked again for a while.
        """
        end: cython.longlong = position + n
        if (
            cython.compiled
            and self.known_start <= position
            and end <= self.known_end
            and isthmus_now_ms() < self.known_until_ms
        ):
            return True
        held = self.opened()
        fd: cython.int = held.fd
        step: cython.longlong = _LOOK_BYTES
        missing: cython.longlong = -1
        got: cython.Py_ssize_t
        if cython.compiled:  # plain Python has no call for it
            if n >= _LOOK_BYTES and self.tells_cached and self._look_ahead(fd, position, end):
                return True
            with cython.nogil:
                missing = isthmus_bytes_missing(fd, position, n)
            if missing > 0 and self.tells_cached:
                return missing <= missing_max_bytes
            if missing == 0 and n > 1:
                step = n - 1
        look = _memory(1)
        while position < end:
            got = _read_now(fd, look, 1, position)
            if got < 0 and got != -errno.EAGAIN:
                return True  # it is not known, or the read will report what is wrong
            self.tells_cached = True
            if got < 0:
                return False
            position += step
        return missing <= missing_max_bytes

    @cython.cfunc
    @cython.exceptval(-1)
    def _look_ahead(self, fd: cython.int, position: cython.longlong, end: cython.longlong) -> cython.bint:
        """Whether a piece and what follows it are cached: then readers in order need not ask for each piece."""
        further: cython.longlong = min(position + _KNOWN_BYTES, self.size)
        at: cython.longlong = position
        missing: cython.longlong
        if further <= end:
            return False
        with cython.nogil:
            missing = isthmus_bytes_missing(fd, position, further - position)
        if missing:
            return False
        look = _memory(1)  # what is counted may be being read by now
        while at < further:
            if _read_now(fd, look, 1, at) != 1:
                return False
            at += _LOOKS_APART_BYTES
        if _read_now(fd, look, 1, further - 1) != 1:
            return False
        self.known_start = position
        self.known_end = further
        self.known_until_ms = isthmus_now_ms() + _KNOWN_MS
        return True

    def _open_again(self) -> Descriptor:
        if self._is_closed:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        flags = _READ_WRITE if self._inode else _READ_WRITE | os.O_CREAT
        size = self.size  # another thread may append or cut meanwhile: it has this size then, or the one it has after
        try:
            held, about = self._open_files.open(self.path, flags)
            if not self._inode:
                self._inode, self._is_new = about.st_ino, True
            elif about.st_ino != self._inode or about.st_size < min(size, self.size):  # numbers come again
                raise OSError(errno.ESTALE, "another file has taken its name", self.path)
        except OSError:
            kept = self._descriptor  # by another thread, which then took the name away
            if kept is None:
                raise
            return kept
        self._descriptor = held
        if not self.is_kept:
            self._open_files.admit(self)
        return held

    def let_go(self) -> None:
        """Close it for now."""
        self._descriptor = None

    def keep(self) -> None:
        if self._inode:
            self._open_files.keep(self)
            self.opened()

    def renamed(self, path: str) -> None:
        self.path = path
        if self.is_kept:
            self.is_kept = False
            self._open_files.admit(self)

    def append(self, parts: Sequence[Buffer]) -> None:
        start = self.size
        total = sum(map(len, parts))
        held = self.opened()
        try:
            written = os.pwritev(held.fd, parts if len(parts) <= IOV_MAX else parts[:IOV_MAX], start)
            if written != total:
                self._write_rest(held.fd, parts, start, written, total)
        except OSError as error:
            self.asked_end = self.zeros_end = 0
            try:
                os.ftruncate(held.fd, start)
            except OSError as second:
                raise TornWrite(
                    error.errno,
                    f"{os.strerror(error.errno or 0)}, then {second.strerror} on cutting it back",
                    self.path,
                ) from error
            raise OSError(error.errno, os.strerror(error.errno or 0), self.path) from error
        self.size = start + total

    def _write_rest(self, fd: int, parts: Sequence[Buffer], start: int, written: int, total: int) -> None:
        """The short write of a full disk, a signal or more buffers than one call takes: go on until all or an error."""
        skip = written
        for part in parts:
            view = memoryview(part)
            if skip >= len(view):
                skip -= len(view)
                continue
            view = view[skip:]
            skip = 0
            while len(view):
                n = os.pwrite(fd, view, start + written)
                if n == 0:
                    raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
                written += n
                view = view[n:]
        assert written == total

    def pwrite(self, data: Buffer, position: int) -> None:
        held = self.opened()
        view = memoryview(data)
        try:
            while len(view):
                n = os.pwrite(held.fd, view, position)
                position += n
                view = view[n:]
        except OSError as error:
            error.filename = self.path
            raise
        self.size = max(self.size, position)

    def truncate(self, size: int) -> None:
        held = self.opened()
        try:
            os.ftruncate(held.fd, size)
        except OSError as error:
            error.filename = self.path
            raise
        self.size = size
        self.asked_end = self.zeros_end = self.known_end = 0

    def give_back(self) -> None:
        if self.size >= _AHEAD_FROM_BYTES:
            self.truncate(self.size)  # and zeros behind it; also what was asked for before a crash

    def sync(self) -> None:
        held = self.opened()
        try:
            os.fdatasync(held.fd)
        except OSError as error:
            raise OSError(error.errno, error.strerror, self.path) from error
        if self._is_new:
            sync_directory(os.path.dirname(self.path))
            self._is_new = False

    def close(self) -> None:
        self._is_closed = True
        self._descriptor = None
        self._open_files.forget(self)

    def __del__(self) -> None:
        self._open_files.forget(self)


@cython.final
@cython.cclass
class FileRange:
    """Bytes of a file to be sent or read. Holding the range holds the file open, even one deleted meanwhile.

    unreadable: called with the OSError when the disk refuses to read it.
    """

    file: Readonly[File]
    position: Readonly[cython.longlong]
    size_bytes: Readonly[cython.Py_ssize_t]
    unreadable: Readonly[Callable[[OSError], None]]

    def __init__(
        self,
        file: File,
        position: cython.longlong,
        size_bytes: cython.Py_ssize_t,
        unreadable: Callable[[OSError], None] | None = None,
    ) -> None:
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.unreadable = _ignore if unreadable is None else unreadable

    def __len__(self) -> int:
        return self.size_bytes

    def __repr__(self) -> str:
        return f"FileRange({self.file.path!r}, {self.position}, {self.size_bytes})"

    def read(self) -> bytes:
        """The bytes, copied out; may block when they are cold. Shorter when the file was truncated since."""
        try:
            return self.file.pread(self.size_bytes, self.position)
        except OSError as error:
            self.unreadable(error)
            raise


def _ignore(error: OSError) -> None:
    pass


@cython.cfunc
@cython.inline
def _memory(n: cython.Py_ssize_t):
    """A buffer for n bytes to be read. Where compiled it is the bytes object itself, neither zeroed nor copied."""
    if cython.compiled:
        return PyBytes_FromStringAndSize(cython.NULL, n)
    else:
        return bytearray(n)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _read_now(fd: cython.int, data, n: cython.Py_ssize_t, position: cython.longlong) -> cython.Py_ssize_t:
    """How many bytes were read from the page cache into `_memory`, or -errno."""
    if cython.compiled:
        return isthmus_preadv_now(fd, PyBytes_AS_STRING(data), n, position)
    else:
        try:
            return os.preadv(fd, (data,), position, os.RWF_NOWAIT)
        except OSError as error:
            return -(error.errno or errno.EIO)


@cython.cfunc
@cython.exceptval(-1)
def size_of(file) -> cython.longlong:
    """The size of any File; of one of the operating system without a Python object."""
    data_file: DataFile
    if isinstance(file, DataFile):
        data_file = file
        return data_file.size
    return file.size


@cython.cfunc
@cython.exceptval(-1)
def append_to(
    file, head: cython.p_const_uchar, head_bytes: cython.Py_ssize_t, rest: cython.p_const_uchar, size: cython.Py_ssize_t
) -> cython.int:
    """Append two pieces of memory to any File."""
    data_file: DataFile
    if isinstance(file, DataFile):
        data_file = file
        data_file.append_batch(head, head_bytes, rest, size)
    else:  # a simulated one
        file.append([head[:head_bytes], rest[:size]])
    return 0


def sync_directory(path: str) -> None:
    """Put the names in a directory on disk. Raises OSError."""
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
