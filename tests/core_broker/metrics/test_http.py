"""The HTTP listener against a transport: what is answered, in what pieces, and what is not put up with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from isthmus.core_broker.metrics import http
from isthmus.core_broker.metrics.http import MAX_CONNECTIONS, MAX_HEAD_BYTES, Answer, HttpListener, text
from tests.running import in_loop, run_by

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"


class Socket(asyncio.Transport):
    """Takes what is written; `full` tells the protocol that its client does not read."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: asyncio.Protocol
        self.data = b""
        self.is_closed = self.is_aborted = self.full = False
        self.reading = True

    def set_write_buffer_limits(self, high=None, low=None) -> None:
        pass

    def write(self, data) -> None:
        self.data += data
        if self.full:
            self.protocol.pause_writing()

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True
        self.protocol.connection_lost(None)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def pieces() -> Iterator[bytes]:
    yield b"one\n"
    yield b"two\n"


def listener() -> HttpListener:
    return HttpListener({"/metrics": lambda: Answer(200, "text/plain", pieces()), "/health": lambda: text(503, "no")})


def connect(made: HttpListener) -> Socket:
    socket = Socket()
    socket.protocol = http._Connection(made)
    socket.protocol.connection_made(socket)
    return socket


def answered(*requests: bytes) -> Socket:
    async def main() -> Socket:
        socket = connect(listener())
        for request in requests:
            socket.protocol.data_received(request)
            for _ in range(8):
                await asyncio.sleep(0)
        return socket

    return asyncio.run(main())


def test_a_page_comes_piece_by_piece_and_the_connection_stays() -> None:
    socket = answered(GET, GET)
    assert socket.data.count(b"HTTP/1.1 200 OK\r\n") == 2
    assert socket.data.count(b"4\r\none\n\r\n4\r\ntwo\n\r\n0\r\n\r\n") == 2
    assert not socket.is_closed


def test_requests_sent_at_once_are_answered_in_turn() -> None:
    assert answered(GET + GET).data.count(b"one\n") == 2


def test_a_request_may_come_byte_by_byte() -> None:
    socket = answered(*(bytes([each]) for each in GET))
    assert socket.data.count(b"two\n") == 1


@pytest.mark.parametrize(
    ("request_", "status", "has"),
    [
        (b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"/health, /metrics"),
        (b"GET /health?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", 503, b"no\n"),
        (b"GET http://x:9100/metrics HTTP/1.1\r\nHost: x:9100\r\n\r\n", 200, b"one\n"),
        (b"GET HTTP://x/health?x=http://y/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 503, b"no\n"),
        (b"GET http://x?y=/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"/health, /metrics"),
        (b"GET /metrics?x=http://y/health HTTP/1.1\r\nHost: x\r\n\r\n", 200, b"one\n"),
        (b"GET //x/metrics HTTP/1.1\r\nHost: x\r\n\r\n", 404, b"/health, /metrics"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405, b"Allow: GET, HEAD"),
        (b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n", 200, b""),
        (b"GET /metrics HTTP/1.0\r\n\r\n", 200, b"one\ntwo\n"),
        (b"\x00\x00\x00\x10garbage of a broker's client", 400, b""),
        (b"GET /metrics HTTP/1.1\r\n\r\n", 400, b""),  # without Host
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\nA b: c\r\n\r\n", 400, b""),
        (b"GET /" + b"a" * (2 * MAX_HEAD_BYTES), 431, b""),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * MAX_HEAD_BYTES, 431, b""),
    ],
)
def test_what_is_asked_and_what_is_told(request_: bytes, status: int, has: bytes) -> None:
    socket = answered(request_)
    assert socket.data.startswith(b"HTTP/1.1 %d " % status), socket.data
    assert has in socket.data
    assert socket.is_closed == (status in (400, 405, 431) or b"HTTP/1.0" in request_)
    if request_.startswith(b"HEAD"):
        assert b"one" not in socket.data


@run_by(in_loop)
async def test_a_client_that_does_not_read_holds_up_nothing_but_its_answer() -> None:
    socket = connect(listener())
    socket.full = True
    socket.protocol.data_received(GET)
    for _ in range(8):
        await asyncio.sleep(0)
    assert b"one" not in socket.data
    assert not socket.reading
    socket.full = False
    socket.protocol.resume_writing()
    for _ in range(8):
        await asyncio.sleep(0)
    assert socket.data.endswith(b"two\n\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    ("name", "act"),
    [
        ("REQUEST_TIMEOUT_S", lambda socket: None),
        ("REQUEST_TIMEOUT_S", lambda socket: socket.protocol.data_received(GET[:-1])),
        ("ANSWER_TIMEOUT_S", lambda socket: (setattr(socket, "full", True), socket.protocol.data_received(GET))),
    ],
)
@run_by(in_loop)
async def test_who_takes_too_long_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, name: str, act: Callable[[Socket], object]
) -> None:
    loop = asyncio.get_running_loop()
    timers: list[tuple[float, Callable[[], None]]] = []
    monkeypatch.setattr(http, name, 123.0)
    monkeypatch.setattr(
        loop, "call_later", lambda delay, fn: timers.append((delay, fn)) or asyncio.TimerHandle(0, fn, (), loop)
    )
    socket = connect(listener())
    act(socket)
    await asyncio.sleep(0)
    assert not socket.is_aborted
    delay, end = timers[-1]
    assert delay == 123.0
    end()
    assert socket.is_aborted


@run_by(in_loop)
async def test_connections_are_bounded_and_make_room() -> None:
    made = listener()
    sockets = [connect(made) for _ in range(MAX_CONNECTIONS + 1)]
    assert [socket.is_aborted for socket in sockets] == [False] * MAX_CONNECTIONS + [True]
    sockets[0].protocol.connection_lost(None)
    assert not connect(made).is_aborted
    made.close()
    assert not made.connections


def test_a_page_that_fails_ends_its_connection_alone(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[bytes]:
        yield b"one\n"
        raise RuntimeError("a metric that cannot be read")

    async def main() -> None:
        made = HttpListener({"/metrics": lambda: Answer(200, "text/plain", broken())})
        socket, other = connect(made), connect(made)
        socket.protocol.data_received(GET)
        for _ in range(8):
            await asyncio.sleep(0)
        assert socket.is_aborted and not other.is_closed

    asyncio.run(main())
    assert "a metric that cannot be read" in caplog.text
