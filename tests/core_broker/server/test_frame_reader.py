"""A frame reader by itself: what it asks of its connection, and what it lets go of at the end."""

from __future__ import annotations

import gc
import weakref
from types import SimpleNamespace

import pytest

from isthmus.core_broker.server._context import Context
from isthmus.core_broker.server._frames import FrameReader
from isthmus.core_broker.server._sending import Output
from isthmus.core_broker.server.cold_sends import ColdSends
from isthmus.core_broker.server.connection import Connection
from isthmus.core_broker.storage.disk._data_file import FileRange

from .sending_ends import FILES, make_file
from .test_connection import FakeServer, FakeTransport, answer, frame


class Owner:
    """Writes down what it is asked to do."""

    def __init__(self, *, answers=True):
        self.asked = []
        self.answers = answers

    def respond(self, route, key, correlation, clock, began_ns, answer):
        self.asked.append((key, correlation, began_ns, answer))
        return self.answers

    def unknown(self, key, version):
        self.asked.append(("unknown", key, version))

    def failed(self, route, error):
        self.asked.append(("failed", str(error)))

    def close(self, reason=None):
        self.asked.append(("close", reason))

    def pause(self):
        self.asked.append("pause")

    def call_next(self):
        self.asked.append("call_next")


def begun(**fields):
    owner, server = Owner(**fields), FakeServer(scratch_bytes=1000)
    reader = FrameReader(owner, server.shared)
    transport = FakeTransport()
    reader.begin(Context(None, "PLAINTEXT", "10.0.0.9"), Output(transport))
    return owner, server, reader


def feed(reader, data):
    reader.get_buffer(-1)[: len(data)] = data
    reader.buffer_updated(len(data))


def test_a_request_is_handled_and_its_answer_given_to_the_connection():
    owner, server, reader = begun()
    feed(reader, frame(b"one", 5) + frame(b"two", 6))
    assert server.seen == [("me", b"one"), ("me", b"two")]
    assert owner.asked == [(7, 5, 1_000_000, b"one"), (7, 6, 1_000_000, b"two")]
    assert server.told == [(5, 0), (6, 0)]


def test_an_answer_that_is_yet_to_come_is_not_timed():
    _, server, reader = begun(answers=False)
    feed(reader, frame(b"one"))
    assert (len(server.seen), server.told) == (1, [])


def test_what_is_wrong_is_told_to_the_connection():
    owner, server, reader = begun()
    feed(reader, frame(b"", key=8) + frame(b"bad"))
    feed(reader, b"\0\0\0\1" + b"x" * 30)
    limit = "(socket.request.max.bytes is 10000)"
    assert owner.asked == [
        ("unknown", 8, 0),
        ("failed", "not what it claims to be"),
        ("close", f"a frame of 1 bytes {limit}"),
    ]
    assert server.seen == []


def test_while_it_is_busy_requests_are_kept_until_they_are_asked_for():
    owner, server, reader = begun()
    reader.busy = True
    feed(reader, frame(b"one"))
    assert owner.asked == ["pause"] and server.seen == []
    assert reader.has_work
    reader.busy = False
    reader.handle_held()
    assert not reader.has_work and [body for _, body in server.seen] == [b"one"]


def test_at_the_end_it_gives_back_the_memory_of_half_a_request():
    _, server, reader = begun()
    feed(reader, frame(b"half")[:-1])
    assert server.memory.held_bytes > 0 and not reader.has_work
    reader.close()
    assert server.memory.held_bytes == 0 and reader.busy


@pytest.mark.parametrize("has_sent_ranges", [False, True])
def test_a_connection_that_is_lost_does_not_wait_for_the_garbage_collector(tmp_path, has_sent_ranges):
    class Listener(SimpleNamespace):
        """Dies with the connection that holds it."""

    server = FakeServer()
    server.services = SimpleNamespace(cold_sends=ColdSends(FILES))
    listener = Listener(server=server, name="PLAINTEXT", shared=server.shared)
    connection, transport = Connection(listener), FakeTransport()
    transport.protocol = connection
    connection.connection_made(transport)
    transport.feed(frame(b"one", 1) + frame(b"two", 2)[:-1])
    sent = answer(b"one")
    if has_sent_ranges:
        file, content = make_file(tmp_path, 100)
        connection._out.parts.append(FileRange(file, 0, 100))
        connection.send_ranges()
        sent += content
    assert transport.data == sent
    alive = weakref.ref(listener)
    gc.disable()
    try:
        connection.connection_lost(None)
        transport.protocol = None  # as event loops do
        del transport, connection, listener
        assert alive() is None
    finally:
        gc.enable()
