"""DeleteRecords on three nodes: it waits for the followers that live, and no longer than its client does."""

from __future__ import annotations

import asyncio

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, delete_records, produce
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .three_nodes import IDS, ThreeNodes, on_three_nodes

RECORDS = 10


async def filled(nodes: ThreeNodes) -> int:
    """A topic t of three replicas with records; the leader."""
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    served = [nodes.services(each).replicas.partitions for each in IDS]
    await nodes.sim.until(lambda: all("t" in each for each in served), "the topic on all nodes")
    image = nodes.services(1).image
    leader = image.topics["t"].partitions[0].leader
    batch = build_batch([(1_700_000_000_000, None, b"v", ())] * RECORDS)
    rows = [produce.PartitionProduceData(index=0, records=batch)]
    topics = [produce.TopicProduceData(name="t", topic_id=image.topics["t"].id, partition_data=rows)]
    answer = await nodes.ask(leader, produce.Request(acks=-1, timeout_ms=20_000, topic_data=topics))
    assert answer.responses[0].partition_responses[0].error_code == 0
    return int(leader)


async def delete(nodes: ThreeNodes, leader: int, offset: int, timeout_ms: int = 20_000) -> tuple[int, int]:
    rows = [delete_records.DeleteRecordsPartition(partition_index=0, offset=offset)]
    topics = [delete_records.DeleteRecordsTopic(name="t", partitions=rows)]
    answer = await nodes.ask(leader, delete_records.Request(topics=topics, timeout_ms=timeout_ms))
    [row] = answer.topics[0].partitions
    return row.error_code, row.low_watermark


def starts(nodes: ThreeNodes) -> list[int]:
    found = (nodes.services(each).replicas.partitions["t"][0] for each in IDS if nodes.hosts[each].alive)
    return [each.log.log_start_offset for each in found]


@run_by(on_three_nodes)
async def test_followers_have_deleted_what_is_told_to_be_deleted(nodes: ThreeNodes, /) -> None:
    leader = await filled(nodes)
    assert await delete(nodes, leader, 4) == (0, 4)
    assert starts(nodes) == [4, 4, 4]
    assert await delete(nodes, leader, -1) == (0, RECORDS)
    assert starts(nodes) == [RECORDS] * 3
    [other, _] = [each for each in IDS if each != leader]
    assert await delete(nodes, other, 4) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@run_by(on_three_nodes)
async def test_a_follower_that_does_not_follow_is_waited_for_until_it_is_known_dead(nodes: ThreeNodes, /) -> None:
    leader = await filled(nodes)
    [dead] = [each for each in IDS if each not in (leader, nodes.leader)][:1]
    assert await delete(nodes, leader, 4) == (0, 4)
    nodes.sim.network.partition([f"n{dead}"], [f"n{each}" for each in IDS if each != dead])
    assert await delete(nodes, leader, 6, 1_000) == (ErrorCode.REQUEST_TIMED_OUT, 4)
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await delete(nodes, leader, 8, 60_000) == (0, 8)  # once it is fenced
    assert loop.time() - began < 20
