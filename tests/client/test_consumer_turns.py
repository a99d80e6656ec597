"""Seeks, assignments and resets: what was fetched, or is under way, when the user turns elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Consumer, TopicPartition
from isthmus.client.errors import ClientError, LogTruncated, NoOffset
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch
from isthmus.protocol.records import (
    build_batch,
)
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.scripted import World, simulate
from tests.running import run_by


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 4), ("latest", 10)])
@run_by(simulate)
async def test_without_an_offset_the_reset_policy_says_where_to_begin(
    world: World, /, reset: str, expected: int
) -> None:
    consumer = await begun(world, auto_offset_reset=reset)
    fill(world, 10)
    world.log("t").start = 4
    consumer.assign({TP: None})
    while consumer.position(TP) is None:
        assert not await consumer.poll_batches(0)
    fill(world, 2)
    assert await read(consumer, 12 - expected) == numbers(expected, 12)


@pytest.mark.parametrize(("isolation", "expected"), [("read_uncommitted", 10), ("read_committed", 6)])
@pytest.mark.parametrize("position", [None, 99], ids=["no_offset", "out_of_range"])
@run_by(simulate)
async def test_latest_is_the_end_of_what_the_isolation_lets_one_read(
    world: World, /, position: int | None, isolation: str, expected: int
) -> None:
    """KIP-98: what an open transaction holds back is read once it has ended."""
    consumer = await begun(world, auto_offset_reset="latest", isolation=isolation)
    fill(world, 10)
    world.log("t").last_stable_offset = 6
    consumer.assign({TP: position})
    while consumer.position(TP) in (None, 99):
        assert not await consumer.poll_batches(0)
    assert consumer.position(TP) == expected


@pytest.mark.parametrize("offset", [2, 99])
@run_by(simulate)
async def test_an_offset_out_of_range_is_reset_or_told(world: World, /, offset: int) -> None:
    consumer = await begun(world)
    fill(world, 10)
    world.log("t").start = 4
    consumer.assign({TP: offset})
    assert await read(consumer, 6) == numbers(4, 10)
    strict = Consumer(world.client, auto_offset_reset="none")
    strict.assign({TP: offset})
    with pytest.raises(NoOffset, match="t-0 is out of range"):
        while True:
            await strict.poll(1_000)
    strict.seek(TP, 5)
    assert await read(strict, 5) == numbers(5, 10)
    await strict.close()


@pytest.mark.parametrize(("reset", "more"), [("earliest", 3), ("earliest", 30), ("latest", 30), ("none", 30)])
@run_by(simulate)
async def test_a_topic_made_anew_is_not_read_on_at_the_old_ones_offset(
    world: World, /, reset: str, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have grown past that: its first records would be passed over in silence."""
    consumer = await begun(world, auto_offset_reset=reset)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    world.topics["t"] = b"\2" * 16
    world.log("t").batches.clear()
    world.log("t").end = 0
    fill(world, more)
    if reset == "none":
        with pytest.raises(NoOffset, match="t-0 was deleted and created again"):
            while True:
                await consumer.poll(1_000)
        consumer.seek(TP, 4)
        assert await read(consumer, more - 4) == numbers(4, more)
    elif reset == "latest":
        while consumer.position(TP) != more:
            assert not await consumer.poll(1_000)
        fill(world, 2)
        assert await read(consumer, 2) == numbers(more, more + 2)
    else:
        assert await read(consumer, more) == numbers(0, more)
    if reset != "none":
        assert f"t-0 was deleted and created again (position 10): continuing at the {reset} offset" in caplog.text


# What was under way or at hand when the user turned elsewhere: an answer of a fetch, by what it says.
ANSWERS: dict[str, dict[str, Any]] = {
    "data": {},
    "out of range": {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE},
    "refused": {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
    "truncated": {"diverging_epoch": fetch.EpochEndOffset(epoch=0, end_offset=2)},
}


async def fetching(world: World, what: str, arrived: bool, **options: Any) -> Consumer:
    """A consumer at offset 30 of t-0, whose fetch is being answered, or was and waits for the next poll."""
    world.add_topic("t", 2)
    fill(world, 50)
    consumer = await begun(world, **options)
    asked = asyncio.Event()

    def answer(_: Any) -> Any:
        asked.set()
        if what == "data":
            return None
        topic = fetch.FetchableTopicResponse(topic="t", topic_id=world.topics["t"])
        topic.partitions = [fetch.PartitionData(**ANSWERS[what])]
        return fetch.Response(responses=[topic])

    world.brokers[1].script["fetch"].append(answer)
    consumer.assign({TP: 30})
    await asked.wait()
    if arrived:
        await consumer._fetcher.arrived.wait()
    return consumer


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("what", ANSWERS)
@run_by(simulate)
async def test_a_seek_drops_what_was_being_fetched(world: World, /, what: str, arrived: bool) -> None:
    consumer = await fetching(world, what, arrived, auto_offset_reset="none")
    consumer.seek(TP, 40)
    assert consumer.position(TP) == 40
    assert await read(consumer, 10) == numbers(40, 50)
    assert consumer.position(TP) == 50


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("what", ANSWERS)
@run_by(simulate)
async def test_another_assignment_drops_what_was_being_fetched(world: World, /, what: str, arrived: bool) -> None:
    consumer = await fetching(world, what, arrived)
    other = TopicPartition("t", 1)
    fill(world, 3, index=1)
    consumer.assign({other: 0})
    assert await read(consumer, 3) == numbers(0, 3)
    assert await consumer.poll(1_000) == {}
    assert (consumer.assignment(), consumer.position(TP)) == ([other], None)
    consumer.assign({TP: 45, other: None})
    assert await read(consumer, 5) == numbers(45, 50)


@run_by(simulate)
async def test_assigning_again_keeps_what_was_not_handed_over(world: World, /) -> None:
    consumer = await begun(world, partitions=2)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 3, most=3) == numbers(0, 3)
    consumer.assign({TP: None, TopicPartition("t", 1): 0})
    assert consumer.position(TP) == 3
    assert await read(consumer, 7) == numbers(3, 10)
    consumer.seek(TP, 0)
    assert await read(consumer, 3, most=3) == numbers(0, 3)
    consumer.assign({TP: 8})
    assert await read(consumer, 2) == numbers(8, 10)


@pytest.mark.parametrize("begin", [None, 99], ids=["first", "out of range"])
@pytest.mark.parametrize("turn", ["seek", "assign"])
@run_by(simulate)
async def test_where_the_user_turns_while_an_offset_is_looked_up_counts(
    world: World, /, turn: str, begin: int | None
) -> None:
    consumer = await begun(world, partitions=2)
    fill(world, 10)
    fill(world, 2, index=1)
    asked = asyncio.Event()
    world.brokers[1].script["list_offsets"].append(lambda _: asked.set())
    consumer.assign({TP: begin})
    polling = asyncio.ensure_future(consumer.poll(1_000))
    await asked.wait()
    if turn == "seek":
        consumer.seek(TP, 7)
    else:
        consumer.assign({TopicPartition("t", 1): 0})
    found = [record.value for each in (await polling).values() for record in each]
    wanted = numbers(7, 10) if turn == "seek" else numbers(0, 2)
    assert found + await read(consumer, len(wanted) - len(found)) == wanted
    assert await consumer.poll(500) == {}


@run_by(simulate)
async def test_a_reset_that_its_poll_did_not_finish_is_done_by_the_next_poll(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 10)
    asked = asyncio.Event()
    world.brokers[1].script["list_offsets"].append(lambda _: asked.set())
    consumer.assign({TP: 99})
    polling = asyncio.ensure_future(consumer.poll(1_000))
    await asked.wait()
    polling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await polling
    assert await read(consumer, 10) == numbers(0, 10)


@run_by(simulate)
async def test_without_a_reset_policy_each_poll_says_that_the_offset_is_out_of_range(world: World, /) -> None:
    """Until the user seeks: a partition that stands still in silence would look like one that has no data."""
    consumer = await begun(world, auto_offset_reset="none")
    fill(world, 10)
    consumer.assign({TP: 99})
    await consumer._fetcher.arrived.wait()
    for _ in range(3):
        with pytest.raises(NoOffset, match="t-0 is out of range"):
            await consumer.poll(1_000)


@run_by(simulate)
async def test_seek_forgets_what_was_fetched_already(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 50)
    consumer.assign({TP: 0})
    assert await read(consumer, 3, most=3) == numbers(0, 3)
    await asyncio.sleep(1)  # the next answer is held by now
    consumer.seek(TP, 40)
    assert consumer.position(TP) == 40
    assert await read(consumer, 10) == numbers(40, 50)
    consumer.seek(TP, 0)
    assert (await read(consumer, 5, most=5)) == numbers(0, 5)
    with pytest.raises(ClientError, match="t-7 is not assigned"):
        consumer.seek(TopicPartition("t", 7), 0)


@run_by(simulate)
async def test_a_log_cut_below_the_position_is_read_again_from_the_cut_or_told(world: World, /) -> None:
    consumer = await begun(world)
    strict = Consumer(world.client, auto_offset_reset="none")
    fill(world, 10)
    for each in (consumer, strict):
        each.assign({TP: 0})
        assert await read(each, 10) == numbers(0, 10)
    log = world.log("t")
    log.batches, log.end = log.batches[:6], 6
    first = log.end
    log.append(build_batch([(0, None, b"new", ())] * 8, partition_leader_epoch=3))
    assert first == 6
    assert await read(consumer, 8) == [b"new"] * 8
    with pytest.raises(LogTruncated, match="t-0 was read up to offset 10, but its log was cut at offset 6") as told:
        while True:
            await strict.poll(1_000)
    strict.seek(TP, told.value.offset)
    assert await read(strict, 8) == [b"new"] * 8
    await strict.close()
