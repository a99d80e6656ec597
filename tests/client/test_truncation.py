"""Logs that were cut below what a consumer has read (KIP-320): from Fetch, from OffsetForLeaderEpoch, from a committed
offset; and who is not believed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client.errors import LogTruncated, NoOffset
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import fetch, find_coordinator, offset_commit, offset_fetch
from isthmus.protocol.records import build_batch
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.scripted import PORT, ScriptedBroker, World, simulate
from tests.running import run_by

OLD_FETCH = (4, 11)  # versions of a Kafka before 2.7


def cut(world: World, at: int, epoch: int) -> None:
    """An unclean election: the log ends at `at`, which is a batch's begin, and goes on under another epoch."""
    log = world.log("t")
    log.batches, log.end = log.batches[:at], at
    world.leaders["t", 0] = (world.leaders["t", 0][0], epoch)
    append(world, b"new", 8, epoch)


def append(world: World, value: bytes, count: int, epoch: int) -> None:
    for _ in range(count):
        world.log("t").append(build_batch([(0, None, value, ())], partition_leader_epoch=epoch))


@pytest.mark.parametrize("old", [False, True], ids=["by_fetch", "by_offset_for_leader_epoch"])
@run_by(simulate)
async def test_a_cut_log_is_read_again_from_where_it_parts(world: World, /, old: bool) -> None:
    if old:
        world.brokers[1].versions[fetch.API.key] = OLD_FETCH
    consumer = await begun(world)
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    cut(world, 6, epoch=1)
    assert await read(consumer, 8) == [b"new"] * 8
    asked = world.brokers[1].requests("offset_for_leader_epoch")
    assert bool(asked) == old
    if old:
        told = [(p.leader_epoch, p.current_leader_epoch) for m in asked for t in m.topics for p in t.partitions]
        assert told == [(0, 0), (0, 1), (0, 1)], "a position is compared once under each leader epoch"
        assert asked[0].replica_id == -1


@pytest.mark.parametrize("old", [False, True], ids=["by_fetch", "by_offset_for_leader_epoch"])
@run_by(simulate)
async def test_without_a_reset_policy_a_cut_is_told_until_the_user_seeks(world: World, /, old: bool) -> None:
    if old:
        world.brokers[1].versions[fetch.API.key] = OLD_FETCH
    consumer = await begun(world, auto_offset_reset="none")
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 10) == numbers(0, 10)
    cut(world, 6, epoch=1)
    for _ in range(2):
        with pytest.raises(LogTruncated, match="t-0 was read up to offset 10, but its log was cut at offset 6") as told:
            while True:
                await consumer.poll(1_000)
        assert (told.value.tp, told.value.offset) == (TP, 6)
    consumer.seek(TP, told.value.offset)
    assert await read(consumer, 8) == [b"new"] * 8


@run_by(simulate)
async def test_a_cut_above_what_the_user_has_seen_is_told_to_nobody(world: World, /) -> None:
    """Fetched records that were not returned are dropped; none before the cut is skipped."""
    consumer = await begun(world, auto_offset_reset="none")
    fill(world, 10)
    consumer.assign({TP: 0})
    assert await read(consumer, 3, most=3) == numbers(0, 3)
    cut(world, 6, epoch=1)
    while consumer._fetcher.positions[TP].invalid is None:
        await asyncio.sleep(0.1)
    assert await read(consumer, 11) == [*numbers(3, 6), *[b"new"] * 8]


@pytest.mark.parametrize("reset", ["earliest", "none"])
@run_by(simulate)
async def test_an_epoch_that_the_leader_never_had_is_a_cut_at_the_position_at_the_latest(
    world: World, /, reset: str
) -> None:
    consumer = await begun(world, auto_offset_reset=reset)
    fill(world, 4)
    append(world, b"lost", 2, 1)
    world.leaders["t", 0] = (1, 1)
    consumer.assign({TP: 0})
    assert await read(consumer, 6) == [*numbers(0, 4), b"lost", b"lost"]
    log = world.log("t")
    log.batches, log.end = log.batches[:4], 4
    append(world, b"kept", 6, 0)
    cut(world, 10, epoch=2)
    if reset == "none":
        with pytest.raises(LogTruncated, match="cut at offset 6"):
            while True:
                await consumer.poll(1_000)
    else:
        assert await read(consumer, 12) == [b"kept"] * 4 + [b"new"] * 8


@pytest.mark.parametrize("epoch", [0, 7], ids=["diverging", "out_of_range"])
@run_by(simulate)
async def test_a_leader_whose_epoch_is_older_than_what_was_read_is_not_believed(world: World, /, epoch: int) -> None:
    """It may be one that was replaced: the metadata tells who leads now."""
    second = await ScriptedBroker(world, 2).start()
    consumer = await begun(world, auto_offset_reset="none", group_id="g")
    fill(world, 4)
    append(world, b"a", 2, 7)
    world.brokers[1].script["find_coordinator"].append(lambda _: COORDINATOR)
    world.brokers[1].script["offset_fetch"].append(lambda _: committed(6, 7))

    def outdated(_: Any) -> Any:
        world.move("t", 0, 2)
        world.leaders["t", 0] = (2, 8)
        part = fetch.PartitionData(partition_index=0, high_watermark=4, records=b"")
        if epoch:
            part.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            part.diverging_epoch = fetch.EpochEndOffset(epoch=0, end_offset=4)
        return fetch.Response(responses=[fetch.FetchableTopicResponse(topic_id=world.topics["t"], partitions=[part])])

    world.brokers[1].script["fetch"].append(outdated)
    consumer.assign({TP: None})
    polling = asyncio.ensure_future(consumer.poll(2_000))
    await asyncio.sleep(1)
    append(world, b"b", 1, 8)
    assert [record.value for record in (await polling)[TP]] == [b"b"]
    [asked] = second.requests("fetch")[0].topics[0].partitions
    assert (asked.last_fetched_epoch, asked.current_leader_epoch) == (7, 8)


# --- Committed offsets ----------------------------------------------------------------------------------

COORDINATOR = find_coordinator.Response(
    coordinators=[find_coordinator.Coordinator(key="g", node_id=1, host="broker1", port=PORT)]
)


def committed(offset: int, epoch: int) -> Any:
    part = offset_fetch.OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=offset, committed_leader_epoch=epoch, metadata=""
    )
    topic = offset_fetch.OffsetFetchResponseTopics(name="t", partitions=[part])
    return offset_fetch.Response(groups=[offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=[topic])])


@pytest.mark.parametrize(("reset", "old"), [("earliest", False), ("earliest", True), ("none", False)])
@run_by(simulate)
async def test_a_committed_offset_is_compared_with_the_log_before_it_is_read(
    world: World, /, reset: str, old: bool
) -> None:
    if old:
        world.brokers[1].versions[fetch.API.key] = OLD_FETCH
    fill(world, 10)
    consumer = await begun(world, auto_offset_reset=reset, group_id="g")
    cut(world, 6, epoch=1)
    world.brokers[1].script["find_coordinator"].append(lambda _: COORDINATOR)
    world.brokers[1].script["offset_fetch"].append(lambda _: committed(9, 0))
    consumer.assign({TP: None})
    if reset == "none":
        with pytest.raises(LogTruncated, match="cut at offset 6"):
            while True:
                await consumer.poll(1_000)
    else:
        assert await read(consumer, 8) == [b"new"] * 8


@run_by(simulate)
async def test_a_commit_tells_the_epoch_of_the_last_record_that_was_returned(world: World, /) -> None:
    fill(world, 2)
    append(world, b"a", 2, 3)
    world.leaders["t", 0] = (1, 3)
    consumer = await begun(world, group_id="g")
    consumer.assign({TP: 0})
    told = []

    def commit(message: Any) -> Any:
        [part] = message.topics[0].partitions
        told.append((part.committed_offset, part.committed_leader_epoch))
        done = offset_commit.OffsetCommitResponsePartition(partition_index=0)
        return offset_commit.Response(topics=[offset_commit.OffsetCommitResponseTopic(name="t", partitions=[done])])

    world.brokers[1].script["find_coordinator"].append(lambda _: COORDINATOR)
    world.brokers[1].script["offset_commit"].extend([commit] * 9)
    for count in (1, 2, 1):
        await read(consumer, count, most=count)
        await consumer.commit()
    await consumer.commit({TP: 4})
    await consumer.commit({TP: 2})
    consumer.seek(TP, 3)
    await consumer.commit()
    assert told == [(1, 0), (3, 3), (4, 3), (4, 3), (2, -1), (3, -1)]


@run_by(simulate)
async def test_an_offset_beyond_the_log_without_an_epoch_is_out_of_range(world: World, /) -> None:
    consumer = await begun(world, auto_offset_reset="none")
    fill(world, 2)
    consumer.assign({TP: 5})
    with pytest.raises(NoOffset, match="t-0 is out of range"):
        while True:
            await consumer.poll(1_000)
