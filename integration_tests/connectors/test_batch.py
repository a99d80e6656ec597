"""Batch queries over what other clients wrote, in stock Kafka and in our broker."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest

from isthmus.client import Client, TopicPartition
from isthmus.client.raw import fetch_raw
from isthmus.protocol import records

from .conftest import Cluster

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def values(frame: Any) -> list[bytes | None]:
    return [row.value for row in frame.orderBy("topic", "partition", "offset").select("value").collect()]


def failure(frame: Any) -> str:
    with pytest.raises(Exception) as caught:
        frame.collect()
    return str(caught.value)


def test_every_field_of_what_aiokafka_wrote_in_each_codec(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic()
    expected: list[dict[str, Any]] = []
    for i, codec in enumerate(CODECS):
        rows: list[dict[str, Any]] = [
            {
                "value": b"v" * 50,
                "key": b"k",
                "timestamp_ms": 1_357_000_000_000 + i,
                "headers": [("a", b"1"), ("b", b"")],
            },
            {"value": None, "key": b"tombstone", "timestamp_ms": 1_357_000_000_000 + i},
            {"value": b"", "key": None, "timestamp_ms": 1_357_000_000_000 + i},
        ]
        cluster.produce_by_aiokafka(topic, rows, codec)
        expected += rows
    found = cluster.batch(spark, subscribe=topic, includeHeaders="true").orderBy("offset").collect()
    assert len(found) == len(expected)
    for offset, (row, was) in enumerate(zip(found, expected, strict=True)):
        assert (row.topic, row.partition, row.offset, row.timestampType) == (topic, 0, offset, 0)
        assert (row.key, row.value) == (was["key"], was["value"])
        assert row.timestamp.timestamp() * 1000 == pytest.approx(was["timestamp_ms"])
        headers = [(each.key, each.value) for each in row.headers] if row.headers else None
        assert headers == was.get("headers")


def test_plain_and_lz4_batches_in_one_fetch(cluster: Cluster, spark: Any) -> None:
    """librdkafka leaves a batch plain that lz4 does not shrink: each batch's codec is its own."""
    topic = cluster.topic()
    written: list[bytes | None] = []
    for _ in range(4):
        shrinks, does_not = [b"x" * 300] * 30, [os.urandom(300)]
        for each in (shrinks, does_not):
            cluster.produce(topic, [*each], codec="lz4")
            written += each

    async def codecs() -> set[int]:
        client = Client(cluster.bootstrap)
        await client.start()
        tp = TopicPartition(topic, 0)
        [answer] = await fetch_raw(client, {tp: (0, -1)}, node_id=await client.leader_of(tp))
        await client.close()
        return {header.codec for _, header in records.walk(answer.records)}

    assert asyncio.run(codecs()) == {0, 3}
    assert values(cluster.batch(spark, subscribe=topic)) == written


def test_a_large_topic_over_many_fetches(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic(3)
    written = []
    for partition in range(3):
        each: list[bytes | None] = [b"%d/%d " % (partition, n) + b"z" * 400 for n in range(4000)]
        cluster.produce(topic, each, partition, codec="lz4" if partition else "none", linger_ms=20)
        written += each
    frame = cluster.batch(spark, subscribe=topic, fetchMaxBytes=100_000)
    assert values(frame) == written
    tasks = frame.selectExpr("spark_partition_id() AS task")
    assert tasks.distinct().count() == 1  # 12,000 small records are one task's worth
    split = cluster.batch(spark, subscribe=topic, minPartitions=7)
    assert split.selectExpr("spark_partition_id() AS task").distinct().count() >= 7
    assert values(split) == written


def test_start_and_end_by_offsets_and_timestamps(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic(2)
    for partition in range(2):
        cluster.produce(
            topic, [b"%d/%d" % (partition, n) for n in range(10)], partition, timestamps=[1000 + n for n in range(10)]
        )

    def read(**options: Any) -> list[bytes | None]:
        return values(cluster.batch(spark, subscribe=topic, **options))

    def span(first: tuple[int, int], second: tuple[int, int]) -> list[bytes]:
        return [b"%d/%d" % (p, n) for p, (start, end) in enumerate((first, second)) for n in range(start, end)]

    offsets = json.dumps({topic: {"0": 3, "1": -2}})
    assert read(startingOffsets=offsets) == span((3, 10), (0, 10))
    assert read(startingOffsets=offsets, endingOffsets=json.dumps({topic: {"0": 5, "1": -1}})) == span((3, 5), (0, 10))
    assert read(startingTimestamp=1004, endingTimestamp=1006) == span((4, 6), (4, 6))
    by_partition = json.dumps({topic: {"0": 1002, "1": 1008}})
    assert read(startingOffsetsByTimestamp=by_partition) == span((2, 10), (8, 10))
    assert read(endingOffsetsByTimestamp=by_partition) == span((0, 2), (0, 8))
    assert read(startingTimestamp=5000, startingOffsetsByTimestampStrategy="latest") == []
    only_one = cluster.batch(spark, assign=json.dumps({topic: [1]}))
    assert values(only_one) == span((0, 0), (0, 10))


def test_a_pattern_reads_all_topics_it_matches(cluster: Cluster, spark: Any) -> None:
    one = cluster.topic()
    two = cluster.topic(2, f"{one}-more")
    cluster.produce(one, [b"1"])
    cluster.produce(two, [b"2"], 1)
    assert values(cluster.batch(spark, subscribePattern=f"{one}.*")) == [b"1", b"2"]
    assert values(cluster.batch(spark, subscribePattern=one)) == [b"1"]
    assert values(cluster.batch(spark, subscribePattern=f"{one}-nothing")) == []


def test_a_users_schema_reads_those_columns_only(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic()
    cluster.produce(topic, [b"a", b"b"])
    reader = spark.read.format("isthmus").schema("offset bigint, value binary")
    frame = reader.options(**{"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}).load()
    assert [tuple(row) for row in frame.collect()] == [(0, b"a"), (1, b"b")]


def test_a_data_frame_sees_what_was_written_since(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic()
    frame = cluster.batch(spark, subscribe=topic)
    assert frame.count() == 0
    cluster.produce(topic, [b"a"])
    assert cluster.batch(spark, subscribe=topic).count() == 1


def test_what_cannot_be_read_is_named(cluster: Cluster, spark: Any) -> None:
    topic = cluster.topic()
    assert "there is no topic spark-nowhere" in failure(cluster.batch(spark, subscribe="spark-nowhere"))
    beyond = json.dumps({topic: {"0": 5}})
    assert f"endingOffsets says 5, but {topic}-0 has offsets up to 0" in failure(
        cluster.batch(spark, subscribe=topic, endingOffsets=beyond)
    )
    assert "did you mean startingOffsets" in failure(cluster.batch(spark, subscribe=topic, startingOfsets="earliest"))


def test_no_topic_is_made_by_asking_for_it(cluster: Cluster, spark: Any) -> None:
    failure(cluster.batch(spark, subscribe="spark-not-to-be-made"))
    assert "spark-not-to-be-made" not in cluster.admin.list_topics(timeout=10).topics
