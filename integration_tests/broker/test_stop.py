"""A controlled stop: what is due to clients is sent, the logs are left clean, and it has an end."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.conftest import BrokerMaker
from integration_tests.differential.batches import batch
from integration_tests.differential.peer import Case, Peer
from isthmus.core_broker.broker import DRAIN_TIMEOUT_S
from isthmus.protocol.header import RequestHeader, decode_response_header, frame_request
from isthmus.protocol.messages import fetch, produce

EXIT_FAILED = 1
SERVES = " serves "
RECORD_BYTES = 900_000
RECORDS = 12  # more than socket buffers hold


def fetch_request(topic_id: bytes, offset: int, max_wait_ms: int) -> list[bytes]:
    wanted = fetch.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 30)
    topic = fetch.FetchTopic(topic_id=topic_id, partitions=[wanted])
    request = fetch.Request(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 30, topics=[topic])
    version = fetch.API.max_version
    return frame_request(RequestHeader(fetch.API.key, version, 7), fetch.API.encode_request(request, version))


class Client:
    """A socket of our own, which reads when it wants to."""

    def __init__(self, broker: BrokerProcess):
        host, _, port = broker.address.rpartition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.socket.settimeout(20)
        self.socket.connect((host, int(port)))

    def ask(self, topic_id: bytes, offset: int, max_wait_ms: int = 60_000) -> None:
        self.socket.sendall(b"".join(fetch_request(topic_id, offset, max_wait_ms)))

    def read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise ConnectionError(f"closed after {len(data)} of {size} bytes")
            data += part
        return bytes(data)

    def answer(self) -> fetch.Response:
        (size,) = struct.unpack(">i", self.read(4))
        frame = self.read(size)
        _, body = decode_response_header(frame, 1)
        return fetch.API.decode_response(frame, body, fetch.API.max_version)

    def is_closed(self) -> bool:
        return self.socket.recv(1) == b""


@pytest.fixture
def full(make_broker: BrokerMaker) -> tuple[BrokerProcess, bytes]:
    """A broker with a topic of some megabytes, and the topic's id."""
    broker = make_broker()
    return broker, fill(broker)


def fill(broker: BrokerProcess) -> bytes:
    case = Case(Peer("isthmus", broker.address), 0, "full")
    topic_id = case.topic()
    for _ in range(RECORDS):
        records = batch(1, value=bytes(RECORD_BYTES))
        data = produce.PartitionProduceData(index=0, records=records)
        topic = produce.TopicProduceData(topic_id=topic_id, partition_data=[data])
        case.prepare(produce.Request(acks=-1, timeout_ms=5_000, topic_data=[topic]))
    case.peer.close()
    return topic_id


def wrong(broker: BrokerProcess) -> int:
    command = [sys.executable, "-m", "isthmus.core_broker", "check", str(broker.folder / "data")]
    return subprocess.run(command, capture_output=True, cwd=ROOT).returncode


def await_log(broker: BrokerProcess, text: str, count: int = 1) -> None:
    """Until its log has the text so many times."""
    deadline = time.monotonic() + 20
    while broker.log.count(text) < count:
        assert time.monotonic() < deadline and broker.alive(), broker.log
        time.sleep(0.005)


def test_who_waits_is_answered_and_who_reads_gets_all(full: tuple[BrokerProcess, bytes]) -> None:
    broker, topic_id = full
    waiting, reading = Client(broker), Client(broker)
    waiting.ask(topic_id, RECORDS)
    reading.ask(topic_id, 0)
    reading.read(4 + 5)  # its answer has begun
    broker.signal(signal.SIGTERM)
    answer = waiting.answer()
    assert (answer.error_code, answer.responses[0].partitions[0].error_code) == (0, 0)
    assert len(answer.responses[0].partitions[0].records) == 0
    assert waiting.is_closed()
    assert len(reading.read(RECORDS * RECORD_BYTES)) == RECORDS * RECORD_BYTES
    assert broker.process
    assert broker.process.wait(20) == 0
    assert re.search(r"broker 1 has stopped in \d+\.\d\d s\n$", broker.log)
    assert "did not receive their answers" not in broker.log
    assert (broker.folder / "data/.kafka_cleanshutdown").exists()
    assert wrong(broker) == 0


def test_who_does_not_read_is_not_waited_for_longer_than_said(full: tuple[BrokerProcess, bytes]) -> None:
    broker, topic_id = full
    deaf = Client(broker)
    deaf.ask(topic_id, 0)
    deaf.read(4)
    assert broker.stop() == 0
    assert f"1 clients did not receive their answers within {DRAIN_TIMEOUT_S:.0f} s" in broker.log
    assert wrong(broker) == 0


def test_a_second_signal_ends_it_at_once(full: tuple[BrokerProcess, bytes]) -> None:
    broker, topic_id = full
    deaf = Client(broker)
    deaf.ask(topic_id, 0)
    deaf.read(4)
    broker.signal(signal.SIGTERM)
    time.sleep(0.2)  # two signals of a kind that are not taken yet are one
    broker.signal(signal.SIGTERM)
    assert broker.process
    assert broker.process.wait(20) == EXIT_FAILED
    assert broker.log.endswith("ended at once: second signal; the next start recovers its logs\n")
    assert not (broker.folder / "data/.kafka_cleanshutdown").exists()
    broker.start()
    assert broker.stop() == 0


def test_a_stop_has_an_end(make_broker: BrokerMaker) -> None:
    broker = make_broker({"shutdown.timeout.ms": 100})
    topic_id = fill(broker)
    deaf = Client(broker)
    deaf.ask(topic_id, 0)
    deaf.read(4)
    assert broker.stop() == EXIT_FAILED
    assert "ended at once: stopping took longer than shutdown.timeout.ms=100" in broker.log


def test_a_stop_before_it_is_ready(full: tuple[BrokerProcess, bytes]) -> None:
    broker, _ = full
    broker.kill()
    command = [*broker.command(), "--set", "metrics.listener=127.0.0.1:0"]
    with open(broker.folder / "broker.log", "ab") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, cwd=ROOT)
    broker.process = process  # type: ignore[assignment]
    await_log(broker, "metrics and health at")  # the first that it does
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0
    assert wrong(broker) == 0


def heed_hangups() -> None:
    """What runs under nohup hands on that it ignores SIGHUP, and no shell takes that back."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def shell(broker: BrokerProcess, line: str) -> subprocess.Popen[bytes]:
    """The broker by a line of bash, in which `$@` is its command; what it says on stderr goes to its log."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    with open(broker.folder / "broker.log", "ab") as log:
        command = ["bash", "-c", line, "bash", *broker.command()]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, env=environment, cwd=broker.folder, preexec_fn=heed_hangups
        )
    broker.process = process  # type: ignore[assignment]
    return process


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ('exec "$@"', signal.SIGHUP),
        ("trap '' HUP; exec \"$@\"", signal.SIGTERM),
        ('exec "$@" <&-', signal.SIGTERM),
        ('exec "$@" >&-', signal.SIGTERM),
        ('exec "$@" <&- >&-', signal.SIGTERM),
    ],
)
def test_a_stop_is_controlled_by_whichever_signal_and_whatever_is_closed(
    full: tuple[BrokerProcess, bytes], line: str, number: int
) -> None:
    """SIGHUP killed it; with stdin or stdout closed it ended well and was then aborted by the loop's library."""
    broker, _ = full
    broker.kill()
    marks = broker.log.count(SERVES)
    process = shell(broker, line)
    try:
        await_log(broker, SERVES, marks + 1)
        assert wrong(broker)  # the control: while it runs there is nothing to check
        if "trap" in line:
            process.send_signal(signal.SIGHUP)
        process.send_signal(number)
        assert process.wait(20) == 0, broker.log
    finally:
        process.kill()
        process.wait()
    assert wrong(broker) == 0
    assert (broker.folder / "data/.kafka_cleanshutdown").exists()


@pytest.mark.parametrize("line", ['exec "$@" >/dev/full', 'exec "$@" > >(true)'])
def test_who_cannot_be_told_that_it_is_ready_is_served(full: tuple[BrokerProcess, bytes], line: str) -> None:
    """It ended with a traceback, and without a controlled stop."""
    broker, _ = full
    broker.kill()
    process = shell(broker, line)
    try:
        await_log(broker, "cannot print to stdout: ready at 127.0.0.1:")
        Client(broker).ask(bytes(16), 0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0, broker.log
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in broker.log and "Exception ignored" not in broker.log
    assert wrong(broker) == 0
