# cython: boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True, auto_pickle=False
# ruff: noqa: F821  (a struct of C is declared by its annotation alone)
"""A connection's reading side: cuts what arrives into frames, reads each header and has the request answered.

A request with a short way (`AtOnce`, in `_route.py`) takes no step of the interpreter from the read to the write, as
far as it is up to this module. What is done less often is done by the connection, which holds its reader.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import cython

from ...protocol.errors import ProtocolError
from ._context import Context
from ._route import AtOnce, Route
from ._sending import Output

if cython.compiled:
    from cython.cimports.cpython.buffer import PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
    from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
    from cython.cimports.isthmus.protocol._batch_header import _int16, _int32
    from cython.cimports.libc.string import memcmp

if TYPE_CHECKING:
    from ...compiled import Public, Readonly
    from .buffers import Buffers
    from .due import DueAnswers
    from .request_memory import RequestMemory

    class ReaderOwner(Protocol):
        """What a reader asks of its connection."""

        def close(self, reason: str | None = None) -> None: ...

        def pause(self) -> None:
            """Read no more, until what holds up the next request is over."""

        def resume(self) -> None:
            """Read on, unless something else holds up the next request."""

        def call_next(self) -> None:
            """Call `handle_held` in another turn of the loop."""

        def unknown(self, key: int, version: int) -> Route | None:
            """The route of a request that has none; None where the connection has been closed for it."""

        def respond(
            self, route: Route, key: int, correlation: int, clock: Callable[[], int] | None, began_ns: int, answer: Any
        ) -> bool:
            """Send what a handler gave, once it is its turn; False when the answer itself is yet to come."""

        def failed(self, route: Route, error: Exception) -> None:
            """A handler raised."""

        def send_ranges(self) -> None:
            """Send the parts of `out`, which has ranges of files among them."""


COMPILED = cython.compiled

SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id

_SIZE_BYTES: cython.Py_ssize_t = 4
_HEAD_BYTES: cython.Py_ssize_t = 10
_MIN_HELD_BYTES: cython.Py_ssize_t = 256  # first buffer for a frame that did not arrive whole
_GROWTH: cython.Py_ssize_t = 8  # a held buffer is at most this many times what has arrived
_REQUESTS_A_TURN: cython.int = 32  # of one connection, when a client sends many without waiting

GROWTH = _GROWTH
REQUESTS_A_TURN = _REQUESTS_A_TURN


@cython.final
@cython.cclass
class Shared:
    """What the readers of one server share.

    routes: by `key << 16 | version`; None for what is not served. scratch: the buffer that small requests are read
    into, and handled in. buffers: for requests that do not arrive in one read; memory: counts their bytes. clock:
    nanoseconds; None unless somebody asks how long requests take. on_answered: called after each request with (route,
    correlation id, context, nanoseconds), if there is a clock. tick: a count that the server's idle timer raises.
    """

    routes: Readonly[Mapping[int, Any]]
    scratch: Readonly[memoryview]
    buffers: Readonly[Buffers]
    memory: Readonly[RequestMemory]
    max_request_bytes: Readonly[cython.longlong]
    clock: Public[Callable[[], int] | None]
    on_answered: Public[Callable[[Any, int, Any, int], None] | None]
    tick: Public[cython.longlong]

    def __init__(
        self,
        routes: Mapping[int, Any],
        scratch: memoryview,
        buffers: Buffers,
        memory: RequestMemory,
        max_request_bytes: cython.longlong,
    ) -> None:
        self.routes = routes
        self.scratch = scratch
        self.buffers = buffers
        self.memory = memory
        self.max_request_bytes = max_request_bytes
        self.clock = None
        self.on_answered = None
        self.tick = 0


@cython.final
@cython.cclass
class FrameReader:
    """See the module. Nothing is read before `begin`, nor after `close`.

    busy: a request waits or its answer is being sent, so that no other is begun. due: answers that are sent in the
    order of their requests; None until the first request has to wait. waits_for_due: the next request waits for them.
    tick: the server's, of the last whole request or answer; half frames do not count. _held: bytes that were read and
    are not handled yet, the first _filled of the buffer; without _need of them nothing can be done. _client: the client
    id of the request before; _number and _route: its API and version, and their route.
    """

    context: Readonly[Context]
    out: Readonly[Output]
    due: Public[DueAnswers | None]
    tick: Public[cython.longlong]
    busy: Public[cython.bint]
    waits_for_due: Public[cython.bint]
    _connection: ReaderOwner
    _shared: Shared
    _held: bytearray | None
    _client: bytes
    _route: Route | None
    _number: cython.longlong
    _filled: cython.Py_ssize_t
    _need: cython.Py_ssize_t

    def __init__(self, connection: ReaderOwner, shared: Shared) -> None:
        self._connection = connection
        self._shared = shared
        self.tick = shared.tick
        self.busy = False
        self.due = None
        self.waits_for_due = False
        self._held = None
        self._filled = self._need = 0
        self._client = b""
        self._number, self._route = 0, None

    def begin(self, context: Context, out: Output) -> None:
        """The connection is there. out: takes the answers."""
        self.context = context
        self.out = out

    def close(self) -> None:
        """The connection has ended: drop it, and what was read."""
        self.busy = True
        if self._held is not None:
            self._shared.memory.changed(self._connection, -len(self._held))
            self._shared.buffers.give(self._held)
            self._held = None
        self._connection = None  # type: ignore[assignment]  # else each would keep the other

    @property
    def has_work(self) -> bool:
        """Whether enough was read for `handle_held`."""
        return self._held is not None and self._filled >= self._need

    # --- the event loop's side ----------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._held is None:
            return self._shared.scratch
        if self._filled == len(self._held):
            self._grow()
        return memoryview(self._held)[self._filled :]

    def buffer_updated(self, nbytes: cython.Py_ssize_t) -> None:
        done: cython.Py_ssize_t
        if self._held is None:
            if self.busy or not self.out.writable:
                self._hold(self._shared.scratch, 0, nbytes)
                self._connection.pause()
                return
            done = self._cut(self._shared.scratch, nbytes)
            if done < nbytes:
                self._hold(self._shared.scratch, done, nbytes)
            return
        self._filled += nbytes
        if self._filled < self._need:
            return
        if self.busy or not self.out.writable:
            self._connection.pause()
        else:
            self.handle_held()

    # --- bytes that wait ----------------------------------------------------------------------------------------------

    @cython.cfunc
    @cython.exceptval(-1)
    def _hold(self, view, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Keep view[start:end], which cannot be handled now."""
        shared: Shared = self._shared
        filled: cython.Py_ssize_t = end - start
        size: cython.Py_ssize_t = _MIN_HELD_BYTES
        claimed: cython.longlong = 0
        self._need = _SIZE_BYTES
        if filled >= _SIZE_BYTES:
            claimed = SIZE.unpack_from(view, start)[0]
            self._need = claimed + _SIZE_BYTES
            size = max(min(self._need, _GROWTH * filled), size)
        held = shared.buffers.take(max(size, filled))
        memoryview(held)[:filled] = view[start:end]
        self._held, self._filled = held, filled
        shared.memory.changed(self._connection, len(held))
        if not 0 <= claimed <= shared.max_request_bytes:
            self._need = _SIZE_BYTES  # a bad length: let _frames see it
        if filled >= self._need and not self.busy and self.out.writable:
            self._connection.pause()  # others have their turn first
            self._connection.call_next()
        return 0

    def _grow(self) -> None:
        shared: Shared = self._shared
        old = self._held
        assert old is not None
        size: cython.Py_ssize_t = max(min(self._need, _GROWTH * self._filled), self._filled + _MIN_HELD_BYTES)
        held = shared.buffers.take(size)
        memoryview(held)[: self._filled] = memoryview(old)[: self._filled]
        self._held = held
        shared.memory.changed(self._connection, len(held) - len(old))
        shared.buffers.give(old)

    def handle_held(self) -> None:
        """Handle the requests that were read and had to wait."""
        shared: Shared = self._shared
        held = self._held
        assert held is not None
        filled: cython.Py_ssize_t = self._filled
        done: cython.Py_ssize_t
        if filled >= _SIZE_BYTES and self._need == _SIZE_BYTES:
            self._need = SIZE.unpack_from(held)[0] + _SIZE_BYTES
            if _SIZE_BYTES <= self._need <= shared.max_request_bytes + _SIZE_BYTES and self._need > filled:
                return
        self._held = None
        view = memoryview(held)
        done = self._cut(view, filled)
        if done < filled:
            self._hold(view, done, filled)
        shared.memory.changed(self._connection, -len(held))
        shared.buffers.give(held)

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
        limit: cython.longlong = self._shared.max_request_bytes
        while end - position >= _SIZE_BYTES:
            if cython.compiled:
                size = _int32(b, position)
            else:
                size = SIZE.unpack_from(view, position)[0]
            if size < _HEAD_BYTES or size > limit:
                self._connection.close(f"a frame of {size} bytes (socket.request.max.bytes is {limit})")
                return end
            if size > end - position - _SIZE_BYTES:
                break
            position += _SIZE_BYTES
            if self.due and (self.due.is_full or b[position] or b[position + 1]):  # no Produce: its key is 0
                self.busy = self.waits_for_due = True
                position -= _SIZE_BYTES
                break
            try:
                self._request(view, b, position, position + size)
            except ProtocolError as error:
                self._connection.close(str(error))
                return end
            position += size
            left -= 1
            if self.busy or not left:
                break
        self.out.flush()
        return end if position < end and self.out.transport.is_closing() else position

    @cython.cfunc
    @cython.exceptval(-1)
    def _request(self, view, b: cython.p_const_uchar, start: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Handle the request view[start:end]."""
        shared: Shared = self._shared
        context: Context = self.context
        route: Route | None
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
            self._number, self._route = number, shared.routes[number]
        route = self._route
        if route is None:
            route = self._connection.unknown(key, version)
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
        clock = shared.clock
        if clock is not None:
            began_ns = clock()
        context.version = version
        answer = None
        try:
            way = route.answer_at_once
            if way is not None and not self.due:
                answer = way.answer(b, body, end, correlation, context)
            if answer is None:
                frame = view[start:end]
                request = route.decode(frame, body - start)[0] if body >= 0 else None
                answer = route.handle(request, context)
            elif type(answer) is bytes:
                self.out.parts.append(answer)
                answer = None
            elif type(answer) is list:
                self.out.parts += answer
                answer = None
                self._connection.send_ranges()
        except Exception as error:
            self._connection.failed(route, error)
            return 0
        self.tick = shared.tick
        if answer is not None and not self._connection.respond(route, key, correlation, clock, began_ns, answer):
            return 0
        if clock is not None:
            elapsed_ns = clock() - began_ns
            route.latency.answered(elapsed_ns)
            if shared.on_answered is not None:
                shared.on_answered(route, correlation, context, elapsed_ns)
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
