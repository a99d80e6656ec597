# cython: auto_pickle=False
"""Sends the parts of answers, bytes and file ranges, in order through one connection.

A plain socket gets bytes by `send` and ranges by `os.sendfile`, only while the transport's own buffer is empty, and
at most `send.turn.bytes` in one turn of the loop. Small ranges, as a reader at the end of a log gets them, are joined
with the bytes around them. The bytes before a larger range that is cached wait in the socket for its beginning, so that
no packet holds a head alone: a client that wakes for less than it can use costs both sides more. When the socket is
full, a dup of its fd waits until it is writable: uvloop refuses the fd itself. The dup is closed with the answer, or it
would hide the end of the connection from the peer. A transport without an fd (the simulator's, TLS) gets the bytes of
ranges, too. Parts are kept until sent, and a range keeps its file open. What is not in the page cache is sent by a
pool, see `cold_sends.py`: the sender waits for that, the loop does not.
"""

from __future__ import annotations

import asyncio
import os
import socket
from typing import TYPE_CHECKING, Any, Protocol

import cython

from ..storage.disk._data_file import FileRange
from .cold_sends import PIECE_BYTES, ColdSends

if cython.compiled:
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE

if TYPE_CHECKING:
    from ...compiled import Public, Readonly

    class Owner(Protocol):
        """What a sender asks of its connection."""

        def sent(self) -> None:
            """All parts are sent that `send` could not send at once."""

        def send_failed(self, error: OSError) -> None:
            """A part cannot be sent; all others have been dropped."""


COMPILED = cython.compiled

_C_CODE = """
#include <errno.h>
#include <sys/socket.h>

/* How many bytes went out, or -errno. */
static inline Py_ssize_t isthmus_send_now(int fd, const char *data, Py_ssize_t n, int more)
{
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (more ? MSG_MORE : 0);
    Py_ssize_t sent;
    do {
        sent = send(fd, data, n, flags);
    } while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}
"""


_JOIN_BYTES: cython.longlong = 256 * 1024
_SMALL_RANGE_BYTES: cython.longlong = 16 * 1024
_PIECE_BYTES: cython.longlong = PIECE_BYTES

JOIN_BYTES = _JOIN_BYTES  # bytes parts are joined up to here, so that one write takes them
SMALL_RANGE_BYTES = _SMALL_RANGE_BYTES  # up to here a copy costs less than a packet


@cython.final
@cython.cclass
class Output:
    """A connection's writing side: the answers of one turn, which leave together.

    parts: bytes, and ranges of files for a Sender. writable: False while the transport has bytes that come first, from
    pause_writing to resume_writing. fd: of a plain socket; -1 where bytes must pass the transport (TLS, the
    simulator's), and once the connection has ended.
    """

    transport: Readonly[asyncio.Transport]
    parts: Readonly[list[Any]]
    fd: Readonly[cython.int]
    writable: Public[cython.bint]

    def __init__(self, transport: asyncio.Transport) -> None:
        self.transport = transport
        self.parts = []
        self.fd = socket_fd(transport)
        self.writable = True

    def take(self) -> list[Any]:
        """The parts, for whoever sends them."""
        parts = self.parts
        self.parts = []
        return parts

    @cython.ccall
    @cython.exceptval(-1)
    def flush(self) -> cython.int:
        """Send the parts, which are all bytes."""
        out: list = self.parts
        fd: cython.int = -1
        if not out:
            return 0
        self.parts = []
        data: bytes = out[0] if len(out) == 1 else b"".join(out)
        if cython.compiled and self.writable:
            fd = self.fd
        write_by(fd, self.transport, data, False)
        return 0

    def close(self) -> None:
        """The connection has ended: its descriptor is another's soon."""
        self.fd = -1
        self.parts.clear()


@cython.final
@cython.cclass
class Sender:
    """The parts of one connection that are on their way. Used only while there are ranges among them.

    _out: the connection's, which is written to through its socket or its transport.
    """

    _owner: Owner
    _out: Output
    _cold_sends: ColdSends
    _loop: asyncio.AbstractEventLoop | None
    _parts: Readonly[list[Any]]
    _first: cython.Py_ssize_t
    _turn_bytes: cython.longlong
    _position: cython.longlong
    _left: cython.longlong
    _ready_to: cython.longlong
    _dup: cython.int
    _waits_for_disk: cython.bint

    def __init__(self, owner: Owner, out: Output, turn_bytes: cython.longlong, cold_sends: ColdSends) -> None:
        self._owner = owner
        self._out = out
        self._turn_bytes = turn_bytes
        self._parts = []  # bytes and ranges, of which ...
        self._first = 0  # ... so many are sent
        self._position = 0  # in the range that is being sent
        self._left = -1  # bytes of it; -1: not begun
        self._cold_sends = cold_sends
        self._ready_to = 0  # up to which position of its file it can be sent without waiting for the disk
        self._waits_for_disk = False
        self._dup = -1
        self._loop = None

    def send(self, parts: list[Any]) -> bool:
        """Take over `parts`; True when all are sent by now, else `owner.sent()` is called later."""
        self._parts += parts
        return self._run()

    def resume(self) -> None:
        """Go on: the transport's buffer is empty again."""
        if self._dup < 0:
            self._finish(self._run())

    def close(self) -> None:
        """Drop all parts; nothing more is sent."""
        self._stop_waiting()
        self._drop()

    @cython.cfunc
    def _drop(self):
        self._parts.clear()
        self._first = 0

    @cython.cfunc
    def _finish(self, done: cython.bint):
        if done:
            self._owner.sent()

    @cython.cfunc
    @cython.exceptval(-1)
    def _run(self) -> cython.bint:
        budget: cython.longlong = self._turn_bytes
        sent: cython.longlong
        if self._waits_for_disk:
            return False
        while self._first < len(self._parts):
            if self._out.transport.is_closing():
                self.close()
                return False
            if not self._out.writable:
                return False
            if self._left < 0 and self._write_joined():
                continue
            sent = self._send_some(budget)
            if sent < 0:
                return False
            budget -= sent
            if budget <= 0 and self._first < len(self._parts):
                self._wait_writable()
                return False
        self._stop_waiting()
        self._drop()
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _write_joined(self) -> cython.bint:
        """Write the bytes and small cached ranges at the head of the line as one; False where there are none."""
        joined: list = []
        size: cython.longlong = 0
        more: cython.bint = False
        source: FileRange
        while self._first < len(self._parts) and size < _JOIN_BYTES:
            part = self._parts[self._first]
            if not is_buffer(part):
                source = part
                if source.size_bytes > _SMALL_RANGE_BYTES:
                    self._begin(source)
                    more = self._out.fd >= 0 and size > 0 and self._follows_at_once(source)
                    break
                data = _whole(source) if self._out.fd >= 0 else b""
                if not data:
                    break
                part = data
            self._pop()
            size += len(part)
            joined.append(part)
        if not joined:
            return False
        whole = bytes(joined[0]) if len(joined) == 1 else b"".join(joined)
        write_by(self._out.fd, self._out.transport, whole, more)
        return True

    @cython.cfunc
    @cython.exceptval(-2)
    def _send_some(self, budget: cython.longlong) -> cython.longlong:
        """Bytes of the first range that went out; -1 when the socket is full or broken."""
        source: FileRange = self._parts[self._first]
        size: cython.longlong
        sent: cython.longlong
        if self._left < 0:
            self._begin(source)
        if self._left == 0:
            self._range_done()
            return 0
        data = b""
        try:
            if self._position >= self._ready_to and not self._is_ready(source):
                return -1
            size = min(self._left, self._ready_to - self._position)
            held = source.file.hold() if self._out.fd >= 0 else None
            if held is None:
                data = source.file.pread(size, self._position)
        except OSError as error:
            source.unreadable(error)
            self._fail(error)
            return -1
        if held is None:
            if data:
                self._out.transport.write(data)
            sent = len(data)
        else:
            try:
                sent = os.sendfile(self._out.fd, held.fd, self._position, min(size, budget))
            except BlockingIOError:
                self._wait_writable()
                return -1
            except OSError as error:
                self._fail(self._cause(source, error))
                return -1
        if sent == 0:
            self._fail(_too_short(source, self._position, self._left))
            return -1
        self._advance(sent)
        return sent

    @cython.cfunc
    def _advance(self, sent: cython.longlong):
        self._position += sent
        self._left -= sent
        if self._left == 0:
            self._range_done()

    @cython.cfunc
    def _cause(self, source: FileRange, error):
        """An error of sendfile is the socket's or the file's: a read of the next byte shows which."""
        if isinstance(error, ConnectionError):
            return error
        try:
            source.file.pread(1, self._position)
        except OSError as refused:
            source.unreadable(refused)
            return OSError(refused.errno, os.strerror(refused.errno or 0), source.file.path)
        return error

    @cython.cfunc
    def _begin(self, source: FileRange):
        self._position, self._left = source.position, source.size_bytes

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_cached(self, source: FileRange) -> cython.bint:
        """Whether the next piece of a range is; then `_ready_to` is its end."""
        size: cython.longlong = min(self._left, _PIECE_BYTES)
        if self._cold_sends.is_cold(source.file, self._position, size):
            return False
        self._ready_to = self._position + size
        return True

    @cython.cfunc
    @cython.exceptval(-1)
    def _follows_at_once(self, source: FileRange) -> cython.bint:
        """Whether the range that was begun need not wait. An error counts as no: the send itself meets it again."""
        try:
            return self._is_cached(source)
        except OSError:
            return False

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_ready(self, source: FileRange) -> cython.bint:
        """Whether the next piece of a range is cached; else the pool sends it, and `_sent_cold` goes on."""
        size: cython.longlong = min(self._left, _PIECE_BYTES)
        fd: cython.int = -1
        if self._is_cached(source):
            return True
        self._stop_waiting()
        if self._out.fd >= 0:
            try:
                fd = os.dup(self._out.fd)
            except OSError as error:
                self._fail(error)
                return False
        self._waits_for_disk = True
        self._cold_sends.send(source.file, fd, self._position, size, self._sent_cold)
        return False

    def _sent_cold(self, sent: cython.longlong, data: bytes, error: Exception | None) -> None:
        self._waits_for_disk = False
        if not self._parts:
            return  # closed meanwhile
        source: FileRange = self._parts[self._first]
        if error is not None:
            if isinstance(error, OSError):
                if self._out.fd >= 0:
                    error = self._cause(source, error)
                else:
                    source.unreadable(error)
            self._fail(error)
            return
        is_full: cython.bint = self._out.fd >= 0 and sent < min(self._left, _PIECE_BYTES)
        if data:
            self._out.transport.write(data)
        elif self._out.fd < 0:
            self._fail(_too_short(source, self._position, self._left))
            return
        self._advance(sent + len(data))
        if is_full:
            self._wait_writable()
        else:
            self._finish(self._run())

    @cython.cfunc
    def _range_done(self):
        self._left = -1
        self._ready_to = 0
        self._pop()

    @cython.cfunc
    def _pop(self):
        """The first part is sent: drop it."""
        self._parts[self._first] = None
        self._first += 1

    @cython.cfunc
    def _wait_writable(self):
        if self._dup >= 0:
            return
        self._loop = asyncio.get_running_loop()
        if self._out.fd < 0:
            self._loop.call_soon(self._on_writable)
            return
        try:
            self._dup = os.dup(self._out.fd)
        except OSError as error:
            self._fail(error)
            return
        self._loop.add_writer(self._dup, self._on_writable)

    def _on_writable(self) -> None:
        if self._parts:  # else they were sent or dropped before this turn came
            self._finish(self._run())

    @cython.cfunc
    def _stop_waiting(self):
        if self._dup >= 0:
            assert self._loop is not None
            self._loop.remove_writer(self._dup)
            os.close(self._dup)
            self._dup = -1

    @cython.cfunc
    def _fail(self, error):
        self.close()
        self._owner.send_failed(error)


@cython.ccall
@cython.inline
@cython.exceptval(check=False)
def is_buffer(part: object) -> cython.bint:
    """Whether it is memory, and no range of a file."""
    kind = type(part)
    return kind is bytes or kind is bytearray or kind is memoryview


@cython.cfunc
def _whole(source: FileRange):
    """All of a small range; nothing where it is not cached or cannot be read: the send itself meets the error again."""
    try:
        data = source.file.pread_cached(source.size_bytes, source.position)
    except OSError:
        return b""
    return data if len(data) == source.size_bytes else b""


@cython.ccall
@cython.exceptval(-1)
def write_by(fd: cython.int, transport, data: bytes, more: cython.bint) -> cython.int:
    """Send to a socket, and by the transport what the socket does not take.

    fd: -1 where all has to pass the transport, as when that has bytes which come first. more: others follow at once.
    """
    sent: cython.Py_ssize_t
    if fd >= 0:
        sent = _send(fd, data, more)
        if sent == len(data):
            return 0
        if sent > 0:
            data = data[sent:]
    transport.write(data)  # it waits until the socket takes them, and meets the socket's errors
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _send(fd: cython.int, data: bytes, more: cython.bint) -> cython.Py_ssize_t:
    """How many bytes a socket took, or -errno, which the send of the rest meets again. more: others follow at once."""
    if cython.compiled:
        return isthmus_send_now(fd, PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), more)  # noqa: F821
    else:
        borrowed = socket.socket(fileno=fd)
        try:
            return borrowed.send(data, socket.MSG_DONTWAIT | (socket.MSG_MORE if more else 0))
        except OSError as error:
            return -(error.errno or 0)
        finally:
            borrowed.detach()


@cython.cfunc
def _too_short(source: FileRange, position: cython.longlong, left: cython.longlong):
    return OSError(f"{source.file.path} ends before the range at {position}, {left} bytes")


def socket_fd(transport: asyncio.BaseTransport) -> int:
    """The fd of a plain socket; -1 where there is none or where bytes must pass the transport (TLS)."""
    if transport.get_extra_info("sslcontext") is not None:
        return -1
    sock = transport.get_extra_info("socket")
    if sock is None:
        return -1
    fileno = getattr(sock, "fileno", None)
    return -1 if fileno is None else fileno()
