"""`isthmus transaction`: of librdkafka's producers, and of one that no coordinator knows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from integration_tests.brokers import BrokerProcess
from integration_tests.clients.records import create_topics
from integration_tests.console.commands import TIMEOUT_S, error, isthmus, said
from integration_tests.differential.batches import TRANSACTIONAL, batch
from integration_tests.differential.wire import Connection
from isthmus.protocol.messages import produce

Run = Callable[..., Any]
UNVERIFIED = {"transaction.partition.verification.enable": "false"}


@pytest.fixture
def broker(make_broker) -> BrokerProcess:
    made: BrokerProcess = make_broker(UNVERIFIED)
    return made


@pytest.fixture
def run(broker: BrokerProcess, tmp_path: Path) -> Run:
    """The JSON that a command of `isthmus transaction` prints."""

    def command(*arguments: str) -> Any:
        answer = isthmus("transaction", *arguments, "--json", "-b", broker.bootstrap, folder=tmp_path)
        return json.loads(said(answer))

    return command


def begun(broker: BrokerProcess, transactional_id: str) -> confluent_kafka.Producer:
    """A producer with a transaction under way in t-0."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"value", partition=0)
    assert producer.flush(TIMEOUT_S) == 0
    return producer


def test_transactions_are_listed_and_described(broker: BrokerProcess, run: Run, tmp_path: Path) -> None:
    create_topics(broker.bootstrap, ["t"], 2)
    producer = begun(broker, "one")
    [row] = run("list")
    assert (row["transactional_id"], row["state"], row["coordinator"]) == ("one", "Ongoing", 1)
    assert run("list", "--state", "Empty") == run("list", "--pattern", "on") == []
    assert run("list", "--producer", str(row["producer_id"]), "--longer-than", "0", "--pattern", "o.*") == [row]
    facts = run("describe", "one")
    assert (facts["state"], facts["partitions"]) == ("Ongoing", {"t": [0]}) and facts["duration_ms"] >= 0
    assert run("find-hanging", "--minutes", "0") == [], "its coordinator will end it"
    producer.commit_transaction(TIMEOUT_S)
    assert run("describe", "one")["duration_ms"] is None
    answer = isthmus("transaction", "describe", "none", "-b", broker.bootstrap, folder=tmp_path)
    assert "there is no transactional id none" in error(answer)


def test_a_transaction_that_hangs_is_found_and_ended(broker: BrokerProcess, run: Run, tmp_path: Path) -> None:
    create_topics(broker.bootstrap, ["t"], 2)
    now_ms = int(time.time() * 1000)
    lost = batch(
        producer_id=4242, producer_epoch=3, base_sequence=0, attributes=TRANSACTIONAL, base_timestamp_ms=now_ms
    )
    part = produce.PartitionProduceData(index=1, records=lost)
    topic = produce.TopicProduceData(name="t", partition_data=[part])
    connection = Connection(broker.bootstrap)
    sent = connection.ask(produce.Request(transactional_id="lost", acks=-1, timeout_ms=5_000, topic_data=[topic]), 11)
    connection.close()
    assert sent.responses[0].partition_responses[0].error_code == 0
    begun(broker, "one")

    assert run("find-hanging") == [], "younger than any timeout"
    [row] = run("find-hanging", "--minutes", "0")
    assert (row["topic"], row["partition"], row["start_offset"]) == ("t", 1, 0)
    assert (row["producer_id"], row["producer_epoch"]) == (4242, 3)
    assert run("find-hanging", "--minutes", "0", "--topic", "t", "--broker", "1") == [row]
    wrong = isthmus("transaction", "abort", "t", "1", "7", "-b", broker.bootstrap, folder=tmp_path)
    assert "no open transaction of t-1 begins at offset 7" in error(wrong)
    assert run("abort", "t", "1", "0")["producer_id"] == 4242
    assert run("find-hanging", "--minutes", "0") == []
    assert read_committed(broker, 1) == [b"after"]


def read_committed(broker: BrokerProcess, partition: int) -> list[bytes | None]:
    """What readers of committed records have of a partition, whose last record is another producer's."""
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce("t", b"after", partition=partition)
    assert producer.flush(TIMEOUT_S) == 0
    settings = {"group.id": "readers", "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, **settings})
    consumer.assign([confluent_kafka.TopicPartition("t", partition, 0)])
    values: list[bytes | None] = []
    while b"after" not in values:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None and message.error() is None
        values.append(message.value())
    consumer.close()
    return values
