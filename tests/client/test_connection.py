"""One connection: frames cut anywhere, answers in order, timeouts, bounds, and peers that speak no Kafka."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client.connection import IDLE_MS, IN_FLIGHT_MAX, READ_BUFFER_BYTES, Connection, connect
from isthmus.client.errors import CannotCarry, ConnectionLost, RequestTimeout, UnsupportedVersion
from isthmus.protocol.messages import fetch, heartbeat, metadata, produce
from tests.client.scripted import HANG_UP, PORT, SILENCE, World, simulate
from tests.running import run_by

TOPICS_100 = metadata.Request(topics=None)


async def connected(world: World) -> Connection:
    return await connect(f"broker1:{PORT}", "app", 5_000)


def beat(name: str) -> heartbeat.Request:
    return heartbeat.Request(group_id=name, generation_id=1, member_id="m")


@pytest.mark.parametrize("pieces", [1, 3, 7, 1000])
@run_by(simulate)
async def test_answers_in_pieces_of_any_size_are_put_together(world: World, /, pieces: int) -> None:
    world.brokers[1].pieces_bytes = pieces
    for i in range(40):
        world.add_topic(f"topic-{i}", 3)
    connection = await connected(world)
    answers = await asyncio.gather(*(connection.request(metadata.API, TOPICS_100, 60_000) for _ in range(4)))
    assert [len(answer.topics) for answer in answers] == [40] * 4
    connection.close()


@pytest.mark.parametrize("size", [READ_BUFFER_BYTES - 100, READ_BUFFER_BYTES, 3_000_000])
@run_by(simulate)
async def test_an_answer_larger_than_the_read_buffer_arrives_whole_and_the_next_after_it(
    world: World, /, size: int
) -> None:
    data = bytes(i * 7 & 255 for i in range(256)) * (size // 256)
    part = fetch.PartitionData(records=data)
    big = fetch.Response(responses=[fetch.FetchableTopicResponse(topic="t", partitions=[part])])
    world.brokers[1].script["fetch"].append(lambda _: big)
    connection = await connected(world)
    first = connection.send(fetch.API, fetch.Request(), 60_000, 12)
    second = connection.send(metadata.API, metadata.Request(topics=[]), 60_000)
    answer = await first
    assert answer.responses[0].partitions[0].records == data
    assert (await second).cluster_id == "scripted"
    connection.close()


@run_by(simulate)
async def test_pipelined_answers_go_to_their_askers(world: World, /) -> None:
    broker = world.brokers[1]
    broker.on_heartbeat = lambda m: heartbeat.Response(error_code=int(m.group_id))  # type: ignore[attr-defined]
    connection = await connected(world)
    futures = [connection.send(heartbeat.API, beat(str(i)), 5_000) for i in range(50)]
    futures[7].cancel()
    for i, future in enumerate(futures):
        if i != 7:
            assert (await future).error_code == i
    connection.close()


@run_by(simulate)
async def test_a_request_without_an_answer_closes_the_connection_in_its_time(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    world.brokers[1].script["metadata"].extend([lambda _: SILENCE] * 2)
    connection = await connected(world)
    began = loop.time()
    slow = connection.send(metadata.API, TOPICS_100, 60_000)
    quick = connection.send(metadata.API, TOPICS_100, 700)
    with pytest.raises(RequestTimeout, match="broker1:9092 did not answer Metadata in time"):
        await quick
    assert loop.time() - began == pytest.approx(0.7, abs=0.01)
    with pytest.raises(RequestTimeout):
        await slow
    assert not connection.alive


@run_by(simulate)
async def test_an_answer_to_another_request_closes_the_connection(world: World, /) -> None:
    world.brokers[1].script["metadata"].append(lambda _: SILENCE)
    connection = await connected(world)
    futures = [connection.send(metadata.API, TOPICS_100, 60_000) for _ in range(2)]
    told = await asyncio.gather(*futures, return_exceptions=True)
    assert all(isinstance(each, ConnectionLost) and "answered request" in str(each) for each in told)


@run_by(simulate)
async def test_requests_beyond_the_bound_wait_for_room(world: World, /) -> None:
    connection = await connected(world)
    world.brokers[1].script["heartbeat"].extend([lambda _: SILENCE] * IN_FLIGHT_MAX)
    waiting = [
        asyncio.ensure_future(connection.request(heartbeat.API, beat("g"), 10_000)) for _ in range(IN_FLIGHT_MAX + 5)
    ]
    await asyncio.sleep(1)
    assert len(world.brokers[1].requests("heartbeat")) == IN_FLIGHT_MAX
    connection.close()
    told = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(each, ConnectionLost) for each in told)


@run_by(simulate)
async def test_a_request_that_cannot_be_encoded_disturbs_no_other(world: World, /) -> None:
    connection = await connected(world)
    before = connection.send(metadata.API, metadata.Request(topics=[]), 5_000)
    with pytest.raises(CannotCarry):
        connection.send(produce.API, produce.Request(acks=99999), 5_000, 9)
    after = connection.send(metadata.API, metadata.Request(topics=[]), 5_000)
    assert (await before).cluster_id == (await after).cluster_id == "scripted"
    connection.close()


@run_by(simulate)
async def test_an_idle_connection_is_closed_before_the_broker_does_it(world: World, /) -> None:
    connection = await connected(world)
    await asyncio.sleep(IDLE_MS / 1000 - 1)
    await connection.request(metadata.API, metadata.Request(topics=[]), 5_000)
    await asyncio.sleep(IDLE_MS / 1000 - 1)
    assert connection.alive
    await asyncio.sleep(2)
    assert not connection.alive


@run_by(simulate)
async def test_a_broker_that_knows_only_old_api_versions_is_understood(world: World, /) -> None:
    world.brokers[1].versions[18] = (0, 2)
    world.brokers[1].versions[3] = (0, 1)
    connection = await connected(world)
    assert connection.versions[3] == (0, 1)
    assert connection.version_of(metadata.API) == 1
    assert (await connection.request(metadata.API, metadata.Request(topics=[]), 5_000)).controller_id == 1
    del connection.versions[3]
    with pytest.raises(UnsupportedVersion, match="does not support Metadata"):
        connection.version_of(metadata.API)
    connection.close()


@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\2ab", b"\xff\xff\xff\xff", b"\0\0\0\x08" * 3]
)
@run_by(simulate)
async def test_a_peer_that_speaks_no_kafka_is_a_clear_error(world: World, /, said: bytes) -> None:
    class Stranger(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.write(said)

    async def listen() -> None:
        await asyncio.get_running_loop().create_server(Stranger, "0.0.0.0", 80)

    await world.sim.machine("stranger").start().outcome(listen())
    with pytest.raises(ConnectionLost, match="stranger:80"):
        await connect("stranger:80", "app", 1_000)


@run_by(simulate)
async def test_nobody_there_and_hanging_up_name_the_address(world: World, /) -> None:
    with pytest.raises(ConnectionLost, match="broker1:1 cannot be reached"):
        await connect("broker1:1", "app", 1_000)
    world.brokers[1].script["api_versions"].append(lambda _: HANG_UP)
    with pytest.raises(ConnectionLost, match="broker1:9092"):
        await connected(world)
    world.brokers[1].script["api_versions"].append(lambda _: SILENCE)
    with pytest.raises(ConnectionLost, match="did not answer"):
        await connected(world)
