"""Requests that tests of the broker ask, of one topic, by its name or its id."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages import fetch, produce

NO_ID = bytes(16)


def produce_of(
    *rows: tuple[int, bytes | None], topic: str = "", topic_id: bytes = NO_ID, **fields: Any
) -> produce.Request:
    """rows: partition, records."""
    data = [
        produce.PartitionProduceData(index=index, records=None if records is None else memoryview(records))
        for index, records in rows
    ]
    topics = [produce.TopicProduceData(name=topic, topic_id=topic_id, partition_data=data)]
    return produce.Request(**{"acks": -1, "timeout_ms": 5_000, "topic_data": topics, **fields})


def fetch_of(
    *rows: tuple[int, int], topic: str = "", topic_id: bytes = NO_ID, leader_epoch: int = -1, **fields: Any
) -> fetch.Request:
    """rows: partition, offset. Of no topic where there are none."""
    data = [
        fetch.FetchPartition(
            partition=index, fetch_offset=offset, current_leader_epoch=leader_epoch, partition_max_bytes=1 << 20
        )
        for index, offset in rows
    ]
    topics = [fetch.FetchTopic(topic=topic, topic_id=topic_id, partitions=data)] if rows else []
    return fetch.Request(**{"min_bytes": 1, "session_epoch": -1, "topics": topics, **fields})
