"""Offsets of partitions by time or as ends of their logs, as leaders know them, or one replica of its own log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.messages import list_offsets
from . import leaders
from .cluster import REQUEST_TIMEOUT_MS, Client
from .raw import CONSUMER, READ_UNCOMMITTED
from .types import TopicPartition

SPECIAL = {"latest": -1, "earliest": -2, "max_timestamp": -3}
DEBUGGING = -2  # a replica id that any replica answers, by its own log

Wanted = Mapping[TopicPartition, str | int]
Found = dict[TopicPartition, tuple[int, int, int]]  # offset, timestamp, leader epoch


async def fetch_offsets(client: Client, wanted: Wanted, isolation: int, timeout_ms: float) -> Found:
    """As `Admin.list_offsets`."""

    def asking(tps: Sequence[TopicPartition]) -> Any:
        asked = [(tp, _timestamp(wanted[tp]), client.leader_epoch(tp)) for tp in tps]
        return _request(asked, isolation, CONSUMER)

    async with client.operation(leaders.named("offsets", wanted), timeout_ms) as operation:
        found = await leaders.ask(client, operation, "offsets", wanted, asking)
    return {tp: (part.offset, part.timestamp, part.leader_epoch) for tp, part in found.items()}


async def fetch_own_ends(client: Client, node: int, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where a node's own logs end, whoever leads. Partitions that it does not answer for are left out. Raises
    ClientError."""
    asked = [(tp, _timestamp("latest"), -1) for tp in tps]
    answer = await client.request(_request(asked, READ_UNCOMMITTED, DEBUGGING), node)
    return {tp: each.offset for tp, each in leaders.answered(answer).items() if not each.error_code}


def _timestamp(what: str | int) -> int:
    return SPECIAL[what] if isinstance(what, str) else what


def _request(asked: Iterable[tuple[TopicPartition, int, int]], isolation: int, replica_id: int) -> Any:
    """asked: each partition with a timestamp and the leader epoch that is known, -1 for none."""
    topics: dict[str, Any] = {}
    for tp, timestamp, epoch in asked:
        partition = list_offsets.ListOffsetsPartition(
            partition_index=tp.partition, current_leader_epoch=epoch, timestamp=timestamp
        )
        topic = topics.setdefault(tp.topic, list_offsets.ListOffsetsTopic(name=tp.topic, partitions=[]))
        topic.partitions.append(partition)
    return list_offsets.Request(
        replica_id=replica_id, isolation_level=isolation, topics=list(topics.values()), timeout_ms=REQUEST_TIMEOUT_MS
    )
