"""Where a connection has a plain socket, compiled code sends answers by itself; the transport has what it refuses."""

import os
import socket

import pytest

from isthmus.core_broker.server._frames import COMPILED

from .test_connection import FakeTransport, answer, connect, frame, run

pytestmark = pytest.mark.skipif(not COMPILED, reason="plain Python gives all to the transport")


class SocketTransport(FakeTransport):
    """Keeps what the connection writes, as one whose socket is full."""

    def __init__(self, sock):
        super().__init__()
        self._extra["socket"] = sock
        self.full = True


def test_an_answer_goes_to_the_socket(ends):
    def work():
        ours, theirs = ends
        _, transport = connect(SocketTransport(ours))
        transport.feed(frame(b"one", 1) + frame(b"two", 2))
        assert theirs.recv(1000) == answer(b"one", 1) + answer(b"two", 2)
        assert transport.data == b"" and transport.protocol._out.writable

    run(work)


def test_what_the_socket_does_not_take_comes_by_the_transport_and_what_follows_waits_for_it(ends):
    def work():
        ours, theirs = ends
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        server, transport = connect(SocketTransport(ours))
        server.routes[0] = server.routes[7 << 16]
        transport.feed(frame(b"wait", 1, key=0) + frame(b"wait", 2, key=0) + frame(b"wait", 3, key=0))
        large = os.urandom(100_000)
        server.pending[0].complete(large)
        rest = transport.data
        assert 0 < len(rest) < len(large) and not transport.protocol._out.writable
        got = theirs.recv(1 << 20)
        assert got + rest == answer(large, 1)
        server.pending[1].complete(b"two")  # there is room by now, but this has to wait for the rest
        assert transport.data == rest + answer(b"two", 2)
        transport.protocol.resume_writing()
        server.pending[2].complete(b"three")
        assert theirs.recv(1000) == answer(b"three", 3)

    run(work)


def test_a_socket_that_is_broken_is_the_transports_to_tell_of(ends):
    def work():
        ours, theirs = ends
        theirs.close()
        _, transport = connect(SocketTransport(ours))
        transport.feed(frame(b"one"))
        assert transport.data == answer(b"one")

    run(work)


def test_a_connection_that_is_lost_does_not_touch_its_descriptor_again(ends):
    """By then it may be another connection's."""

    def work():
        ours, theirs = ends
        server, transport = connect(SocketTransport(ours))
        transport.feed(frame(b"wait"))
        assert transport.protocol._out.fd == ours.fileno()
        transport.protocol.connection_lost(None)
        transport.protocol._out.parts.append(b"late")
        transport.protocol._out.flush()
        assert transport.data == b"late"
        with pytest.raises(BlockingIOError):
            theirs.recv(1)

    run(work)
