"""TransactionsCommand: run unchanged, compared with Kafka, on transactions of librdkafka and on those of nobody."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import confluent_kafka
import pytest

from integration_tests.brokers import running_broker
from integration_tests.differential.batches import TRANSACTIONAL, batch
from integration_tests.differential.wire import Connection
from integration_tests.peers.peers import cluster
from isthmus.protocol.messages import produce

from .conftest import SETTINGS, Both
from .tools import Side

pytestmark = pytest.mark.soak  # two JVMs a command: minutes
UNVERIFIED = {**SETTINGS, "transaction.partition.verification.enable": "false"}  # it is what keeps the lost ones out
TIMEOUT_S = 30.0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with running_broker(tmp_path_factory.mktemp("ours"), UNVERIFIED) as broker:
        yield Side("isthmus", broker.bootstrap, str(broker.folder / "data"))


@pytest.fixture(scope="module")
def stock() -> Iterator[Side]:
    with cluster(heap="512m", properties=UNVERIFIED) as made:
        yield Side("kafka", made.bootstrap, str(made.nodes[0].folder / "data"))


def without_ids(text: str) -> str:
    """Without TransactionDurationMs, which follows when a transaction began, and without the ids that a cluster gives
    its producers: of each in its listing, description, and state in a partition."""
    text = re.sub(r"(?m)^(1 one .* MS) \d+", r"\1 DURATION", text)
    text = re.sub(r"(?m)^(one 1|1 one) \d+", r"\1 ID", text)
    return re.sub(r"(?m)^\d+ (?=\d+ -?\d+ \d+ MS )", "ID ", text)


def begun(sides: Sequence[Side], name: str, topic: str, partition: int) -> list[confluent_kafka.Producer]:
    """On each side a producer with a transaction under way."""
    made = []
    for side in sides:
        producer = confluent_kafka.Producer({"bootstrap.servers": side.bootstrap, "transactional.id": name})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        producer.produce(topic, b"value", partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        made.append(producer)
    return made


def lose(sides: Sequence[Side], topic: str, producer_id: int) -> None:
    """Write a transaction that no coordinator knows into partition 0, as a client before KIP-890 can by a late send."""
    records = batch(
        producer_id=producer_id, producer_epoch=3, base_sequence=0, attributes=TRANSACTIONAL,
        base_timestamp_ms=int(time.time() * 1000),
    )  # fmt: skip
    part = produce.PartitionProduceData(index=0, records=records)
    request = produce.Request(
        transactional_id="lost", acks=-1, timeout_ms=5_000,
        topic_data=[produce.TopicProduceData(name=topic, partition_data=[part])],
    )  # fmt: skip
    for side in sides:
        connection = Connection(side.bootstrap)
        answer = connection.ask(request, 11)
        connection.close()
        assert answer.responses[0].partition_responses[0].error_code == 0


def test_transactions_are_listed_and_described(both: Both, ours: Side, stock: Side) -> None:
    def look(*arguments: str) -> str:
        return both("TransactionsCommand", *arguments, but=without_ids).out

    both("TopicCommand", "--create", "--topic", "t", "--partitions", "2")
    assert len(look("list").splitlines()) == 1, "no transaction but the names of columns"
    assert both("TransactionsCommand", "describe", "--transactional-id", "none").exit == 1
    producers = begun((ours, stock), "one", "t", 0)
    assert "one 1 ID Ongoing" in look("list")
    look("list", "--duration-filter", "0")
    assert "one" not in look("list", "--duration-filter", "600000")
    describe = ("describe", "--transactional-id", "one")
    assert "1 one ID 0 Ongoing 60000 MS DURATION t-0" in look(*describe)
    states = ("describe-producers", "--topic", "t", "--partition")
    assert "ID 0 -1 0 MS 0" in look(*states, "0", "--broker-id", "1")
    look(*states, "0")
    assert len(look(*states, "1").splitlines()) == 1
    for scope in (("--broker-id", "1"), ("--topic", "t")):
        found = look("find-hanging", *scope, "--max-transaction-timeout", "0")
        assert len(found.splitlines()) == 1, "the coordinator will end it"
    for producer in producers:
        producer.commit_transaction(TIMEOUT_S)
    assert "CompleteCommit" in look("list")
    assert "1 one ID 0 CompleteCommit 60000 MS DURATION" in look(*describe)
    assert " None" in look(*states, "0")


def test_a_transaction_that_hangs_is_found_and_aborted(both: Both, ours: Side, stock: Side) -> None:
    both("TopicCommand", "--create", "--topic", "lost", "--partitions", "1")
    find = ("TransactionsCommand", "find-hanging", "--topic", "lost")
    states = ("TransactionsCommand", "describe-producers", "--topic", "lost", "--partition", "0")
    abort = ("TransactionsCommand", "abort", "--topic", "lost", "--partition", "0")
    lose((ours, stock), "lost", 4242)
    assert len(both(*find).out.splitlines()) == 1, "younger than any timeout"
    assert "lost 0 4242 3 -1 0 MS 0" in both(*find, "--max-transaction-timeout", "0").out
    both(*find, "--partition", "0", "--max-transaction-timeout", "0")
    both("TransactionsCommand", "find-hanging", "--broker-id", "1", "--max-transaction-timeout", "0")
    assert both("TransactionsCommand", "find-hanging").exit == 1
    assert both("TransactionsCommand", "find-hanging", "--broker-id", "1", "--partition", "0").exit == 1
    assert both(*abort).exit == 1
    assert both(*abort, "--start-offset", "7").exit == 1, "no transaction begins there"
    assert both(*abort, "--start-offset", "0").exit == 0
    assert len(both(*find, "--max-transaction-timeout", "0").out.splitlines()) == 1
    both(*states)

    lose((ours, stock), "lost", 4243)
    by_producer = (*abort, "--producer-id", "4243", "--producer-epoch")
    assert both(*by_producer, "2", "--coordinator-epoch", "-1").exit == 1, "an epoch before its own"
    assert "4243 3 -1" in both(*states).out
    assert both(*by_producer, "3", "--coordinator-epoch", "-1").exit == 0
    assert "4243 3 0" in both(*states).out
    both("ConsoleProducer", "--topic", "lost", stdin="after\n")
    read = both("ConsoleConsumer", "--topic", "lost", "--from-beginning", "--max-messages", "1", "--timeout-ms",
                "15000", "--command-property", "isolation.level=read_committed")  # fmt: skip
    assert read.out.splitlines() == ["after"]
