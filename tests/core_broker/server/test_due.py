"""Produce requests of one connection that wait together: the next is begun, the answers keep their order."""

import asyncio

from isthmus.core_broker.server._context import CloseConnection
from isthmus.core_broker.server.due import DUE_MAX
from tests.running import in_loop, run_by

from .test_connection import answer, connect, frame, run


def produce(body, correlation):
    return frame(body, correlation, key=0)


def begun():
    server, transport = connect(scratch_bytes=10_000)
    server.routes[0] = server.routes[7 << 16]
    return server, transport


async def turns():
    for _ in range(10):
        await asyncio.sleep(0)


def test_produce_requests_follow_each_other_and_are_answered_in_order():
    def work():
        server, transport = begun()
        transport.feed(produce(b"wait1", 1) + produce(b"wait2", 2) + produce(b"at once", 3) + produce(b"silent", 4))
        assert [body for _, body in server.seen] == [b"wait1", b"wait2", b"at once", b"silent"]
        server.pending[1].complete(b"second")
        assert transport.data == b"" and not transport.protocol.is_idle
        server.pending[0].complete(b"first")
        assert transport.data == answer(b"first", 1) + answer(b"second", 2) + answer(b"at once", 3)
        assert transport.protocol.is_idle and transport.reading
        transport.feed(produce(b"then", 5))
        assert transport.data.endswith(answer(b"then", 5))

    run(work)


@run_by(in_loop)
async def test_a_produce_that_is_not_appended_yet_lets_none_follow():
    server, transport = begun()
    transport.feed(produce(b"wait1", 1) + produce(b"wait held up", 2) + produce(b"wait3", 3) + produce(b"last", 4))
    server.pending[0].complete(b"one")
    await turns()
    assert [body for _, body in server.seen] == [b"wait1", b"wait held up"]
    server.pending[1].let_on()
    await turns()
    assert [body for _, body in server.seen[2:]] == [b"wait3", b"last"]
    server.pending[2].complete(b"three")
    assert transport.data == answer(b"one", 1)
    server.pending[1].complete(b"two")
    assert transport.data == b"".join(answer(body, n) for n, body in enumerate([b"one", b"two", b"three", b"last"], 1))
    transport.feed(produce(b"wait held up", 5) + produce(b"then", 6))
    server.pending[3].complete(b"five")  # without a word before
    await turns()
    assert transport.data.endswith(answer(b"five", 5) + answer(b"then", 6))


@run_by(in_loop)
async def test_another_request_waits_for_the_answers_before_it():
    server, transport = begun()
    transport.feed(produce(b"wait", 1) + produce(b"wait", 2) + frame(b"fetch", 3) + produce(b"last", 4))
    assert len(server.seen) == 2
    server.pending[0].complete(b"one")
    await turns()
    assert len(server.seen) == 2
    server.pending[1].complete(b"two")
    await turns()
    assert [body for _, body in server.seen[2:]] == [b"fetch", b"last"]
    bodies = [b"one", b"two", b"fetch", b"last"]
    assert transport.data == b"".join(answer(body, n + 1) for n, body in enumerate(bodies))


@run_by(in_loop)
async def test_a_request_that_is_not_a_produce_lets_none_follow():
    server, transport = begun()
    transport.feed(frame(b"wait", 1) + produce(b"next", 2))
    assert len(server.seen) == 1
    server.pending[0].complete(b"done")
    await turns()
    assert transport.data == answer(b"done", 1) + answer(b"next", 2)


@run_by(in_loop)
async def test_so_many_wait_and_no_more():
    server, transport = begun()
    stream = b"".join(produce(b"wait", n) for n in range(DUE_MAX + 5))
    transport.feed(stream[:9000])
    await turns()
    assert len(server.seen) == DUE_MAX
    server.pending[0].complete(b"0")
    await turns()
    assert len(server.seen) == DUE_MAX + 1
    for number in range(1, DUE_MAX + 5):
        server.pending[number].complete(b"%d" % number)
        await turns()
    assert transport.data == b"".join(answer(b"%d" % n, n) for n in range(DUE_MAX + 5))
    assert transport.reading and server.memory.held_bytes == 0


def test_a_lost_connection_abandons_all_of_them():
    def work():
        server, transport = begun()
        transport.feed(produce(b"wait", 1) + produce(b"wait", 2))
        transport.closed = True
        transport.protocol.connection_lost(None)
        assert all(each.done for each in server.pending) and transport.data == b""

    run(work)


def test_a_server_that_drains_sends_all_answers_that_are_due():
    def work():
        server, transport = begun()
        transport.feed(produce(b"wait", 1) + produce(b"wait", 2))
        assert transport.protocol.waits_for_us
        server.is_draining = True
        server.pending[0].complete(b"one")
        assert not transport.closed
        server.pending[1].complete(b"two")
        assert transport.data == answer(b"one", 1) + answer(b"two", 2)
        assert transport.closed and not transport.aborted

    run(work)


def test_a_refusal_without_acks_ends_the_connection_after_the_answers_before_it():
    def work():
        server, transport = begun()
        transport.feed(produce(b"wait", 1) + produce(b"wait", 2) + produce(b"wait", 3))
        server.pending[1].complete(CloseConnection("refused"))
        server.pending[2].complete(b"three")
        assert not transport.closed
        server.pending[0].complete(b"one")
        assert transport.data == answer(b"one", 1)
        assert transport.closed

    run(work)


def test_times_are_taken_until_the_answer_is_sent():
    def work():
        server, transport = begun()
        route = server.routes[0]
        transport.feed(produce(b"wait", 1) + produce(b"wait", 2))
        server.now_ns = 5_000_000
        server.pending[1].complete(b"two")
        assert server.told == []
        server.pending[0].complete(b"one")
        assert server.told == [(1, 4_000_000), (2, 4_000_000)]
        assert (route.requests, sum(route.latency.total()[0])) == (2, 2)

    run(work)
