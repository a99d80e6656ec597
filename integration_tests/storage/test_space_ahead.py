"""Space that a log asks its file system for ahead of what it writes: how much, and that it is given back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess, running_broker
from isthmus.core_broker.storage import _data_file
from isthmus.core_broker.storage._data_file import AHEAD_FROM_BYTES, AHEAD_SHARE

SEGMENT_BYTES = 3 * AHEAD_FROM_BYTES
VALUE = os.urandom(1 << 16)
SLACK_BYTES = 1 << 16  # a file's last block, and those that say where the others are


def ahead(path: Path) -> int:
    """What a file takes of the disk past its end; 0 for little."""
    about = path.stat()
    past = about.st_blocks * 512 - about.st_size
    return past if past > SLACK_BYTES else 0


def segments(broker: BrokerProcess) -> list[Path]:
    return sorted((broker.folder / "data/t-0").glob("*.log"))


def write(broker: BrokerProcess, size_bytes: int) -> None:
    """So much and a little more, in batches of some values."""
    failed: list[object] = []
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "batch.size": 4 * len(VALUE),
        "on_delivery": lambda error, message: failed.append(error) if error else None,
    })  # fmt: skip
    for _ in range(size_bytes // len(VALUE) + 1):
        producer.produce("t", VALUE, partition=0)
    assert producer.flush(20) == 0 and not failed, failed


@pytest.fixture
def broker(tmp_path):
    if _data_file.__file__.endswith(".py"):
        pytest.skip("plain Python asks for no space")
    probe = tmp_path / "probe"
    probe.touch()
    asked = subprocess.run(["fallocate", "--keep-size", "--length", "1M", str(probe)], capture_output=True, text=True)
    if asked.returncode:
        pytest.skip(f"the file system gives no space ahead: {asked.stderr.strip()}")
    with running_broker(tmp_path, {"log.segment.bytes": SEGMENT_BYTES}) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(20)
        yield made


def test_a_large_log_asks_for_a_share_of_what_it_has_and_gives_it_back_when_it_ends(broker):
    write(broker, AHEAD_FROM_BYTES // 2)
    [first] = segments(broker)
    assert ahead(first) == 0
    write(broker, AHEAD_FROM_BYTES)
    size = first.stat().st_size
    assert size > AHEAD_FROM_BYTES
    assert 0 < ahead(first) <= size // AHEAD_SHARE + SLACK_BYTES
    write(broker, SEGMENT_BYTES)
    assert len(segments(broker)) == 2
    assert ahead(first) == 0 < ahead(segments(broker)[1])


def test_what_was_asked_for_before_a_kill_is_given_back_too(broker):
    write(broker, AHEAD_FROM_BYTES * 3 // 2)
    [first] = segments(broker)
    size = first.stat().st_size
    broker.kill()
    assert ahead(first) > 0
    broker.start()
    assert (segments(broker), first.stat().st_size) == ([first], size)  # the space is no part of the log
    write(broker, SEGMENT_BYTES)
    assert ahead(first) == 0
