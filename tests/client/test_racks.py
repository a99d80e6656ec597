"""A consumer reads in its rack (KIP-392), and from the leader where that is not possible."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Consumer
from isthmus.client.cluster import METADATA_MAX_AGE_S
from isthmus.client.errors import NoOffset
from isthmus.client.fetcher import FETCH_MAX_WAIT_MS, REPLICA_PAUSE_S
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.scripted import HANG_UP, ScriptedBroker, World, simulate
from tests.running import run_by


async def in_racks(world: World, **options: Any) -> Consumer:
    """A consumer in rack b, where node 2, a follower, is; the leader, node 1, is in rack a. It has read ten records."""
    world.brokers[1].rack = "a"
    second = await ScriptedBroker(world, 2).start()
    second.rack = "b"
    world.followers["t", 0] = [2]
    consumer = await begun(world, client_rack="b", **options)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    assert [message.rack_id for message in world.brokers[1].requests("fetch")] == ["b"]
    assert asked(world, 2) >= 1
    return consumer


def asked(world: World, node: int) -> int:
    return len(world.brokers[node].requests("fetch"))


@run_by(simulate)
async def test_the_replica_that_the_leader_names_is_read_from_until_the_leader_is_to_be_asked_again(
    world: World, /
) -> None:
    consumer = await in_racks(world)
    fill(world, 10)
    assert await read(consumer, 10) == numbers(10, 20)
    assert asked(world, 1) == 1
    await consumer.poll(METADATA_MAX_AGE_S * 1_000 + FETCH_MAX_WAIT_MS)
    assert asked(world, 1) == 2
    fill(world, 1)
    assert await read(consumer, 1) == [b"20"]
    assert asked(world, 1) == 2


def refusing(world: World, code: int) -> Any:
    part = fetch.PartitionData(partition_index=0, error_code=code)
    topic = fetch.FetchableTopicResponse(topic_id=world.topics["t"], partitions=[part])
    return fetch.Response(responses=[topic])


@pytest.mark.parametrize("fault", ["out_of_range", "refuses", "hangs_up", "dies"])
@run_by(simulate)
async def test_a_replica_that_fails_is_left_for_the_leader_at_once_and_for_a_while(world: World, /, fault: str) -> None:
    consumer = await in_racks(world, auto_offset_reset="none")
    replica = world.brokers[2]
    if fault == "dies":
        replica.kill()
    else:
        answers = {
            "out_of_range": refusing(world, ErrorCode.OFFSET_OUT_OF_RANGE),
            "refuses": refusing(world, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            "hangs_up": HANG_UP,
        }
        replica.script["fetch"].append(lambda _: answers[fault])
    fill(world, 10)
    began = asyncio.get_running_loop().time()
    assert await read(consumer, 10) == numbers(10, 20)
    assert asyncio.get_running_loop().time() - began < 1
    assert world.brokers[1].requests("fetch")[1].rack_id == ""
    if fault == "dies":
        return
    before = asked(world, 2)
    await consumer.poll(REPLICA_PAUSE_S * 900)
    assert asked(world, 2) == before
    await consumer.poll(REPLICA_PAUSE_S * 200)
    fill(world, 1)
    assert await read(consumer, 1) == [b"20"]
    assert asked(world, 2) > before


@run_by(simulate)
async def test_an_offset_that_the_leader_does_not_have_either_is_out_of_range(world: World, /) -> None:
    consumer = await in_racks(world, auto_offset_reset="none")
    consumer.seek(TP, 99)
    before = asked(world, 1)
    with pytest.raises(NoOffset, match="out of range"):
        await consumer.poll(5_000)
    assert asked(world, 1) > before


@run_by(simulate)
async def test_another_leader_chooses_anew_where_is_read(world: World, /) -> None:
    consumer = await in_racks(world)
    third = await ScriptedBroker(world, 3).start()
    third.rack = "b"
    world.followers["t", 0] = [1, 2]
    world.move("t", 0, 3)
    await world.client.refresh_metadata(["t"])
    fill(world, 5)
    assert await read(consumer, 5) == numbers(10, 15)
    assert third.requests("fetch")
    before = asked(world, 2)
    fill(world, 5)
    assert await read(consumer, 5) == numbers(15, 20)
    assert asked(world, 2) == before, "the leader is in the consumer's rack itself"


@run_by(simulate)
async def test_a_replica_that_the_metadata_does_not_know_is_not_waited_for(world: World, /) -> None:
    consumer = await begun(world, client_rack="b")
    fill(world, 3)
    unknown = refusing(world, 0)
    unknown.responses[0].partitions[0].preferred_read_replica = 9
    unknown.responses[0].partitions[0].records = b""
    world.brokers[1].script["fetch"].append(lambda _: unknown)
    consumer.assign({TP: 0})
    assert await read(consumer, 3) == numbers(0, 3)
    assert [message.rack_id for message in world.brokers[1].requests("fetch")][:2] == ["b", ""]
