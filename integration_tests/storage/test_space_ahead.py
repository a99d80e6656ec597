"""What a log has behind its end while it is written to, space and zeros: how much, and that it is given back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import ROOT, BrokerProcess, running_broker
from isthmus.core_broker.storage.disk import _data_file
from isthmus.core_broker.storage.disk._data_file import AHEAD_FROM_BYTES, AHEAD_SHARE, ZEROS_BYTES

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


def write(broker: BrokerProcess, size_bytes: int, value: bytes = VALUE) -> None:
    """So much and a little more, in batches of some values."""
    failed: list[object] = []
    producer = Producer({
        "bootstrap.servers": broker.bootstrap, "batch.size": 4 * len(value), "batch.num.messages": 4,
        "on_delivery": lambda error, message: failed.append(error) if error else None,
    })  # fmt: skip
    for _ in range(size_bytes // len(value) + 1):
        producer.produce("t", value, partition=0)
    assert producer.flush(20) == 0 and not failed, failed


def log_bytes(path: Path) -> int:
    """Where the last batch ends, by the lengths of batches."""
    content = path.read_bytes()
    position = 0
    while length := int.from_bytes(content[position + 8 : position + 12], "big"):
        position += 12 + length
    return position


def values(broker: BrokerProcess) -> list[int]:
    """The size of each, all there are."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    low, high = consumer.get_watermark_offsets(TopicPartition("t", 0), 20)
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    sizes: list[int] = []
    while len(sizes) < high - low:
        found = consumer.consume(min(1000, high - low - len(sizes)), 20)
        assert found and not any(each.error() for each in found)
        sizes += (len(each.value() or b"") for each in found)
    consumer.close()
    return sizes


def checked(broker: BrokerProcess) -> str:
    """What the check of a sound data directory says."""
    command = [sys.executable, "-m", "isthmus.core_broker", "check", str(broker.folder / "data")]
    done = subprocess.run(command, cwd=ROOT / "src", capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


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
    size = log_bytes(first)
    broker.kill()
    assert ahead(first) > 0
    broker.start()
    assert (segments(broker), first.stat().st_size) == ([first], size)  # the space is no part of the log
    write(broker, SEGMENT_BYTES)
    assert ahead(first) == 0


SMALL = VALUE[:4000]
LARGE = 3 * VALUE


@pytest.mark.parametrize("value", [SMALL, LARGE], ids=["small", "large"])
def test_appends_to_a_large_log_bring_zeros_which_a_stop_cuts(broker, value):
    write(broker, AHEAD_FROM_BYTES // 2, value)
    [first] = segments(broker)
    assert log_bytes(first) == first.stat().st_size  # the control: a small log has none
    write(broker, AHEAD_FROM_BYTES, value)
    size = log_bytes(first)
    assert AHEAD_FROM_BYTES < size < first.stat().st_size <= size + ZEROS_BYTES
    assert not first.read_bytes()[size:].strip(b"\0")
    written = values(broker)
    assert set(written) == {len(value)}
    broker.stop()
    assert first.stat().st_size == size and "zeros" not in checked(broker)
    broker.start()
    assert values(broker) == written
    assert "cut off" not in broker.log


def test_zeros_that_a_kill_leaves_are_no_damage(broker):
    write(broker, AHEAD_FROM_BYTES * 3 // 2, SMALL)
    [first] = segments(broker)
    size, written = log_bytes(first), values(broker)
    broker.kill()
    assert first.stat().st_size > size  # the control
    assert f"{first.stat().st_size - size} bytes of zeros" in checked(broker)
    broker.start()
    assert first.stat().st_size == size and "not valid" not in broker.log
    assert values(broker) == written
    write(broker, ZEROS_BYTES, SMALL)
    assert values(broker)[: len(written)] == written
    assert log_bytes(first) < first.stat().st_size


def test_a_roll_cuts_the_zeros(broker):
    write(broker, SEGMENT_BYTES, SMALL)
    first, second = segments(broker)
    assert log_bytes(first) == first.stat().st_size
    write(broker, AHEAD_FROM_BYTES, SMALL)
    assert log_bytes(second) < second.stat().st_size  # the control: it had some, too
