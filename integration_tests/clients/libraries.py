"""Each client library behind two functions: `write` the fixed records to a topic, `read` topics to their ends.

A reader gives what it has when its time is over; the tests say what is missing. Nothing here looks at a codec.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import aiokafka
import confluent_kafka
import kafka

from isthmus.client import Client, Consumer, Producer, TopicPartition

from . import java
from .records import Rec

READ_TIMEOUT_S = 20.0
LINGER_MS = 500  # all records of a topic lie in few batches: `flush` ends the wait
BATCH_BYTES = 900_000

Found = dict[str, list[Rec]]


def enough(found: Found, counts: Mapping[str, int]) -> bool:
    return all(len(found[topic]) >= count for topic, count in counts.items())


# --- isthmus.client ---------------------------------------------------------------------------------------------------


def isthmus_write(bootstrap: str, topic: str, codec: str, records: Sequence[Rec]) -> None:
    async def main() -> None:
        client = Client(bootstrap)
        await client.start()
        producer = Producer(client, linger_ms=LINGER_MS, batch_bytes=BATCH_BYTES, compression=codec)
        await producer.start()
        sent = [
            producer.send(topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp_ms, headers=r.headers)
            for r in records
        ]
        await producer.flush()
        await asyncio.gather(*sent)
        await producer.close()
        await client.close()

    asyncio.run(main())


def isthmus_read(bootstrap: str, counts: Mapping[str, int]) -> Found:
    async def main() -> Found:
        found: Found = {topic: [] for topic in counts}
        client = Client(bootstrap)
        await client.start()
        consumer = Consumer(client)
        consumer.assign({TopicPartition(topic, 0): 0 for topic in counts})
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not enough(found, counts) and time.monotonic() < deadline:
            for tp, records in (await consumer.poll(500)).items():
                found[tp.topic] += [Rec(r.key, r.value, tuple(r.headers), r.timestamp_ms) for r in records]
        await consumer.close()
        await client.close()
        return found

    return asyncio.run(main())


# --- aiokafka ---------------------------------------------------------------------------------------------------------


def aiokafka_write(bootstrap: str, topic: str, codec: str, records: Sequence[Rec]) -> None:
    async def main() -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec,
            linger_ms=LINGER_MS, max_batch_size=BATCH_BYTES, enable_idempotence=True,
        )  # fmt: skip
        await producer.start()
        try:
            for r in records:
                await producer.send(
                    topic, r.value, r.key, partition=0, timestamp_ms=r.timestamp_ms, headers=list(r.headers)
                )
            await producer.flush()
        finally:
            await producer.stop()

    asyncio.run(main())


def aiokafka_read(bootstrap: str, counts: Mapping[str, int]) -> Found:
    async def main() -> Found:
        found: Found = {topic: [] for topic in counts}
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        try:
            consumer.assign([aiokafka.TopicPartition(topic, 0) for topic in counts])
            deadline = time.monotonic() + READ_TIMEOUT_S
            while not enough(found, counts) and time.monotonic() < deadline:
                for tp, records in (await consumer.getmany(timeout_ms=500)).items():
                    found[tp.topic] += [Rec(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
        finally:
            await consumer.stop()
        return found

    return asyncio.run(main())


# --- kafka-python -----------------------------------------------------------------------------------------------------


def kafka_python_write(bootstrap: str, topic: str, codec: str, records: Sequence[Rec]) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec,
        linger_ms=LINGER_MS, batch_size=BATCH_BYTES, acks="all",
    )  # fmt: skip
    try:
        sent = [
            producer.send(topic, r.value, r.key, headers=list(r.headers), partition=0, timestamp_ms=r.timestamp_ms)
            for r in records
        ]
        producer.flush(READ_TIMEOUT_S)
        for future in sent:
            future.get(READ_TIMEOUT_S)
    finally:
        producer.close()


def kafka_python_read(bootstrap: str, counts: Mapping[str, int]) -> Found:
    found: Found = {topic: [] for topic in counts}
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    try:
        consumer.assign([kafka.TopicPartition(topic, 0) for topic in counts])
        consumer.seek_to_beginning()
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not enough(found, counts) and time.monotonic() < deadline:
            for tp, records in consumer.poll(timeout_ms=500).items():
                found[tp.topic] += [Rec(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]
    finally:
        consumer.close()
    return found


# --- confluent-kafka --------------------------------------------------------------------------------------------------


def confluent_write(bootstrap: str, topic: str, codec: str, records: Sequence[Rec]) -> None:
    errors: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": LINGER_MS,
         "batch.size": BATCH_BYTES, "enable.idempotence": True}
    )  # fmt: skip
    for r in records:
        producer.produce(
            topic, r.value, r.key, 0, timestamp=r.timestamp_ms, headers=list(r.headers),
            on_delivery=lambda error, message: errors.append(error) if error else None,
        )  # fmt: skip
    assert producer.flush(READ_TIMEOUT_S) == 0
    assert errors == []


def confluent_read(bootstrap: str, counts: Mapping[str, int]) -> Found:
    found: Found = {topic: [] for topic in counts}
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "by-hand", "enable.auto.commit": False, "check.crcs": True}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0) for topic in counts])
        deadline = time.monotonic() + READ_TIMEOUT_S
        while not enough(found, counts) and time.monotonic() < deadline:
            for message in consumer.consume(500, 0.5):
                assert not message.error(), message.error()
                kind, timestamp_ms = message.timestamp()
                assert kind == confluent_kafka.TIMESTAMP_CREATE_TIME
                topic, headers = message.topic(), tuple((str(k), v) for k, v in _pairs(message))
                assert topic
                found[topic].append(Rec(message.key(), message.value(), headers, timestamp_ms))
    finally:
        consumer.close()
    return found


def _pairs(message: confluent_kafka.Message) -> Any:
    """Its headers, which are typed as more than they can be."""
    return message.headers() or ()


WRITERS: dict[str, Callable[[str, str, str, Sequence[Rec]], None]] = {
    "isthmus": isthmus_write,
    "aiokafka": aiokafka_write,
    "kafka-python": kafka_python_write,
    "confluent": confluent_write,
    "java": java.write,
}
READERS: dict[str, Callable[[str, Mapping[str, int]], Found]] = {
    "isthmus": isthmus_read,
    "aiokafka": aiokafka_read,
    "kafka-python": kafka_python_read,
    "confluent": confluent_read,
    "java": java.read,
}
LIBRARIES = tuple(WRITERS)
