"""What a broker makes of our producer's sequences and epochs: stock Kafka and ours must agree."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.protocol.errors import ErrorCode, KafkaError


async def begun(bootstrap: str, topic: str, **configs: str) -> tuple[Client, Producer]:
    client = Client(bootstrap)
    await client.start()
    await Admin(client).create_topics(
        [NewTopic(topic, 1, configs={k.replace("_", "."): v for k, v in configs.items()})]
    )
    producer = Producer(client, linger_ms=0)
    await producer.start()
    return client, producer


async def read(client: Client, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(client)
    consumer.assign({TopicPartition(topic, 0): 0})
    found: list[bytes] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            for records in (await consumer.poll(500)).values():
                found += [record.value or b"" for record in records]
    await consumer.close()
    return found


def test_batches_refused_among_others_under_way_neither_lose_nor_double_nor_alarm(bootstrap: str) -> None:
    async def main() -> None:
        client, producer = await begun(bootstrap, "refused", max_message_bytes="2000")
        await producer.send("refused", b"first")
        good, bad = [], []
        for i in range(120):
            if i % 17 == 5:
                bad.append(producer.send("refused", b"x" * 5_000, partition=0))
            else:
                good.append((b"%d" % i, producer.send("refused", b"%d" % i, partition=0)))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await producer.flush()
        told = [future.exception() for future in bad]
        assert all(isinstance(each, KafkaError) and each.code == ErrorCode.MESSAGE_TOO_LARGE for each in told)
        assert [future.exception() for _, future in good if future.exception()] == []
        assert await read(client, "refused", len(good) + 1) == [b"first", *(value for value, _ in good)]
        await producer.close()
        await client.close()

    asyncio.run(main())


def test_a_topic_deleted_and_made_anew_is_written_from_its_beginning(bootstrap: str) -> None:
    async def main() -> None:
        client, producer = await begun(bootstrap, "anew")
        for i in range(5):
            assert (await producer.send("anew", b"old %d" % i)).offset == i
        await Admin(client).delete_topics(["anew"])
        await asyncio.sleep(1)
        await Admin(client).create_topics([NewTopic("anew", 1)])
        for i in range(5):
            assert (await producer.send("anew", b"new %d" % i, partition=0)).offset == i
        assert await read(client, "anew", 5) == [b"new %d" % i for i in range(5)]
        await producer.close()
        await client.close()

    asyncio.run(main())


def test_records_deleted_by_retention_do_not_stop_their_producer(bootstrap: str) -> None:
    async def main() -> None:
        client, producer = await begun(bootstrap, "short", segment_bytes="1048576", retention_bytes="1")
        futures = [producer.send("short", b"x" * 1000, partition=0) for _ in range(3_000)]
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(3_000))
        assert (await producer.send("short", b"y", partition=0)).offset == 3_000
        await producer.close()
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_many_records_by_one_call_are_written_in_order_and_committed_as_a_whole(
    bootstrap: str, compression: str
) -> None:
    topic = f"many-{compression}"
    numbers = [b"%d" % number for number in range(20_000)]
    keys = [b"key-%d" % (number % 700) for number in range(20_000)]

    async def main() -> None:
        async with asyncio.timeout(60):
            client = Client(bootstrap)
            await client.start()
            await Admin(client).create_topics([NewTopic(topic, 3)])
            producer = Producer(client, transactional_id=topic, compression=compression, batch_bytes=20_000)
            await producer.start()
            async with producer.transaction():
                kept = producer.send_many(topic, numbers, keys)
            await producer.begin_transaction()
            dropped = producer.send_many(topic, [b"no"] * 1_000)
            await producer.flush()
            await producer.abort_transaction()
            assert sum(offset + 1 for offset in kept.result().offsets.values()) == 20_000
            [(index, last)] = dropped.result().offsets.items()
            assert last == kept.result().offsets[index] + 1 + 1_000, "a marker is between them"
            await producer.close()
            consumer = Consumer(client, isolation="read_committed")
            consumer.assign({TopicPartition(topic, index): 0 for index in range(3)})
            found: dict[bytes, list[bytes]] = {}
            while sum(map(len, found.values())) < 20_000 or any(p.lag != 0 for p in consumer.progress().values()):
                for records in (await consumer.poll(500)).values():
                    for record in records:
                        found.setdefault(record.key or b"", []).append(record.value or b"")
            assert found == {key: numbers[index::700] for index, key in enumerate(keys[:700])}
            await consumer.close()
            await client.close()

    asyncio.run(main())
