"""Offsets of partitions by time or as ends of their logs, as leaders know them, or one replica of its own log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..protocol.errors import KafkaError
from ..protocol.messages import list_offsets
from .cluster import NAMES_SHOWN, REQUEST_TIMEOUT_MS, Client
from .errors import ClientError, ConnectionLost
from .raw import CONSUMER, READ_UNCOMMITTED
from .types import TopicPartition

SPECIAL = {"latest": -1, "earliest": -2, "max_timestamp": -3}
DEBUGGING = -2  # a replica id that any replica answers, by its own log

Wanted = Mapping[TopicPartition, str | int]
Found = dict[TopicPartition, tuple[int, int, int]]  # offset, timestamp, leader epoch


async def fetch_offsets(client: Client, wanted: Wanted, isolation: int, timeout_ms: float) -> Found:
    """As `Admin.list_offsets`."""
    found: Found = {}
    async with client.operation(_offsets_of(wanted), timeout_ms) as operation:
        while True:
            problem = await _ask_leaders(client, [tp for tp in wanted if tp not in found], wanted, isolation, found)
            if problem is None:
                return found
            await operation.again(problem)
            await client.refresh_metadata(sorted({tp.topic for tp in wanted if tp not in found}))


async def fetch_own_ends(client: Client, node: int, tps: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Where a node's own logs end, whoever leads. Partitions that it does not answer for are left out. Raises
    ClientError."""
    asked = [(tp, _timestamp("latest"), -1) for tp in tps]
    answer = await client.request(_request(asked, READ_UNCOMMITTED, DEBUGGING), node)
    return {tp: each.offset for tp, each in _answered(answer).items() if not each.error_code}


async def _ask_leaders(
    client: Client, missing: Sequence[TopicPartition], wanted: Wanted, isolation: int, found: Found
) -> KafkaError | ClientError | None:
    """Ask each leader once; adds to `found`. Returns the last problem of the missing ones."""
    problem: KafkaError | ClientError | None = None
    by_node: dict[int, list[TopicPartition]] = {}
    for tp in missing:
        by_node.setdefault(await client.leader_of(tp), []).append(tp)
    for node, tps in by_node.items():
        asked = [(tp, _timestamp(wanted[tp]), client.leader_epoch(tp)) for tp in tps]
        try:
            answered = _answered(await client.request(_request(asked, isolation, CONSUMER), node))
        except ConnectionLost as error:
            problem = error
            continue
        for tp in tps:
            one = answered.get(tp)
            where = f"offsets of {tp.topic}-{tp.partition}"
            if one is None:
                problem = ConnectionLost(f"{where}: node {node} left them out of its answer")
            elif one.error_code:
                problem = KafkaError.of(one.error_code, where)
                if not problem.retriable:
                    raise problem
            else:
                found[tp] = (one.offset, one.timestamp, one.leader_epoch)
    return problem


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


def _answered(answer: Any) -> dict[TopicPartition, Any]:
    return {
        TopicPartition(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions
    }


def _offsets_of(wanted: Iterable[TopicPartition]) -> str:
    names = [f"{tp.topic}-{tp.partition}" for tp in wanted]
    return f"offsets of {', '.join(names[:NAMES_SHOWN])}{', …' * (len(names) > NAMES_SHOWN)}"
