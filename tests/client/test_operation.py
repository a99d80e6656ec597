"""The caller's deadline is the only one, whatever the brokers do; and what `close` ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.cluster import REQUEST_TIMEOUT_MS
from isthmus.client.errors import ClientClosed, ClientError, ConnectionLost, OperationTimeout
from isthmus.client.operation import API_TIMEOUT_MS, CLOSE_TIMEOUT_MS
from isthmus.client.raw import append_raw, fetch_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import find_coordinator, metadata
from isthmus.protocol.records import build_batch
from tests.client.producing import begun
from tests.client.scripted import SILENCE, ScriptedBroker, World, simulate, started_client
from tests.running import run_by

TP = TopicPartition("t", 0)
TIME_MS = 2_000
BATCH = build_batch([(1, None, b"x", ())])
FROM_0 = {TP: (0, -1)}
ASK_ALL = metadata.Request(topics=[])


def grouped(client: Client) -> Consumer:
    return Consumer(client, "g")


OPERATIONS: dict[str, Callable[[Client], Awaitable[Any]]] = {
    "node 1|Metadata": lambda client: client.request(ASK_ALL, 1, TIME_MS),
    "metadata of t": lambda client: client.refresh_metadata(["t"], timeout_ms=TIME_MS),
    "leader of t-1": lambda client: client.leader_of(TopicPartition("t", 1), TIME_MS),
    "Metadata": lambda client: Admin(client, TIME_MS).list_topics(),
    "offsets of t-0": lambda client: Admin(client, TIME_MS).list_offsets({TP: "latest"}),
    "growing topic t": lambda client: Admin(client, TIME_MS).create_partitions("t", 9),
    "description of groups": lambda client: Admin(client, TIME_MS).describe_groups(["g", "h"]),
    "commit of group g": lambda client: grouped(client).commit({TP: 1}, TIME_MS),
    "committed offsets of group g": lambda client: grouped(client).committed([TP], TIME_MS),
    "getting a producer id": lambda client: Producer(client, delivery_timeout_ms=TIME_MS).start(),
    r"node 1 \(broker1:9092\)": lambda client: append_raw(
        client, TP, build_batch([(1, None, b"x", ())]), timeout_ms=TIME_MS
    ),
    "connecting to node 1": lambda client: fetch_raw(
        client, {TP: (0, -1)}, node_id=1, max_wait_ms=0, timeout_ms=TIME_MS
    ),
}


@pytest.mark.parametrize("connected", [True, False], ids=["hangs", "hangs_from_the_handshake_on"])
@pytest.mark.parametrize("named", OPERATIONS)
@run_by(simulate)
async def test_an_operation_ends_by_its_callers_deadline_and_names_itself(
    world: World, /, named: str, connected: bool
) -> None:
    loop = asyncio.get_running_loop()
    world.add_topic("t", 2)
    world.leaders["t", 1] = (-1, 0)
    client = await started_client(world)
    await client.refresh_metadata(["t"])
    if not connected:
        world.brokers[1].links[0].transport.abort()
        await asyncio.sleep(0.1)
    world.brokers[1].hangs = True
    began = loop.time()
    with pytest.raises((ConnectionLost, KafkaError), match=named if connected else None):
        await OPERATIONS[named](client)
    assert loop.time() - began == pytest.approx(TIME_MS / 1000, abs=0.01)


@run_by(simulate)
async def test_an_operation_tries_again_for_as_long_as_its_caller_waits(world: World, /) -> None:
    async def _restart(world: World) -> None:
        await world.brokers[1].start()

    world.add_topic("t")
    client = await started_client(world)
    world.brokers[1].kill()
    asking = asyncio.ensure_future(Admin(client).list_offsets({TP: "latest"}))
    await asyncio.sleep(API_TIMEOUT_MS / 1000 - 5)
    await asyncio.get_running_loop().create_task(_restart(world), context=world.sim.world)
    assert (await asking)[TP][0] == 0
    await client.close()


@run_by(simulate)
async def test_what_kept_an_operation_from_its_end_is_said_with_its_code(world: World, /) -> None:
    world.add_topic("t", 1, leader=-1)
    client = await started_client(world)
    with pytest.raises(KafkaError, match="offsets of t-0: not done within 2000 ms: t-0 has no leader") as told:
        await Admin(client, TIME_MS).list_offsets({TP: "latest"})
    assert told.value.code == ErrorCode.LEADER_NOT_AVAILABLE
    world.brokers[1].kill()
    with pytest.raises(OperationTimeout, match="Metadata: not done within 2000 ms: broker1:9092 cannot be reached"):
        await Admin(client, TIME_MS).list_topics()


@run_by(simulate)
async def test_an_address_that_hangs_leaves_time_for_the_others(world: World, /) -> None:
    (await ScriptedBroker(world, 2).start()).hangs = True
    process = world.sim.machine("app").process
    assert process is not None
    client = Client("broker2:9092,broker1:9092", client_id="app", runtime=process.runtime)
    await client.start(TIME_MS)
    await client.close()


@run_by(simulate)
async def test_who_stops_waiting_takes_the_answer_from_nobody_else(world: World, /) -> None:
    """The connection is closed only when a broker answers nothing for the time of a request."""
    client = await started_client(world)
    connection = await client.connection()
    answers = world.brokers[1].script["metadata"]
    answers.append(lambda _: SILENCE)
    patient = asyncio.ensure_future(client.request(find_coordinator.Request(coordinator_keys=["g"])))
    with pytest.raises(OperationTimeout):
        await client.refresh_metadata(["t"], timeout_ms=TIME_MS)
    assert connection.alive and not patient.done()
    with pytest.raises(ConnectionLost):
        await patient
    assert not connection.alive
    connection = await client.connection()
    answers.append(lambda _: SILENCE)
    with pytest.raises(OperationTimeout):
        await client.refresh_metadata(["t"], timeout_ms=TIME_MS)
    await asyncio.sleep((REQUEST_TIMEOUT_MS - TIME_MS) / 1000 + 0.1)
    assert not connection.alive


@run_by(simulate)
async def test_closing_the_client_ends_what_is_under_way_at_once(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    world.add_topic("t", 1, leader=-1)
    client = await started_client(world)
    await ScriptedBroker(world, 2).start()
    await client.refresh_metadata(["t"])
    world.brokers[2].hangs = True
    under_way = [
        asyncio.ensure_future(each)
        for each in (
            client.leader_of(TP),  # between two attempts
            client.request(ASK_ALL, 2),  # connecting
            client.request(find_coordinator.Request(coordinator_keys=["g"])),  # waiting for its answer
            Admin(client).list_offsets({TP: "latest"}),  # in an operation of an operation
        )
    ]
    await asyncio.sleep(1)
    began = loop.time()
    await client.close()
    told = await asyncio.gather(*under_way, return_exceptions=True)
    assert all(isinstance(each, ConnectionLost) for each in told), told
    assert [type(each) for each in (told[0], told[1], told[3])] == [ClientClosed] * 3
    with pytest.raises(ClientClosed, match="client app is closed"):
        await Admin(client).list_topics()
    assert loop.time() - began < 0.1


# --- close() of a producer ------------------------------------------------------------------------------


@pytest.mark.parametrize("known", [True, False], ids=["known_topic", "topic_being_learnt"])
@run_by(simulate)
async def test_a_producer_closes_by_its_deadline_and_each_record_has_an_end(
    world: World, /, known: bool, caplog: pytest.LogCaptureFixture
) -> None:
    loop = asyncio.get_running_loop()
    producer = await begun(world, buffer_bytes=50)
    world.brokers[1].hangs = True
    record = producer.send("t" if known else "u", b"x" * 50)
    waiting = asyncio.ensure_future(producer.wait_for_space())
    began = loop.time()
    await producer.close()
    assert loop.time() - began == pytest.approx(CLOSE_TIMEOUT_MS / 1000, abs=0.1)
    with pytest.raises(ClientError, match="the producer was closed before this was delivered; it "):
        await record
    await waiting
    await world.client.close()
    [said] = [each.message for each in caplog.records if "not delivered" in each.message]
    assert said.startswith("1 records are not delivered, as their futures say: ")
