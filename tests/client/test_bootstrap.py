"""How the client finds its cluster again: brokers that hang, are gone, or are elsewhere (KIP-899, KIP-1102)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client import Client
from isthmus.client.coordinator import Coordinator
from isthmus.client.errors import ConnectionLost
from isthmus.client.operation import SILENT_S
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import find_coordinator, heartbeat, join_group, metadata, offset_commit
from tests.client import consuming, producing
from tests.client.consuming import TP, fill, read
from tests.client.scripted import PORT, SILENCE, ScriptedBroker, World, simulate, started_client
from tests.running import run_by

ELECTED_S = 2.0  # after the leader began to hang


async def produced(world: World) -> Callable[[], Awaitable[None]]:
    producer = await producing.begun(world)
    await producer.send("t", b"0", partition=0)

    async def again() -> None:
        futures = await producing.send_batches(producer, 7, first=1)
        await producer.flush()
        assert [future.result().offset for future in futures] == list(range(1, 8))

    return again


async def consumed(world: World) -> Callable[[], Awaitable[None]]:
    consumer = await consuming.begun(world)
    fill(world, 1)
    consumer.assign({TP: 0})
    assert await read(consumer, 1) == [b"0"]

    async def again() -> None:
        fill(world, 1)
        assert await read(consumer, 1) == [b"1"]

    return again


@pytest.mark.parametrize("use", [produced, consumed])
@run_by(simulate)
async def test_a_leader_that_hangs_is_left_as_soon_as_another_is_elected(
    world: World, /, use: Callable[[World], Awaitable[Callable[[], Awaitable[None]]]]
) -> None:
    """Its connections stay open. The metadata comes from another broker, and nothing is written twice."""
    await ScriptedBroker(world, 2).start()
    await ScriptedBroker(world, 3).start()
    again = await use(world)
    world.brokers[1].hangs = True
    loop = asyncio.get_running_loop()
    loop.call_later(ELECTED_S, world.move, "t", 0, 2)
    began = loop.time()
    await again()
    assert loop.time() - began < 5


@run_by(simulate)
async def test_a_metadata_request_that_a_broker_does_not_answer_goes_to_another(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    client = await started_client(world)
    loop = asyncio.get_running_loop()
    world.brokers[1].hangs = True
    for most_s in (2 * SILENT_S, 0.1):  # by then the broker is known to be silent
        began = loop.time()
        await client.refresh_metadata()
        assert loop.time() - began < most_s


@run_by(simulate)
async def test_of_brokers_that_are_equal_any_is_asked(world: World, /) -> None:
    """One that is cut off from its cluster answers, too, and would else be the only one that is ever asked."""
    for number in (2, 3):
        await ScriptedBroker(world, number).start()
    client = await started_client(world)
    every = {each.address for each in world.brokers.values()}
    opened = [await client.connection(lane=client.new_lane("new")) for _ in range(30)]
    assert {each.address for each in opened} == every
    for node in world.brokers:
        await client.connection(node)
    assert {(await client.connection()).address for _ in range(30)} == every


@run_by(simulate)
async def test_a_broker_that_is_slow_but_alone_is_waited_for(world: World, /) -> None:
    client = await started_client(world)
    loop = asyncio.get_running_loop()
    world.brokers[1].hangs = True
    loop.call_later(9, setattr, world.brokers[1], "hangs", False)
    world.add_topic("t")
    asked = len(world.brokers[1].asked)
    await client.refresh_metadata(["t"], timeout_ms=40_000)
    assert client.partitions("t") == [0]
    assert len(world.brokers[1].asked) - asked < 10


async def elsewhere(world: World, **options: Any) -> Client:
    """A client of node 1, which is known as node 7 at an address where nobody answers."""
    world.add_topic("t")
    client = await started_client(world, **options)
    told = metadata.Response(
        brokers=[metadata.MetadataResponseBroker(node_id=7, host="broker7", port=PORT)], cluster_id="scripted"
    )
    world.brokers[1].script["metadata"].append(lambda _: told)
    await client.refresh_metadata()
    assert client.nodes == {7: f"broker7:{PORT}"}
    return client


@run_by(simulate)
async def test_when_no_known_broker_can_be_reached_the_bootstrap_addresses_are_asked(world: World, /) -> None:
    client = await elsewhere(world)
    for link in world.brokers[1].links:
        link.transport.abort()
    await asyncio.sleep(0.1)
    await client.refresh_metadata(["t"])
    assert client.nodes == {1: f"broker1:{PORT}"}
    assert client.leader(TP) == 1


@run_by(simulate)
async def test_when_all_known_brokers_hang_the_bootstrap_addresses_are_asked(world: World, /) -> None:
    hung = await ScriptedBroker(world, 7).start()
    client = await elsewhere(world)
    await client.connection(7)
    hung.hangs = True
    for link in world.brokers[1].links:
        link.transport.abort()
    await asyncio.sleep(0.1)
    began = asyncio.get_running_loop().time()
    await client.refresh_metadata(["t"])
    assert client.leader(TP) == 1
    assert asyncio.get_running_loop().time() - began < 2 * SILENT_S


@run_by(simulate)
async def test_without_metadata_for_too_long_the_client_leaves_all_that_it_knew(
    world: World, /, caplog: pytest.LogCaptureFixture
) -> None:
    hung = await ScriptedBroker(world, 7).start()
    client = await elsewhere(world, rebootstrap_ms=20_000)
    connection = await client.connection(7, "fetch")
    hung.hangs = world.brokers[1].hangs = True
    with pytest.raises(ConnectionLost):
        await client.refresh_metadata(["t"], timeout_ms=15_000)
    assert connection.alive and client.nodes
    refreshing = asyncio.ensure_future(client.refresh_metadata(["t"], timeout_ms=60_000))
    await asyncio.sleep(29)
    assert not connection.alive and not client.nodes
    assert "client app starts again from broker1:9092: no broker has answered a metadata request for 20 s" in (
        caplog.messages
    )
    world.brokers[1].hangs = False
    await refreshing
    assert 1 in client.nodes and client.leader(TP) == 1


@run_by(simulate)
async def test_a_broker_that_says_so_sends_the_client_back_to_the_bootstrap_addresses(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    world.add_topic("t")
    client = await started_client(world)
    for link in world.brokers[1].links:
        link.transport.abort()
    await asyncio.sleep(0.1)
    world.brokers[1].kill()
    await client.connection(2)
    second.script["metadata"].append(lambda _: metadata.Response(error_code=ErrorCode.REBOOTSTRAP_REQUIRED))
    refreshing = asyncio.ensure_future(client.refresh_metadata(["t"]))
    await asyncio.sleep(5)
    assert not refreshing.done()
    assert not second.requests("metadata")[1:], "only the bootstrap address, node 1, is asked"
    await world.brokers[1].start()
    await refreshing
    assert client.leader(TP) == 1


@pytest.mark.parametrize("name", ["heartbeat", "join_group", "offset_commit"])
@run_by(simulate)
async def test_a_coordinator_that_hangs_is_left_as_soon_as_the_group_has_another(world: World, /, name: str) -> None:
    second = await ScriptedBroker(world, 2).start()
    world.add_topic("t")
    client = await started_client(world)
    group = Coordinator(client, "g", "member")
    coordinator = 1

    def found(_: Any) -> Any:
        node = world.brokers[coordinator]
        told = find_coordinator.Coordinator(key="g", node_id=node.node_id, host=node.host, port=PORT)
        return find_coordinator.Response(coordinators=[told])

    for each in (world.brokers[1], second):
        each.script["find_coordinator"].extend([found] * 100)
    world.brokers[1].script[name].append(lambda _: SILENCE)
    message = {
        "heartbeat": heartbeat.Request(group_id="g", member_id="m", generation_id=1),
        "join_group": join_group.Request(group_id="g", session_timeout_ms=1, member_id="", protocol_type="consumer"),
        "offset_commit": offset_commit.Request(group_id="g"),
    }[name]
    asking = asyncio.ensure_future(group.ask(message, 60_000, most_version=7))
    await asyncio.sleep(5)
    assert not asking.done(), "it may be slow only"
    coordinator = 2
    began = asyncio.get_running_loop().time()
    with pytest.raises(ConnectionLost, match="node 2 coordinates group g now"):
        await asking
    assert asyncio.get_running_loop().time() - began <= SILENT_S
    assert group.node is None


@run_by(simulate)
async def test_all_bootstrap_addresses_that_were_asked_are_released_with_the_client(world: World, /) -> None:
    """The first hangs, the second does not answer, the third does."""
    world.brokers[1].hangs = True
    for node in (2, 3):
        await ScriptedBroker(world, node).start()
    world.brokers[2].script["metadata"].append(lambda _: SILENCE)
    process = world.sim.machine("app").process
    assert process is not None
    client = Client(",".join(each.address for each in world.brokers.values()), "app", process.runtime)
    await client.start()
    assert world.brokers[2].requests("metadata") and world.brokers[3].requests("metadata")
    await client.close()
