"""The broker that only stores: it keeps all that producers send, and does without the one behind it."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.cases import librdkafka
from benchmarks.ceiling import NAMES, storing
from benchmarks.storing import receive
from benchmarks.table import CASES

PARTITIONS = 3
VALUE_BYTES = 1000


@pytest.mark.parametrize("clients", [1, 2])
def test_what_is_produced_is_stored_and_goes_with_its_topic(tmp_path: Path, clients: int) -> None:
    topic = "bench-1"
    with storing(tmp_path) as side:
        side.create_topic(topic, PARTITIONS)
        got, cpu_s = librdkafka("produce", side, topic, 0.5, PARTITIONS, VALUE_BYTES, clients=clients)
        stored = b"".join(path.read_bytes() for path in side.log_files(topic))
        assert len(side.log_files(topic)) == PARTITIONS
        assert got["records"] * VALUE_BYTES < len(stored) < got["records"] * VALUE_BYTES * 1.1
        behind = sum(path.stat().st_size for path in (tmp_path / "data").glob(f"{topic}-*/*.log"))
        assert 0 < behind < len(stored) / 2  # the first batches alone
        assert cpu_s > 0
        side.delete_topic(topic)
        assert not side.log_files(topic)


def test_a_frame_that_comes_in_pieces_fills_the_socket_and_is_received_whole() -> None:
    """Each piece takes some hundred bytes of the socket's buffer beside its own."""
    piece = bytes(range(50))
    frame = piece * 12_000
    got = memoryview(bytearray(len(frame)))
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        ThreadPoolExecutor(1) as threads,
        socket.create_connection(listening.getsockname(), timeout=20) as sending,
    ):
        sending.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        receiving, _ = listening.accept()
        with receiving:
            received = threads.submit(receive, receiving, got)
            for _ in range(len(frame) // len(piece)):
                sending.sendall(piece)
            try:
                assert received.result(20) and got == frame
            finally:
                receiving.shutdown(socket.SHUT_RDWR)


def test_the_cases_are_those_of_the_table() -> None:
    assert set(NAMES) <= {case.name for case in CASES}
