"""Records sent one after the other, and read back with their offsets."""

from __future__ import annotations

from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from integration_tests.brokers import BrokerProcess

RECORD_BYTES = 100_000


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
