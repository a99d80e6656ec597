"""A replica that is copied under a throttle, on three nodes in simulated time: counted in bytes, not by a stopwatch."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.protocol.messages import (
    alter_partition_reassignments,
    create_topics,
    incremental_alter_configs,
    produce,
)
from isthmus.protocol.records import build_batch

from .three_nodes import IDS, ThreeNodes, on_three_nodes

BATCHES, VALUE_BYTES = 80, 50_000
RATE = 200_000
FIRST_BYTES = 1_048_576 + 2 * VALUE_BYTES  # of the first answer, which nothing holds back
TOPIC, BROKER, SET, DELETE = 2, 4, 0, 1
SIDES = ("leader", "follower")


async def alter(nodes: ThreeNodes, kind: int, name: str, options: dict[str, str | None], node_id: int = 1) -> None:
    configs = [
        incremental_alter_configs.AlterableConfig(
            name=key, config_operation=DELETE if value is None else SET, value=value
        )
        for key, value in options.items()
    ]
    resource = incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    answer = await nodes.ask(node_id, incremental_alter_configs.Request(resources=[resource]))
    assert [(each.error_code, each.error_message) for each in answer.responses] == [(0, None)]


async def append(nodes: ThreeNodes, count: int) -> None:
    for _ in range(count):
        batch = build_batch([(1_700_000_000_000, None, bytes(VALUE_BYTES), ())])
        topic_id = nodes.services(1).image.topics["t"].id
        rows = [produce.PartitionProduceData(index=0, records=batch)]
        topics = [produce.TopicProduceData(name="t", topic_id=topic_id, partition_data=rows)]
        answer = await nodes.ask(1, produce.Request(acks=-1, timeout_ms=20_000, topic_data=topics))
        assert answer.responses[0].partition_responses[0].error_code == 0


async def begin(nodes: ThreeNodes, throttled: str) -> None:
    """Partition t-0 of broker 1 has records, and is to be on broker 2, too."""
    rows = [create_topics.CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    topic = create_topics.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=rows)
    await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    await append(nodes, BATCHES)
    for node_id in IDS:
        await alter(nodes, BROKER, str(node_id), {f"{throttled}.replication.throttled.rate": str(RATE)}, node_id)
    options = {"leader": "0:1", "follower": "0:2"}
    await alter(nodes, TOPIC, "t", {f"{throttled}.replication.throttled.replicas": options[throttled]})
    wanted = [alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[1, 2])]
    moved = [alter_partition_reassignments.ReassignableTopic(name="t", partitions=wanted)]
    await nodes.ask(1, alter_partition_reassignments.Request(topics=moved, timeout_ms=20_000))


def copied(nodes: ThreeNodes) -> int:
    partition = nodes.services(2).replicas.partitions.get("t", {}).get(0)
    return 0 if partition is None else partition.log.size_bytes


def in_sync(nodes: ThreeNodes) -> list[int]:
    return list(nodes.services(1).image.topics["t"].partitions[0].isr)


@pytest.mark.parametrize("side", SIDES)
def test_a_throttled_copy_keeps_to_its_rate_and_is_not_held_back_once_in_sync(side: str) -> None:
    async def work(nodes: ThreeNodes) -> None:
        loop = asyncio.get_running_loop()
        await begin(nodes, side)
        began = loop.time()
        while in_sync(nodes) != [1, 2]:
            assert copied(nodes) <= FIRST_BYTES + RATE * (loop.time() - began)
            await asyncio.sleep(0.1)
        passed_s = loop.time() - began
        assert passed_s >= (BATCHES * VALUE_BYTES - FIRST_BYTES) / RATE
        assert passed_s <= 2 * BATCHES * VALUE_BYTES / RATE  # and it is not much slower
        began = loop.time()
        await append(nodes, BATCHES)  # acks=all: the follower has them, too
        assert loop.time() - began < BATCHES * VALUE_BYTES / RATE / 2

    on_three_nodes(work)


@pytest.mark.parametrize("side", SIDES)
def test_a_throttle_that_is_lifted_holds_nothing_back_any_more(side: str) -> None:
    async def work(nodes: ThreeNodes) -> None:
        loop = asyncio.get_running_loop()
        await begin(nodes, side)
        await asyncio.sleep(3)
        assert 0 < copied(nodes) <= FIRST_BYTES + RATE * 3
        await alter(nodes, TOPIC, "t", {f"{side}.replication.throttled.replicas": None})
        began = loop.time()
        await nodes.sim.until(lambda: in_sync(nodes) == [1, 2], "the copy is in sync")
        assert loop.time() - began < 4

    on_three_nodes(work)
