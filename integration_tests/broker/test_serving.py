"""A real broker process, real clients: what is written is read, across stops and kills, by several listeners."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from integration_tests.brokers import BrokerProcess, running_broker
from integration_tests.differential.wire import Connection
from integration_tests.peers.peers import free_ports
from isthmus.protocol.messages import describe_cluster, find_coordinator, metadata


def produce(bootstrap: str, topic: str, values: list[bytes], **options: object) -> list[int]:
    """Offsets of the values, all in partition 0."""
    offsets: list[int] = []

    def done(error, message):
        assert error is None, error
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **options})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=done)
    assert producer.flush(20) == 0
    return offsets


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 20
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.2):
            assert not message.error(), message.error()
            values.append(message.value() or b"")
    consumer.close()
    return values


def create(bootstrap: str, topic: str, partitions: int = 1, **options: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    config = {name.replace("_", "."): value for name, value in options.items()}
    for future in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        future.result(20)


@pytest.mark.parametrize("durability", ["page_cache", "fsync"])
def test_acked_records_are_read_after_kill_and_after_stop(tmp_path, durability):
    with running_broker(tmp_path, {"durability": durability}) as broker:
        create(broker.bootstrap, "t")
        first = [b"a%d" % n for n in range(500)]
        assert produce(broker.bootstrap, "t", first) == list(range(500))
        broker.kill()
        broker.start()
        assert consume(broker.bootstrap, "t", 500) == first
        second = [b"b%d" % n for n in range(500)]
        assert produce(broker.bootstrap, "t", second) == list(range(500, 1000))
        assert broker.stop() == 0
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
        broker.start()
        assert consume(broker.bootstrap, "t", 1000) == first + second


def test_large_fetches_arrive_whole(isthmus_broker: BrokerProcess):
    create(isthmus_broker.bootstrap, "large")
    values = [bytes([n]) * 900_000 for n in range(60)]
    produce(isthmus_broker.bootstrap, "large", values)
    assert consume(isthmus_broker.bootstrap, "large", len(values)) == values


def addresses_told(asked: str) -> list[tuple[str, int]]:
    """By Metadata, DescribeCluster and FindCoordinator in its newest and its first form, to who asks at an address."""
    connection = Connection(asked)
    try:
        rows = list(connection.ask(metadata.Request(topics=[]), 13).brokers)
        rows += connection.ask(describe_cluster.Request(), 2).brokers
        rows += connection.ask(find_coordinator.Request(coordinator_keys=["g"]), 6).coordinators
        rows.append(connection.ask(find_coordinator.Request(key="g"), 1))
    finally:
        connection.close()
    return [(row.host, row.port) for row in rows]


def test_each_listener_tells_its_own_address(tmp_path):
    [outside] = free_ports(1)
    settings = {
        "listeners": f"INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:{outside}",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT",
        "advertised.listeners": "OUTSIDE://outside.example:9999",
    }
    broker = BrokerProcess(tmp_path, settings)
    command = broker.command
    broker.command = lambda: [  # type: ignore[method-assign]
        each for each in command() if each not in ("--listen", broker.address)
    ]
    try:
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        brokers = admin.list_topics(timeout=10).brokers
        assert [(b.host, b.port) for b in brokers.values()] == [("127.0.0.1", broker.port)]
        resource = ConfigResource(ConfigResource.Type.BROKER, "1")
        (future,) = admin.describe_configs([resource]).values()
        assert future.result(10)["advertised.listeners"].value == "OUTSIDE://outside.example:9999"
        for asked, told in (
            (broker.bootstrap, ("127.0.0.1", broker.port)),
            (f"127.0.0.1:{outside}", ("outside.example", 9999)),
        ):
            assert addresses_told(asked) == [told] * 4
    finally:
        broker.kill()


def test_topic_of_a_mirror_takes_no_produce(isthmus_broker: BrokerProcess):
    create(isthmus_broker.bootstrap, "mirrored", mirror_link="l", mirror_source_cluster_id="c")
    errors = []
    producer = Producer({"bootstrap.servers": isthmus_broker.bootstrap})
    producer.produce("mirrored", b"x", on_delivery=lambda error, message: errors.append(error))
    producer.flush(10)
    assert [error and error.name() for error in errors] == ["POLICY_VIOLATION"]


def test_idempotent_producer_goes_on_after_a_crash_without_doubling(tmp_path):
    with running_broker(tmp_path) as broker:
        create(broker.bootstrap, "t")
        sent: list[bytes] = []
        errors: list[object] = []
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 1,
             "reconnect.backoff.max.ms": 200, "message.timeout.ms": 30_000}
        )  # fmt: skip
        for n in range(3000):
            value = b"%d" % n
            producer.produce("t", value, partition=0, on_delivery=lambda e, m: errors.append(e) if e else None)
            sent.append(value)
            producer.poll(0)
            if n == 1500:
                broker.kill()
                broker.start()
        assert producer.flush(30) == 0
        assert errors == []
        assert consume(broker.bootstrap, "t", 3000) == sent
