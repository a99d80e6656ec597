"""Consumers read from a replica in their own rack (KIP-392): three nodes, each in a rack of its own."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import create_topics, fetch, produce
from isthmus.protocol.records import build_batch

from .three_nodes import IDS, ThreeNodes, on_three_nodes

NOBODY = -1
SESSION_VERSION = 12  # by names, with sessions and racks


def asked(offset: int, rack: str = "", *, session: tuple[int, int] = (0, -1), wait_ms: int = 0) -> fetch.Request:
    """session: its id and epoch; (0, -1) is none, (0, 0) a new one."""
    part = fetch.FetchPartition(partition=0, fetch_offset=offset, current_leader_epoch=-1, partition_max_bytes=1 << 20)
    return fetch.Request(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, rack_id=rack, session_id=session[0],
        session_epoch=session[1], topics=[fetch.FetchTopic(topic="t", partitions=[part])],
    )  # fmt: skip


def one(answer: Any) -> Any:
    assert not answer.error_code
    return answer.responses[0].partitions[0]


def rack(node_id: int) -> str:
    return f"rack-{node_id}"


async def leader_and_follower(nodes: ThreeNodes) -> tuple[int, int]:
    """Of topic `t`, which has one partition and replicas on all nodes: its leader, and one that is in sync."""
    topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=3)
    await nodes.ask(1, create_topics.Request(topics=[topic], timeout_ms=20_000))

    def in_sync() -> bool:
        images = [nodes.services(each).image.partition("t", 0) for each in IDS]
        return all(image is not None and len(image.isr) == 3 for image in images)

    await nodes.sim.until(in_sync, "all are in sync")
    image = nodes.services(1).image.partition("t", 0)
    assert image is not None
    return image.leader, next(each for each in IDS if each != image.leader)


async def written(nodes: ThreeNodes, leader: int, count: int) -> None:
    """Acknowledged by all replicas."""
    for _ in range(count):
        batch = build_batch([(0, b"k", b"v", ())])
        part = produce.PartitionProduceData(index=0, records=batch)
        topic = produce.TopicProduceData(name="t", partition_data=[part])
        answer = await nodes.ask(leader, produce.Request(acks=-1, timeout_ms=10_000, topic_data=[topic]), 9)
        assert not answer.responses[0].partition_responses[0].error_code


def test_a_leader_sends_consumers_to_the_replica_in_their_rack() -> None:
    async def work(nodes: ThreeNodes) -> None:
        leader, follower = await leader_and_follower(nodes)
        await written(nodes, leader, 3)
        for version in (11, 12):
            told = one(await nodes.ask(leader, asked(0, rack(follower)), version))
            assert (told.preferred_read_replica, bytes(told.records or b"")) == (follower, b"")
        for where in ("", rack(leader), "elsewhere"):
            told = one(await nodes.ask(leader, asked(0, where), SESSION_VERSION))
            assert told.preferred_read_replica == NOBODY and told.records
        told = one(await nodes.ask(leader, asked(4, rack(follower)), SESSION_VERSION))  # which it does not have
        assert (told.preferred_read_replica, told.error_code) == (NOBODY, ErrorCode.OFFSET_OUT_OF_RANGE)
        here = one(await nodes.ask(follower, asked(0, rack(follower)), SESSION_VERSION))
        assert here.records and here.preferred_read_replica == NOBODY
        # It cannot know whether the leader has that. A consumer would begin anew for OFFSET_OUT_OF_RANGE.
        assert one(await nodes.ask(follower, asked(4), SESSION_VERSION)).error_code == ErrorCode.OFFSET_NOT_AVAILABLE

    on_three_nodes(work)


def test_a_replica_that_is_not_in_sync_is_not_named() -> None:
    async def work(nodes: ThreeNodes) -> None:
        leader, follower = await leader_and_follower(nodes)
        await written(nodes, leader, 1)
        nodes.hosts[follower].kill()
        at = nodes.services(leader).replicas.get("t", 0)
        await nodes.sim.until(lambda: follower not in at.isr, "it is not in sync")
        told = one(await nodes.ask(leader, asked(0, rack(follower)), SESSION_VERSION))
        assert told.preferred_read_replica == NOBODY and told.records

    on_three_nodes(work)


def test_a_consumer_that_waits_in_a_session_is_sent_away_when_there_is_a_replica() -> None:
    """Also where its partition has nothing new for it."""

    async def work(nodes: ThreeNodes) -> None:
        leader, follower = await leader_and_follower(nodes)
        await written(nodes, leader, 1)
        connection = await nodes.connect(leader)
        first = await connection.request(fetch.API, asked(1, session=(0, 0)), 10_000, SESSION_VERSION)
        again = asked(1, rack(follower), session=(first.session_id, 1))
        again.topics = []
        told = one(await connection.request(fetch.API, again, 10_000, SESSION_VERSION))
        assert told.preferred_read_replica == follower

    on_three_nodes(work)


def test_a_follower_that_is_read_is_told_of_the_high_watermark_at_once() -> None:
    async def work(nodes: ThreeNodes) -> None:
        leader, follower = await leader_and_follower(nodes)
        at = nodes.services(follower).replicas.held("t", 0)
        clock = nodes.sim.loop.time

        async def behind_s() -> float:
            """How long after an append was acknowledged a follower knows."""
            await written(nodes, leader, 1)
            end, began = nodes.services(leader).replicas.get("t", 0).high_watermark, clock()
            await nodes.sim.until(lambda: at.high_watermark >= end, "the follower knows")
            return clock() - began

        poll_s = nodes.services(follower).config["replica.fetch.wait.max.ms"] / 1000
        assert await behind_s() > poll_s / 2
        await nodes.ask(leader, asked(0, rack(follower)), SESSION_VERSION)
        await behind_s()  # the fetch that waits was begun before
        assert await behind_s() < poll_s / 2

    on_three_nodes(work)
