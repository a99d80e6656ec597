"""librdkafka as a load, by its C functions and by Python's calls: what it wrote is there, what was refused is told."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from integration_tests.brokers import ROOT, BrokerProcess

PARTITIONS = 3
WAIT_S = 20
TIMEOUT_S = 60
CALLS = pytest.mark.parametrize("calls", [[], ["--python"]], ids=["c", "python"])


def load(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "benchmarks.librdkafka", *arguments, f"--partitions={PARTITIONS}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_S)


def create(broker: BrokerProcess, topic: str, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, num_partitions=PARTITIONS, config=options)])[topic].result(WAIT_S)


def counted(broker: BrokerProcess, topic: str) -> list[int]:
    """Records in each partition, as a client says that is not of the benchmarks."""
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "count"})
    bounds = [consumer.get_watermark_offsets(TopicPartition(topic, each), WAIT_S) for each in range(PARTITIONS)]
    consumer.close()
    return [high - low for low, high in bounds]


def produce(broker: BrokerProcess, topic: str, codec: str, calls: list[str]) -> int:
    """Creates a topic and loads it with 3 MB of values of 100 bytes; how many records the load says it wrote."""
    create(broker, topic)
    done = load(
        "produce", broker.address, topic, "--value-bytes=100", "--max-bytes=3000000", f"--codec={codec}", *calls
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wrote: int = json.loads(done.stdout)["records"]
    return wrote


@CALLS
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_what_it_says_it_wrote_is_there_and_read(isthmus_broker: BrokerProcess, calls: list[str], codec: str) -> None:
    topic = f"written-{codec}-{len(calls)}"
    wrote = produce(isthmus_broker, topic, codec, calls)
    size = "--value-bytes=100"
    assert wrote == sum(counted(isthmus_broker, topic)) and all(counted(isthmus_broker, topic))
    done = load("drain", isthmus_broker.address, topic, f"--seconds={WAIT_S}", size, *calls)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["records"] == wrote
    assert json.loads(done.stdout)["bytes"] == 100 * wrote
    for seconds in (1, WAIT_S):  # a machine with much to do may need more than one to begin
        done = load("fetch", isthmus_broker.address, topic, f"--seconds={seconds}", size, *calls)
        assert done.returncode == 0, done.stderr
        if json.loads(done.stdout)["records"] > wrote:
            return
    pytest.fail("it does not begin again when all is read")


@CALLS
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_values_arrive_whole_though_they_are_sent_from_where_they_lie(
    isthmus_broker: BrokerProcess, calls: list[str], codec: str
) -> None:
    topic = f"whole-{codec}-{len(calls)}"
    wrote = produce(isthmus_broker, topic, codec, calls)
    consumer = Consumer({"bootstrap.servers": isthmus_broker.address, "group.id": "read"})
    consumer.assign([TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    values: list[bytes] = []
    while len(values) < wrote and (came := consumer.consume(wrote - len(values), WAIT_S)):
        values += [message.value() or b"" for message in came]
    consumer.close()
    assert len(set(values)) == len(values) == wrote  # none is sent twice before all have been sent once
    assert all(len(each) == 100 and each.isalpha() and each.isupper() for each in values)


@CALLS
def test_it_tells_what_the_broker_refused(isthmus_broker: BrokerProcess, calls: list[str]) -> None:
    topic = f"refused-{len(calls)}"
    create(isthmus_broker, topic, **{"max.message.bytes": "500"})
    done = load("produce", isthmus_broker.address, topic, "--seconds=0.5", *calls)
    assert done.returncode == 1
    assert "Message size too large" in done.stderr
    assert not any(counted(isthmus_broker, topic))


@CALLS
def test_it_tells_that_a_topic_is_not_there_or_has_too_little(isthmus_broker: BrokerProcess, calls: list[str]) -> None:
    done = load("fetch", isthmus_broker.address, "nowhere", *calls)
    assert done.returncode == 1
    assert "nknown" in done.stderr.splitlines()[-1]
    create(isthmus_broker, f"little-{len(calls)}")
    done = load("fetch", isthmus_broker.address, f"little-{len(calls)}", *calls)
    assert done.returncode == 1
    assert f"0 records in little-{len(calls)}: too few" in done.stderr
