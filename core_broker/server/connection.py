"""One client connection: cuts frames, runs one request at a time in order, sends the answers in order.

Small requests are read into one buffer that all connections of a server share and are handled where they lie; what
does not end within one read is kept in a buffer of the connection, which grows with what has arrived, never with what
a frame claims. While a request waits (a `Pending`), an answer is being sent or the client does not read, no further
request is begun, and reading pauses as soon as more arrives; only produce requests follow each other, see `due.py`.
A frame's memory is valid until its handler returns.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from ...protocol.errors import ProtocolError
from ..purgatory import Pending
from .context import CloseConnection, Context
from .due import Due, DueAnswers
from .sending import BUFFERS, JOIN_BYTES, Sender

if TYPE_CHECKING:
    from .dispatch import Route
    from .listener import Listener

log = logging.getLogger(__name__)

SIZE = struct.Struct(">i")
HEAD = struct.Struct(">hhih")  # api key, version, correlation id, length of the client id
ANSWER = struct.Struct(">ii")  # size, correlation id
ANSWER_FLEXIBLE = struct.Struct(">iib")  # and no tagged fields
MIN_HELD_BYTES = 256  # first buffer for a frame that did not arrive whole
GROWTH = 8  # a held buffer is at most this many times what has arrived
REQUESTS_A_TURN = 32  # of one connection, when a client sends many without waiting
PRODUCE, API_VERSIONS = 0, 18
PRODUCE_KEY = b"\0\0"
TCP_ESTABLISHED = 1  # Linux' tcp_states.h
HEAD_SIZE = HEAD.size


class Connection(asyncio.BufferedProtocol):
    """A client's connection to one listener."""

    __slots__ = (
        "_api_version",
        "_client",
        "_due",
        "_filled",
        "_held",
        "_need",
        "_out",
        "_paused",
        "_scratch",
        "_sender",
        "_sending",
        "_server",
        "_transport",
        "_waits_for_due",
        "busy",
        "context",
        "listener",
        "tick",
        "writable",
    )

    def __init__(self, listener: Listener) -> None:
        server = listener.server
        self.listener = listener
        self._server = server
        self._scratch = server.scratch
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self.context: Context = None  # type: ignore[assignment]
        self.tick = server.tick  # of the last whole request or answer; half frames do not count
        self._held: bytearray | None = None  # bytes read and not yet handled
        self._filled = 0
        self._need = 0  # bytes of _held without which nothing can be done
        self._paused = False
        self.writable = True
        self.busy = False  # a request is waiting or its answer is being sent
        self._client = b""
        self._due: DueAnswers | None = None  # made when the first request has to wait
        self._waits_for_due = False  # the next request does
        self._out: list[Any] = []  # answers of this turn, sent together
        self._sender: Sender | None = None
        self._sending = False

    # --- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.context = Context(self._server.services, self.listener.name, str(peer[0]) if peer else "")
        transport.set_write_buffer_limits(high=0)  # so that pause_writing says "not all is sent"
        if not self._server.add(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        self.busy = True
        if self._due:
            self._due.abandon()
        if self._sender is not None:
            self._sender.close()
        self._drop_held()
        self._out.clear()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.tick = self._server.tick
        if self._sending and self._sender is not None:
            self._sender.resume()
        elif not self.busy:
            self._continue()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._held is None:
            return self._scratch
        if self._filled == len(self._held):
            self._grow()
        return memoryview(self._held)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._held is None:
            if self.busy or not self.writable:
                self._hold(self._scratch[:nbytes])
                self._pause()
                return
            done = self._frames(self._scratch, nbytes)
            if done < nbytes:
                self._hold(self._scratch[done:nbytes])
            return
        self._filled += nbytes
        if self._filled < self._need:
            return
        if self.busy or not self.writable:
            self._pause()
        else:
            self._handle_held()

    # --- bytes that wait ----------------------------------------------------------------------------------------------

    def _hold(self, rest: memoryview) -> None:
        """Keep what cannot be handled now."""
        filled = len(rest)
        self._need = 4
        size = MIN_HELD_BYTES
        if filled >= 4:
            self._need = SIZE.unpack_from(rest)[0] + 4
            size = max(min(self._need, GROWTH * filled), MIN_HELD_BYTES)
        held = self._server.buffers.take(max(size, filled))
        memoryview(held)[:filled] = rest
        self._held, self._filled = held, filled
        self._server.held(self, len(held))
        if filled >= 4 and not 0 <= self._need - 4 <= self._server.max_request_bytes:
            self._need = 4  # a bad length: let _frames see it
        if filled >= self._need and not self.busy and self.writable:
            self._pause()  # others have their turn first
            asyncio.get_running_loop().call_soon(self._next)

    def _grow(self) -> None:
        old = self._held
        assert old is not None
        size = max(min(self._need, GROWTH * self._filled), self._filled + MIN_HELD_BYTES)
        held = self._server.buffers.take(size)
        memoryview(held)[: self._filled] = memoryview(old)[: self._filled]
        self._held = held
        self._server.held(self, len(held) - len(old))
        self._server.buffers.give(old)

    def _drop_held(self) -> None:
        if self._held is not None:
            self._server.held(self, -len(self._held))
            self._server.buffers.give(self._held)
            self._held = None

    def _handle_held(self) -> None:
        held, filled = self._held, self._filled
        assert held is not None
        if filled >= 4 and self._need == 4:
            self._need = SIZE.unpack_from(held)[0] + 4
            if 4 <= self._need <= self._server.max_request_bytes + 4 and self._need > filled:
                return
        self._held = None
        done = self._frames(memoryview(held), filled)
        if done < filled and not self._transport.is_closing():
            self._hold(memoryview(held)[done:filled])
        self._server.held(self, -len(held))
        self._server.buffers.give(held)

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def pause_for_memory(self) -> None:
        """The server's bound on request memory is reached: read no more until `resume_for_memory`."""
        self._pause()

    def resume_for_memory(self) -> None:
        if not self.busy and self.writable:
            self._continue()

    def _continue(self) -> None:
        """What held up the next request is over."""
        if self._server.is_draining:
            if not self._due:
                self.close()
        elif self._held is not None and self._filled >= self._need:
            asyncio.get_running_loop().call_soon(self._next)  # not from within another connection's handler
        elif self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _next(self) -> None:
        if self._server.is_draining and self.is_idle:
            self.close()
        if self.busy or not self.writable or self._transport.is_closing():
            return
        if self._held is not None and self._filled >= self._need:
            self._handle_held()
        if self._held is not None and self._filled >= self._need:
            return  # scheduled again, or waiting
        if not self.busy and self.writable and self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    # --- requests -----------------------------------------------------------------------------------------------------

    def _frames(self, view: memoryview, end: int) -> int:
        """Handle the whole frames of view[:end] until one has to wait; the position after them."""
        position = 0
        left = REQUESTS_A_TURN
        limit = self._server.max_request_bytes
        while end - position >= 4:
            size = SIZE.unpack_from(view, position)[0]
            if not HEAD_SIZE <= size <= limit:
                self.close(f"a frame of {size} bytes (socket.request.max.bytes is {limit})")
                return end
            position += 4
            stop = position + size
            if stop > end:
                position -= 4
                break
            if self._due and (self._due.is_full or view[position : position + 2] != PRODUCE_KEY):
                self.busy = self._waits_for_due = True
                position -= 4
                break
            try:
                self._request(view[position:stop])
            except (ProtocolError, struct.error) as error:
                self.close(str(error))
                return end
            position = stop
            left -= 1
            if self.busy or not left:
                break
        if self._out:
            self._flush()
        return end if self._transport.is_closing() else position

    def _request(self, frame: memoryview) -> None:
        server = self._server
        context = self.context
        key, version, correlation, client_length = HEAD.unpack_from(frame)
        route = server.routes[key << 16 | version]
        body = HEAD_SIZE
        if route is None:
            route = self._unknown(key, version)
            if route is None:
                return
            body = -1
        else:
            if client_length > 0:
                body += client_length
                client = frame[HEAD_SIZE:body]
                if client != self._client:
                    self._client = bytes(client)
                    context.client_id = self._client.decode("utf-8", "replace")
            elif self._client:
                self._client, context.client_id = b"", ""
            if route.flexible_request:
                body = skip_tags(frame, body)
        route.requests += 1
        clock = server.clock
        began_ns = 0 if clock is None else clock()
        context.version = version
        try:
            answer = None
            if route.answer_at_once is not None and not self._due:
                answer = route.answer_at_once(frame, body, correlation, context)
            if answer is None:
                request = route.decode(frame, body)[0] if body >= 0 else None
                answer = route.handle(request, context)
            elif type(answer) is bytes:
                self._out.append(answer)
                answer = None
        except CloseConnection as error:
            self.close(str(error))
            return
        except ProtocolError as error:
            self.close(f"{route.api.name} v{version}: {error}")
            return
        except Exception:
            log.exception("%s v%d from %s: closing the connection", route.api.name, version, context.client_host)
            self.close()
            return
        self.tick = server.tick
        if isinstance(answer, Pending):
            if not answer.done:
                if self._due is None:
                    self._due = DueAnswers()
                due = self._due.add(route, correlation, began_ns, answer)
                self.busy = key != PRODUCE
                if clock is not None:
                    route.latency.began(clock() - began_ns)
                answer.when_done(partial(self._answered, due))
                return
            answer = answer.answer
        if answer is not None:
            if self._due:
                self._due.add(route, correlation, 0, None, answer)
            else:
                self._answer(route, correlation, answer)
        if clock is not None:
            elapsed_ns = clock() - began_ns
            route.latency.answered(elapsed_ns)
            if server.tell is not None:
                server.tell(route, correlation, context, elapsed_ns)

    def _unknown(self, key: int, version: int) -> Route | None:
        """An ApiVersions of a version we lack is answered as version 0 (KIP-511); all else ends the connection."""
        if key == API_VERSIONS:
            return self._server.unsupported_api_versions
        self.close(f"request of key {key} version {version}, which is not served")
        return None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _answered(self, due: Due, answer: Any) -> None:
        """A request that waited has its answer; it is sent when those before it are."""
        assert self._due is not None
        server = self._server
        self.tick = server.tick
        ready = self._due.complete(due, answer)
        held_up = self.busy
        if not self._due or (self._waits_for_due and not self._due.is_full):
            self._waits_for_due = self.busy = False
        for each in ready:
            if self._transport.is_closing():
                return
            if type(each.answer) is CloseConnection:
                self.close(str(each.answer))
            elif each.answer is not None:
                self._answer(each.route, each.correlation, each.answer)
            if server.clock is not None and each.began_ns:
                elapsed_ns = server.clock() - each.began_ns
                each.route.latency.waited(elapsed_ns)
                if server.tell is not None:
                    server.tell(each.route, each.correlation, self.context, elapsed_ns)
        self._flush()
        if not self.busy and self.writable and not self._transport.is_closing() and (held_up or server.is_draining):
            self._continue()

    def _answer(self, route: Route, correlation: int, answer: Any) -> None:
        try:
            parts = route.encode(answer)
        except Exception:
            log.exception("%s v%d: the answer cannot be encoded: %r", route.api.name, route.version, answer)
            self.close()
            return
        out = self._out
        if len(parts) == 1:
            size = len(parts[0]) + 4
            ranges = False
        else:
            size = sum(map(len, parts)) + 4
            ranges = not all(type(part) in BUFFERS for part in parts)
        if route.flexible_response:
            out.append(ANSWER_FLEXIBLE.pack(size + 1, correlation, 0))
        else:
            out.append(ANSWER.pack(size, correlation))
        out += parts
        if ranges:
            self._send_ranges()
        elif size > JOIN_BYTES:
            self._flush()

    def _send_ranges(self) -> None:
        parts, self._out = self._out, []
        if self._sender is None:
            self._sender = Sender(self, self._transport, self._server.turn_bytes, self.context.services.cold_sends)
        self.busy = self._sending = True
        if self._sender.send(parts):
            self.busy = self._sending = False

    def sent(self) -> None:
        """The sender is through with what it had to wait for."""
        self._sending = self.busy = False
        self.tick = self._server.tick
        if self.writable and not self._transport.is_closing():
            self._continue()

    def send_failed(self, error: OSError) -> None:
        self.close(None if isinstance(error, ConnectionError) else str(error))

    def _flush(self) -> None:
        out = self._out
        if not out:
            return
        self._out = []
        self._transport.write(out[0] if len(out) == 1 else b"".join(out))

    def close(self, reason: str | None = None) -> None:
        """End the connection now; earlier answers that are not sent yet are lost."""
        if self._transport.is_closing():
            return
        if reason is not None:
            self._server.closings.tell(self.context.client_host, reason)
        if self._out:
            self._flush()
        self.busy = True
        if self.writable:
            self._transport.close()
        else:
            self._transport.abort()

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due, nor on its way."""
        return not self.busy and self.writable and not self._due

    @property
    def waits_for_us(self) -> bool:
        """Whether an answer is due from this broker, as in a long poll, to a client that is there: this is not idle."""
        return bool(self._due) and not (self._paused and self._is_left())

    def _is_left(self) -> bool:
        """Whether the client has closed. Nothing else tells so while reading is paused and its bytes lie unread."""
        sock = self._transport.get_extra_info("socket")
        if sock is None:
            return False  # a simulated one
        try:
            state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return True
        return state != TCP_ESTABLISHED


def skip_tags(frame: memoryview, position: int) -> int:
    """The position after the tagged fields of a request header."""
    if position < len(frame) and frame[position] == 0:
        return position + 1
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


def _uvarint(frame: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while position < len(frame) and shift < 35:
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ProtocolError("a varint of a request header has no end")
