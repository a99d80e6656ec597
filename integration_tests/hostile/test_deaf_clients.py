"""Clients that ask and never read: the broker holds little for them, and others hardly notice."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from integration_tests.brokers import BrokerProcess
from integration_tests.clients.records import create_topics
from isthmus.protocol.messages import fetch

from .sockets import API_VERSIONS, MIB, Good, connect, frame_of, produce_frame, rss

SLOWER = 1.5
ATTEMPTS = 5  # of the comparison of times: this machine may have other things to do
GROWTH_BYTES = 4 * MIB
DEAF = 20
RECORDS, RECORD_BYTES = 30, 900_000
FETCHES = 3  # of each deaf client, of all that the topic holds

Deafen = Callable[[BrokerProcess, contextlib.ExitStack], None]


def asks_for_ever(broker: BrokerProcess, stack: contextlib.ExitStack) -> None:
    """Sends small requests until nobody takes them any more."""
    sock = stack.enter_context(connect(broker.port))
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(API_VERSIONS * 1000)


def fetches_much(broker: BrokerProcess, stack: contextlib.ExitStack) -> None:
    for _ in range(DEAF):
        stack.enter_context(connect(broker.port)).sendall(fetch_frame("large") * FETCHES)


def fetch_frame(topic: str) -> bytes:
    asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50 * MIB)
    topics = [fetch.FetchTopic(topic=topic, partitions=[asked])]
    return frame_of(fetch.Request(max_wait_ms=500, min_bytes=1, max_bytes=50 * MIB, topics=topics), 4)


def fill(broker: BrokerProcess) -> None:
    create_topics(broker.bootstrap, ["good", "large"])
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(RECORDS):
        producer.produce("large", bytes(RECORD_BYTES))
    assert producer.flush(20) == 0


@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=pytest.mark.soak)])
@pytest.mark.parametrize("deafen", [asks_for_ever, fetches_much])
def test_clients_that_never_read_do_not_slow_others(broker: BrokerProcess, deafen: Deafen, timed: bool):
    """Times are judged by `make soak` alone: on a machine that does other things they say little."""
    fill(broker)
    with Good(broker.port, produce_frame("good", bytes(1_000))) as good:
        good.median_p99_s()  # all code has run once
        before = rss(broker)
        said = []
        for _ in range(ATTEMPTS):
            quiet = good.median_p99_s()
            with contextlib.ExitStack() as stack:
                deafen(broker, stack)
                good.p99_s()
                slowed = good.median_p99_s()
                grown = rss(broker) - before
            said.append(
                f"p99 {quiet * 1000:.3f} ms, {slowed * 1000:.3f} ms beside deaf clients, +{grown / MIB:.1f} MiB"
            )
            print(said[-1])
            assert grown < GROWTH_BYTES
            if not timed or slowed <= SLOWER * quiet:
                return
        pytest.fail("; ".join(said))


def test_a_deaf_client_that_begins_to_read_is_given_everything(broker: BrokerProcess):
    fill(broker)
    with connect(broker.port) as sock, Good(broker.port) as good, sock.makefile("rb") as answers:
        sock.sendall(fetch_frame("large") * FETCHES)
        for _ in range(20):
            good.ask()
        for _ in range(FETCHES):
            (size,) = struct.unpack(">i", answers.read(4))
            assert size > RECORDS * RECORD_BYTES
            assert len(answers.read(size)) == size
