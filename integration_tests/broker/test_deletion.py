"""Topics that are deleted: told at once, their files gone when their time has come, after a kill too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from integration_tests.brokers import BrokerProcess
from integration_tests.waiting import until

PARTITIONS = 150
TIMEOUT_S = 30
HOUR_MS = 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    made = BrokerProcess(tmp_path, {"log.segment.delete.delay.ms": HOUR_MS}).start()
    yield made
    if made.alive():
        made.kill()


def fill(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result()
    producer = Producer({"bootstrap.servers": broker.address})
    for index in range(PARTITIONS):
        producer.produce(topic, b"x", partition=index)
    assert producer.flush(TIMEOUT_S) == 0


def delete(broker: BrokerProcess, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})  # its futures end with it
    admin.delete_topics([topic])[topic].result()


def set_delay(broker: BrokerProcess, delay_ms: int) -> None:
    entry = ConfigEntry("log.segment.delete.delay.ms", str(delay_ms), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result()


def directories(broker: BrokerProcess, topic: str) -> tuple[int, int]:
    """How many partitions the topic has on disk, and how many of it are to be removed."""
    names = [each.name for each in (broker.folder / "data").iterdir() if each.name.startswith(f"{topic}-")]
    doomed = sum(name.endswith("-delete") for name in names)
    return len(names) - doomed, doomed


@pytest.mark.parametrize("end", [None, "stop", "kill"])
def test_files_go_when_the_delay_is_over_whatever_comes_between(broker: BrokerProcess, end: str | None) -> None:
    fill(broker, "gone")
    fill(broker, "kept")
    delete(broker, "gone")
    assert directories(broker, "gone") == (0, PARTITIONS)
    fill(broker, "gone")
    if end is not None:
        broker.kill() if end == "kill" else broker.stop()
        broker.start()
    assert directories(broker, "gone") == (PARTITIONS, PARTITIONS)
    set_delay(broker, 0)
    until(lambda: directories(broker, "gone") == (PARTITIONS, 0), "the doomed files are gone", TIMEOUT_S)
    assert directories(broker, "kept") == (PARTITIONS, 0)
    delete(broker, "gone")
    until(lambda: directories(broker, "gone") == (0, 0), "all files are gone", TIMEOUT_S)
    assert "ERROR" not in broker.log
