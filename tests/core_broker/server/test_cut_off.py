"""Nodes that are cut off from the others, though not from clients: they know when others may have taken their place."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, list_offsets, offset_for_leader_epoch
from isthmus.protocol.records import build_batch
from tests.running import run_by

from .asking import fetch_of, produce_of
from .three_nodes import IDS, ThreeNodes, on_three_nodes

LOOK_S = 0.05
SETTLED_S = 1.1  # after a start: more than broker.heartbeat.interval.ms
RESET_S = 0.005  # in which both ends learn that a connection is broken


async def cut_off(nodes: ThreeNodes, node_id: int) -> list[int]:
    """Once all know that all live. Gives the other nodes."""
    images = [nodes.services(each).image for each in IDS]
    await nodes.sim.until(lambda: all(image.is_active(each) for image in images for each in IDS), "all nodes to live")
    others = [each for each in IDS if each != node_id]
    nodes.sim.network.partition([f"n{node_id}"], [f"n{each}" for each in others])
    return others


@pytest.mark.parametrize("connections", ["stand", "break"])
@pytest.mark.parametrize("who", ["the controller", "another"])
@run_by(on_three_nodes)
async def test_no_session_is_left_when_others_fence_a_node(nodes: ThreeNodes, /, who: str, connections: str) -> None:
    """A controller that is cut off answers its own heartbeats. It must not make its own session last. Where connections
    break, too, a broker is fenced soon after, and another controller elected at once."""
    node_id = nodes.leader if who == "the controller" else nodes.others[0]
    services = nodes.services(node_id)
    await asyncio.sleep(SETTLED_S)
    if connections == "break":
        nodes.sim.network.cut(f"n{node_id}")
        await asyncio.sleep(RESET_S)
    others = await cut_off(nodes, node_id)
    while not any(nodes.services(each).image.brokers[node_id].fenced for each in others):
        await asyncio.sleep(LOOK_S)
    for _ in range(200):
        assert not services.has_session() and not services.groups.host.has_session()
        await asyncio.sleep(LOOK_S)
    nodes.sim.network.heal()
    await nodes.sim.until(services.has_session, "a session")


@run_by(on_three_nodes)
async def test_a_broker_whose_connection_breaks_says_at_once_that_it_lives(nodes: ThreeNodes, /) -> None:
    """The next heartbeat would be due after its controller has given it up."""
    [node_id, _], image = nodes.others, nodes.services(nodes.leader).image
    await nodes.sim.until(lambda: image.is_active(node_id), "a broker that lives")
    for _ in range(5):
        await nodes.sim.until(nodes.services(node_id).has_session, "a session")
        nodes.sim.network.cut(f"n{node_id}", f"n{nodes.leader}")
        for _ in range(20):
            await asyncio.sleep(LOOK_S)
            assert image.is_active(node_id)


async def replaced_leader(nodes: ThreeNodes) -> tuple[int, int]:
    """The leader of a topic t is cut off with records that nobody has acknowledged, and another one has committed two
    of its own. Gives both."""
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))
    served = [nodes.services(each).replicas.partitions for each in IDS]
    await nodes.sim.until(lambda: all("t" in each for each in served), "the topic on all nodes")
    image = nodes.services(1).image
    old, topic_id = image.topics["t"].partitions[0].leader, image.topics["t"].id
    batch = build_batch([(1_700_000_000_000, None, b"v", ())])

    async def append(node_id: int, count: int, acks: int) -> None:
        for _ in range(count):
            answer = await nodes.ask(node_id, produce_of((0, batch), topic_id=topic_id, acks=acks))
            assert answer.responses[0].partition_responses[0].error_code == 0

    await append(old, 1, -1)
    others = await cut_off(nodes, old)
    await append(old, 4, 1)
    images = [nodes.services(each).image for each in others]
    await nodes.sim.until(lambda: all(each.topics["t"].partitions[0].leader in others for each in images), "a leader")
    new = images[0].topics["t"].partitions[0].leader
    await append(new, 2, -1)
    return old, new


@run_by(on_three_nodes)
async def test_a_leader_that_was_replaced_tells_nothing_of_its_own_time(nodes: ThreeNodes, /) -> None:
    """Clients that know no leader epoch would take the end that it knows for the end, or records for lost."""
    old, new = await replaced_leader(nodes)
    topic_id, epoch = nodes.services(new).image.topics["t"].id, nodes.services(new).replicas.get("t", 0).leader_epoch

    async def asked(node_id: int) -> list[tuple[int, int]]:
        found = []
        for timestamp in (-1, -3, 1_700_000_000_001):
            row = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topics = [list_offsets.ListOffsetsTopic(name="t", partitions=[row])]
            offsets = (await nodes.ask(node_id, list_offsets.Request(replica_id=-1, topics=topics))).topics[0]
            found.append((offsets.partitions[0].error_code, offsets.partitions[0].offset))
        end = offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=epoch)
        ends = [offset_for_leader_epoch.OffsetForLeaderTopic(topic="t", partitions=[end])]
        epochs = (await nodes.ask(node_id, offset_for_leader_epoch.Request(topics=ends))).topics[0]
        found.append((epochs.partitions[0].error_code, epochs.partitions[0].end_offset))
        fetched = fetch_of((0, 3), topic_id=topic_id)
        fetched.topics[0].partitions[0].last_fetched_epoch = epoch
        data = (await nodes.ask(node_id, fetched)).responses[0].partitions[0]
        return [*found, (data.error_code, data.high_watermark)]

    assert await asked(new) == [(0, 3), (0, 0), (0, -1), (0, 3), (0, 3)]
    assert await asked(old) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)] * 5
