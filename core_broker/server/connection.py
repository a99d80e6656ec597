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
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from ...protocol.errors import ProtocolError
from ...same_host import without_pacing
from ..purgatory import Pending
from ._frames import DUE_ANSWERS, Receiving
from ._sending import JOIN_BYTES, Sender, is_buffer, socket_fd
from .context import CloseConnection, Context
from .dispatch import Route
from .due import Due, DueAnswers
from .owner import ConnectionListener, ConnectionOwner

log = logging.getLogger(__name__)

ANSWER = struct.Struct(">ii")  # size, correlation id
ANSWER_FLEXIBLE = struct.Struct(">iib")  # and no tagged fields
PRODUCE, API_VERSIONS = 0, 18
TCP_ESTABLISHED = 1  # Linux' tcp_states.h


class Connection(Receiving, asyncio.BufferedProtocol):
    """A client's connection to one listener."""

    _server: ConnectionOwner  # type: ignore[assignment]  # it is a Serving by its fields
    context: Context
    _route: Route | None

    __slots__ = ("_paused", "_sender", "_sending", "listener")

    def __init__(self, listener: ConnectionListener) -> None:
        server = listener.server
        self.listener = listener
        self._server = server
        self._scratch = server.scratch
        self._transport = None  # type: ignore[assignment]
        self._fd = -1
        self.context = None  # type: ignore[assignment]
        self.tick = server.tick
        self._held = None
        self._filled = self._need = 0
        self._paused = False
        self.writable = True
        self.busy = False
        self._client = b""
        self._number, self._route = 0, None
        self._due = None  # made when the first request has to wait
        self._waits_for_due = False
        self.obstacles = 0
        self._out = []
        self._sender: Sender | None = None
        self._sending = False

    # --- asyncio's side ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.context = Context(self._server.services, self.listener.name, str(peer[0]) if peer else "")
        without_pacing(transport, self._server.far_congestion_control)
        transport.set_write_buffer_limits(high=0)  # so that pause_writing says "not all is sent"
        self._fd = socket_fd(transport)
        if not self._server.add(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove(self)
        self._fd = -1  # its number is another's soon
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

    # --- bytes that wait ----------------------------------------------------------------------------------------------

    def _drop_held(self) -> None:
        if self._held is not None:
            self._server.held(self, -len(self._held))
            self._server.buffers.give(self._held)
            self._held = None

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
            self._call_next()  # not from within another connection's handler
        elif self._paused and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def _call_next(self) -> None:
        asyncio.get_running_loop().call_soon(self._next)

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

    def _respond(
        self, route: Route, key: int, correlation: int, clock: Callable[[], int] | None, began_ns: int, answer: Any
    ) -> bool:
        """Send what a handler gave, once it is its turn; False when the answer itself is yet to come."""
        if isinstance(answer, Pending):
            if not answer.done:
                if self._due is None:
                    self._due = DueAnswers()
                due = self._due.add(route, correlation, began_ns, answer)
                self.obstacles |= DUE_ANSWERS
                self.busy = key != PRODUCE
                if clock is not None:
                    route.latency.began(clock() - began_ns)
                answer.when_done(partial(self._answered, due))
                return False
            answer = answer.answer
        if answer is not None:
            if self._due:
                self._due.add(route, correlation, 0, None, answer)
            else:
                self._answer(route, correlation, answer)
        return True

    def _failed(self, route: Route, error: Exception) -> None:
        """A handler's error ends the connection."""
        context = self.context
        if isinstance(error, CloseConnection):
            self.close(str(error))
        elif isinstance(error, ProtocolError):
            self.close(f"{route.api.name} v{context.version}: {error}")
        else:
            said = "%s v%d from %s: closing the connection"
            log.error(said, route.api.name, context.version, context.client_host, exc_info=error)
            self.close()

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
        if not self._due:
            self.obstacles &= ~DUE_ANSWERS
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
            ranges = not all(map(is_buffer, parts))
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

    def send_failed(self, error: Exception) -> None:
        self.close(None if isinstance(error, ConnectionError) else str(error) or type(error).__name__)

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
