"""The answers of a connection's turn leave together, by its socket while the transport has nothing that comes first."""

from __future__ import annotations

import pytest

from isthmus.core_broker.server._sending import COMPILED, Output

from .sending_ends import Transport


def test_answers_of_a_turn_are_one_write() -> None:
    transport = Transport()
    out = Output(transport)
    out.flush()
    assert transport.writes == []
    out.parts.append(b"one")
    out.flush()
    out.parts.extend([b"two", bytearray(b"three"), memoryview(b"four")])
    out.flush()
    out.flush()
    assert transport.writes == [b"one", b"twothreefour"]


def test_parts_that_are_taken_are_not_sent_by_it() -> None:
    transport = Transport()
    out = Output(transport)
    out.parts.append(b"one")
    assert (out.take(), out.take()) == ([b"one"], [])
    out.flush()
    assert transport.writes == []


@pytest.mark.skipif(not COMPILED, reason="plain Python gives all to the transport")
def test_the_socket_is_written_to_unless_the_transport_has_what_comes_first(ends) -> None:
    ours, theirs = ends
    transport = Transport(ours)
    out = Output(transport)
    assert (out.fd, out.writable) == (ours.fileno(), True)
    for writable, answer in ((True, b"one"), (False, b"two"), (True, b"three")):
        out.writable = writable
        out.parts.append(answer)
        out.flush()
        assert theirs.recv(100) == answer
    assert transport.writes == [b"two"]


def test_after_the_end_nothing_is_kept_and_the_socket_is_not_touched(ends) -> None:
    ours, theirs = ends
    transport = Transport()
    transport.sock = ours
    out = Output(transport)
    out.parts.append(b"early")
    out.close()
    assert (out.parts, out.fd) == ([], -1)
    transport.sock = None
    out.parts.append(b"late")
    out.flush()
    assert transport.writes == [b"late"]
    with pytest.raises(BlockingIOError):
        theirs.recv(1)
