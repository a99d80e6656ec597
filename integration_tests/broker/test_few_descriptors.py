"""A thousand partitions on a broker that may have 256 files open: librdkafka writes to and reads all of them."""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import BrokerProcess

FILES = 256
TOPICS, EACH = 10, 100
PARTITIONS = [(f"many-{number}", index) for number in range(TOPICS) for index in range(EACH)]
TIMEOUT_S = 60


class FewFiles(BrokerProcess):
    """A broker under `ulimit -n 256`."""

    def command(self) -> list[str]:
        return ["sh", "-c", f'ulimit -n {FILES} && exec "$@"', "sh", *super().command()]


def create(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = [NewTopic(f"many-{number}", num_partitions=EACH, replication_factor=1) for number in range(TOPICS)]
    for done in admin.create_topics(wanted, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
        done.result()


def delete(broker: BrokerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    topics = [f"many-{number}" for number in range(TOPICS)]
    for done in admin.delete_topics(topics, operation_timeout=TIMEOUT_S, request_timeout=TIMEOUT_S).values():
        done.result()


def write(broker: BrokerProcess, value: bytes) -> None:
    """One record to every partition."""
    failed = []
    producer = Producer({
        "bootstrap.servers": broker.address, "enable.idempotence": True,
        "on_delivery": lambda error, message: failed.append(error) if error else None,
    })  # fmt: skip
    for topic, index in PARTITIONS:
        producer.produce(topic, value, partition=index)
    assert producer.flush(TIMEOUT_S) == 0
    assert not failed


def read(broker: BrokerProcess, count: int) -> dict[tuple[str, int], list[bytes]]:
    """The values of every partition, once there are `count` in all; in a few fetches, which have hundreds of them."""
    consumer = Consumer({
        "bootstrap.servers": broker.address, "group.id": "none", "enable.auto.commit": False,
        "auto.offset.reset": "error",
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, index, 0) for topic, index in PARTITIONS])
    found: dict[tuple[str, int], list[bytes]] = {key: [] for key in PARTITIONS}
    left = count
    deadline = time.monotonic() + TIMEOUT_S
    while left and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert not message.error(), message.error()
            found[message.topic() or "", message.partition() or 0].append(message.value() or b"")
            left -= 1
    consumer.close()
    return found


def open_files(broker: BrokerProcess) -> Counter[str]:
    """How many files of each ending the broker holds open."""
    names = []
    for each in os.scandir(f"/proc/{broker.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed by now
            names.append(os.readlink(each.path))
    return Counter(Path(name).suffix for name in names if name.startswith(f"{broker.folder}/data/"))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_all_partitions_serve_with_few_descriptors(tmp_path: Path, end: str) -> None:
    broker = FewFiles(tmp_path).start()
    try:
        most = FILES // 7
        create(broker)
        write(broker, b"one")
        assert read(broker, 1000) == {key: [b"one"] for key in PARTITIONS}
        assert 0 < open_files(broker)[".log"] <= most + 1  # and that of the metadata
        broker.kill() if end == "kill" else broker.stop()
        broker.start(TIMEOUT_S)
        assert open_files(broker)[".log"] <= most + 1
        assert read(broker, 1000) == {key: [b"one"] for key in PARTITIONS}
        write(broker, b"two")
        assert read(broker, 2000) == {key: [b"one", b"two"] for key in PARTITIONS}
        delete(broker)
        assert open_files(broker)[".log"] <= most + 1
        create(broker)
        write(broker, b"three")
        assert "Too many open files" not in broker.log
    finally:
        if broker.alive():
            broker.kill()


def test_without_that_limit_all_of_them_are_open(tmp_path: Path) -> None:
    """The control: what the test above counts is there to be counted."""
    broker = BrokerProcess(tmp_path).start()
    try:
        create(broker)
        assert open_files(broker)[".log"] <= 1  # a log that was never written to has no file
        write(broker, b"one")
        assert open_files(broker)[".log"] > FILES
    finally:
        broker.kill()
