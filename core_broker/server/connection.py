"""One client connection: handles one request at a time in order, and sends the answers in order.

It has a `FrameReader` and an `Output`, for what every request does, and a `Sender` where answers have ranges of files.
Small requests are read into one buffer that all connections of a server share, and are handled in it. A request that
does not end within one read is kept in a buffer of its own, which grows with what has arrived, never with what a frame
claims. While a request waits (a `Pending`), an answer is being sent or the client does not read, no further request is
begun, and reading pauses as soon as more arrives. Produce requests alone follow each other, see `due.py`. A frame's
memory is valid until its handler returns.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from ...protocol.errors import ProtocolError
from ...same_host import without_pacing
from ..purgatory import Pending
from ._context import CloseConnection, Context
from ._frames import FrameReader
from ._route import Route
from ._sending import JOIN_BYTES, Output, Sender, is_buffer
from .due import Due, DueAnswers
from .owner import ConnectionListener

log = logging.getLogger(__name__)

ANSWER = struct.Struct(">ii")  # size, correlation id
ANSWER_FLEXIBLE = struct.Struct(">iib")  # and no tagged fields
PRODUCE, API_VERSIONS = 0, 18
TCP_ESTABLISHED = 1  # Linux' tcp_states.h


class Connection(asyncio.BufferedProtocol):
    """A client's connection to one listener.

    get_buffer, buffer_updated: the reader's. What the event loop calls for each read costs no call on the way.
    """

    __slots__ = (
        "_out",
        "_paused",
        "_reader",
        "_sender",
        "_sending",
        "_server",
        "_shared",
        "buffer_updated",
        "context",
        "get_buffer",
        "listener",
    )

    def __init__(self, listener: ConnectionListener) -> None:
        self.listener = listener
        self._server = listener.server
        self._shared = listener.shared
        self._reader = FrameReader(self, self._shared)
        self.get_buffer = self._reader.get_buffer  # type: ignore[method-assign]
        self.buffer_updated = self._reader.buffer_updated  # type: ignore[method-assign]
        self._paused = False  # reading
        self._sender: Sender | None = None  # made for the first answer that has ranges of files
        self._sending = False  # it has something to send

    # --- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        peer = transport.get_extra_info("peername")
        self.context = Context(self._server.services, self.listener.name, str(peer[0]) if peer else "")
        without_pacing(transport, self._server.far_congestion_control)
        transport.set_write_buffer_limits(high=0)  # so that pause_writing says "not all is sent"
        self._out = Output(transport)
        self._reader.begin(self.context, self._out)
        if not self._server.add(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        self._out.close()
        self._reader.busy = True
        if self._reader.due:
            self._reader.due.abandon()
        if self._sender is not None:
            self._sender.close()
            self._sender = None  # else each would keep the other
        self._reader.close()
        on_lost, self.context.on_lost = self.context.on_lost, None
        if on_lost is not None:
            on_lost()

    def pause_writing(self) -> None:
        self._out.writable = False

    def resume_writing(self) -> None:
        self._out.writable = True
        self._reader.tick = self._shared.tick
        if self._sending and self._sender is not None:
            self._sender.resume()
        else:
            self.resume()

    # --- bytes that wait ----------------------------------------------------------------------------------------------

    def pause(self) -> None:
        """Read no more: a request waits, or there is no memory for another."""
        if not self._paused:
            self._paused = True
            self._out.transport.pause_reading()

    def resume(self) -> None:
        """Go on with the next request, unless something else holds it up."""
        reader = self._reader
        if reader.busy or not self._out.writable:
            return
        if self._server.is_draining:
            if not reader.due:
                self.close()
        elif reader.has_work:
            self.call_next()  # not from within another connection's handler
        else:
            self._read_on()

    def call_next(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        reader = self._reader
        if self._server.is_draining and self.is_idle:
            self.close()
        if reader.busy or not self._out.writable or self._out.transport.is_closing():
            return
        if reader.has_work:
            reader.handle_held()
        if reader.has_work:
            return  # scheduled again, or waiting
        if not reader.busy and self._out.writable:
            self._read_on()

    def _read_on(self) -> None:
        if self._paused and not self._out.transport.is_closing():
            self._paused = False
            self._out.transport.resume_reading()

    # --- requests -----------------------------------------------------------------------------------------------------

    def respond(
        self, route: Route, key: int, correlation: int, clock: Callable[[], int] | None, began_ns: int, answer: Any
    ) -> bool:
        """Send an answer in its turn; False when the answer itself is yet to come."""
        reader = self._reader
        if isinstance(answer, Pending):
            if not answer.done:
                if reader.due is None:
                    reader.due = DueAnswers()
                due = reader.due.add(route, correlation, began_ns, answer)
                reader.busy = key != PRODUCE or answer.holds_up
                if clock is not None:
                    route.latency.began(clock() - began_ns)
                answer.when_done(partial(self._answered, due))
                if answer.holds_up:
                    answer.when_let_on(self._let_on)
                return False
            answer = answer.answer
        if answer is not None:
            if reader.due:
                reader.due.add(route, correlation, 0, None, answer)
            else:
                self._answer(route, correlation, answer)
        return True

    def failed(self, route: Route, error: Exception) -> None:
        """A handler raised: close the connection."""
        context = self.context
        if isinstance(error, CloseConnection):
            self.close(str(error))
        elif isinstance(error, ProtocolError):
            self.close(f"{route.api.name} v{context.version}: {error}")
        else:
            said = "%s v%d from %s: closing the connection"
            log.error(said, route.api.name, context.version, context.client_host, exc_info=error)
            self.close()

    def unknown(self, key: int, version: int) -> Route | None:
        """ApiVersions of an unknown version is answered as version 0 (KIP-511); anything else ends the connection."""
        if key == API_VERSIONS:
            return self._server.unsupported_api_versions
        self.close(f"request of key {key} version {version}, which is not served")
        return None

    # --- answers ------------------------------------------------------------------------------------------------------

    def _let_on(self) -> None:
        """A request still waits for its answer, and holds up those behind it no more."""
        if not self._out.transport.is_closing():
            self._reader.busy = False
            self.resume()

    def _answered(self, due: Due, answer: Any) -> None:
        """A request that waited has its answer. It is sent once those before it are."""
        reader, shared = self._reader, self._shared
        line = reader.due
        assert line is not None
        reader.tick = shared.tick
        ready = line.complete(due, answer)
        held_up = reader.busy
        if not line or (reader.waits_for_due and not line.is_full):
            reader.waits_for_due = reader.busy = False
        for each in ready:
            if self._out.transport.is_closing():
                return
            if type(each.answer) is CloseConnection:
                self.close(str(each.answer))
            elif each.answer is not None:
                self._answer(each.route, each.correlation, each.answer)
            if shared.clock is not None and each.began_ns:
                elapsed_ns = shared.clock() - each.began_ns
                each.route.latency.waited(elapsed_ns)
                if shared.on_answered is not None:
                    shared.on_answered(each.route, each.correlation, self.context, elapsed_ns)
        self._out.flush()
        if (held_up or self._server.is_draining) and not self._out.transport.is_closing():
            self.resume()

    def _answer(self, route: Route, correlation: int, answer: Any) -> None:
        try:
            parts = route.encode(answer)
        except Exception:
            log.exception("%s v%d: the answer cannot be encoded: %r", route.api.name, route.version, answer)
            self.close()
            return
        out = self._out.parts
        if len(parts) == 1:
            size = len(parts[0]) + 4
            ranges = False
        else:
            size = sum(map(len, parts)) + 4
            ranges = not all(map(is_buffer, parts))
        if route.flexible_response:
            out.append(ANSWER_FLEXIBLE.pack(size + 1, correlation, 0))
        else:
            out.append(ANSWER.pack(size, correlation))
        out += parts
        if ranges:
            self.send_ranges()
        elif size > JOIN_BYTES:
            self._out.flush()

    def send_ranges(self) -> None:
        if self._sender is None:
            self._sender = Sender(self, self._out, self._server.turn_bytes, self.context.services.cold_sends)
        self._reader.busy = self._sending = True
        if self._sender.send(self._out.take()):
            self._reader.busy = self._sending = False

    def sent(self) -> None:
        """The sender has sent what it had to wait for."""
        self._reader.busy = self._sending = False
        self._reader.tick = self._shared.tick
        if not self._out.transport.is_closing():
            self.resume()

    def send_failed(self, error: Exception) -> None:
        self.close(None if isinstance(error, ConnectionError) else str(error) or type(error).__name__)

    def close(self, reason: str | None = None) -> None:
        """End the connection now; earlier answers that are not sent yet are lost."""
        transport = self._out.transport
        if transport.is_closing():
            return
        if reason is not None:
            self._server.closings.tell(self.context.client_host, reason)
        self._out.flush()
        self._reader.busy = True
        if self._out.writable:
            transport.close()
        else:
            transport.abort()

    def close_if_idle(self, ticks: int) -> None:
        """Close if no whole request and no answer has passed for more than so many ticks of the server."""
        if self.waits_for_us:
            self._reader.tick = self._shared.tick
        elif self._shared.tick - self._reader.tick > ticks:
            self.close("idle for connections.max.idle.ms")

    @property
    def is_idle(self) -> bool:
        """Whether no answer is due, nor on its way."""
        return not self._reader.busy and self._out.writable and not self._reader.due

    @property
    def waits_for_us(self) -> bool:
        """Whether an answer is due from this broker, as in a long poll, to a client that has not closed."""
        return bool(self._reader.due) and not (self._paused and self._client_has_closed())

    def _client_has_closed(self) -> bool:
        """Whether the client has closed. While reading is paused and its bytes lie unread, the loop does not notice."""
        sock = self._out.transport.get_extra_info("socket")
        if sock is None:
            return False  # a simulated one
        try:
            state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
        except OSError:
            return True
        return state != TCP_ESTABLISHED
