"""Consumer groups of our client with our broker, on the simulated loop: members that come, go, hang and die."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer
from isthmus.client.coordinator import SAY_AFTER_S
from tests.client.staging import (
    RECORDS,
    Member,
    Stage,
    at_hand,
    staged,
)
from tests.running import run_by
from tests.simulation.hosts import ProcessKilled

BOTH: Any = pytest.mark.parametrize("options", [{}, {"group_protocol": "consumer"}], ids=["classic", "consumer"])
WAYS: Any = pytest.mark.parametrize(
    "options",
    [
        *({"assignors": [each]} for each in ("range", "roundrobin", "cooperative-sticky")),
        {"group_protocol": "consumer"},
    ],
    ids=str,
)


@BOTH
@run_by(staged)
async def test_one_member_reads_everything_once_and_commits(stage: Stage, /, options: dict[str, Any]) -> None:
    await stage.send(RECORDS)
    member = Member(stage.sim, stage.host, "a", **options).start()
    await stage.all_read([member])
    await member.stop()
    assert len(member.read) == RECORDS
    assert [each for each in member.calls if each[1]] == [("+", [0, 1, 2, 3]), ("-", [0, 1, 2, 3])]
    offsets = await stage.work(lambda client: Admin(client).group_offsets("g"))
    assert sum(offsets.values()) == RECORDS
    again = Member(stage.sim, stage.host, "b", **options).start()
    await stage.send(10)
    await stage.sim.until(lambda: len(again.read) == 10, "the new ones")
    await again.stop()


@WAYS
@run_by(staged)
async def test_two_members_share_and_one_that_leaves_gives_back_at_once(
    stage: Stage, /, options: dict[str, Any]
) -> None:
    first = Member(stage.sim, stage.host, "a", **options).start()
    second = Member(stage.sim, stage.host, "b", **options).start()
    await stage.shared([first, second])
    await stage.send(RECORDS)
    await stage.all_read([first, second])
    assert not set(first.read) & set(second.read)
    loop = asyncio.get_running_loop()
    left = loop.time()
    await second.stop()
    await stage.shared([first])
    assert loop.time() - left < 5.0
    await first.stop()


@BOTH
@pytest.mark.parametrize("seed", range(5))
@run_by(staged)
async def test_a_killed_member_is_replaced_when_its_session_ends(
    stage: Stage, /, seed: int, options: dict[str, Any]
) -> None:
    first = Member(stage.sim, stage.host, "a", **options).start()
    second = Member(stage.sim, stage.host, "b", **options).start()
    await stage.shared([first, second])
    await stage.send(RECORDS)
    second.kill()
    with pytest.raises(ProcessKilled):
        await second.done
    await stage.shared([first], timeout_s=15)
    await stage.send(RECORDS)
    await stage.all_read([first, second])
    await first.stop()


@BOTH
@run_by(staged)
async def test_a_member_that_is_busy_keeps_its_membership_through_a_rebalance(
    stage: Stage, /, options: dict[str, Any]
) -> None:
    first = Member(stage.sim, stage.host, "a", **options).start()
    await stage.shared([first])
    first.stall_s = 20.0  # three sessions long, less than the rebalance timeout
    await asyncio.sleep(1)
    second = Member(stage.sim, stage.host, "b", **options).start()
    await asyncio.sleep(10)
    assert first.owned == [0, 1, 2, 3] and not second.owned
    await stage.shared([first, second])
    if options:
        assert first.calls[1:] == [("-", second.owned)]
    else:
        assert first.calls[1:] == [("-", [0, 1, 2, 3]), ("+", first.owned)]
    for each in (first, second):
        await each.stop()


@BOTH
@pytest.mark.parametrize("power", [False, True])
@run_by(staged)
async def test_a_coordinator_that_comes_back_finds_its_members(
    stage: Stage, /, power: bool, options: dict[str, Any]
) -> None:
    first = Member(stage.sim, stage.host, "a", **options).start()
    second = Member(stage.sim, stage.host, "b", **options).start()
    await stage.shared([first, second])
    await stage.send(RECORDS)
    await stage.all_read([first, second])
    stage.host.kill(power=power)
    await asyncio.sleep(2)
    await stage.host.up()
    await stage.shared([first, second])
    if not power:
        await stage.send(RECORDS)
        await stage.all_read([first, second])
    for each in (first, second):
        await each.stop()


@BOTH
@pytest.mark.parametrize("away_s", [1, 10, 300])
@run_by(staged)
async def test_a_member_says_once_that_its_coordinator_is_away_and_once_that_it_is_back(
    stage: Stage, /, away_s: int, caplog: pytest.LogCaptureFixture, options: dict[str, Any]
) -> None:
    """And goes on, however long it was."""
    member = Member(stage.sim, stage.host, "a", **options).start()
    await stage.shared([member])
    await stage.send(RECORDS)
    await stage.all_read([member])
    stage.host.kill()
    await asyncio.sleep(away_s)
    await stage.host.up()
    await stage.shared([member])
    await stage.send(RECORDS)
    await stage.all_read([member])
    await member.stop()
    said = [each.message for each in caplog.records if "coordinator" in each.message]
    if away_s < SAY_AFTER_S:
        assert said == []
    else:
        missed, back = said
        assert missed.startswith("group g has no coordinator (broker:9092")
        assert back.startswith("group g has a coordinator again, after ")


@run_by(staged)
async def test_a_static_member_that_restarts_in_time_moves_nobodys_partitions(stage: Stage, /) -> None:
    first = Member(stage.sim, stage.host, "a", group_instance_id="one", session_timeout_ms=20_000).start()
    second = Member(stage.sim, stage.host, "b", group_instance_id="two", session_timeout_ms=20_000).start()
    await stage.shared([first, second])
    owned, calls = second.owned, list(first.calls)
    second.kill()
    again = Member(stage.sim, stage.host, "b", group_instance_id="two", session_timeout_ms=20_000).start()
    await stage.sim.until(lambda: again.owned == owned, "the same partitions")
    assert first.calls == calls
    for each in (first, again):
        await each.stop()


@BOTH
@run_by(staged)
async def test_a_topic_that_grows_is_shared_anew(stage: Stage, /, options: dict[str, Any]) -> None:
    member = Member(stage.sim, stage.host, "a", **options).start()
    await stage.shared([member])
    await stage.work(lambda client: Admin(client).create_partitions("t", 6))
    await stage.sim.until(lambda: member.owned == [0, 1, 2, 3, 4, 5], "the new partitions", 60)
    await member.stop()


@BOTH
@run_by(staged)
async def test_a_topic_that_is_not_there_yet_is_taken_when_it_comes(stage: Stage, /, options: dict[str, Any]) -> None:
    await stage.work(lambda client: Admin(client).delete_topics(["t"]))
    member = Member(stage.sim, stage.host, "a", **options).start()
    await stage.sim.until(lambda: bool(member.calls), "joined")
    assert member.calls == [("+", [])]
    await stage.work(stage._topic)
    await stage.shared([member], timeout_s=20)
    await member.stop()


@run_by(at_hand)
async def test_two_members_on_one_client_do_not_block_each_other(client: Client, /) -> None:
    consumers = [Consumer(client, "g", session_timeout_ms=6_000) for _ in range(2)]
    for consumer in consumers:
        await consumer.subscribe(["t"])
    loop = asyncio.get_running_loop()
    began = loop.time()
    while not all(len(consumer.assignment()) == 2 for consumer in consumers):
        await asyncio.gather(*(consumer.poll(100) for consumer in consumers))
    assert loop.time() - began < 5.0
    for consumer in consumers:
        await consumer.close()


@pytest.mark.parametrize("way", ["range", "cooperative-sticky", "consumer"])
@pytest.mark.parametrize("seed", range(15))
@run_by(staged)
async def test_whatever_happens_to_members_and_coordinator_every_record_is_read_and_partitions_are_shared(
    stage: Stage, /, seed: int, way: str
) -> None:
    chance = stage.sim.random

    def started(name: str) -> Member:
        options = {"group_protocol": way} if way == "consumer" else {"assignors": [way]}
        return Member(stage.sim, stage.host, name, **options).start()

    members = [started(f"m{i}") for i in range(2)]
    past: list[Member] = []
    for _ in range(12):
        await stage.send(20)
        match chance.choice(("kill", "stop", "start", "stall", "broker", "cut", "nothing")):
            case "kill" if members:
                gone = members.pop(chance.randrange(len(members)))
                gone.kill()
                past.append(gone)
            case "stop" if members:
                gone = members.pop(chance.randrange(len(members)))
                await gone.stop()
                past.append(gone)
            case "start" if len(members) < 4:
                members.append(started(f"m{len(members) + len(past)}"))
            case "stall" if members:
                chance.choice(members).stall_s = chance.uniform(1, 20)
            case "broker":
                stage.host.kill()
                await asyncio.sleep(chance.uniform(0.1, 3))
                await stage.host.up()
            case "cut":
                stage.sim.network.cut()
        await asyncio.sleep(chance.uniform(0, 8))
    if not members:
        members.append(started("last"))
    await stage.shared(members, timeout_s=120)
    await stage.all_read(members + past, timeout_s=120)
    offsets = {}

    async def committed(client: Client) -> None:
        offsets.update(await Admin(client).group_offsets("g"))

    await stage.sim.sleep(2)
    await stage.work(committed)
    assert sum(offsets.values()) == stage.sent
    for member in members:
        await member.stop()
