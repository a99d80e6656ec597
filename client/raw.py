"""Raw batches: record batches fetched and appended as bytes, without decoding. Used by mirrors and consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..protocol.errors import ErrorCode, KafkaError
from ..protocol.messages import fetch, offset_for_leader_epoch, produce
from ..protocol.primitives import ZERO_UUID
from .cluster import REQUEST_TIMEOUT_MS, Client
from .types import TopicPartition

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATIONS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
CONSUMER = -1  # as replica_id
IDS_FROM = 13  # versions of Fetch and Produce that name topics by id
DIVERGING_FROM = 12  # versions of Fetch whose answers tell where logs part
EPOCH_ENDS_FROM = 3  # versions of OffsetForLeaderEpoch that consumers may ask: before, it took rights on the cluster


class RawFetch(NamedTuple):
    """One partition of a fetch answer. records: whole batches, perhaps with an incomplete one at the end, as a view of
    the answer. diverging_epoch: (epoch, end offset) where the log differs from the client's, KIP-595. aborted:
    (producer id, first offset) pairs, for read_committed. preferred_read_replica: the node to ask instead, -1: none."""

    tp: TopicPartition
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    diverging_epoch: tuple[int, int] | None
    records: memoryview
    aborted: tuple[tuple[int, int], ...] = ()
    preferred_read_replica: int = -1


async def fetch_raw(
    client: Client,
    positions: Mapping[TopicPartition, tuple[int, int]],
    *,
    node_id: int,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 16 << 20,
    partition_max_bytes: int = 4 << 20,
    isolation: int = READ_UNCOMMITTED,
    rack: str = "",
    lane: str = "fetch",
    timeout_ms: float = REQUEST_TIMEOUT_MS,
) -> list[RawFetch]:
    """One Fetch to one node, within max_wait_ms + timeout_ms, including connecting. positions: partition -> (offset,
    leader epoch of the batch before it or -1). The request keeps their order, which matters if max_bytes leaves some
    out: a topic is named once for each run of its partitions, as in Kafka's consumer. Answers are in the order of
    `positions`, with partition errors; errors of the request raise KafkaError. rack: the reader's,
    for which a leader may name a replica to ask instead (KIP-392); "" for none. Leader epochs are those of the client's
    metadata, which learns of a newer leader that an answer names (KIP-951)."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + (max_wait_ms + timeout_ms) / 1000
    connection = await client.connection(node_id, lane, timeout_ms)
    version = connection.version_of(fetch.API)
    topics: list[Any] = []
    for tp, (offset, last_epoch) in positions.items():
        if not topics or topics[-1].topic != tp.topic:
            topic_id = client.topic_id(tp.topic)
            if topic_id is None:
                version = min(version, IDS_FROM - 1)
            topics.append(fetch.FetchTopic(topic=tp.topic, topic_id=topic_id or ZERO_UUID, partitions=[]))
        topics[-1].partitions.append(
            fetch.FetchPartition(
                partition=tp.partition,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch if version >= DIVERGING_FROM else -1,
                current_leader_epoch=client.leader_epoch(tp),
                partition_max_bytes=partition_max_bytes,
            )
        )
    names = {topic.topic_id: topic.topic for topic in topics}
    request = fetch.Request(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_epoch=-1,  # no fetch session
        topics=topics,
        rack_id=rack,
    )
    answer = await connection.request(fetch.API, request, (deadline - loop.time()) * 1000, version)
    if answer.error_code:
        raise KafkaError.of(answer.error_code, f"fetch from node {node_id}")
    found = {}
    for topic in answer.responses:
        name = names[topic.topic_id] if version >= IDS_FROM else topic.topic
        for each in topic.partitions:
            tp = TopicPartition(name, each.partition_index)
            if each.current_leader is not None:
                client.learn_leader(tp, each.current_leader, answer.node_endpoints)
            found[tp] = _one(tp, each)
    return [found[tp] for tp in positions if tp in found]


def _one(tp: TopicPartition, each: Any) -> RawFetch:
    diverging = each.diverging_epoch
    parts = None if diverging is None or diverging.end_offset < 0 else (diverging.epoch, diverging.end_offset)
    return RawFetch(
        tp,
        each.error_code,
        each.high_watermark,
        each.last_stable_offset,
        each.log_start_offset,
        parts,
        each.records if each.records is not None else memoryview(b""),
        tuple((aborted.producer_id, aborted.first_offset) for aborted in each.aborted_transactions or ()),
        each.preferred_read_replica,
    )


async def diverging(
    client: Client,
    positions: Mapping[TopicPartition, tuple[int, int]],
    *,
    node_id: int,
    lane: str = "fetch",
    timeout_ms: float = REQUEST_TIMEOUT_MS,
) -> list[RawFetch]:
    """Those positions that part from the leader's log, or that it refuses to compare, as a Fetch of version 12 would
    answer them (OffsetForLeaderEpoch, KIP-320). Nothing is asked of a broker whose Fetch tells that, or of one too old.
    positions: partition -> (offset, leader epoch of the batch before it). OFFSET_OUT_OF_RANGE: the leader cannot
    tell."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    connection = await client.connection(node_id, lane, timeout_ms)
    api = offset_for_leader_epoch.API
    if connection.version_of(fetch.API) >= DIVERGING_FROM or not connection.supports(api, EPOCH_ENDS_FROM):
        return []
    topics: dict[str, Any] = {}
    for tp, (_, epoch) in positions.items():
        topic = topics.setdefault(tp.topic, offset_for_leader_epoch.OffsetForLeaderTopic(topic=tp.topic))
        topic.partitions.append(
            offset_for_leader_epoch.OffsetForLeaderPartition(
                partition=tp.partition, current_leader_epoch=client.leader_epoch(tp), leader_epoch=epoch
            )
        )
    request = offset_for_leader_epoch.Request(replica_id=CONSUMER, topics=list(topics.values()))
    answer = await connection.request(api, request, (deadline - loop.time()) * 1000)
    found = []
    for topic in answer.topics:
        for each in topic.partitions:
            tp = TopicPartition(topic.topic, each.partition)
            code, parts = each.error_code, (each.leader_epoch, each.end_offset)
            if not code and min(parts) < 0:
                code = ErrorCode.OFFSET_OUT_OF_RANGE
            if code or each.end_offset < positions[tp][0]:
                found.append(RawFetch(tp, code, -1, -1, -1, None if code else parts, memoryview(b"")))
    return found


async def append_raw(
    client: Client, tp: TopicPartition, batches: Any, acks: int = -1, timeout_ms: int = REQUEST_TIMEOUT_MS
) -> int:
    """Produce batches unchanged, within timeout_ms. Returns their base offset. Raises KafkaError that names the
    partition."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_ms / 1000
    node = await client.leader_of(tp, timeout_ms)
    connection = await client.connection(node, timeout_ms=(deadline - loop.time()) * 1000)
    version = connection.version_of(produce.API)
    topic_id = client.topic_id(tp.topic)
    if topic_id is None:
        version = min(version, IDS_FROM - 1)
    topic = produce.TopicProduceData(
        name=tp.topic,
        topic_id=topic_id or ZERO_UUID,
        partition_data=[produce.PartitionProduceData(index=tp.partition, records=batches)],
    )
    request = produce.Request(acks=acks, timeout_ms=timeout_ms, topic_data=[topic])
    answer = await connection.request(produce.API, request, (deadline - loop.time()) * 1000, version)
    [one] = answer.responses[0].partition_responses
    if one.error_code:
        client.learn_leader(tp, one.current_leader, answer.node_endpoints)
        raise KafkaError.of(
            one.error_code, f"{tp.topic}-{tp.partition}: {one.error_message or KafkaError.of(one.error_code).name}"
        )
    return one.base_offset
