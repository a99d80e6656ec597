# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (a struct of C is declared by its annotation alone)
"""What every request passes between the event loop and its handler: fields that are C variables when compiled.

`Connection`, `Server`, `Route` and `Context` are made of these classes and of all that is done less often. Here a
connection's bytes are cut into frames and a request's header is read; one that can be answered from its bytes
(`AtOnce`) costs no step of the interpreter from the read to the write, as far as it is up to this module.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import cython

from ...protocol.errors import ProtocolError

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.isthmus.core_broker.server._sending import write_by
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32
    from cython.cimports.libc.string import memcmp
else:
    from ._sending import write_by

if TYPE_CHECKING:
    import asyncio

    from ...compiled import Public
    from .buffers import Buffers
    from .context import Services  # allowed: for a type alone; the other module is built on this one
    from .due import DueAnswers  # allowed: for a type alone; the other module is built on this one
    from .latency import Latency


COMPILED = cython.compiled

SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id

_SIZE_BYTES: cython.Py_ssize_t = 4
_HEAD_BYTES: cython.Py_ssize_t = 10
_MIN_HELD_BYTES: cython.Py_ssize_t = 256  # first buffer for a frame that did not arrive whole
_GROWTH: cython.Py_ssize_t = 8  # a held buffer is at most this many times what has arrived
_REQUESTS_A_TURN: cython.int = 32  # of one connection, when a client sends many without waiting

DUE_ANSWERS = 1  # of a connection's `obstacles`: earlier requests wait for their answers. Connection sets it.

GROWTH = _GROWTH
REQUESTS_A_TURN = _REQUESTS_A_TURN


@cython.cclass
class Asking:
    """See Context."""

    services: Public[Services]
    listener: Public[str]
    client_host: Public[str]
    client_id: Public[str]
    version: Public[cython.int]


@cython.cclass
class Body:
    """The body of a request that is being read where it lies; p is the next byte."""

    b: cython.p_const_uchar
    p: cython.Py_ssize_t
    end: cython.Py_ssize_t

    @cython.cfunc
    @cython.exceptval(check=False)
    def uvarint(self) -> cython.Py_ssize_t:
        """The next unsigned varint; -1 where there is none, or one with more bytes than it needs: an answer has a name
        with its length as the request has it."""
        value: cython.Py_ssize_t = 0
        shift: cython.int = 0
        byte: cython.int
        while self.p < self.end and shift < 35:
            byte = self.b[self.p]
            self.p += 1
            value |= cython.cast(cython.Py_ssize_t, byte & 0x7F) << shift
            if byte < 0x80:
                return value if byte or not shift else -1
            shift += 7
        return -1


@cython.cclass
class AtOnce:
    """What answers the requests of one version of an API from their bytes, where it can."""

    @cython.cfunc
    def answer(
        self,
        b: cython.p_const_uchar,
        body: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        correlation: cython.longlong,
        context: Asking,
    ):
        """The answer: its bytes, a list of bytes and ranges, or a Response.

        None when the request has to go the long way, nothing has been done then.

        The request's body is b[body:end].
        """

    def __call__(
        self, frame: bytes | memoryview, body: cython.Py_ssize_t, correlation: cython.longlong, context: Asking
    ) -> Any:
        """The same from Python, of a request whose body is frame[body:]."""
        buffer: cython.Py_buffer
        if cython.compiled:
            PyObject_GetBuffer(frame, cython.address(buffer), PyBUF_SIMPLE)
            try:
                b: cython.p_const_uchar = cython.cast(cython.p_const_uchar, buffer.buf)
                return self.answer(b, body, buffer.len, correlation, context)
            finally:
                PyBuffer_Release(cython.address(buffer))
        else:
            return self.answer(frame, body, len(frame), correlation, context)


@cython.cclass
class Routed:
    """See Route."""

    answer_at_once: Public[AtOnce | None]
    decode: Public[Callable[[Any, int], tuple[Any, int]]]
    handle: Public[Callable[[Any, Any], Any]]
    latency: Public[Latency]
    requests: Public[cython.longlong]
    version: Public[cython.int]
    flexible_request: Public[cython.bint]


@cython.cclass
class Serving:
    """What the connections of a server ask of it for each request, see Server."""

    routes: Public[Mapping[int, Any]]
    scratch: Public[memoryview]
    buffers: Public[Buffers]
    clock: Public[Callable[[], int] | None]
    tell: Public[Callable[[Any, int, Any, int], None] | None]
    tick: Public[cython.longlong]
    max_request_bytes: Public[cython.longlong]

    def held(self, connection: Any, delta_bytes: int) -> None:
        raise NotImplementedError


@cython.cclass
class Receiving:
    """A connection's reading side, see Connection.

    _held: bytes read and not yet handled, in the first `_filled` bytes; without `_need` of them nothing can be done.
    busy: a request is waiting or its answer is being sent. _out: answers of this turn, sent together. _fd: of the
    socket, -1 where bytes must pass the transport. _client: the client id, as the request before had it, _number and
    _route: that one's API and version, and their route. obstacles: what speaks against the short way of the next
    request, a bit for each owner. tick: the server's, of the last whole request or answer; half
    frames do not count. _waits_for_due: the next request waits for the answers that are due.
    """

    _server: Public[Serving]
    context: Public[Asking]
    _transport: Public[asyncio.Transport]
    _scratch: Public[memoryview]
    _held: Public[bytearray | None]
    _client: Public[bytes]
    _due: Public[DueAnswers | None]
    _out: Public[list[Any]]
    _route: Public[Routed | None]
    _number: Public[cython.longlong]
    _filled: Public[cython.Py_ssize_t]
    _need: Public[cython.Py_ssize_t]
    _fd: Public[cython.int]
    tick: Public[cython.longlong]
    busy: Public[cython.bint]
    writable: Public[cython.bint]
    _waits_for_due: Public[cython.bint]
    obstacles: Public[cython.int]

    # --- what Connection has ------------------------------------------------------------------------------------------

    def close(self, reason: str | None = None) -> None:
        raise NotImplementedError

    def _pause(self) -> None:
        raise NotImplementedError

    def _call_next(self) -> None:
        raise NotImplementedError

    def _unknown(self, key: int, version: int) -> Routed | None:
        raise NotImplementedError

    def _respond(
        self, route: Any, key: int, correlation: int, clock: Callable[[], int] | None, began_ns: int, answer: Any
    ) -> bool:
        raise NotImplementedError

    def _failed(self, route: Any, error: Exception) -> None:
        raise NotImplementedError

    def _send_ranges(self) -> None:
        raise NotImplementedError

    # --- the event loop's side ----------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._held is None:
            return self._scratch
        if self._filled == len(self._held):
            self._grow()
        return memoryview(self._held)[self._filled :]

    def buffer_updated(self, nbytes: cython.Py_ssize_t) -> None:
        done: cython.Py_ssize_t
        if self._held is None:
            if self.busy or not self.writable:
                self._hold(self._scratch, 0, nbytes)
                self._pause()
                return
            done = self._cut(self._scratch, nbytes)
            if done < nbytes:
                self._hold(self._scratch, done, nbytes)
            return
        self._filled += nbytes
        if self._filled < self._need:
            return
        if self.busy or not self.writable:
            self._pause()
        else:
            self._handle_held()

    # --- bytes that wait ----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def _hold(self, view, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Keep view[start:end], which cannot be handled now."""
        server: Serving = self._server
        filled: cython.Py_ssize_t = end - start
        size: cython.Py_ssize_t = _MIN_HELD_BYTES
        claimed: cython.longlong = 0
        self._need = _SIZE_BYTES
        if filled >= _SIZE_BYTES:
            claimed = SIZE.unpack_from(view, start)[0]
            self._need = claimed + _SIZE_BYTES
            size = max(min(self._need, _GROWTH * filled), size)
        held = server.buffers.take(max(size, filled))
        memoryview(held)[:filled] = view[start:end]
        self._held, self._filled = held, filled
        server.held(self, len(held))
        if not 0 <= claimed <= server.max_request_bytes:
            self._need = _SIZE_BYTES  # a bad length: let _frames see it
        if filled >= self._need and not self.busy and self.writable:
            self._pause()  # others have their turn first
            self._call_next()
        return 0

    def _grow(self) -> None:
        server: Serving = self._server
        old = self._held
        assert old is not None
        size: cython.Py_ssize_t = max(min(self._need, _GROWTH * self._filled), self._filled + _MIN_HELD_BYTES)
        held = server.buffers.take(size)
        memoryview(held)[: self._filled] = memoryview(old)[: self._filled]
        self._held = held
        server.held(self, len(held) - len(old))
        server.buffers.give(old)

    def _handle_held(self) -> None:
        server: Serving = self._server
        held = self._held
        assert held is not None
        filled: cython.Py_ssize_t = self._filled
        done: cython.Py_ssize_t
        if filled >= _SIZE_BYTES and self._need == _SIZE_BYTES:
            self._need = SIZE.unpack_from(held)[0] + _SIZE_BYTES
            if _SIZE_BYTES <= self._need <= server.max_request_bytes + _SIZE_BYTES and self._need > filled:
                return
        self._held = None
        view = memoryview(held)
        done = self._cut(view, filled)
        if done < filled:
            self._hold(view, done, filled)
        server.held(self, -len(held))
        server.buffers.give(held)

    # --- requests -----------------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def _cut(self, view, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Handle the whole frames of view[:end] until one has to wait; the position after them."""
        buffer: cython.Py_buffer
        b: cython.p_const_uchar
        if cython.compiled:
            PyObject_GetBuffer(view, cython.address(buffer), PyBUF_SIMPLE)
            try:
                b = cython.cast(cython.p_const_uchar, buffer.buf)
                return self._frames(view, b, end)
            finally:
                PyBuffer_Release(cython.address(buffer))
        else:
            return self._frames(view, view, end)

    @cython.cfunc
    @cython.exceptval(-1)
    def _frames(self, view, b: cython.p_const_uchar, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        position: cython.Py_ssize_t = 0
        size: cython.longlong
        left: cython.int = _REQUESTS_A_TURN
        limit: cython.longlong = self._server.max_request_bytes
        while end - position >= _SIZE_BYTES:
            if cython.compiled:
                size = _int32(b, position)
            else:
                size = SIZE.unpack_from(view, position)[0]
            if size < _HEAD_BYTES or size > limit:
                self.close(f"a frame of {size} bytes (socket.request.max.bytes is {limit})")
                return end
            if size > end - position - _SIZE_BYTES:
                break
            position += _SIZE_BYTES
            if self._due and (self._due.is_full or b[position] or b[position + 1]):  # no Produce: its key is 0
                self.busy = self._waits_for_due = True
                position -= _SIZE_BYTES
                break
            try:
                self._request(view, b, position, position + size)
            except ProtocolError as error:
                self.close(str(error))
                return end
            position += size
            left -= 1
            if self.busy or not left:
                break
        _write(self)
        return end if position < end and self._transport.is_closing() else position

    @cython.cfunc
    @cython.exceptval(-1)
    def _request(self, view, b: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Handle the request view[start:end]."""
        server: Serving = self._server
        context: Asking = self.context
        route: Routed | None
        way: AtOnce | None
        key: cython.int
        version: cython.int
        number: cython.longlong
        correlation: cython.longlong
        client_length: cython.int
        began_ns: cython.longlong = 0
        elapsed_ns: cython.longlong
        body: cython.Py_ssize_t = start + _HEAD_BYTES
        if cython.compiled:
            key, version = _int16(b, start), _int16(b, start + 2)
            correlation, client_length = _int32(b, start + 4), _int16(b, start + 8)
        else:
            key, version, correlation, client_length = HEAD.unpack_from(b, start)
        number = key * 65536 | version
        if number != self._number or self._route is None:
            self._number, self._route = number, server.routes[number]
        route = self._route
        if route is None:
            route = self._unknown(key, version)
            if route is None:
                return 0
            body = -1
        else:
            if client_length > 0:
                self._take_client(b, body, min(body + client_length, end))
                body += client_length
            elif self._client:
                self._client, context.client_id = b"", ""
            if route.flexible_request:
                if body < end and not b[body]:
                    body += 1
                else:
                    body = start + skip_tags(view[start:end], body - start)
        route.requests += 1
        clock = server.clock
        if clock is not None:
            began_ns = clock()
        context.version = version
        answer = None
        try:
            way = route.answer_at_once
            if way is not None and not self.obstacles:
                answer = way.answer(b, body, end, correlation, context)
            if answer is None:
                frame = view[start:end]
                request = route.decode(frame, body - start)[0] if body >= 0 else None
                answer = route.handle(request, context)
            elif type(answer) is bytes:
                self._out.append(answer)
                answer = None
            elif type(answer) is list:
                self._out += answer
                answer = None
                self._send_ranges()
        except Exception as error:
            self._failed(route, error)
            return 0
        self.tick = server.tick
        if answer is not None and not self._respond(route, key, correlation, clock, began_ns, answer):
            return 0
        if clock is not None:
            elapsed_ns = clock() - began_ns
            route.latency.answered(elapsed_ns)
            if server.tell is not None:
                server.tell(route, correlation, context, elapsed_ns)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _take_client(self, b: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """b[start:end] is the client id; nearly always the one of the request before."""
        if cython.compiled:
            if end - start == len(self._client) and not memcmp(b + start, PyBytes_AS_STRING(self._client), end - start):
                return 0
            self._client = PyBytes_FromStringAndSize(cython.cast(cython.p_char, b) + start, end - start)
        else:
            if b[start:end] == self._client:
                return 0
            self._client = bytes(b[start:end])
        self.context.client_id = self._client.decode("utf-8", "replace")
        return 0

    def _flush(self) -> None:
        """Send the answers that are there."""
        _write(self)


@cython.cfunc
@cython.exceptval(-1)
def _write(receiving: Receiving) -> cython.int:
    out: list = receiving._out
    fd: cython.int = -1
    if not out:
        return 0
    receiving._out = []
    data: bytes = out[0] if len(out) == 1 else b"".join(out)
    if cython.compiled and receiving.writable:  # else the transport has what comes first
        fd = receiving._fd
    write_by(fd, receiving._transport, data, False)
    return 0


def skip_tags(frame: bytes | memoryview, position: int) -> int:
    """The position after the tagged fields of a request header. Raises ProtocolError."""
    count, position = _uvarint(frame, position)
    for _ in range(count):
        _, position = _uvarint(frame, position)
        size, position = _uvarint(frame, position)
        position += size
        if position > len(frame):
            break
    if position > len(frame):
        raise ProtocolError("the tagged fields of a request header pass its end")
    return position


def _uvarint(frame: bytes | memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(frame) and shift < 35:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolError("a varint of a request header has no end")
