"""A full disk: the broker says which path, serves what it has, and has all it acknowledged once there is room."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.bad_input.records import RECORD_BYTES, consume, numbered, produce
from integration_tests.brokers import BrokerProcess
from integration_tests.disks import MB, Mounts

DISK_BYTES = 24 * MB
NO_SPACE = "No space left on device"


@pytest.fixture
def mounts() -> Iterator[Mounts]:
    made = Mounts()
    yield made
    made.close()


@pytest.mark.parametrize("durability", ["page_cache", "fsync"])
def test_what_was_acknowledged_survives_a_full_disk(durability: str, tmp_path: Path, mounts: Mounts) -> None:
    disk = tmp_path / "b/data"
    mounts.memory(disk, DISK_BYTES)
    settings: dict[str, object] = {"log.segment.bytes": 4 * MB, "offsets.topic.num.partitions": 1}
    broker = BrokerProcess(tmp_path / "b", {**settings, "durability": durability}, inside=mounts.inside).start()
    try:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics([NewTopic("big", 1, 1), NewTopic("other", 2, 1)]).values():
            future.result(20)
        others, error = produce(broker, "other", iter([b"before"] * 5))
        assert (len(others), error) == (5, "")
        assert NO_SPACE not in broker.log  # the control: nothing was wrong yet

        acked, error = produce(broker, "big", numbered(2 * DISK_BYTES // RECORD_BYTES))
        assert "STORAGE" in error.upper(), error
        assert len(acked) * RECORD_BYTES > DISK_BYTES // 2
        [line, *_] = [line for line in broker.log.splitlines() if NO_SPACE in line]
        assert str(disk) in line
        assert "Traceback" not in broker.log

        # Others are served: what can be read is read, the cluster still answers, and a record for another topic is
        # refused by name or acknowledged for good.
        assert broker.alive()
        during, error = produce(broker, "other", (n.to_bytes(2, "big") * 50 for n in range(20)))
        assert error == "" or "STORAGE" in error.upper(), error
        assert len(during) == 20 or error
        assert consume(broker, "other", 5 + len(during)) == others + during
        assert set(admin.list_topics(timeout=20).topics) >= {"big", "other"}

        # Once there is room all go on, without a start: Kafka would have ended, its only directory being offline.
        mounts.resize(disk, 8 * DISK_BYTES)
        after, error = produce(broker, "big", numbered(2))
        assert (len(after), error) == (2, ""), error
        acked += after
        broker.kill()
        broker.start()
        assert consume(broker, "big", len(acked)) == acked
        assert consume(broker, "other", 5 + len(during)) == others + during
        more, error = produce(broker, "big", numbered(3))
        assert (len(more), error) == (3, "")
        assert more[0][0] > acked[-1][0]
        assert broker.stop() == 0
    finally:
        if broker.alive():
            broker.kill()


def test_a_full_disk_at_the_start_is_one_line(tmp_path: Path, mounts: Mounts) -> None:
    disk = tmp_path / "b/data"
    mounts.memory(disk, 4096)
    mounts.fill(disk)
    broker = BrokerProcess(tmp_path / "b", inside=mounts.inside)
    done = subprocess.run(broker.command(), capture_output=True, text=True, timeout=20)
    lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
    assert done.returncode == 1
    assert len(lines) == 1, done.stderr
    assert NO_SPACE in lines[0] and str(disk) in lines[0]

    mounts.resize(disk, DISK_BYTES)  # the control: room is all that was missing
    try:
        assert broker.start().alive()
    finally:
        broker.kill()


def test_a_stop_that_could_not_write_all_says_what_and_ends_with_1(tmp_path: Path, mounts: Mounts) -> None:
    disk = tmp_path / "b/data"
    mounts.memory(disk, DISK_BYTES)
    broker = BrokerProcess(tmp_path / "b", {"offsets.topic.num.partitions": 1}, inside=mounts.inside).start()
    try:
        acked, _ = produce(broker, "here", numbered(5))
        filler = mounts.fill(disk)
        assert broker.stop() == 1
        [line] = [line for line in broker.log.splitlines() if line.startswith("isthmus broker: ")]
        assert line.startswith("isthmus broker: stopped, but could not write everything: ")
        assert f"{disk}/here-0/" in line and NO_SPACE in line
        assert "; the next start reads each log past its recovery point and keeps the valid batches" in line

        mounts.run("rm", filler)
        begun = len(broker.log)
        broker.start()
        assert consume(broker, "here", len(acked)) == acked
        assert broker.stop() == 0  # the control: room is all that was missing
        assert "could not write everything" not in broker.log[begun:]
    finally:
        if broker.alive():
            broker.kill()
