# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (names declared in _data_file.pxd)
# mypy: ignore-errors
"""What requests do with a file of the operating system: append a batch, read, and look whether a read need not wait.

`RealFile` is made of `DataFile` and of all that is done less often.
"""

import errno
import os

import cython

# C variables when compiled, see _data_file.pxd.
_CACHED_BYTES_MIN = 4096
_LOOK_BYTES = 256 * 1024
_KNOWN_BYTES = 8 * 1024 * 1024
_KNOWN_MS = 100
_LOOKS_APART_BYTES = 1024 * 1024
_AHEAD_FROM_BYTES = 8 * 1024 * 1024
_AHEAD_SHARE = 8
_AHEAD_BYTES_MAX = 16 * 1024 * 1024
_ZEROS_BYTES = 64 * 1024

CACHED_BYTES_MIN = _CACHED_BYTES_MIN  # that `pread_cached` gives, if so much was asked for and is there
LOOK_BYTES = _LOOK_BYTES  # `is_cached` looks at the first byte of each so many
KNOWN_BYTES = _KNOWN_BYTES  # where it is asked of as much as that, it looks so far,
KNOWN_MS = _KNOWN_MS  # and does not look again for so long where it found all
AHEAD_FROM_BYTES = _AHEAD_FROM_BYTES  # a smaller file asks for no space ahead of what it writes
AHEAD_SHARE = _AHEAD_SHARE  # a larger one asks for one part in so many of what it has,
AHEAD_BYTES_MAX = _AHEAD_BYTES_MAX  # and at most for so much
ZEROS_BYTES = _ZEROS_BYTES  # appends to such a file bring zeros behind its end, up to a multiple of so many


@cython.cclass
class DataFile:
    """A file by its name, and its descriptor while it is open.

    size: what this object has written or found; is_used: see OpenFiles. asked_end: up to where the file system was
    asked for space; zeros_end: up to where zeros were written behind the end. tells_cached: its file system has said of
    one place whether it is cached. known_start, known_end: all between was cached when that was asked, which counts
    until known_until_ms.
    """

    __slots__ = (
        "_descriptor",
        "asked_end",
        "is_used",
        "known_end",
        "known_start",
        "known_until_ms",
        "path",
        "size",
        "tells_cached",
        "zeros_end",
    )

    @cython.cfunc
    def opened(self):
        """The Descriptor. Whoever refers to it keeps it open, though another thread may take it from here."""
        held = self._descriptor
        self.is_used = True
        return self._open_again() if held is None else held

    def hold(self):
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
            written = _write_two(fd, head, head_bytes, rest, rest_bytes, zeros, start)
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
                _space_ahead(fd, start, ahead)
        self.asked_end = start + ahead

    def pread(self, n: cython.Py_ssize_t, position: cython.longlong):
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

    def pread_cached(self, n: cython.Py_ssize_t, position: cython.longlong):
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

    def is_cached(self, position: cython.longlong, n: cython.longlong, missing_max_bytes: cython.longlong = 0):
        """See `File`. To read what need not be waited for tells most, but makes the system read what is not there.

        So where the system counts what it has, it is asked that first. Where it has all, some may be being read by now,
        in order: a look at both ends tells, but for a gap between what two readers have. An overlay counts nothing at
        all, and is known by what it says to a read. What was found with a piece before is not asked again for a while.
        """
        end: cython.longlong = position + n
        if (
            cython.compiled
            and self.known_start <= position
            and end <= self.known_end
            and _now_ms() < self.known_until_ms
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
                missing = _bytes_missing(fd, position, n)
            if missing > 0 and self.tells_cached:
                return missing <= missing_max_bytes
            if missing == 0 and n > 1:
                step = n - 1
        look = _memory(1)
        while position < end:
            got = _read_now(fd, look, 1, position)
            if got < 0 and got != -errno.EAGAIN:
                return True  # it cannot be told, or who reads it is told what is wrong
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
            missing = _bytes_missing(fd, position, further - position)
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
        self.known_until_ms = _now_ms() + _KNOWN_MS
        return True


@cython.final
@cython.cclass
class FileRange:
    """Bytes of a file to be sent or read. Holding the range holds the file open, even one deleted meanwhile.

    unreadable: is told when the disk refuses to read it.
    """

    __slots__ = ("file", "position", "size_bytes", "unreadable")

    def __init__(self, file, position: cython.longlong, size_bytes: cython.Py_ssize_t, unreadable=None):
        self.file = file
        self.position = position
        self.size_bytes = size_bytes
        self.unreadable = _tell_nobody if unreadable is None else unreadable

    def __len__(self):
        return self.size_bytes

    def __repr__(self):
        return f"FileRange({self.file.path!r}, {self.position}, {self.size_bytes})"

    def read(self):
        """The bytes, copied out; may block when they are cold. Shorter when the file was truncated since."""
        try:
            return self.file.pread(self.size_bytes, self.position)
        except OSError as error:
            self.unreadable(error)
            raise


def _tell_nobody(error):
    pass


@cython.cfunc
@cython.inline
def _memory(n: cython.Py_ssize_t):
    """Room for n bytes to be read: where compiled it is what will be given, neither zeroed nor copied."""
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
        return _preadv_now(fd, PyBytes_AS_STRING(data), n, position)
    else:
        try:
            return os.preadv(fd, (data,), position, os.RWF_NOWAIT)
        except OSError as error:
            return -error.errno


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
