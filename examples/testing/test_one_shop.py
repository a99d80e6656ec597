"""One broker: `isthmus_container`, with confluent-kafka. Each test has a topic of its own, for the broker is shared."""

from confluent_kafka import Consumer, Producer, TopicPartition

from isthmus.testing import IsthmusContainer

ORDERS = [f"order {number}" for number in range(100)]


def place(bootstrap: str, topic: str, orders: list[str]) -> Producer:
    """Send orders; `flush` tells how many are not acknowledged yet."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for order in orders:
        producer.produce(topic, order)
    return producer


def read(bootstrap: str, topic: str) -> list[str]:
    """All that the topic holds now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "test", "enable.auto.commit": False})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[str] = []
    while len(found) < end:
        records = consumer.consume(end - len(found), timeout=30)
        assert records, f"{len(found)} of {end} came within 30 s"
        found += [(record.value() or b"").decode() for record in records]
    consumer.close()
    return found


def test_orders_are_kept_in_their_order(isthmus_container: IsthmusContainer) -> None:
    assert place(isthmus_container.bootstrap, "orders", ORDERS).flush(30) == 0
    assert read(isthmus_container.bootstrap, "orders") == ORDERS


def test_orders_wait_for_a_broker_that_hangs(isthmus_container: IsthmusContainer) -> None:
    place(isthmus_container.bootstrap, "patient", ["the first"]).flush(30)
    isthmus_container.pause()
    producer = place(isthmus_container.bootstrap, "patient", ORDERS)
    assert producer.flush(1) == len(ORDERS)  # all of them wait
    isthmus_container.unpause()
    assert producer.flush(30) == 0
    assert read(isthmus_container.bootstrap, "patient") == ["the first", *ORDERS]


def test_what_was_acknowledged_survives_kill_9(isthmus_container: IsthmusContainer) -> None:
    assert place(isthmus_container.bootstrap, "durable", ORDERS).flush(30) == 0
    isthmus_container.kill()
    isthmus_container.restart()
    assert read(isthmus_container.bootstrap, "durable") == ORDERS
