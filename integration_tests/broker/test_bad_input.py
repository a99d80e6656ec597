"""What comes at an open port: garbage, half frames, crowds, clients that never read. Nobody else may notice."""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess, running_broker

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)
IDLE_MS = 2_000


def connect(broker: BrokerProcess) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", broker.port))
    sock.settimeout(10)
    return sock


def ask(sock: socket.socket) -> None:
    """One request and its whole answer."""
    sock.sendall(API_VERSIONS)
    head = sock.recv(4, socket.MSG_WAITALL)
    assert len(head) == 4
    (size,) = struct.unpack(">i", head)
    body = sock.recv(size, socket.MSG_WAITALL)
    assert struct.unpack_from(">ih", body) == (7, 0)


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


def rss_kib(broker: BrokerProcess) -> int:
    with open(f"/proc/{broker.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def p99_s(sock: socket.socket, rounds: int = 5, requests: int = 200) -> float:
    """The best of several rounds: what else runs on this machine disturbs some of them, a slow broker all."""
    found = []
    for _ in range(rounds):
        took = []
        for _ in range(requests):
            start = time.perf_counter()
            ask(sock)
            took.append(time.perf_counter() - start)
        found.append(sorted(took)[int(requests * 0.99)])
    return min(found)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    folder = tmp_path_factory.mktemp("bad-input")
    with running_broker(folder, {"connections.max.idle.ms": IDLE_MS}) as made:
        yield made
        assert "Traceback" not in made.log


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", -1), struct.pack(">i", 2**31 - 1), struct.pack(">i", 3) + b"abc",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 100,
     struct.pack(">ihhihi", 14, 1, 99, 1, -1, 0), struct.pack(">ihhih", 10, 29999, 0, 1, -1)],
    ids=["http", "negative", "huge", "short", "tls", "version", "key"],
)  # fmt: skip
def test_garbage_is_closed_at_once(broker: BrokerProcess, garbage: bytes):
    with connect(broker) as sock:
        sock.sendall(garbage)
        assert is_closed(sock, IDLE_MS / 1000 / 2)


def test_half_frames_and_slow_loris_are_closed_after_the_idle_time(broker: BrokerProcess):
    with connect(broker) as half, connect(broker) as slow, connect(broker) as good:
        half.sendall(API_VERSIONS[:9])
        slow.setblocking(True)
        start = time.monotonic()
        request = struct.pack(">ihhih", 100, 18, 0, 7, -1)
        ended = False
        for byte in request + b"\0" * 86:
            try:
                slow.sendall(bytes([byte]))
            except ConnectionError:
                ended = True
                break
            ask(good)
            time.sleep(0.1)
        assert ended
        assert IDLE_MS / 1000 * 0.9 <= time.monotonic() - start <= IDLE_MS / 1000 * 2.5
        assert is_closed(half, 1)
        ask(good)


def test_crowd_takes_little_memory_and_others_are_served(broker: BrokerProcess):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(20_000, int(hard * 0.7))
    kinds = [b"", b"\0\0", struct.pack(">i", 90_000_000) + b"\0" * 20, API_VERSIONS[:11]]
    try:
        with connect(broker) as good, contextlib.ExitStack() as crowd:
            quiet = p99_s(good)
            before = rss_kib(broker)
            most, slowest = 0, 0.0
            for n in range(count):
                sock = crowd.enter_context(connect(broker))
                if kinds[n % 4]:
                    sock.sendall(kinds[n % 4])
                if n % 4000 == 3999:
                    slowest = max(slowest, p99_s(good, 3))
                    most = max(most, rss_kib(broker) - before)
            assert most < 32 * 1024, f"{count} connections took {most} KiB"
            # Closing idle ones and accepting goes on meanwhile; a shared machine needs some room.
            assert slowest < max(2 * quiet, 0.01), f"p99 {slowest * 1000:.1f} ms, quiet {quiet * 1000:.1f} ms"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_client_that_never_reads_does_not_slow_others(broker: BrokerProcess):
    with connect(broker) as deaf, connect(broker) as good:
        quiet = p99_s(good)
        deaf.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                deaf.send(API_VERSIONS * 1000)
        before = rss_kib(broker)
        assert p99_s(good) < max(1.5 * quiet, 0.005)
        assert rss_kib(broker) - before < 1024


def test_consumer_that_never_reads_its_answers_does_not_slow_others(broker: BrokerProcess):
    topic = b"deaf"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.create_topics([NewTopic("deaf", 1, 1)]).values():
        future.result(20)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for _ in range(30):
        producer.produce("deaf", bytes(900_000))
    assert producer.flush(20) == 0
    fetch = struct.pack(">hhihiiiib", 1, 4, 7, -1, -1, 500, 1, 50 << 20, 0) + struct.pack(">ih", 1, len(topic)) + topic
    fetch += struct.pack(">iiqi", 1, 0, 0, 50 << 20)
    with contextlib.ExitStack() as stack, connect(broker) as good:
        quiet = p99_s(good)
        before = rss_kib(broker)
        deaf = [stack.enter_context(connect(broker)) for _ in range(20)]
        for sock in deaf:
            sock.sendall((struct.pack(">i", len(fetch)) + fetch) * 3)
        assert p99_s(good) < max(1.5 * quiet, 0.005)
        assert rss_kib(broker) - before < 4096
        # One of them begins to read after all, and is given everything.
        answer = deaf[0].makefile("rb")
        size = struct.unpack(">i", answer.read(4))[0]
        assert size > 27_000_000
        assert len(answer.read(size)) == size


def test_random_frames_never_break_the_broker(broker: BrokerProcess):
    chance = random.Random(5)
    keys = [0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22, 32, 37, 42, 44, 60, 30000]
    with connect(broker) as good:
        for number in range(600):
            key = chance.choice(keys)
            body = struct.pack(">hhih", key, chance.randrange(14), number, -1) + chance.randbytes(chance.randrange(200))
            if chance.random() < 0.3:
                body = body[:10] + bytes(len(body) - 10)
            with connect(broker) as sock:
                sock.sendall(struct.pack(">i", len(body)) + body)
                sock.settimeout(0.01)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    sock.recv(65536)
            if number % 50 == 0:
                ask(good)
    assert broker.alive()
