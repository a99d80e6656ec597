"""A connection in both forms, as imported and as plain Python whatever is built, on a bench; and streams for it."""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

from hypothesis import strategies as st

from isthmus.core_broker.server import _frames, connection
from isthmus.core_broker.server._context import CloseConnection
from isthmus.core_broker.server._frames import REQUESTS_A_TURN
from isthmus.core_broker.server.buffers import Buffers
from isthmus.core_broker.server.request_memory import RequestMemory
from isthmus.protocol.errors import DecodeError

from ..storage.support import batch
from .produce_worlds import body_of
from .test_connection import FakeServer, FakeTransport, echo_route

_FOLDER = Path(connection.__file__).parent
_FRAMES = _frames.__name__


def _load(file: str, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _FOLDER / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_plain() -> ModuleType:
    """`connection` over a plain `_frames`, which stands in sys.modules while it is loaded."""
    try:
        sys.modules[_FRAMES] = plain = _load("_frames.py", f"{_FRAMES}_plain")
        assert not plain.COMPILED
        return _load("connection.py", f"{connection.__name__}_plain")
    finally:
        sys.modules[_FRAMES] = _frames


FORMS: dict[str, type[connection.Connection]] = {
    "compiled": connection.Connection,
    "plain": _load_plain().Connection,
}

PRODUCE, ECHO, UNKNOWN, API_VERSIONS = 0, 7, 8, 18
PLAIN_VERSION, FLEXIBLE_VERSION, REAL_PRODUCE = 0, 1, 12
LIMIT = 10_000
MANY_BYTES = 4096  # of a server's read buffer


class Transport(FakeTransport):
    def __init__(self):
        super().__init__()
        self.writes = []

    def write(self, data):
        self.writes.append(bytes(data))
        super().write(data)


class CountedBuffers(Buffers):
    """Refuses what is given back twice, or was never taken."""

    def __init__(self):
        super().__init__()
        self.taken = {}

    def take(self, size):
        buffer = super().take(size)
        assert id(buffer) not in self.taken
        self.taken[id(buffer)] = buffer
        return buffer

    def give(self, buffer):
        del self.taken[id(buffer)]
        super().give(buffer)


class Server(FakeServer):
    """Routes of all kinds: echoes, which may wait, a flexible one, Produce from bytes to bytes, and what is unknown."""

    def __init__(self, world, *, is_short, scratch_bytes=MANY_BYTES, most_held_bytes=20_000, has_clock=True):
        super().__init__(scratch_bytes=scratch_bytes, buffers=CountedBuffers(), memory=RequestMemory(most_held_bytes))
        self.services = None if world is None else world.context.services
        self.closings = SimpleNamespace(tell=lambda client_host, reason: self.closed_for.append((client_host, reason)))
        self.closed_for = []
        if not has_clock:
            self.shared.clock = None
        self.unsupported_api_versions = echo_route(self.decode, self.handle)
        self.routes[PRODUCE << 16] = echo_route(self.decode, self.handle)
        self.routes[ECHO << 16 | FLEXIBLE_VERSION] = echo_route(self.decode, self.handle, flexible=True)
        if world is not None:
            self.routes[REAL_PRODUCE] = route = world.routes[REAL_PRODUCE]
            if not is_short:
                route.answer_at_once = None

    def decode(self, frame, position):
        if position > len(frame):
            raise DecodeError("its client id passes its end")
        return super().decode(frame, position)

    def handle(self, body, context):
        if body is not None and body.startswith(b"refuse"):
            raise CloseConnection("refused")
        if body is not None and body.startswith(b"fault"):
            raise ValueError("a fault of ours")
        answer = super().handle(b"whatever it is" if body is None else body, context)
        self.seen[-1] += (context.version,)
        return answer


class Bench:
    """One connection, with what its client has sent and the transport has not read yet."""

    def __init__(self, form, server):
        self.server = server
        self.connection = FORMS[form](SimpleNamespace(server=server, name="PLAINTEXT", shared=server.shared))
        self.transport = Transport()
        self.transport.protocol = self.connection
        self.connection.connection_made(self.transport)
        self.sent = b""
        self._left = 0  # bytes of a frame that is read in part

    def read(self, most):
        """One read of the event loop, of at most so many bytes; 0: to the end of a frame."""
        if not self.sent or not self.transport.reading or self.transport.closed:
            return
        buffer = self.connection.get_buffer(-1)
        n = min(len(buffer), len(self.sent), most or self._left or self._frame_at(0))
        buffer[:n] = self.sent[:n]
        at = self._left
        while at < n:
            at += self._frame_at(at)
        self._left = at - n
        self.sent = self.sent[n:]
        self.connection.buffer_updated(n)

    def _frame_at(self, at):
        """The bytes of the frame there; of what cannot be one, or has no whole length, one."""
        size = int.from_bytes(self.sent[at : at + 4], "big", signed=True)
        return size + 4 if len(self.sent) - at >= 4 and 0 < size <= LIMIT else 1

    async def settle(self):
        """Until all is read and answered, or the connection ends."""
        for _ in range(500):
            if self.transport.closed or not (self.sent or self.server.pending):
                break
            for event in (("writable",), ("answer", 0, b"at last"), ("turn",), ("read", 10**6), ("room",)):
                await self.do(*event)

    async def do(self, event, *given):
        server, transport, connection = self.server, self.transport, self.connection
        if event == "send":
            self.sent += given[0]
        elif event == "read":
            self.read(given[0])
        elif event == "turn":
            await asyncio.sleep(0)
        elif event == "answer" and server.pending:
            server.pending.pop(given[0] % len(server.pending)).complete(given[1])
        elif event == "full":
            transport.full = True
        elif event == "writable" and transport.full:
            transport.full = False
            connection.resume_writing()
        elif event == "room":
            connection.resume()
        elif event == "tick":
            server.shared.tick += 1
            server.now_ns += 1_000_000
        elif event == "settle":
            await self.settle()
        elif event == "drain":
            server.is_draining = True
            if connection.is_idle:
                connection.close()

    def state(self):
        """All that others can see."""
        server, transport, connection = self.server, self.transport, self.connection
        reader = connection._reader
        return (
            list(transport.writes), transport.reading, transport.closed, transport.aborted, list(server.seen),
            list(server.closed_for), list(server.told), server.memory.held_bytes, len(server.pending), reader.busy,
            connection._out.writable, connection.is_idle, connection.waits_for_us, reader.tick,
            [
                (route.requests, route.latency.total(), route.latency.local())
                for route in server.routes.values() if route.api.name == "Echo"
            ],
        )  # fmt: skip


# --- Streams ----------------------------------------------------------------------------------------------------------


def request(key, version, correlation, client, rest):
    """A frame. client: the client id's bytes, None, or a length that is not that of what follows."""
    length, text = client if isinstance(client, tuple) else (-1, b"") if client is None else (len(client), client)
    message = struct.pack(">hhih", key, version, correlation, length) + text + rest
    return struct.pack(">i", len(message)) + message


CORRELATIONS = st.integers(-(2**31), 2**31 - 1)
CLIENTS = st.sampled_from([b"me", b"me", b"me", b"you", b"longer than that", b"", None, b"\xc3\xa9", b"\xff\xfe"])
TAGS = st.sampled_from([b"\0", b"\0", b"\1\0\0", b"\2\5\3abc\6\0", b"\x80\0", b"\1\5\1x"])
GOOD = st.sampled_from([b"a", b"", b"b" * 200, b"c" * 3000, b"silent", b"d" * 31])
BODIES = st.one_of(GOOD, GOOD, st.sampled_from([b"wait", b"wait and see", b"wait" * 100]))
WRONG_CLIENTS = st.sampled_from([(2000, b"me"), (3, b"me"), (2**15 - 1, b""), (-2, b""), (-(2**15), b"me")])
WRONG_TAGS = st.sampled_from(
    [b"", b"\1", b"\1\5\x7fabc", b"\x80\x80\x80\x80\x80\x80\1", b"\xff", b"\2\5\0", b"\1\5\2a"]
)


@st.composite
def wrong_frames(draw):
    """What ends a connection, or what looks as if it did."""
    correlation = draw(CORRELATIONS)
    kind = draw(st.sampled_from("size key tags client body version".split()))
    if kind == "size":
        size = draw(st.sampled_from([-(2**31), -4, -1, 0, 3, 4, 9, LIMIT + 1, 2**31 - 1]))
        return struct.pack(">i", size) + draw(st.binary(max_size=20))
    if kind == "key":
        key, version = draw(st.sampled_from([(UNKNOWN, 0), (ECHO, 9), (-1, 0), (0, -1), (ECHO, -1), (-1, -1)]))
        return request(key, version, correlation, b"me", b"?")
    if kind == "tags":
        return request(ECHO, FLEXIBLE_VERSION, correlation, b"me", draw(WRONG_TAGS))
    if kind == "client":
        version = draw(st.sampled_from([PLAIN_VERSION, FLEXIBLE_VERSION]))
        return request(ECHO, version, correlation, draw(WRONG_CLIENTS), draw(st.sampled_from([b"", b"\0x"])))
    if kind == "version":
        return request(API_VERSIONS, 99, correlation, b"me", b"whatever")
    key = draw(st.sampled_from([ECHO, PRODUCE]))
    return request(key, 0, correlation, b"me", draw(st.sampled_from([b"bad", b"refuse", b"fault"])))


@st.composite
def frames(draw):
    correlation, client = draw(CORRELATIONS), draw(CLIENTS)
    kind = draw(st.sampled_from("echo echo produce produce flexible real real limits".split()))
    if kind == "echo":
        return request(ECHO, PLAIN_VERSION, correlation, client, draw(BODIES))
    if kind == "produce":
        return request(PRODUCE, PLAIN_VERSION, correlation, client, draw(BODIES))
    if kind == "flexible":
        return request(ECHO, FLEXIBLE_VERSION, correlation, client, draw(TAGS) + draw(BODIES))
    if kind == "real":
        indexes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True))  # there is no fourth
        rows = [("t", index, batch(draw(st.integers(1, 3)), size=draw(st.integers(1, 300)))) for index in indexes]
        return request(PRODUCE, REAL_PRODUCE, correlation, client, draw(TAGS) + body_of(12, *rows))
    empty = request(ECHO, PLAIN_VERSION, correlation, None, b"")
    return draw(st.sampled_from([empty, request(ECHO, PLAIN_VERSION, correlation, None, b"x" * (LIMIT - 10))]))


@st.composite
def stories(draw):
    """What happens to a connection, in order."""
    burst = st.lists(st.sampled_from([b"", b"x"]), min_size=1, max_size=2 * REQUESTS_A_TURN + 5).map(
        lambda bodies: b"".join(request(PRODUCE, 0, n, b"me", body) for n, body in enumerate(bodies))
    )
    waiting = st.integers(1, 70).map(lambda n: b"".join(request(PRODUCE, 0, each, b"me", b"wait") for each in range(n)))
    parts = draw(st.lists(st.one_of(frames(), frames(), frames(), burst, waiting), max_size=12))
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), draw(wrong_frames()))
    stream = b"".join(parts)
    reads = st.tuples(st.just("read"), st.sampled_from([0, 0, 0, 1, 3, 4, 5, 13, 100, 1000, 10**6, 10**6, 10**6]))
    answers = st.one_of(GOOD, GOOD, GOOD, st.just(CloseConnection("refused late")), st.none())
    events = st.one_of(
        reads,
        reads,
        reads,
        st.just(("turn",)),
        st.tuples(st.just("answer"), st.integers(0, 3), answers),
        st.sampled_from([("full",), ("full",), ("full",), ("writable",), ("room",), ("tick",)]),
    )
    story = draw(st.lists(events, max_size=60))
    if not draw(st.integers(0, 5)):
        story.insert(draw(st.integers(0, len(story))), ("drain",))
    return [("send", stream), *story, ("settle",)]
