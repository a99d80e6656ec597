"""The health check of containers: ready means that the broker answers and its cluster has a controller."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from integration_tests.brokers import ROOT, BrokerProcess
from integration_tests.conftest import BrokerMaker
from isthmus.core_broker.health import NotReady, check


def health(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isthmus.core_broker.health", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30)


def reason(address: str, timeout_s: float = 5.0) -> str:
    with pytest.raises(NotReady) as caught:
        check(address, timeout_s)
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_serves_is_ready(isthmus_broker: BrokerProcess) -> None:
    done = health(isthmus_broker.address)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"ready {isthmus_broker.address}: 1 broker(s) of cluster ")
    assert health(ISTHMUS_BOOTSTRAP=f"{isthmus_broker.address},127.0.0.1:1").returncode == 0


def test_the_advertised_address_is_not_asked(make_broker: BrokerMaker) -> None:
    broker = make_broker({"advertised.listeners": "PLAINTEXT://nowhere.invalid:1"})
    assert check(broker.address).startswith("ready ")


def test_stock_kafka_is_ready_too(kafka: str) -> None:
    assert check(kafka).startswith("ready ")


def test_a_broker_that_hangs_is_not_ready_until_it_goes_on(make_broker: BrokerMaker) -> None:
    broker = make_broker()
    broker.signal(signal.SIGSTOP)
    assert "did not answer within 0.3 s" in reason(broker.address, 0.3)
    broker.signal(signal.SIGCONT)
    assert check(broker.address).startswith("ready ")


def test_a_broker_that_was_killed_is_not_ready(make_broker: BrokerMaker) -> None:
    broker = make_broker()
    broker.kill()
    done = health(broker.address)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("not ready: ") and "cannot be reached" in done.stdout


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "closed before the answer"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "is not a possible size of an answer"),
        (b"\0\0\0\5abcde", "does not answer like a broker"),
    ],
)
def test_something_else_that_listens_there_is_not_ready(answer: bytes, why: str, listener: socket.socket) -> None:
    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        assert why in reason(address_of(listener))
    finally:
        serving.join()


@pytest.mark.parametrize("address", ["", "9092", "localhost", "localhost:port", "localhost:99999"])
def test_what_is_no_address_is_said(address: str) -> None:
    assert "is not HOST:PORT" in reason(address)
