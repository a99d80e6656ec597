"""Deletes the oldest records of partitions (DeleteRecords, KIP-107), as their leaders do it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..protocol.messages import delete_records
from . import leaders
from .cluster import REQUEST_TIMEOUT_MS, Client
from .types import TopicPartition

WHAT = "deletion of records"


async def delete_before(
    client: Client, offsets: Mapping[TopicPartition, int], timeout_ms: float
) -> dict[TopicPartition, int]:
    """As `Admin.delete_records`."""

    def asking(tps: Sequence[TopicPartition]) -> delete_records.Request:
        topics: dict[str, Any] = {}
        for tp in tps:
            topic = topics.setdefault(tp.topic, delete_records.DeleteRecordsTopic(name=tp.topic, partitions=[]))
            part = delete_records.DeleteRecordsPartition(partition_index=tp.partition, offset=offsets[tp])
            topic.partitions.append(part)
        return delete_records.Request(topics=list(topics.values()), timeout_ms=REQUEST_TIMEOUT_MS)

    async with client.operation(leaders.named(WHAT, offsets), timeout_ms) as operation:
        found = await leaders.ask(client, operation, WHAT, offsets, asking)
    return {tp: part.low_watermark for tp, part in found.items()}
