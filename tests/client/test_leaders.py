"""How users of the client come to a new leader: what brokers tell (KIP-951), epochs that both sides compare (KIP-320),
and leaders that die."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client import Admin
from isthmus.client.raw import append_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import fetch, list_offsets
from isthmus.protocol.records import build_batch
from tests.client import consuming, producing
from tests.client.consuming import TP, fill, numbers, read
from tests.client.scripted import ScriptedBroker, World, simulate
from tests.running import run_by

BATCH = build_batch([(1, None, b"x", ())])
ELECTION_S = 0.3


async def produced(world: World) -> None:
    producer = await producing.begun(world)
    await producer.send("t", b"a", partition=0)
    world.move("t", 0, 2)
    asked = len(world.brokers[1].requests("metadata"))
    futures = await producing.send_batches(producer, 5)
    await producer.flush()
    assert [future.result().offset for future in futures] == list(range(1, 6))
    assert len(world.brokers[1].requests("metadata")) == asked


async def consumed(world: World) -> None:
    consumer = await consuming.begun(world)
    fill(world, 2)
    consumer.assign({TP: 0})
    await read(consumer, 2)
    world.move("t", 0, 2)
    asked = len(world.brokers[1].requests("metadata"))
    fill(world, 2)
    assert await read(consumer, 2) == numbers(2, 4)
    assert len(world.brokers[1].requests("metadata")) == asked


async def appended(world: World) -> None:
    await consuming.begun(world)
    await append_raw(world.client, TP, BATCH)
    world.move("t", 0, 2)
    asked = len(world.brokers[1].requests("metadata"))
    with pytest.raises(KafkaError, match="NOT_LEADER_OR_FOLLOWER"):
        await append_raw(world.client, TP, BATCH)
    assert await append_raw(world.client, TP, BATCH) == 1
    assert len(world.brokers[1].requests("metadata")) == asked


@pytest.mark.parametrize("use", [produced, consumed, appended])
@run_by(simulate)
async def test_a_refusal_that_tells_the_new_leader_spares_the_metadata_request(
    world: World, /, use: Callable[[World], Awaitable[None]]
) -> None:
    second = await ScriptedBroker(world, 2).start()
    world.brokers[1].tells_leaders = True
    began = asyncio.get_running_loop().time()
    await use(world)
    assert asyncio.get_running_loop().time() - began < 0.1
    assert not second.requests("metadata")
    assert (world.client.leader(TP), world.client.leader_epoch(TP)) == (2, 1)


@run_by(simulate)
async def test_a_leader_that_is_told_counts_only_with_a_newer_epoch_and_an_address(world: World, /) -> None:
    consumer = await consuming.begun(world)
    consumer.assign({TP: 0})
    client = world.client

    def told(leader: int, epoch: int, *nodes: int) -> bool:
        endpoints = [fetch.NodeEndpoint(node_id=node, host="h", port=node) for node in nodes]
        return client.learn_leader(TP, fetch.LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch), endpoints)

    assert not told(2, 0, 2)
    assert not told(2, 1)
    assert not told(-1, 1, 2)
    assert not client.learn_leader(TP, None, [])
    assert client.leader(TP) == 1
    assert told(2, 1, 2)
    assert (client.leader(TP), client.nodes[2]) == (2, "h:2")
    assert told(1, 2)  # its address is known
    assert not told(2, 2, 2)


@run_by(simulate)
async def test_requests_say_the_leader_epoch_and_are_repeated_when_either_side_is_behind(world: World, /) -> None:
    consumer = await consuming.begun(world)
    fill(world, 2)
    consumer.assign({TP: 0})
    assert await read(consumer, 2) == numbers(0, 2)
    assert world.brokers[1].requests("fetch")[0].topics[0].partitions[0].current_leader_epoch == 0
    world.leaders["t", 0] = (1, 1)  # as after a restart: the client is behind
    fill(world, 2)
    assert await read(consumer, 2) == numbers(2, 4)
    world.leaders["t", 0] = (1, 2)
    assert (await Admin(world.client).list_offsets({TP: "latest"}))[TP][0] == 4
    world.leaders["t", 0] = (1, 1)  # the broker is behind, and its metadata too
    asking = asyncio.ensure_future(Admin(world.client).list_offsets({TP: "latest"}))
    await asyncio.sleep(5)
    assert not asking.done()
    asked = len(world.brokers[1].requests("list_offsets"))
    assert 4 < asked < 20
    world.leaders["t", 0] = (1, 2)
    assert (await asking)[TP][0] == 4


def _offsets_answer(code: int) -> Any:
    part = list_offsets.ListOffsetsPartitionResponse(partition_index=0, error_code=code)
    return list_offsets.Response(topics=[list_offsets.ListOffsetsTopicResponse(name="t", partitions=[part])])


@run_by(simulate)
async def test_after_the_death_of_a_leader_its_successor_is_found_as_soon_as_it_is_elected(world: World, /) -> None:
    """The lost connection tells the client, and another broker is asked at once."""
    second = await ScriptedBroker(world, 2).start()
    producer = await producing.begun(world)
    consumer = await consuming.begun(world)
    consumer.assign({TP: 0})
    loop = asyncio.get_running_loop()
    await producer.send("t", b"0", partition=0)
    assert await read(consumer, 1) == [b"0"]
    world.brokers[1].kill()
    killed = loop.time()
    waiting = producer.send("t", b"1", partition=0)
    await asyncio.sleep(0.02)
    assert second.requests("metadata"), "no broker was asked at once"
    await asyncio.sleep(ELECTION_S - 0.02)
    world.move("t", 0, 2)
    await waiting
    assert loop.time() - killed < 3 * ELECTION_S
    assert await read(consumer, 1) == [b"1"]
    assert loop.time() - killed < 3 * ELECTION_S
    assert len(second.requests("metadata")) < 20


@run_by(simulate)
async def test_a_leader_that_returns_under_its_epoch_is_found_without_metadata(world: World, /) -> None:
    producer = await producing.begun(world)
    await producer.send("t", b"0", partition=0)
    world.brokers[1].kill()
    waiting = producer.send("t", b"1", partition=0)
    await asyncio.sleep(20)
    await world.brokers[1].start()
    await asyncio.wait_for(waiting, 2)


CODES = [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize("code", CODES)
@run_by(simulate)
async def test_a_look_up_of_offsets_is_repeated_after_a_metadata_request(world: World, /, code: int) -> None:
    await consuming.begun(world)
    broker = world.brokers[1]
    broker.script["list_offsets"].append(lambda _: _offsets_answer(code))
    asked = len(broker.requests("metadata"))
    assert (await Admin(world.client).list_offsets({TP: "latest"}))[TP][0] == 0
    assert len(broker.requests("metadata")) == asked + 1
