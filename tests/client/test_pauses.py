"""Partitions that a consumer pauses: nothing of them is returned, and nothing is lost or returned twice."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.client import Consumer, TopicPartition
from isthmus.client.errors import ClientError
from tests.client.consuming import begun, fill
from tests.client.scripted import World, simulate
from tests.running import run_by

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


async def reading(world: World, count: int = 10) -> Consumer:
    consumer = await begun(world, partitions=2)
    for index in range(2):
        fill(world, count, index=index)
    consumer.assign({A: 0, B: 0})
    return consumer


async def offsets(consumer: Consumer, tp: TopicPartition, count: int, most: int = 500) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        polled = await consumer.poll(1_000, most)
        assert set(polled) <= {tp}
        found += [record.offset for record in polled.get(tp, ())]
    return found


def fetched(world: World, before: int) -> set[int]:
    """Partitions asked for in all requests but the first so many."""
    asked = world.brokers[1].requests("fetch")[before:]
    return {part.partition for each in asked for topic in each.topics for part in topic.partitions}


@pytest.mark.parametrize("when", ["at_once", "fetched", "begun"])
@run_by(simulate)
async def test_what_is_paused_waits_and_goes_on_where_it_was(world: World, /, when: str) -> None:
    """Whether nothing of it was fetched, all of it, or some of it was returned."""
    consumer = await reading(world)
    start = 0
    if when == "fetched":
        while len(consumer._fetcher.ready) < 2:
            await consumer._fetcher.arrived.wait()
            await asyncio.sleep(0.001)
    elif when == "begun":
        while consumer.position(A) != 1:
            await consumer.poll(1_000, 1)
        start = 1
    first = consumer.position(B) or 0
    consumer.pause([A])
    assert consumer.paused() == [A]
    assert await offsets(consumer, B, 10 - first) == list(range(first, 10))
    assert await consumer.poll(2_000) == {}
    assert consumer.position(A) == start
    consumer.resume([A])
    assert consumer.paused() == []
    assert await offsets(consumer, A, 10 - start, most=3) == list(range(start, 10))
    fill(world, 3)
    assert await offsets(consumer, A, 3) == [10, 11, 12]


@run_by(simulate)
async def test_an_answer_that_comes_after_the_pause_waits_too(world: World, /) -> None:
    consumer = await reading(world, count=0)
    assert await consumer.poll(100) == {}  # a fetch of both is under way
    consumer.pause([A])
    fill(world, 5)
    fill(world, 5, index=1)
    assert await offsets(consumer, B, 5) == [0, 1, 2, 3, 4]
    assert await consumer.poll(2_000) == {}
    consumer.resume([A])
    assert await offsets(consumer, A, 5) == [0, 1, 2, 3, 4]


@run_by(simulate)
async def test_a_poll_under_way_returns_what_is_resumed(world: World, /) -> None:
    consumer = await reading(world)
    assert list(await consumer.poll(1_000, 1)) == [A]
    consumer.pause([A, B])
    poll = asyncio.create_task(consumer.poll(60_000, 1))
    await asyncio.sleep(3)
    assert not poll.done()
    consumer.resume([A])
    resumed_at = asyncio.get_running_loop().time()
    assert [record.offset for record in (await poll)[A]] == [1]
    assert asyncio.get_running_loop().time() - resumed_at < 0.001  # turns of the loop, no wait for data


@run_by(simulate)
async def test_a_seek_counts_while_paused_and_ends_no_pause(world: World, /) -> None:
    consumer = await reading(world)
    assert list(await consumer.poll(1_000, 1)) == [A]
    consumer.pause([A])
    await asyncio.sleep(1)  # what is under way ends
    consumer.seek(A, 7)
    before = len(world.brokers[1].requests("fetch"))
    assert await offsets(consumer, B, 10) == list(range(10))
    assert await consumer.poll(2_000) == {}
    assert fetched(world, before) == {1}
    consumer.resume([A])
    assert await offsets(consumer, A, 3) == [7, 8, 9]


@run_by(simulate)
async def test_a_partition_that_stays_assigned_stays_paused_and_one_that_goes_does_not(world: World, /) -> None:
    consumer = await reading(world)
    consumer.pause([A, B])
    consumer.assign({A: None})
    assert consumer.paused() == [A]
    assert await consumer.poll(2_000) == {}
    consumer.assign({A: None, B: 4})
    assert await offsets(consumer, B, 6) == [4, 5, 6, 7, 8, 9]
    consumer.resume([A])
    assert await offsets(consumer, A, 10) == list(range(10))
    for does in (consumer.pause, consumer.resume):
        with pytest.raises(ClientError, match="t-7 is not assigned"):
            does([TopicPartition("t", 7)])


@run_by(simulate)
async def test_what_is_paused_costs_no_requests(world: World, /) -> None:
    """Though data of it waits, for which other partitions would be fetched after short waits."""
    consumer = await reading(world)
    while len(consumer._fetcher.ready) < 2:
        await consumer._fetcher.arrived.wait()
        await asyncio.sleep(0.001)
    consumer.pause([A])
    assert await offsets(consumer, B, 10) == list(range(10))
    before = len(world.brokers[1].requests("fetch"))
    await consumer.poll(60_000)
    assert len(world.brokers[1].requests("fetch")) - before < 130
