"""A full disk: the broker says which path, serves what it has, and has all it acknowledged once there is room."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess

MB = 1 << 20
DISK_BYTES = 24 * MB
RECORD_BYTES = 100_000
NO_SPACE = "No space left on device"


class TinyDisk:
    """A tmpfs on `path` in user and mount namespaces of its own, held by a process that sleeps."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.path = path
        script = f'mount -t tmpfs -o size={size_bytes} none "$0" && echo mounted && exec sleep 600'
        command = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, str(path)]
        self.holder = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.holder.stdout
        if self.holder.stdout.readline() != "mounted\n":
            self.close()
            pytest.skip("mount namespaces are not allowed here")

    @property
    def inside(self) -> list[str]:
        """What a command begins with to run where the disk is."""
        return ["nsenter", f"--target={self.holder.pid}", "--user", "--mount", "--preserve-credentials"]

    def resize(self, size_bytes: int) -> None:
        subprocess.run([*self.inside, "mount", "-o", f"remount,size={size_bytes}", str(self.path)], check=True)

    def close(self) -> None:
        self.holder.send_signal(signal.SIGKILL)
        self.holder.wait()
        assert self.holder.stdout
        self.holder.stdout.close()


class BrokerOnTinyDisk(BrokerProcess):
    def __init__(self, folder: Path, disk: TinyDisk, settings: dict[str, object] | None = None) -> None:
        super().__init__(folder, settings)
        self.disk = disk

    def command(self) -> list[str]:
        return [*self.disk.inside, *super().command()]


@contextlib.contextmanager
def tiny_disk(path: Path, size_bytes: int = DISK_BYTES) -> Iterator[TinyDisk]:
    disk = TinyDisk(path, size_bytes)
    try:
        yield disk
    finally:
        disk.close()


def produce(broker: BrokerProcess, topic: str, values: Iterator[bytes]) -> tuple[list[tuple[int, bytes]], str]:
    """Send one record after the other until one is refused: what was acknowledged, and the refusal ('' for none)."""
    settings = {"bootstrap.servers": broker.bootstrap, "retries": 0, "message.timeout.ms": 20_000, "linger.ms": 0}
    producer = Producer({**settings, "acks": "all"})
    acked: list[tuple[int, bytes]] = []
    refused: list[str] = []

    def told(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            refused.append(f"{error.name()} {error.str()}")
        else:
            acked.append(placed(message))

    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=told)
        assert producer.flush(30) == 0
        if refused:
            return acked, refused[0]
    return acked, ""


def placed(message: Message) -> tuple[int, bytes]:
    offset, value = message.offset(), message.value()
    assert offset is not None and value is not None
    return offset, value


def consume(broker: BrokerProcess, topic: str, count: int) -> list[tuple[int, bytes]]:
    """The first `count` records of partition 0."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, bytes]] = []
    try:
        while len(found) < count:
            message = consumer.poll(20)
            assert message is not None and message.error() is None, (len(found), message and message.error())
            found.append(placed(message))
    finally:
        consumer.close()
    return found


def numbered(count: int) -> Iterator[bytes]:
    for n in range(count):
        yield n.to_bytes(4, "big") * (RECORD_BYTES // 4)


@pytest.mark.parametrize("durability", ["page_cache", "fsync"])
def test_what_was_acknowledged_survives_a_full_disk(durability: str, tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "b/data") as disk:
        settings: dict[str, object] = {"log.segment.bytes": 4 * MB, "offsets.topic.num.partitions": 1}
        broker = BrokerOnTinyDisk(tmp_path / "b", disk, {**settings, "durability": durability}).start()
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
            assert str(disk.path) in line
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
            disk.resize(8 * DISK_BYTES)
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


def test_a_full_disk_at_the_start_is_one_line(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "b/data", 4096) as disk:
        fill = f"head -c 65536 /dev/zero >{disk.path}/filler 2>/dev/null; true"
        subprocess.run([*disk.inside, "sh", "-c", fill], check=True)
        broker = BrokerOnTinyDisk(tmp_path / "b", disk)
        done = subprocess.run(broker.command(), capture_output=True, text=True, timeout=20)
        lines = [line for line in done.stderr.splitlines() if " INFO " not in line]
        assert done.returncode == 1
        assert len(lines) == 1, done.stderr
        assert NO_SPACE in lines[0] and str(disk.path) in lines[0]

        disk.resize(DISK_BYTES)  # the control: room is all that was missing
        try:
            assert broker.start().alive()
        finally:
            broker.kill()
