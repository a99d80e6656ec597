"""The HTTP listener of metrics and health: GET and HEAD of a few fixed paths, on the broker's own loop.

h11 parses the requests; everything that a client sends or delays is limited. An answer is written piece by piece, as
fast as the client reads it, so that the loop can do other work in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import h11

from ...client.connection import host_and_port
from ...same_host import bound
from ..server.listener import begin_to_listen, cannot_listen

log = logging.getLogger(__name__)

MAX_CONNECTIONS = 32  # further ones are closed at once
MAX_HEAD_BYTES = 8192  # request line and headers
REQUEST_TIMEOUT_S = 10.0  # from connecting, or the last answer, to a whole request
ANSWER_TIMEOUT_S = 30.0  # for a client to read an answer
WRITE_BUFFER_BYTES = 256 * 1024  # of an answer that the client has not read yet
TEXT = "text/plain; charset=utf-8"


@dataclass(slots=True, frozen=True)
class Answer:
    """The answer to a request for a path. Pieces are made as they are sent."""

    status: int
    content_type: str
    pieces: Iterator[bytes]


Pages = Mapping[str, Callable[[], Answer]]  # by path


def text(status: int, words: str) -> Answer:
    return Answer(status, TEXT, iter([f"{words}\n".encode()]))


class HttpListener:
    """Serves `pages` at HOST:PORT until `close`. address: where it listens, with the actual port."""

    def __init__(self, pages: Pages) -> None:
        self.pages = pages
        self.address = ""
        self.connections: dict[int, _Connection] = {}
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> None:
        """Raises ListenError."""
        loop = asyncio.get_running_loop()
        where = f"{host_and_port(host or '*', port)} for metrics"

        async def bind(here: Any) -> asyncio.Server:
            return await loop.create_server(lambda: _Connection(self), here, port, start_serving=False)

        try:
            self._server = await bound(bind, host)
        except (OSError, UnicodeError) as error:
            raise cannot_listen(error, where, "--metrics") from error
        await begin_to_listen(self._server, where, "--metrics")
        self.address = host_and_port(host or "0.0.0.0", port or self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in list(self.connections.values()):
            connection.abort()


def _response(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    return h11.Response(status_code=status, headers=headers, reason=HTTPStatus(status).phrase)


def _path(target: str) -> str:
    """The path of a request target, which may be a path or, from clients of a proxy, a URL (RFC 9112, 3.2.2)."""
    named = target.partition("?")[0]
    scheme, is_whole, rest = named.partition("://")
    return f"/{rest.partition('/')[2]}" if is_whole and scheme.lower() == "http" else named


class _Connection(asyncio.Protocol):
    """One client: one request at a time; the next one follows when the answer is written."""

    def __init__(self, listener: HttpListener) -> None:
        self._listener = listener
        self._http = h11.Connection(h11.SERVER, MAX_HEAD_BYTES)
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: Iterator[bytes] | None = None  # the rest of the answer that is being sent
        self._head_only = False
        self._writable = True
        self._is_scheduled = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        if len(self._listener.connections) >= MAX_CONNECTIONS:
            self.abort()
            return
        self._listener.connections[id(self)] = self
        self._expect(REQUEST_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._listener.connections.pop(id(self), None)
        if self._timer is not None:
            self._timer.cancel()
        self._pieces = None

    def abort(self) -> None:
        self._transport.abort()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._send_soon()

    def data_received(self, data: bytes) -> None:
        try:
            self._http.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def eof_received(self) -> bool:
        return self._pieces is not None  # a client that closed its side still gets the answer

    def _expect(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def _read(self) -> None:
        """Handle the available events, up to a request; what follows it waits."""
        while self._pieces is None and not self._transport.is_closing():
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                self._answer(event)
            elif isinstance(event, h11.ConnectionClosed) or self._http.their_state is h11.MUST_CLOSE:
                self._transport.close()
            elif event in (h11.NEED_DATA, h11.PAUSED):
                return

    def _answer(self, request: h11.Request) -> None:
        page = self._listener.pages.get(_path(request.target.decode("latin-1")))
        if request.method not in (b"GET", b"HEAD"):
            answer = text(405, "only GET and HEAD")
        elif page is None:
            answer = text(404, f"not found; there are {', '.join(sorted(self._listener.pages))}")
        else:
            answer = page()
        headers = [("Content-Type", answer.content_type), ("Cache-Control", "no-store")]
        if answer.status == 405:
            headers.append(("Allow", "GET, HEAD"))
        if any(name in (b"content-length", b"transfer-encoding") for name, _ in request.headers):
            headers.append(("Connection", "close"))  # its body is not read
        self._head_only = request.method == b"HEAD"
        self._transport.write(self._http.send(_response(answer.status, headers)) or b"")
        self._pieces = answer.pieces
        self._transport.pause_reading()
        self._expect(ANSWER_TIMEOUT_S)
        self._send_soon()

    def _send_soon(self) -> None:
        if self._pieces is not None and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._send)

    def _send(self) -> None:
        """Send one piece in each turn of the loop."""
        self._is_scheduled = False
        pieces = self._pieces
        if pieces is None or not self._writable or self._transport.is_closing():
            return
        try:
            piece = None if self._head_only else next(pieces, None)
        except Exception:
            log.exception("metrics: closing the connection")
            self.abort()
            return
        if piece is not None:
            self._transport.write(self._http.send(h11.Data(data=piece)) or b"")
            self._send_soon()
            return
        self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
        self._pieces = None
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
            return
        try:
            while self._http.their_state is h11.SEND_BODY:
                if self._http.next_event() in (h11.NEED_DATA, h11.PAUSED):
                    self._transport.close()
                    return
            self._http.start_next_cycle()
            self._expect(REQUEST_TIMEOUT_S)
            self._transport.resume_reading()
            self._read()
        except h11.RemoteProtocolError as error:
            self._refuse(error)

    def _refuse(self, error: h11.RemoteProtocolError) -> None:
        """The client does not speak HTTP: send an error if possible, and close."""
        if self._http.our_state is h11.IDLE or self._http.our_state is h11.SEND_RESPONSE:
            headers = [("Content-Type", TEXT), ("Connection", "close"), ("Content-Length", "0")]
            status = error.error_status_hint or 400
            self._transport.write(self._http.send(_response(status, headers)) or b"")
        self._transport.close()
