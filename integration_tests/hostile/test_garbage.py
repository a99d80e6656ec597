"""What is no request is closed at once; what does not become one is closed after connections.max.idle.ms."""

from __future__ import annotations

import os
import socket
import struct
import time

import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.clients.records import create_topics
from isthmus.protocol.messages import fetch

from .sockets import API_VERSIONS, IDLE_MS, Good, connect, frame_of, is_closed

IDLE_S = IDLE_MS / 1000
LATE = 2.5  # closed within so many idle times
RESET = struct.pack("ii", 1, 0)
LEAVERS = 50
GARBAGE = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "negative-length": struct.pack(">i", -1),
    "zero-length": struct.pack(">i", 0),
    "huge-length": struct.pack(">i", 2**31 - 1),
    "length-over-the-bound": struct.pack(">i", 104_857_601),
    "shorter-than-a-header": struct.pack(">i", 3) + b"abc",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
    "unknown-version": struct.pack(">ihhihi", 14, 1, 99, 1, -1, 0),
    "unknown-key": struct.pack(">ihhih", 10, 29_999, 0, 1, -1),
    "good-then-bad": API_VERSIONS * 3 + struct.pack(">i", -1),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_closed_at_once(broker: BrokerProcess, name: str):
    with connect(broker.port) as sock, Good(broker.port) as good:
        sock.sendall(GARBAGE[name])
        assert is_closed(sock, IDLE_S / 2)
        good.ask()


def test_half_frames_are_closed_after_the_idle_time(broker: BrokerProcess):
    halves = [b"", b"\0", API_VERSIONS[:4], API_VERSIONS[:9], struct.pack(">i", 50_000_000) + bytes(20_000)]
    start = time.monotonic()
    with Good(broker.port) as good:
        socks = [connect(broker.port) for _ in halves]
        for sock, half in zip(socks, halves, strict=True):
            sock.sendall(half)
        while time.monotonic() - start < 0.8 * IDLE_S:
            good.ask()  # which keeps its own connection
            time.sleep(0.05)
        assert not any(is_closed(sock, 0.001) for sock in socks)
        while time.monotonic() - start < LATE * IDLE_S:
            good.ask()
            time.sleep(0.05)
        assert all(is_closed(sock, 0.1) for sock in socks)
        good.ask()
        for sock in socks:
            sock.close()


def test_slow_loris_is_closed_after_the_idle_time(broker: BrokerProcess):
    """A byte now and then is no request: only whole ones count."""
    with connect(broker.port) as slow, Good(broker.port) as good:
        start = time.monotonic()
        try:
            for byte in struct.pack(">ihhih", 1_000, 18, 0, 7, -1) + bytes(990):
                slow.sendall(bytes([byte]))
                good.ask()
                time.sleep(0.05)
                assert time.monotonic() - start < LATE * IDLE_S
        except ConnectionError:
            pass
        assert time.monotonic() - start > 0.9 * IDLE_S
        good.ask()


@pytest.mark.parametrize("rest", [b"", b"\0" * 10, API_VERSIONS], ids=["nothing", "half-a-frame", "a-request"])
@pytest.mark.parametrize("linger", [None, RESET], ids=["closed", "reset"])
def test_clients_that_leave_a_long_poll_behind_are_forgotten(broker: BrokerProcess, rest: bytes, linger: bytes | None):
    """Also where what they sent after it lies unread, as one request of a connection is handled at a time."""
    create_topics(broker.bootstrap, ["empty"])
    asked = fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topics = [fetch.FetchTopic(topic="empty", partitions=[asked])]
    poll = frame_of(fetch.Request(max_wait_ms=2**31 - 1, min_bytes=1, max_bytes=1_000, topics=topics), 4)
    files = f"/proc/{broker.pid}/fd"
    with Good(broker.port) as good:
        good.ask()
        before = len(os.listdir(files))
        socks = [connect(broker.port) for _ in range(LEAVERS)]
        for sock in socks:
            sock.sendall(poll)
        while len(os.listdir(files)) < before + LEAVERS:
            good.ask()
        for sock in socks:
            sock.sendall(rest)
        good.ask()
        for sock in socks:
            if linger:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            sock.close()
        deadline = time.monotonic() + LATE * IDLE_S
        while len(os.listdir(files)) > before:
            assert time.monotonic() < deadline, f"{len(os.listdir(files)) - before} connections are still held"
            good.ask()
            time.sleep(0.05)
