"""Plain sockets to a broker: a good client that asks and measures, and what the hostile ones share."""

from __future__ import annotations

import socket
import statistics
import struct
import time

from integration_tests.brokers import BrokerProcess
from integration_tests.peers.peers import rss_bytes
from isthmus.protocol.messages import produce
from isthmus.protocol.records import build_batch
from isthmus.protocol.schema import Struct

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
ANSWER_TIMEOUT_S = 10.0
IDLE_MS = 2_000  # connections.max.idle.ms
REQUESTS = 300  # of one measurement of p99
MIB = 1 << 20


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), ANSWER_TIMEOUT_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def is_closed(sock: socket.socket, timeout_s: float) -> bool:
    sock.settimeout(timeout_s)
    try:
        while sock.recv(65536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


class Good:
    """A client that behaves: sends one request at a time, takes the whole answer, and knows how long that took.

    It connects anew after half of the time for which a broker keeps an idle connection.
    """

    def __init__(self, port: int, frame: bytes = API_VERSIONS):
        self._port, self._frame = port, frame
        self._connect()

    def _connect(self) -> None:
        self._socket = connect(self._port)
        self._answers = self._socket.makefile("rb")
        self._answered_s = time.monotonic()

    def _close(self) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self) -> bytes:
        """The answer without its length; AssertionError when there is none within ANSWER_TIMEOUT_S."""
        if time.monotonic() - self._answered_s > IDLE_MS / 2_000:
            self._close()
            self._connect()
        self._socket.sendall(self._frame)
        head = self._answers.read(4)
        assert len(head) == 4, "the broker closed a good client's connection"
        (size,) = struct.unpack(">i", head)
        body = self._answers.read(size)
        assert len(body) == size
        self._answered_s = time.monotonic()
        return body

    def p99_s(self) -> float:
        took = []
        for _ in range(REQUESTS):
            start = time.perf_counter()
            self.ask()
            took.append(time.perf_counter() - start)
        return sorted(took)[REQUESTS * 99 // 100]

    def median_p99_s(self, runs: int = 5) -> float:
        """A run in which the machine did something else does not count."""
        return statistics.median(self.p99_s() for _ in range(runs))

    def __enter__(self) -> Good:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def frame_of(request: Struct, version: int, correlation_id: int = 7) -> bytes:
    """A whole frame of a request, by our own codec."""
    api = type(request).API
    body = b"".join(map(bytes, api.encode_request(request, version)))
    tags = b"\0" if api.request_header_version(version) == 2 else b""
    head = struct.pack(">hhih", api.key, version, correlation_id, -1) + tags
    return struct.pack(">i", len(head) + len(body)) + head + body


def produce_frame(topic: str, value: bytes) -> bytes:
    """One record to partition 0 of a topic, to be acked."""
    records = build_batch([(0, None, value, ())])
    data = produce.PartitionProduceData(index=0, records=records)
    topic_data = [produce.TopicProduceData(name=topic, partition_data=[data])]
    return frame_of(produce.Request(acks=-1, timeout_ms=10_000, topic_data=topic_data), 9)


def rss(broker: BrokerProcess) -> int:
    return rss_bytes(broker.pid)
