"""Whom a consumer asks: leaders that move, refuse or are not there, and partitions that take turns."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.client import TopicPartition, fetcher
from isthmus.client.cluster import BACKOFF_MAX_MS
from isthmus.client.errors import UnsupportedVersion
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch, find_coordinator
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.scripted import SILENCE, ScriptedBroker, World, simulate
from tests.running import run_by


@run_by(simulate)
async def test_the_new_leader_is_found_and_nothing_is_lost_or_doubled(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    consumer = await begun(world)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    world.move("t", 0, 2)
    fill(world, 10)
    assert await read(consumer, 10) == numbers(10, 20)
    assert second.requests("fetch")
    world.brokers[1].kill()
    fill(world, 5)
    assert await read(consumer, 5) == numbers(20, 25)


@run_by(simulate)
async def test_older_metadata_of_a_broker_that_is_behind_is_not_believed(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    await begun(world)
    world.move("t", 0, 2)
    await world.client.refresh_metadata(["t"])
    assert (world.client.leader(TP), world.client.leader_epoch(TP)) == (2, 1)
    world.leaders["t", 0] = (1, 0)
    await world.client.refresh_metadata(["t"])
    assert (world.client.leader(TP), world.client.leader_epoch(TP)) == (2, 1)
    world.topics["t"] = b"made anew, 16 by"
    await world.client.refresh_metadata(["t"])
    assert (world.client.leader(TP), world.client.leader_epoch(TP)) == (1, 0)
    del world.topics["t"]
    await world.client.refresh_metadata(["t"])
    assert world.client.partitions("t") == []


@run_by(simulate)
async def test_a_broker_that_comes_back_is_fetched_from_again(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    world.brokers[1].kill()
    await asyncio.sleep(30)
    fill(world, 5)
    loop = asyncio.get_running_loop()
    await world.brokers[1].start()
    back = loop.time()
    assert await read(consumer, 5) == numbers(10, 15)
    assert loop.time() - back < 4.0


@run_by(simulate)
async def test_two_nodes_are_fetched_from_side_by_side(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    world.add_topic("t", 2)
    world.leaders["t", 1] = (2, 0)
    consumer = await begun(world)
    world.brokers[1].script["fetch"].append(lambda _: SILENCE)
    fill(world, 5, index=1)
    consumer.assign({TP: 0, TopicPartition("t", 1): 0})
    assert await asyncio.wait_for(read(consumer, 5), 2) == numbers(0, 5)


FULL = 20  # partitions with more data than an answer brings


@pytest.mark.parametrize("topics", [1, 2])
@run_by(simulate)
async def test_full_partitions_of_a_node_take_turns(
    world: World, /, topics: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer holds a few records only: who got data is asked for after all others, whatever its topic."""
    names = ["t", "u"][:topics]
    for name in names:
        world.add_topic(name, FULL // topics)
    consumer = await begun(world, partition_max_bytes=1_000)
    monkeypatch.setattr(fetcher, "FETCH_MAX_BYTES", 8 * 1_000)
    partitions = [TopicPartition(name, index) for name in names for index in range(FULL // topics)]
    for tp in partitions:
        fill(world, 60, name=tp.topic, index=tp.partition, size=900)
    consumer.assign(dict.fromkeys(partitions, 0))
    turns = dict.fromkeys(partitions, 0)
    for _ in range(30):
        for batches in await consumer.poll_batches(1_000):
            turns[batches.tp] += 1
    assert max(turns.values()) - min(turns.values()) <= 1, turns
    assert min(turns.values()) >= 8


@run_by(simulate)
async def test_an_idle_partition_does_not_slow_down_a_busy_one_of_the_same_node(world: World, /) -> None:
    consumer = await begun(world, partitions=2, partition_max_bytes=2_000)
    fill(world, 200, size=1_500)
    consumer.assign({TP: 0, TopicPartition("t", 1): 0})
    began = asyncio.get_running_loop().time()
    assert len(await read(consumer, 200)) == 200
    assert asyncio.get_running_loop().time() - began < 200 * 0.05


NOT_THERE = [
    ("nowhere", 0, "there is no topic nowhere: create it, or check the name"),
    ("t", 7, "there is no partition t-7: the topic has 1, from 0"),
    ("leaderless", 0, "leaderless-0 has no leader: is its broker down?"),
]


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize(("topic", "index", "said"), NOT_THERE)
@run_by(simulate)
async def test_a_partition_that_is_not_there_holds_up_no_other_and_is_asked_for_ever_more_rarely(
    world: World, /, topic: str, index: int, said: str, offset: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, in the log."""
    world.add_topic("t")
    world.add_topic("leaderless", leader=-1)
    consumer = await begun(world)
    fill(world, 2)
    before = len(world.brokers[1].requests("metadata"))
    consumer.assign({TP: offset, TopicPartition(topic, index): offset})
    assert await read(consumer, 2) == numbers(0, 2)
    assert await consumer.poll(60_000) == {}
    asked = len(world.brokers[1].requests("metadata")) - before
    assert asked <= 5 + 60_000 / (BACKOFF_MAX_MS / 2)
    world.add_topic(topic, index + 1)
    fill(world, 3, name=topic, index=index)
    assert await read(consumer, 3) == numbers(0, 3)
    told = [each.message for each in caplog.records if "waits" in each.message]
    assert told == [f"consumer waits: {said}", "consumer no longer waits: all its partitions have leaders"]


@run_by(simulate)
async def test_a_position_that_is_being_looked_up_holds_up_no_other_partition(world: World, /) -> None:
    world.add_topic("t")
    world.add_topic("u", leader=2)
    hung = await ScriptedBroker(world, 2).start()
    consumer = await begun(world)
    fill(world, 2)
    fill(world, 2, name="u")
    hung.hangs = True
    consumer.assign({TP: 0, TopicPartition("u", 0): None})
    began = asyncio.get_running_loop().time()
    assert [each.tp for each in await consumer.poll_batches(60_000)] == [TP]
    assert asyncio.get_running_loop().time() - began < 1


@run_by(simulate)
async def test_a_leader_that_another_user_of_the_client_has_learned_of_is_fetched_from(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    consumer = await begun(world)
    consumer.assign({TP: 0})
    assert await consumer.poll(200) == {}
    assert not second.requests("fetch")
    world.move("t", 0, 2)
    await world.client.refresh_metadata(["t"])  # as a producer does
    world.leaders["t", 0] = (1, 0)
    await asyncio.sleep(1)  # in which the broker that led answers once more, without an error
    world.move("t", 0, 2)
    fill(world, 2)
    assert len((await consumer.poll(60_000))[TP]) == 2
    assert second.requests("fetch")


@run_by(simulate)
async def test_a_join_that_cannot_be_is_not_tried_again_for_ever(world: World, /) -> None:
    del world.brokers[1].versions[find_coordinator.API.key]
    consumer = await begun(world, group_id="g")
    await consumer.subscribe(["t"])
    with pytest.raises(UnsupportedVersion, match="FindCoordinator"):
        await consumer.poll(5_000)


@run_by(simulate)
async def test_a_leader_that_refuses_is_asked_ever_more_rarely(world: World, /) -> None:
    consumer = await begun(world)
    behind = fetch.PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    refusal = fetch.Response(responses=[fetch.FetchableTopicResponse(topic_id=world.topics["t"], partitions=[behind])])
    world.brokers[1].script["fetch"].extend([lambda _: refusal] * 1_000)
    consumer.assign({TP: 0})
    await consumer.poll(60_000)
    for name in ("fetch", "metadata"):
        assert len(world.brokers[1].requests(name)) <= 10 + 60_000 / (BACKOFF_MAX_MS / 2)


@run_by(simulate)
async def test_a_subscription_to_a_topic_that_is_not_there_says_so(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = await begun(world, group_id="g")
    await consumer.subscribe(["t", "nowhere"])
    assert "group g waits: there is no topic nowhere: create it, or check the name" in caplog.messages
