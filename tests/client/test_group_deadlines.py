"""A member's polls and its close end in their time, whatever the coordinator and the callbacks do."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.client import Admin, Client, Consumer, TopicPartition
from isthmus.client.cluster import CONNECT_TIMEOUT_MS
from isthmus.client.errors import OperationTimeout
from isthmus.client.membership import LEAVE_TIMEOUT_MS
from isthmus.client.operation import CLOSE_TIMEOUT_MS
from isthmus.protocol.errors import KafkaError
from isthmus.protocol.messages import metadata
from tests.client.staging import (
    Stage,
    at_hand,
)
from tests.leftovers import no_leftovers
from tests.running import run_by


@pytest.mark.parametrize("polls", [20, 600])
@run_by(at_hand, sent=40)
async def test_a_poll_ends_in_its_time_while_there_is_no_coordinator(
    client: Client, stage: Stage, /, polls: int
) -> None:
    loop = asyncio.get_running_loop()
    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"])
    stage.host.kill()
    for _ in range(polls):
        began = loop.time()
        assert await consumer.poll(300) == {}
        assert loop.time() - began < 0.4
    await loop.create_task(stage.host.up(), context=stage.sim.world)
    found = 0
    while found < 40:
        found += sum(map(len, (await consumer.poll(300)).values()))
    stage.host.kill()
    began = loop.time()
    await consumer.close()
    assert loop.time() - began < 15
    await loop.create_task(stage.host.up(), context=stage.sim.world)


@pytest.mark.parametrize("timeout_ms", [CLOSE_TIMEOUT_MS, 2_000])
@pytest.mark.parametrize("commits", [True, False], ids=["on_revoked_commits", "plain"])
@run_by(at_hand, sent=4)
async def test_close_ends_by_its_deadline_though_the_coordinator_hangs(
    client: Client, stage: Stage, /, commits: bool, timeout_ms: int
) -> None:
    loop = asyncio.get_running_loop()

    async def revoked(_: list[TopicPartition]) -> None:
        await consumer.commit()

    consumer = Consumer(client, "g")
    await consumer.subscribe(["t"], on_revoked=revoked if commits else None)
    while not await consumer.poll(200):
        pass
    stage.sim.network.partition(["hand"], ["broker"])  # nothing comes, and nothing is refused
    began = loop.time()
    if commits:
        with pytest.raises(
            (OperationTimeout, KafkaError), match=r"on_revoked in close\(\) of group g: not done within"
        ):
            await consumer.close(timeout_ms)
        assert loop.time() - began == pytest.approx(timeout_ms / 1000, abs=0.1)
    else:
        await consumer.close(timeout_ms)
        assert loop.time() - began == pytest.approx(min(timeout_ms, LEAVE_TIMEOUT_MS) / 1000, abs=0.1)


@run_by(at_hand)
async def test_a_member_whose_on_revoked_takes_all_the_time_leaves_its_group_all_the_same(client: Client, /) -> None:
    async def revoked(_: list[TopicPartition]) -> None:
        await asyncio.sleep(60)

    consumer = Consumer(client, "g", session_timeout_ms=60_000)
    await consumer.subscribe(["t"], on_revoked=revoked)
    while not consumer.assignment():
        await consumer.poll(100)
    with pytest.raises(OperationTimeout, match="on_revoked"):
        await consumer.close(timeout_ms=1_000)
    [group] = await Admin(client).describe_groups(["g"])
    assert group.group_state == "Empty"


@pytest.mark.parametrize("after_s", [0.5, 3.0])
@run_by(at_hand)
async def test_a_close_that_is_cancelled_leaves_nothing_behind_but_the_clients_own(
    client: Client, stage: Stage, /, after_s: float
) -> None:
    """In on_revoked, and while the group is left."""

    async def revoked(_: list[TopicPartition]) -> None:
        await asyncio.sleep(2)

    await client.connection(1)  # on which the group is left
    await asyncio.sleep(CONNECT_TIMEOUT_MS / 1000)
    await client.request(metadata.Request(topics=[]), 1)  # its timer waits for this one's deadline from here on
    for _ in range(8):  # any of the two connections is asked
        await client.refresh_metadata()  # and so does that of the other connection
    async with no_leftovers():
        consumer = Consumer(client, "g")
        await consumer.subscribe(["t"], on_revoked=revoked)
        while not consumer.assignment():
            await consumer.poll(100)
        stage.sim.network.partition(["hand"], ["broker"])
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.close(), after_s)
        stage.sim.network.heal()
        await client.refresh_metadata()  # the answer that nobody waits for has come


@run_by(at_hand, sent=40)
async def test_a_poll_ends_in_its_time_while_positions_are_looked_up(client: Client, stage: Stage, /) -> None:
    """And the look-up goes on over many polls, however short they are."""
    loop = asyncio.get_running_loop()
    consumer = Consumer(client, "g")
    await consumer.subscribe(["t"], lambda _: stage.sim.network.partition(["hand"], ["broker"]))
    while not consumer.assignment():
        assert await consumer.poll(1) == {}
    for _ in range(100):
        began = loop.time()
        assert await consumer.poll(1) == {}
        assert loop.time() - began < 0.01
    stage.sim.network.heal()
    found = 0
    while found < 40:
        found += sum(map(len, (await consumer.poll(1)).values()))
    await consumer.close()
