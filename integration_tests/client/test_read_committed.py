"""Readers of committed records on stock Kafka and ours: from any offset, in small answers, over a cut log and a
compacted one, as consumer and as Spark task."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable
from random import Random

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, Progress, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.connectors.options import parse
from isthmus.connectors.planning import OffsetRange
from isthmus.connectors.reading import read_ranges
from isthmus.protocol.messages import delete_records
from isthmus.protocol.records import decode_lists

LIMIT_S = 180.0
PRODUCERS = 3

Found = list[tuple[int, bytes]]


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[Client]:
    async with asyncio.timeout(LIMIT_S):
        client = Client(bootstrap)
        await client.start()
        try:
            yield client
        finally:
            await client.close()


async def fill(
    client: Client, topic: str, transactions: int, key_of: Callable[[int], bytes | None] = lambda n: None
) -> tuple[Found, list[tuple[int, int]]]:
    """Interleaved transactions in partition 0 of a new topic, and records of none. Returns what counts, and the first
    and last offset of each aborted transaction's records."""
    random = Random(topic)
    producers = [Producer(client, transactional_id=f"{topic}-{n}", linger_ms=0) for n in range(PRODUCERS)]
    plain = Producer(client, linger_ms=0)
    for each in (*producers, plain):
        await each.start()
    counting: Found = []
    aborted: list[tuple[int, int]] = []
    opened: dict[int, Found] = {}
    number = begun = 0
    while begun < transactions or opened:
        n = random.randrange(PRODUCERS + 1)
        if n < PRODUCERS and n not in opened:
            if begun == transactions:
                continue
            begun += 1
            await producers[n].begin_transaction()
            opened[n] = []
        elif n < PRODUCERS and opened[n] and random.random() < 0.3:
            records = opened.pop(n)
            if random.random() < 0.5:
                await producers[n].abort_transaction()
                aborted.append((records[0][0], records[-1][0]))
            else:
                await producers[n].commit_transaction()
                counting += records
            continue
        producer = producers[n] if n < PRODUCERS else plain
        batch = [(key_of(number + k), b"%d" % (number + k)) for k in range(random.randrange(1, 5))]
        number += len(batch)
        sent = await asyncio.gather(*(producer.send(topic, value, key, partition=0) for key, value in batch))
        (opened[n] if n < PRODUCERS else counting).extend(
            (place.offset, value) for place, (_, value) in zip(sent, batch, strict=True)
        )
    for each in (*producers, plain):
        await each.close()
    return sorted(counting), aborted


async def read(client: Client, topic: str, start: int | None, partition_max_bytes: int = 150) -> Found:
    """With small answers, up to the end, once the markers of all transactions are written."""
    tp = TopicPartition(topic, 0)
    admin, latest = Admin(client), {tp: "latest"}
    while (end := (await admin.list_offsets(latest))[tp][0]) != (await admin.list_offsets(latest, isolation=1))[tp][0]:
        await asyncio.sleep(0.05)
    consumer = Consumer(client, isolation="read_committed", partition_max_bytes=partition_max_bytes)
    consumer.assign({tp: start})
    found: Found = []
    while (consumer.position(tp) or 0) < end:
        for records in (await consumer.poll(1_000)).values():
            found += [(record.offset, record.value or b"") for record in records]
    assert consumer.lag(tp) == 0
    await consumer.close()
    return found


def spark(bootstrap: str, topic: str, ranges: Iterable[tuple[int, int]]) -> Found:
    """What Spark tasks with these ranges of offsets read."""
    options = parse({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "fetchMaxBytes": "200"}, False)
    wanted = [OffsetRange(topic, 0, start, end) for start, end in ranges]
    rows = [row for batch in read_ranges(options, wanted, ("offset", "value")) for row in batch.to_pylist()]
    return [(row["offset"], row["value"]) for row in rows]


def after(found: Found, offset: int) -> Found:
    return [each for each in found if each[0] >= offset]


def test_a_log_of_many_transactions_is_read_from_anywhere(bootstrap: str) -> None:
    topic = "committed-anywhere"

    async def main() -> tuple[Found, int]:
        async with connected(bootstrap) as client:
            await Admin(client).create_topics([NewTopic(topic, 1)])
            counting, aborted = await fill(client, topic, 40)
            assert len(aborted) > 5
            starts = {0, *(first + 1 for first, last in aborted if first < last), *(last for _, last in aborted)}
            for start in sorted(starts)[::4]:
                assert await read(client, topic, start) == after(counting, start), start
            return counting, counting[-1][0] + 1

    counting, end = asyncio.run(main())
    for size in (1, 7, end):
        pieces = [(start, min(start + size, end)) for start in range(0, end, size)]
        assert spark(bootstrap, topic, pieces) == counting


@pytest.mark.parametrize("last_is_aborted", [False, True])
def test_batches_are_read_to_an_end_that_only_a_marker_fills(bootstrap: str, last_is_aborted: bool) -> None:
    topic = f"committed-end-{last_is_aborted}"
    tp = TopicPartition(topic, 0)

    async def main() -> None:
        async with connected(bootstrap) as client:
            await Admin(client).create_topics([NewTopic(topic, 1)])
            producer = Producer(client, transactional_id=topic, linger_ms=0)
            await producer.start()
            consumer = Consumer(client, isolation="read_committed")
            consumer.assign({tp: 0})
            for number in range(5):
                found: list[bytes | None] = []
                async with producer.transaction():
                    producer.send(topic, b"%d" % number)
                if last_is_aborted:
                    await producer.begin_transaction()
                    await producer.send(topic, b"aborted")
                    await producer.abort_transaction()
                end = (number + 1) * (4 if last_is_aborted else 2)
                while consumer.position(tp) != end:
                    for each in await consumer.poll_batches(1_000):
                        assert each.next_offset == consumer.position(tp)
                        found += decode_lists(each.records, from_offset=each.from_offset).values
                assert found == [b"%d" % number]
                while consumer.progress()[tp].end != end:  # until a fetch has seen that nothing follows
                    await consumer.poll_batches(1_000)
                assert consumer.progress()[tp] == Progress(end, end, end, end, 0)
            await producer.close()
            await consumer.close()

    asyncio.run(main())


def test_a_log_that_was_cut_within_aborted_transactions_is_read_from_its_start(bootstrap: str) -> None:
    topic = "committed-cut"

    async def main() -> None:
        async with connected(bootstrap) as client:
            await Admin(client).create_topics([NewTopic(topic, 1)])
            counting, aborted = await fill(client, topic, 40)
            for offset in sorted(last for first, last in aborted if first < last)[::3]:
                await cut(client, topic, offset)
                assert await read(client, topic, None) == after(counting, offset)
                assert await spark_in_thread(bootstrap, topic, offset, counting[-1][0] + 1) == after(counting, offset)

    asyncio.run(main())


async def spark_in_thread(bootstrap: str, topic: str, start: int, end: int) -> Found:
    return await asyncio.to_thread(spark, bootstrap, topic, [(start, end)])


async def cut(client: Client, topic: str, offset: int) -> None:
    """Delete the records before an offset."""
    partition = delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)
    wanted = delete_records.DeleteRecordsTopic(name=topic, partitions=[partition])
    answer = await client.request(
        delete_records.Request(topics=[wanted], timeout_ms=10_000), await client.leader_of(TopicPartition(topic, 0))
    )
    assert not answer.topics[0].partitions[0].error_code


def test_a_log_that_was_compacted_gives_the_last_committed_values(bootstrap: str) -> None:
    topic = "committed-compacted"
    configs = {"cleanup.policy": "compact", "segment.ms": "50", "min.cleanable.dirty.ratio": "0.0"}

    async def main() -> None:
        async with connected(bootstrap) as client:
            await Admin(client).create_topics([NewTopic(topic, 1, configs={**configs, "delete.retention.ms": "0"})])
            counting, _ = await fill(client, topic, 40, key_of=lambda n: b"%d" % (n % 11))
            last = sorted({int(value) % 11: (offset, value) for offset, value in counting}.values())
            found = counting
            while found == counting:  # until the cleaner has run
                await asyncio.sleep(1)
                found = await read(client, topic, 0)
            assert set(last) <= set(found) <= set(counting)
            for offset, _ in found[::3]:  # meanwhile the cleaner may run again
                assert set(after(last, offset)) <= set(await read(client, topic, offset)) <= set(after(found, offset))

    asyncio.run(main())
