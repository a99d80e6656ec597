"""The consumer by hand: what it hands over, in which order, and the position that it says."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.client import Consumer, Producer, Progress, TopicPartition
from isthmus.client.errors import ClientError
from isthmus.protocol.records import (
    decode_lists,
    iter_records,
    read_header,
)
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.coordinating import CoordinatingBroker
from tests.client.scripted import World, simulate
from tests.leftovers import no_leftovers
from tests.running import run_by


@pytest.mark.parametrize("most", [1, 7, 1000])
@run_by(simulate)
async def test_records_come_in_order_and_the_position_is_the_next_ones(world: World, /, most: int) -> None:
    consumer = await begun(world)
    fill(world, 20, each=5)
    consumer.assign({TP: 3})
    assert consumer.position(TP) == 3
    found = []
    while len(found) < 97:
        for record in (await consumer.poll(1_000, most)).get(TP, []):
            found.append(record.value)
        if found:
            assert consumer.position(TP) == 3 + len(found)
    assert found == numbers(3, 100)


@run_by(simulate)
async def test_raw_batches_are_whole_and_may_begin_before_the_position(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 3, each=10)
    consumer.assign({TP: 15})
    [got] = await consumer.poll_batches(1_000)
    assert (got.from_offset, got.next_offset, got.high_watermark) == (15, 30, 30)
    assert [r.offset for r in iter_records(got.records)] == list(range(10, 30))
    assert consumer.position(TP) == 30
    assert await consumer.poll_batches(100) == []


@run_by(simulate)
async def test_batches_go_on_where_a_poll_of_records_stopped(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 4, each=10)
    consumer.assign({TP: 0})
    assert await read(consumer, 15, most=15) == numbers(0, 15)
    assert consumer.position(TP) == 15
    [got] = await consumer.poll_batches(1_000)
    assert (got.from_offset, got.next_offset, consumer.position(TP)) == (15, 40, 40)
    assert read_header(got.records).base_offset == 10
    left = iter_records(got.records, from_offset=got.from_offset)
    assert [record.value for record in left] == numbers(15, 40)


@run_by(simulate)
async def test_a_poll_after_all_that_came_waits_for_more(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 4)
    consumer.assign({TP: 0})
    assert sum(map(len, (await consumer.poll(1_000, max_records=4)).values())) == 4
    asyncio.get_running_loop().call_later(0.5, fill, world, 1)
    assert sum(map(len, (await consumer.poll(5_000)).values())) == 1  # not empty at once


@run_by(simulate)
async def test_a_wait_for_data_ends_with_the_data_or_its_time(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    consumer = await begun(world)
    consumer.assign({TP: 0})
    began = loop.time()
    assert await consumer.poll(2_000) == {}
    assert 1.9 < loop.time() - began < 2.2
    asyncio.get_running_loop().call_later(3, fill, world, 1)
    began = loop.time()
    assert await read(consumer, 1) == numbers(0, 1)
    assert loop.time() - began < 4.0


@run_by(simulate)
async def test_while_the_user_is_busy_the_next_answer_is_fetched_and_not_more(world: World, /) -> None:
    consumer = await begun(world, partition_max_bytes=1_000)
    fill(world, 100, size=400)
    consumer.assign({TP: 0})
    await consumer.poll(1_000, 1)
    await asyncio.sleep(5)
    fetches = len(world.brokers[1].requests("fetch"))
    await asyncio.sleep(5)
    assert len(world.brokers[1].requests("fetch")) == fetches <= 3
    assert len(await read(consumer, 99)) == 99


@run_by(simulate)
async def test_wrong_options_name_the_choices(world: World, /) -> None:
    consumer = await begun(world)
    with pytest.raises(ClientError, match="earliest, latest, none"):
        Consumer(world.client, auto_offset_reset="smallest")
    with pytest.raises(ClientError, match="read_uncommitted"):
        Consumer(world.client, isolation="serializable")
    with pytest.raises(ClientError, match="range, roundrobin"):
        Consumer(world.client, "g", assignors=["sticky"])
    with pytest.raises(ClientError, match="needs a group_id"):
        await consumer.subscribe(["t"])
    with pytest.raises(ClientError, match="needs a group_id"):
        await consumer.commit()


@run_by(simulate)
async def test_iteration_gives_records_with_their_places(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 3)
    consumer.assign({TP: 1})
    async for record in consumer:
        assert (record.topic, record.partition) == TP
        if record.offset == 2:
            assert (record.key, record.value, record.timestamp_ms) == (b"k", b"2", 2)
            break


@run_by(simulate)
async def test_the_position_of_an_iteration_is_after_the_record_in_hand(world: World, /) -> None:
    """So that what is committed is what was handled, and a loop goes on where the last one ended."""
    consumer = await begun(world)
    fill(world, 4, each=5)
    consumer.assign({TP: 1})
    async for record in consumer:
        assert consumer.position(TP) == record.offset + 1
        if record.offset == 7:
            break
    with pytest.raises(ZeroDivisionError):
        async for record in consumer:
            assert (record.offset, consumer.position(TP)) == (8, 9)
            raise ZeroDivisionError
    assert (await consumer.poll(1_000, 2))[TP][0].offset == 9
    seen = []
    async for record in consumer:
        seen.append(record.offset)
        if record.offset == 12:
            consumer.seek(TP, 18)
        if record.offset == 19:
            break
    assert seen == [11, 12, 18, 19]
    assert consumer.position(TP) == 20


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (lambda consumer: consumer.poll(1_000), "nothing to read"),
        (lambda consumer: anext(consumer), "nothing to read"),
        (lambda consumer: consumer.subscribe([]), "no topic"),
        (lambda consumer: consumer.subscribe("orders"), r"write \['orders'\]"),
        (lambda consumer: consumer.assign({TP: -1}), "t-0 has no offset -1"),
        (lambda consumer: consumer.commit({TP: -1}), "t-0 has no offset -1"),
    ],
)
@run_by(simulate)
async def test_what_would_read_nothing_or_from_nowhere_is_refused(
    world: World, /, does: Callable[[Consumer], Any], says: str
) -> None:
    consumer = await begun(world, group_id="g")
    with pytest.raises(ClientError, match=says):
        await does(consumer)


@pytest.mark.parametrize("doing", ["joins", "looks_up_positions", "waits_for_a_leader", "waits_for_data"])
@run_by(simulate)
async def test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing(world: World, /, doing: str) -> None:
    consumer = await begun(world, group_id="g")  # whose coordinator does not answer
    async with no_leftovers():
        if doing == "joins":
            await consumer.subscribe(["t"])
        elif doing == "looks_up_positions":
            consumer.assign({TP: None})
        else:
            consumer.assign({TP if doing == "waits_for_data" else TopicPartition("t", 7): 0})
        poll = asyncio.create_task(consumer.poll(60_000))
        await asyncio.sleep(0.5)
        await consumer.close()
        closed_at = asyncio.get_running_loop().time()
        with pytest.raises(ClientError, match="closed"):
            await poll
        assert asyncio.get_running_loop().time() == closed_at
    await world.client.close()


async def write(world: World, transactional_id: str, *values: bytes, commit: bool | None) -> None:
    """One transaction, in t-0; left open if commit is None."""
    producer = Producer(world.client, transactional_id=transactional_id, linger_ms=0)
    await producer.start()
    await producer.begin_transaction()
    for value in values:
        await producer.send("t", value, partition=0)
    if commit is not None:
        await (producer.commit_transaction() if commit else producer.abort_transaction())
        broker = world.brokers[1]
        assert isinstance(broker, CoordinatingBroker)
        while broker.is_writing_markers:
            await asyncio.sleep(0.001)
        await producer.close()
    else:
        world.to_close.append(producer.close)


@run_by(simulate, broker=CoordinatingBroker)
async def test_what_was_aborted_is_passed_by_and_what_is_open_is_waited_for(world: World, /) -> None:
    consumer = await begun(world, isolation="read_committed", partition_max_bytes=100)
    await write(world, "a", b"no", b"neither", commit=False)
    await write(world, "a", b"yes", commit=True)
    await write(world, "a", b"no", commit=False)
    consumer.assign({TP: 0})
    assert consumer.lag(TP) is None
    assert await read(consumer, 1) == [b"yes"]
    while consumer.position(TP) != 7:  # past the aborted record and its marker
        assert await consumer.poll(100) == {}
    assert consumer.lag(TP) == 0
    await write(world, "b", b"open", commit=None)
    await write(world, "c", b"behind", commit=True)
    assert await consumer.poll(2_000) == {}
    assert (consumer.position(TP), consumer.lag(TP)) == (7, 0)
    consumer.seek(TP, 1)  # within the first one that was aborted
    assert await read(consumer, 1) == [b"yes"]


@run_by(simulate, broker=CoordinatingBroker)
async def test_batches_are_read_to_the_end_where_nothing_but_markers_and_aborted_records_is_left(
    world: World, /
) -> None:
    consumer = await begun(world, isolation="read_committed")
    await write(world, "a", b"yes", commit=True)
    await write(world, "a", b"no", b"neither", commit=False)
    consumer.assign({TP: 0})
    assert consumer.progress() == {TP: Progress(0, -1, -1, -1, -1)}
    assert await values_to(consumer, 5) == [b"yes"]
    await write(world, "b", b"more", commit=True)
    world.log("t").last_stable_offset = 6  # as if its marker came in an answer of its own
    assert await values_to(consumer, 6) == [b"more"]
    world.log("t").last_stable_offset = None
    assert await values_to(consumer, 7) == []
    assert consumer.progress()[TP][:5] == (7, 7, 7, 7, 0)  # beside when it was answered
    await write(world, "b", b"open", commit=None)
    await write(world, "c", b"behind", commit=True)
    assert await consumer.poll_batches(2_000) == []
    assert consumer.progress()[TP][:5] == (7, 7, 10, 7, 0)
    assert consumer.progress()[TP].lag == 0


async def values_to(consumer: Consumer, offset: int) -> list[bytes | None]:
    """Of the batches up to a position, which is then the end."""
    found: list[bytes | None] = []
    async with asyncio.timeout(60):
        while consumer.position(TP) != offset:
            for each in await consumer.poll_batches(100):
                assert each.next_offset == consumer.position(TP)
                found += decode_lists(each.records, from_offset=each.from_offset).values
    return found


@run_by(simulate)
async def test_the_progress_is_that_of_what_was_returned_not_of_what_was_fetched(world: World, /) -> None:
    consumer = await begun(world)
    fill(world, 3, each=2)
    consumer.assign({TP: 1, TopicPartition("t", 9): 0})
    assert await read(consumer, 2, 1) == numbers(1, 3)
    found = consumer.progress()
    assert (found[TP].position, found[TP].end) == (3, 6)
    assert (found[TP].lag, consumer.lag(TP)) == (3, 3)
    assert found[TopicPartition("t", 9)].lag is None
    assert consumer.lag(TopicPartition("u", 0)) is None


@run_by(simulate, broker=CoordinatingBroker)
async def test_without_read_committed_everything_is_read(world: World, /) -> None:
    consumer = await begun(world)
    await write(world, "a", b"aborted", commit=False)
    await write(world, "b", b"open", commit=None)
    consumer.assign({TP: 0})
    assert await read(consumer, 2) == [b"aborted", b"open"]
    assert (consumer.position(TP), consumer.lag(TP)) == (3, 0)
