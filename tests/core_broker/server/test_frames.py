"""However a stream of requests is cut into reads, both forms of the reading side do the same, and what they should."""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import tempfile
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from isthmus.core_broker.server._frames import COMPILED, REQUESTS_A_TURN
from isthmus.core_broker.server.connection import ANSWER, ANSWER_FLEXIBLE
from isthmus.core_broker.storage.log.log_config import LogConfig
from isthmus.protocol.errors import ProtocolError
from tests.running import in_loop, run_by

from ..storage.support import batch
from .frames_worlds import (
    API_VERSIONS,
    CLIENTS,
    CORRELATIONS,
    ECHO,
    FLEXIBLE_VERSION,
    FORMS,
    GOOD,
    LIMIT,
    MANY_BYTES,
    PLAIN_VERSION,
    PRODUCE,
    REAL_PRODUCE,
    TAGS,
    Bench,
    Server,
    request,
    stories,
    wrong_frames,
)  # fmt: skip
from .produce_worlds import World, body_of

needs_compiler = pytest.mark.skipif(not COMPILED, reason="there is one form only")


# --- Both forms -------------------------------------------------------------------------------------------------------


async def told(form, story, folder, fields):
    """The states that a connection of a form goes through, and of the logs at the end."""
    world = World(f"{folder}/{form}", LogConfig(), {})
    bench = Bench(form, Server(world, is_short=form == "compiled", **fields))
    states = []
    for event in story:
        await bench.do(*event)
        states.append(bench.state())
    if not bench.transport.closed:
        bench.transport.closed = True
    bench.connection.connection_lost(None)
    assert bench.server.shared.buffers.taken == {}
    return states, bench.state(), world.state()


@needs_compiler
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    stories(),
    st.sampled_from([64, 300, MANY_BYTES, MANY_BYTES, 128 * 1024]),
    st.sampled_from([500, 20_000, 20_000]),
    st.booleans(),
)
def test_both_forms_do_the_same(story, scratch_bytes, most_held_bytes, has_clock):
    fields = {"scratch_bytes": scratch_bytes, "most_held_bytes": most_held_bytes, "has_clock": has_clock}

    async def main():
        with tempfile.TemporaryDirectory() as folder:
            return [await told(form, story, folder, fields) for form in ("compiled", "plain")]

    (states, last, logs), (expected, expected_last, expected_logs) = asyncio.run(main())
    for event, after, wanted in zip(story, states, expected, strict=True):
        assert after == wanted, event[0]
    assert last == expected_last
    assert repr(logs).replace("/compiled/", "/plain/") == repr(expected_logs)


# --- What they should do ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(st.tuples(CORRELATIONS, CLIENTS, GOOD, st.none() | TAGS), min_size=1, max_size=60),
    st.sampled_from([64, MANY_BYTES]),
    st.data(),
)
def test_each_request_is_answered_once_in_order_however_it_is_cut(form, rows, scratch_bytes, data):
    stream, answers, seen = b"", b"", []
    for correlation, client, body, tags in rows:
        if tags is None:
            stream += request(ECHO, PLAIN_VERSION, correlation, client, body)
        else:
            stream += request(ECHO, FLEXIBLE_VERSION, correlation, client, tags + body)
        seen.append(((client or b"").decode("utf-8", "replace"), body, int(tags is not None)))
        if body != b"silent":
            answers += ANSWER.pack(len(body) + 4, correlation) + body

    async def main():
        bench = Bench(form, Server(None, is_short=False, scratch_bytes=scratch_bytes))
        bench.sent = stream
        turns = 0
        while bench.sent or turns < 10:
            if bench.sent and bench.transport.reading:
                bench.read(data.draw(st.sampled_from([1, 7, 500, 10**6])) if turns < 50 else 10**6)
            else:
                await asyncio.sleep(0)
            turns += 1
        return bench

    bench = asyncio.run(main())
    assert bench.server.seen == seen
    assert bench.transport.data == answers
    assert bench.server.memory.held_bytes == 0 and bench.transport.reading and not bench.transport.closed


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=100, deadline=None)
@given(wrong_frames(), st.integers(1, 30))
def test_what_is_wrong_ends_the_connection_after_the_answers_before_it(form, wrong, most):
    async def main():
        bench = Bench(form, Server(None, is_short=False))
        bench.sent = request(ECHO, PLAIN_VERSION, 5, b"me", b"good") + wrong
        bench.sent += request(ECHO, PLAIN_VERSION, 6, b"me", b"never" * 40) * 60
        for _ in range(400):
            bench.read(most)
            await asyncio.sleep(0)
        return bench

    bench = asyncio.run(main())
    key = struct.unpack_from(">h", wrong, 4)[0] if len(wrong) >= 6 else None
    good = ANSWER.pack(8, 5) + b"good"
    assert bench.transport.data.startswith(good)
    if key == API_VERSIONS and wrong.endswith(b"whatever"):
        assert not bench.transport.closed
        assert bench.transport.data[len(good) :].startswith(ANSWER.pack(18, struct.unpack_from(">i", wrong, 8)[0]))
    elif bench.transport.closed:
        assert bench.transport.data == good
        assert bench.server.memory.held_bytes == 0


LIMITS = {
    "least": (request(ECHO, 0, 3, None, b""), ANSWER.pack(4, 3), None),
    "less": (struct.pack(">i", 9) + bytes(9), b"", "a frame of 9 bytes (socket.request.max.bytes is 10000)"),
    "negative": (struct.pack(">i", -1), b"", "a frame of -1 bytes (socket.request.max.bytes is 10000)"),
    "most": (request(ECHO, 0, 3, None, b"x" * 9990), ANSWER.pack(9994, 3) + b"x" * 9990, None),
    "more": (struct.pack(">i", 10_001), b"", "a frame of 10001 bytes (socket.request.max.bytes is 10000)"),
    "unknown": (request(8, 0, 3, None, b""), b"", "request of key 8 version 0, which is not served"),
    "negative version": (request(7, -1, 3, None, b""), b"", "request of key 7 version -1, which is not served"),
    "undecodable": (request(7, 0, 3, None, b"bad"), b"", "Echo v0: not what it claims to be"),
    "refused": (request(7, 0, 3, None, b"refuse"), b"", "refused"),
    "fault": (request(7, 0, 3, None, b"fault"), b"", None),
    "no tags": (request(7, 1, 3, None, b""), b"", "a varint of a request header has no end"),
    "long tags": (request(7, 1, 3, None, b"\1\5\2x"), b"", "the tagged fields of a request header pass its end"),
    "client past the end": (request(7, 0, 3, (9, b"x"), b""), b"", "Echo v0: its client id passes its end"),
    "client past the end, flexible": (request(7, 1, 3, (9, b"x"), b""), b"", "a varint of a request header has no end"),
    "unknown ApiVersions": (request(18, 99, 3, None, b"?"), ANSWER.pack(18, 3) + b"whatever it is", None),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sent,answer,reason", LIMITS.values(), ids=LIMITS)
def test_limits_and_what_is_told_of_them(form, sent, answer, reason):
    async def main():
        bench = Bench(form, Server(None, is_short=False))
        bench.sent = sent
        while bench.sent and not bench.transport.closed:
            bench.read(10**6)
            await asyncio.sleep(0)
        return bench

    bench = asyncio.run(main())
    assert bench.transport.data == answer
    assert bench.transport.closed == (not answer)
    assert bench.server.closed_for == ([] if reason is None else [("10.0.0.9", reason)])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("version", [PLAIN_VERSION, FLEXIBLE_VERSION])
def test_a_client_id_that_passes_the_end_of_its_frame_takes_nothing_of_what_lies_behind(form, version):
    bench = Bench(form, Server(None, is_short=False))
    bench.server.shared.scratch[:] = b"s" * len(bench.server.shared.scratch)
    bench.sent = request(ECHO, version, 3, (9, b"x"), b"")
    bench.read(10**6)
    assert bench.transport.closed and bench.connection.context.client_id == "x"


@pytest.mark.parametrize("form", FORMS)
def test_a_request_of_another_version_than_the_one_before_has_a_route_of_its_own(form):
    bench = Bench(form, Server(None, is_short=False))
    bench.sent = b"".join(
        request(ECHO, PLAIN_VERSION, number, None, body) if body != b"b"
        else request(ECHO, FLEXIBLE_VERSION, number, None, b"\0" + body)
        for number, body in enumerate([b"a", b"b", b"c", b"d"])
    )  # fmt: skip
    bench.read(10**6)
    assert bench.server.seen == [("", b"a", 0), ("", b"b", 1), ("", b"c", 0), ("", b"d", 0)]


def test_a_fault_of_ours_is_told_with_where_it_was(caplog):
    asyncio.run(told("compiled", [("send", request(7, 0, 1, None, b"fault")), ("read", 100)], tempfile.mkdtemp(), {}))
    [record] = caplog.records
    assert record.getMessage() == "Echo v0 from 10.0.0.9: closing the connection"
    assert record.exc_info[0] is ValueError and record.exc_info[2].tb_next is not None


@pytest.mark.parametrize("form", FORMS)
def test_so_many_requests_a_turn(form):
    async def main():
        bench = Bench(form, Server(None, is_short=False, scratch_bytes=64 * 1024))
        bench.sent = b"".join(request(ECHO, 0, n, None, b"") for n in range(2 * REQUESTS_A_TURN + 1))
        counts = []
        bench.read(10**6)
        while len(bench.server.seen) <= 2 * REQUESTS_A_TURN:
            counts.append((len(bench.server.seen), len(bench.transport.writes)))
            await asyncio.sleep(0)
        return counts

    assert asyncio.run(main()) == [(REQUESTS_A_TURN, 1), (2 * REQUESTS_A_TURN, 2)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("before", [0, 10])  # bytes of the second request that are there when the socket is full
@run_by(in_loop)
async def test_while_a_client_does_not_read_its_requests_wait(form, before):
    bench = Bench(form, Server(None, is_short=False))
    bench.sent = request(PRODUCE, 0, 1, None, b"wait")
    bench.read(10**6)
    bench.sent = request(PRODUCE, 0, 2, None, b"second")
    if before:
        bench.read(before)
    await bench.do("full")
    bench.server.pending[0].complete(b"first")
    bench.read(10**6)
    assert bench.sent == b""
    assert len(bench.server.seen) == 1 and not bench.transport.reading
    await bench.do("writable")
    await asyncio.sleep(0)
    assert len(bench.server.seen) == 2 and bench.transport.reading


async def answer_what_is_due(bench: Bench) -> None:
    """The one request that waits, whose connection is open until then and sends the answer."""
    assert not bench.transport.closed
    bench.server.pending[0].complete(b"answer")
    for _ in range(3):
        await asyncio.sleep(0)
    assert bench.transport.data == ANSWER.pack(10, 1) + b"answer"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("key", [1, 256, -256])  # whichever byte tells that it is no Produce
@run_by(in_loop)
async def test_what_is_no_produce_request_waits_for_the_answers_that_are_due(form, key):
    bench = Bench(form, Server(None, is_short=False))
    bench.sent = request(PRODUCE, 0, 1, None, b"wait") + request(key, 0, 2, None, b"?")
    bench.read(10**6)
    await answer_what_is_due(bench)
    assert bench.server.closed_for == [("10.0.0.9", f"request of key {key} version 0, which is not served")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [-1, 9, LIMIT + 1, 2**31 - 1])
@run_by(in_loop)
async def test_a_bad_length_behind_an_answer_that_is_due_ends_the_connection_after_it(form, size):
    bench = Bench(form, Server(None, is_short=False))
    for sent in (request(ECHO, 0, 1, None, b"wait"), struct.pack(">i", size) + bytes(9)):
        bench.sent = sent
        bench.read(10**6)
    await answer_what_is_due(bench)
    assert bench.server.closed_for == [("10.0.0.9", f"a frame of {size} bytes (socket.request.max.bytes is {LIMIT})")]


# --- The short way ----------------------------------------------------------------------------------------------------


def produce_frame(correlation, *indexes, **header):
    rows = [("t", index, batch(2, **header)) for index in indexes]
    return request(PRODUCE, REAL_PRODUCE, correlation, b"me", b"\0" + body_of(REAL_PRODUCE, *rows))


@needs_compiler
@pytest.mark.parametrize("has_clock", [True, False])
def test_a_plain_produce_request_takes_no_step_of_the_interpreter_in_its_connection(tmp_path, has_clock):
    world = World(str(tmp_path), LogConfig(), {})
    route = world.routes[REAL_PRODUCE]
    bench = Bench("compiled", Server(world, is_short=True, has_clock=has_clock))
    called = []

    def profile(frame, event, arg):
        if event == "call":
            called.append(f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_code.co_name}")

    for correlation in range(3):
        sent = produce_frame(correlation, 0, 1)
        bench.server.shared.scratch[: len(sent)] = sent
        sys.setprofile(profile if correlation == 2 else None)
        bench.connection.buffer_updated(len(sent))
        sys.setprofile(None)
    assert len(bench.transport.writes) == 3 and route.requests == 3
    assert [each for each in called if each.startswith(("connection.py", "_frames.py", "_produce.py"))] == []
    assert "frames_worlds.py:write" in called  # what is called is seen
    assert [partition.log.log_end_offset for partition in world.partitions["t"].values()] == [6, 6, 0]


@needs_compiler
def test_behind_an_answer_that_is_due_no_request_takes_the_short_way(tmp_path):
    async def main():
        world = World(str(tmp_path), LogConfig(), {})
        bench = Bench("compiled", Server(world, is_short=True))
        bench.sent = request(PRODUCE, 0, 1, None, b"wait") + produce_frame(2, 0)
        bench.read(10**6)
        assert world.partitions["t"][0].log.log_end_offset == 2
        assert bench.transport.data == b""
        bench.server.pending[0].complete(b"first")
        return bench

    written = asyncio.run(main()).transport.data
    first = ANSWER.pack(9, 1) + b"first"
    assert written.startswith(first)
    assert written[len(first) + 4 :].startswith(ANSWER_FLEXIBLE.pack(0, 2, 0)[4:])


@needs_compiler
def test_what_refuses_on_the_short_way_ends_the_connection(tmp_path):
    world = World(str(tmp_path), LogConfig(), {})
    world.context.services.runtime = SimpleNamespace(wall_ms=_refuse)
    bench = Bench("compiled", Server(world, is_short=True))
    bench.sent = produce_frame(1, 0)
    bench.read(10**6)
    assert bench.transport.closed
    assert bench.server.closed_for == [("10.0.0.9", "Produce v12: no time")]


def _refuse():
    raise ProtocolError("no time")
