"""A connection cuts frames, keeps the order, and holds no more memory than a client has sent."""

import asyncio
import struct
from types import SimpleNamespace

import pytest

from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.server._frames import GROWTH, Shared, skip_tags
from isthmus.core_broker.server._route import Route
from isthmus.core_broker.server.buffers import Buffers
from isthmus.core_broker.server.connection import ANSWER, Connection
from isthmus.core_broker.server.latency import Latency
from isthmus.core_broker.server.request_memory import RequestMemory
from isthmus.protocol.errors import DecodeError, ProtocolError
from tests.running import in_loop, run_by


class FakeTransport(asyncio.Transport):
    """Takes what is written; `full` makes it keep the bytes, as a socket does whose peer does not read."""

    def __init__(self):
        super().__init__({"peername": ("10.0.0.9", 5)})
        self.protocol = None
        self.data = b""
        self.reading = True
        self.closed = self.aborted = self.full = False

    def set_write_buffer_limits(self, high=None, low=None):
        assert high == 0

    def write(self, data):
        self.data += bytes(data)
        if self.full:
            self.protocol.pause_writing()

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def abort(self):
        self.closed = self.aborted = True

    def pause_reading(self):
        assert self.reading
        self.reading = False

    def resume_reading(self):
        assert not self.reading
        self.reading = True

    def feed(self, data):
        """Give data in reads of what the protocol's buffer takes."""
        while data:
            assert self.reading
            buffer = self.protocol.get_buffer(-1)
            n = min(len(buffer), len(data))
            buffer[:n] = data[:n]
            self.protocol.buffer_updated(n)
            data = data[n:]


class Served(dict):
    """A table of routes. As in the product's, looking up what is not served gives None and keeps nothing."""

    def __missing__(self, number):
        return None


class Kind(Pending):
    """A room may have its own kind of Pending."""


def echo_route(decode, handle, *, flexible=False):
    api = SimpleNamespace(
        name="Echo",
        request=SimpleNamespace(decoder=lambda version: decode),
        response=SimpleNamespace(encoder=lambda version: lambda body: [body]),
        request_header_version=lambda version: 2 if flexible else 1,
        response_header_version=lambda version: 0,
    )
    return Route(api, 0, handle, Latency())


class FakeServer:
    """What a connection asks of its server; a request's body decides how it is answered."""

    def __init__(self, *, scratch_bytes=64, buffers=None, memory=None):
        self.memory = memory or RequestMemory(1 << 20)
        self.routes = Served({7 << 16: echo_route(self.decode, self.handle)})
        scratch = memoryview(bytearray(scratch_bytes))
        self.shared = Shared(self.routes, scratch, buffers or Buffers(), self.memory, 10_000)
        self.shared.clock = lambda: self.now_ns
        self.told = []
        self.shared.on_answered = lambda route, correlation, context, ns: self.told.append((correlation, ns))
        self.turn_bytes = 1 << 20
        self.far_congestion_control = b""
        self.now_ns = 1_000_000
        self.is_draining = False
        self.services = None
        self.closings = SimpleNamespace(tell=lambda client_host, reason: None)
        self.seen = []
        self.pending = []
        self.connections = []
        self.unsupported_api_versions = None

    def decode(self, frame, position):
        body = bytes(frame[position:])
        if body == b"bad":
            raise DecodeError("not what it claims to be")
        return body, len(frame)

    def handle(self, body, context):
        self.seen.append((context.client_id, body))
        if body.startswith(b"silent"):
            return None
        if body.startswith(b"wait"):
            pending = Kind(lambda: b"expired")
            pending.holds_up = body.endswith(b"held up")
            self.pending.append(pending)
            return pending
        return body

    def add(self, connection):
        self.connections.append(connection)
        return True

    def remove(self, connection):
        self.connections.remove(connection)


def connect(transport=None, **fields):
    server = FakeServer(**fields)
    connection = Connection(SimpleNamespace(server=server, name="PLAINTEXT", shared=server.shared))
    transport = transport or FakeTransport()
    transport.protocol = connection
    connection.connection_made(transport)
    return server, transport


def frame(body, correlation=1, key=7):
    message = struct.pack(">hhih", key, 0, correlation, 2) + b"me" + body
    return struct.pack(">i", len(message)) + message


def answer(body, correlation=1):
    return ANSWER.pack(len(body) + 4, correlation) + body


def run(test):
    async def main():
        test()
        await asyncio.sleep(0)

    asyncio.run(main())


def test_the_loss_of_a_connection_is_told_to_a_handler_that_asked():
    def test():
        _, transport = connect()
        told = []
        connection = transport.protocol
        connection.context.on_lost = lambda: told.append("lost")
        assert told == []
        connection.connection_lost(None)
        assert told == ["lost"] and connection.context.on_lost is None

    run(test)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 64, 1000])
def test_requests_are_cut_whatever_the_reads_are(size):
    server, transport = connect()
    bodies = [b"a", b"b" * 200, b"", b"c" * 3000, b"d"]
    stream = b"".join(frame(body, n) for n, body in enumerate(bodies))
    for start in range(0, len(stream), size):
        transport.feed(stream[start : start + size])
    assert [body for _, body in server.seen] == bodies
    assert server.seen[0][0] == "me"
    assert transport.data == b"".join(answer(body, n) for n, body in enumerate(bodies))
    assert server.memory.held_bytes == 0


def test_a_claimed_length_takes_no_memory_before_its_bytes_come():
    server, transport = connect()
    transport.feed(struct.pack(">i", 9_999) + b"\0" * 20)
    assert server.memory.held_bytes <= 256
    transport.feed(b"\0" * 1000)
    assert server.memory.held_bytes <= GROWTH * 1024


@pytest.mark.parametrize("length", [-1, 0, 3, 10_001, 2**31 - 1])
def test_bad_length_closes_at_once(length):
    server, transport = connect()
    transport.feed(frame(b"good") + struct.pack(">i", length))
    assert transport.closed
    assert transport.data == answer(b"good")
    assert server.memory.held_bytes == 0


def test_undecodable_request_and_unknown_key_close():
    for wrong in (frame(b"bad"), frame(b"", key=8), struct.pack(">ihhih", 10, 7, -1, 1, 0)):
        server, transport = connect()
        transport.feed(wrong + frame(b"after"))
        assert transport.closed
        assert [body for _, body in server.seen if body == b"after"] == []


@run_by(in_loop)
async def test_requests_behind_a_waiting_one_wait_and_reading_pauses():
    server, transport = connect()
    transport.feed(frame(b"wait", 1) + frame(b"second", 2))
    assert len(server.seen) == 1
    transport.feed(frame(b"third", 3)[:9])
    assert not transport.reading
    server.pending[0].complete(b"done")
    await asyncio.sleep(0)
    assert transport.data == answer(b"done", 1) + answer(b"second", 2)
    assert transport.reading
    transport.feed(frame(b"third", 3)[9:])
    assert transport.data.endswith(answer(b"third", 3))


def test_no_answer_for_a_silent_request():
    server, transport = connect()
    transport.feed(frame(b"silent", 1) + frame(b"loud", 2))
    assert transport.data == answer(b"loud", 2)


@run_by(in_loop)
async def test_client_that_does_not_read_is_given_no_further_answers():
    server, transport = connect()
    transport.full = True
    transport.feed(frame(b"first", 1))
    transport.feed(frame(b"second", 2))
    assert len(server.seen) == 1
    assert not transport.reading
    transport.full = False
    transport.protocol.resume_writing()
    await asyncio.sleep(0)
    assert [body for _, body in server.seen] == [b"first", b"second"]
    assert transport.reading


@run_by(in_loop)
async def test_many_requests_in_one_read_leave_others_their_turn():
    server, transport = connect(scratch_bytes=10_000)
    transport.feed(b"".join(frame(b"", n) for n in range(100)))
    assert 1 < len(server.seen) < 100
    assert not transport.reading
    for _ in range(5):
        await asyncio.sleep(0)
    assert transport.reading
    assert transport.data == b"".join(answer(b"", n) for n in range(100))


def test_lost_connection_abandons_what_waits():
    server, transport = connect()
    transport.feed(frame(b"wait", 1) + frame(b"x" * 500, 2)[:300])
    transport.closed = True
    transport.protocol.connection_lost(None)
    assert server.pending[0].done
    assert transport.data == b""
    assert server.memory.held_bytes == 0
    assert server.connections == []


def test_half_frames_do_not_count_as_activity():
    server, transport = connect()
    server.shared.tick = 3
    transport.feed(frame(b"abc")[:9])
    assert transport.protocol._reader.tick == 0
    transport.feed(frame(b"abc")[9:])
    assert transport.protocol._reader.tick == 3


def test_who_is_idle_too_long_is_closed():
    server, transport = connect()
    server.shared.tick = 4
    transport.protocol.close_if_idle(4)
    assert not transport.closed
    transport.feed(frame(b"abc"))
    server.shared.tick = 8
    transport.protocol.close_if_idle(4)
    assert not transport.closed
    server.shared.tick = 9
    transport.protocol.close_if_idle(4)
    assert transport.closed


def test_who_waits_for_an_answer_is_not_idle():
    def work():
        server, transport = connect()
        transport.feed(frame(b"wait"))
        server.shared.tick = 9
        transport.protocol.close_if_idle(4)
        server.pending[0].complete(b"late")
        server.shared.tick = 13
        transport.protocol.close_if_idle(4)
        assert not transport.closed
        server.shared.tick = 14
        transport.protocol.close_if_idle(4)
        assert transport.closed

    run(work)


def test_header_tags_are_skipped_and_size_checked():
    assert skip_tags(memoryview(b"\0rest"), 0) == 1
    assert skip_tags(memoryview(b"\x01\x05\x03abcrest"), 0) == 6
    for wrong in (b"\x01\x05\x09abc", b"\x01", b"\x80\x80\x80\x80\x80\x80\x01", b"\x02\x05\x00"):
        with pytest.raises(ProtocolError):
            skip_tags(memoryview(wrong), 0)


def test_times_of_requests_answered_at_once_and_after_a_wait():
    def work():
        server, transport = connect()
        route = server.routes[7 << 16]
        transport.feed(frame(b"one") + frame(b"wait", 2))
        server.now_ns = 4_000_000
        server.pending[0].complete(b"late")
        total, total_ns = route.latency.total()
        local, local_ns = route.latency.local()
        assert (route.requests, sum(total), sum(local)) == (2, 2, 2)
        assert (total_ns, local_ns) == (3_000_000, 0)
        assert server.told == [(1, 0), (2, 3_000_000)]
        transport.feed(frame(b"wait"))
        server.shared.clock = None  # nobody asks for times any more
        server.pending[1].complete(b"late")
        transport.feed(frame(b"one"))
        transport.feed(frame(b"wait"))
        server.shared.clock = lambda: 9_000_000  # asked again, while one waits of which it is not known when it came
        server.pending[2].complete(b"late")
        assert (route.requests, sum(route.latency.total()[0])) == (5, 2)

    run(work)


def test_a_server_that_drains_lets_a_connection_go_once_its_answer_is_sent():
    def work():
        server, transport = connect()
        connection = transport.protocol
        transport.feed(frame(b"wait") + frame(b"next", 2))
        assert not connection.is_idle
        server.is_draining = True
        server.pending[0].complete(b"late")
        assert transport.data == answer(b"late")
        assert transport.closed
        assert not transport.aborted
        assert [body for _, body in server.seen] == [b"wait"]

    run(work)


def test_a_client_that_does_not_read_is_waited_for():
    def work():
        server, transport = connect()
        connection = transport.protocol
        transport.full = True
        transport.feed(frame(b"one"))
        assert not connection.is_idle
        server.is_draining = True
        assert not transport.closed
        connection.resume_writing()
        assert transport.closed

    run(work)
