"""A Python client library against a broker: smoke.py LIBRARY BOOTSTRAP TOPIC RECORDS REPLICAS.

Prints one JSON object of what it saw.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
DONE_WITHIN_S = 30.0


def librdkafka(bootstrap: str, topic: str, count: int, replicas: int) -> dict[str, Any]:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        Consumer,
        ConsumerGroupTopicPartitions,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, NewTopic

    options = {"bootstrap.servers": bootstrap}
    admin = AdminClient({**options})

    def create(name: str, partitions: int) -> None:
        for answer in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
            answer.result(DONE_WITHIN_S)

    def offsets(group: str) -> int:
        [answer] = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        return sum(each.offset for each in answer.result(DONE_WITHIN_S).topic_partitions)

    create(topic, PARTITIONS)
    listed = topic in admin.list_topics(timeout=DONE_WITHIN_S).topics
    for codec in CODECS:
        producer = Producer({**options, "compression.type": codec, "enable.idempotence": True})
        for n in range(count):
            producer.produce(topic, f"{codec} {n}", f"{n}", partition=n % PARTITIONS, headers={"codec": codec})
        assert producer.flush(DONE_WITHIN_S) == 0
    values: list[str] = []
    reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**options, **reading, "group.id": f"{topic}-readers"})
    consumer.subscribe([topic])
    while len(values) < count * len(CODECS):
        for message in consumer.consume(100, 1.0):
            assert not message.error(), message.error()
            assert dict(message.headers() or []) == {"codec": (message.value() or b"").split()[0]}
            values.append((message.value() or b"").decode())
            consumer.commit(message=message, asynchronous=False)
    consumer.close()

    target = f"{topic}-transacted"
    create(target, 1)
    producer = Producer({**options, "transactional.id": f"{target}-copiers"})
    copiers = Consumer({**options, "group.id": f"{target}-copiers"}).consumer_group_metadata()
    producer.init_transactions(DONE_WITHIN_S)
    for commits in (False, True):
        producer.begin_transaction()
        for n in range(count):
            producer.produce(target, f"{commits} {n}")
        producer.send_offsets_to_transaction([TopicPartition(topic, 0, count)], copiers, DONE_WITHIN_S)
        (producer.commit_transaction if commits else producer.abort_transaction)(DONE_WITHIN_S)
    consumer = Consumer({**options, **reading, "group.id": "none", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(target, 0, OFFSET_BEGINNING)])
    transacted: list[str] = []
    while len(transacted) < count:
        for message in consumer.consume(100, 1.0):
            assert not message.error(), message.error()
            transacted.append((message.value() or b"").decode())
    consumer.close()
    return {
        "codecs": CODECS, "listed": listed, "values": values, "committed": offsets(f"{topic}-readers"),
        "transacted": transacted, "transacted_offset": offsets(f"{target}-copiers"),
    }  # fmt: skip


def kafka_python(bootstrap: str, topic: str, count: int, replicas: int) -> dict[str, Any]:
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import NewTopic
    from kafka.structs import OffsetAndMetadata

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)

    def offsets(group: str) -> int:
        [found] = admin.list_group_offsets([group]).values()
        return sum(each.offset for each in found.values())

    admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])
    listed = topic in admin.list_topics()
    for codec in CODECS:
        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression, enable_idempotence=True)
        sent = [
            producer.send(topic, f"{codec} {n}".encode(), f"{n}".encode(), [("codec", codec.encode())], n % PARTITIONS)
            for n in range(count)
        ]
        for each in sent:
            each.get(DONE_WITHIN_S)
        producer.close()
    values: list[str] = []
    reading = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer = KafkaConsumer(**reading, group_id=f"{topic}-readers")
    consumer.subscribe([topic])
    while len(values) < count * len(CODECS):
        for records in consumer.poll(1000).values():
            assert all(dict(each.headers) == {"codec": each.value.split()[0]} for each in records)
            values += [each.value.decode() for each in records]
        consumer.commit()
    consumer.close()

    target = f"{topic}-transacted"
    admin.create_topics([NewTopic(target, 1, replicas)])
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{target}-copiers")
    producer.init_transactions()
    for commits in (False, True):
        producer.begin_transaction()
        for n in range(count):
            producer.send(target, f"{commits} {n}".encode())
        copied = {TopicPartition(topic, 0): OffsetAndMetadata(count, "", -1)}
        producer.send_offsets_to_transaction(copied, f"{target}-copiers")
        (producer.commit_transaction if commits else producer.abort_transaction)()
    producer.close()
    consumer = KafkaConsumer(**reading, isolation_level="read_committed")
    consumer.assign([TopicPartition(target, 0)])
    transacted: list[str] = []
    while len(transacted) < count:
        for records in consumer.poll(1000).values():
            transacted += [each.value.decode() for each in records]
    consumer.close()
    seen = {"committed": offsets(f"{topic}-readers"), "transacted_offset": offsets(f"{target}-copiers")}
    admin.close()
    return {"codecs": CODECS, "listed": listed, "values": values, "transacted": transacted, **seen}


async def aiokafka(bootstrap: str, topic: str, count: int, replicas: int) -> dict[str, Any]:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic
    from aiokafka.errors import NodeNotReadyError

    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()

    async def offsets(group: str) -> int:
        deadline = asyncio.get_running_loop().time() + DONE_WITHIN_S
        while True:
            try:
                return sum(each.offset for each in (await admin.list_consumer_group_offsets(group)).values())
            except NodeNotReadyError:  # it asks any broker that it once heard of, and its users are to retry
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(0.1)

    await admin.create_topics([NewTopic(topic, PARTITIONS, replicas)])
    listed = topic in await admin.list_topics()
    for codec in CODECS:
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=compression, enable_idempotence=True
        )  # fmt: skip
        async with producer:
            sent = [
                await producer.send(
                    topic, f"{codec} {n}".encode(), f"{n}".encode(), n % PARTITIONS, headers=[("codec", codec.encode())]
                )
                for n in range(count)
            ]
            await asyncio.gather(*sent)
    values: list[str] = []
    reading = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with AIOKafkaConsumer(topic, **reading, group_id=f"{topic}-readers") as consumer:
        while len(values) < count * len(CODECS):
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                assert all(dict(each.headers) == {"codec": each.value.split()[0]} for each in records)
                values += [each.value.decode() for each in records]
            await consumer.commit()

    target = f"{topic}-transacted"
    await admin.create_topics([NewTopic(target, 1, replicas)])
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=f"{target}-copiers") as producer:
        for commits in (False, True):
            await producer.begin_transaction()
            for n in range(count):
                await producer.send(target, f"{commits} {n}".encode())
            copied = {TopicPartition(topic, 0): count}
            await producer.send_offsets_to_transaction(copied, f"{target}-copiers")
            await (producer.commit_transaction if commits else producer.abort_transaction)()
    transacted: list[str] = []
    async with AIOKafkaConsumer(**reading, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(target, 0)])
        while len(transacted) < count:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                transacted += [each.value.decode() for each in records]
    seen = {"committed": await offsets(f"{topic}-readers"), "transacted_offset": await offsets(f"{target}-copiers")}
    await admin.close()
    return {"codecs": CODECS, "listed": listed, "values": values, "transacted": transacted, **seen}


if __name__ == "__main__":
    library, bootstrap, topic = sys.argv[1:4]
    count, replicas = map(int, sys.argv[4:])
    if library == "aiokafka":
        seen = asyncio.run(aiokafka(bootstrap, topic, count, replicas))
    else:
        seen = {"librdkafka": librdkafka, "kafka-python": kafka_python}[library](bootstrap, topic, count, replicas)
    print(json.dumps(seen))
