"""The consumer by hand: positions, resets, seeks, torn and aborted batches, leaders that move."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from isthmus.client import Client, Consumer, TopicPartition, fetcher
from isthmus.client.cluster import BACKOFF_MAX_MS
from isthmus.client.errors import ClientError, LogTruncated, NoOffset, UnsupportedVersion
from isthmus.client.fetcher import without_aborted
from isthmus.client.raw import fetch_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import fetch, find_coordinator
from isthmus.protocol.records import (
    COMPILED,
    BatchBuilder,
    CorruptBatch,
    TooLargeToDecode,
    build_batch,
    iter_records,
    read_header,
)
from tests.client.scripted import HANG_UP, PORT, SILENCE, ScriptedBroker, World, simulate, started_client
from tests.leftovers import no_leftovers

TP = TopicPartition("t", 0)


def fill(world: World, count: int, each: int = 1, name: str = "t", index: int = 0, size: int = 0) -> None:
    log = world.log(name, index)
    for _ in range(count):
        first = log.end
        values = [(n, b"k", b"%d" % n + b"." * size, ()) for n in range(first, first + each)]
        log.append(build_batch(values, partition_leader_epoch=0))


async def begun(world: World, partitions: int = 1, **options: Any) -> tuple[Client, Consumer]:
    if not world.topics:
        world.add_topic("t", partitions)
    client = await started_client(world)
    await client.refresh_metadata(list(world.topics))
    return client, Consumer(client, **options)


async def ended(client: Client, consumer: Consumer) -> None:
    await consumer.close()
    await client.close()


async def read(consumer: Consumer, count: int, most: int = 500) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        for records in (await consumer.poll(1_000, most)).values():
            found += [record.value or b"" for record in records]
    return found


def numbers(low: int, high: int) -> list[bytes]:
    return [b"%d" % n for n in range(low, high)]


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_records_come_in_order_and_the_position_is_the_next_ones(most: int) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


def test_raw_batches_are_whole_and_may_begin_before_the_position() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 3, each=10)
        consumer.assign({TP: 15})
        [got] = await consumer.poll_batches(1_000)
        assert (got.from_offset, got.next_offset, got.high_watermark) == (15, 30, 30)
        assert [r.offset for r in iter_records(got.records)] == list(range(10, 30))
        assert consumer.position(TP) == 30
        assert await consumer.poll_batches(100) == []
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 4), ("latest", 10)])
def test_without_an_offset_the_reset_policy_says_where_to_begin(reset: str, expected: int) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, auto_offset_reset=reset)
        fill(world, 10)
        world.log("t").start = 4
        consumer.assign({TP: None})
        while consumer.position(TP) is None:
            assert not await consumer.poll_batches(0)
        fill(world, 2)
        assert await read(consumer, 12 - expected) == numbers(expected, 12)
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize(("isolation", "expected"), [("read_uncommitted", 10), ("read_committed", 6)])
@pytest.mark.parametrize("position", [None, 99], ids=["no_offset", "out_of_range"])
def test_latest_is_the_end_of_what_the_isolation_lets_one_read(
    position: int | None, isolation: str, expected: int
) -> None:
    """KIP-98: what an open transaction holds back is read once it has ended."""

    async def test(world: World) -> None:
        client, consumer = await begun(world, auto_offset_reset="latest", isolation=isolation)
        fill(world, 10)
        world.log("t").last_stable_offset = 6
        consumer.assign({TP: position})
        while consumer.position(TP) in (None, 99):
            assert not await consumer.poll_batches(0)
        assert consumer.position(TP) == expected
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize("offset", [2, 99])
def test_an_offset_out_of_range_is_reset_or_told(offset: int) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 10)
        world.log("t").start = 4
        consumer.assign({TP: offset})
        assert await read(consumer, 6) == numbers(4, 10)
        strict = Consumer(client, auto_offset_reset="none")
        strict.assign({TP: offset})
        with pytest.raises(NoOffset, match="t-0 is out of range"):
            while True:
                await strict.poll(1_000)
        strict.seek(TP, 5)
        assert await read(strict, 5) == numbers(5, 10)
        await strict.close()
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize(("reset", "more"), [("earliest", 3), ("earliest", 30), ("latest", 30), ("none", 30)])
def test_a_topic_made_anew_is_not_read_on_at_the_old_ones_offset(
    reset: str, more: int, caplog: pytest.LogCaptureFixture
) -> None:
    """It may have grown past that: its first records would be passed over in silence."""

    async def test(world: World) -> None:
        client, consumer = await begun(world, auto_offset_reset=reset)
        fill(world, 10)
        consumer.assign({TP: 0})
        assert await read(consumer, 10) == numbers(0, 10)
        world.topics["t"] = b"\2" * 16
        world.log("t").batches.clear()
        world.log("t").end = 0
        fill(world, more)
        if reset == "none":
            with pytest.raises(NoOffset, match="t-0 was deleted and made anew"):
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
            assert f"t-0 was deleted and made anew (position 10): reading on from the {reset} offset" in caplog.text
        await ended(client, consumer)

    simulate(test)


# What was under way or at hand when the user turned elsewhere: an answer of a fetch, by what it says.
ANSWERS: dict[str, dict[str, Any]] = {
    "data": {},
    "out of range": {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE},
    "refused": {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED},
    "truncated": {"diverging_epoch": fetch.EpochEndOffset(epoch=0, end_offset=2)},
}


async def fetching(world: World, what: str, arrived: bool, **options: Any) -> tuple[Client, Consumer]:
    """A consumer at offset 30 of t-0, whose fetch is being answered, or was and waits for the next poll."""
    world.add_topic("t", 2)
    fill(world, 50)
    client, consumer = await begun(world, **options)
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
    return client, consumer


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("what", ANSWERS)
def test_a_seek_drops_what_was_being_fetched(what: str, arrived: bool) -> None:
    async def test(world: World) -> None:
        client, consumer = await fetching(world, what, arrived, auto_offset_reset="none")
        consumer.seek(TP, 40)
        assert consumer.position(TP) == 40
        assert await read(consumer, 10) == numbers(40, 50)
        assert consumer.position(TP) == 50
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize("arrived", [False, True])
@pytest.mark.parametrize("what", ANSWERS)
def test_another_assignment_drops_what_was_being_fetched(what: str, arrived: bool) -> None:
    async def test(world: World) -> None:
        client, consumer = await fetching(world, what, arrived)
        other = TopicPartition("t", 1)
        fill(world, 3, index=1)
        consumer.assign({other: 0})
        assert await read(consumer, 3) == numbers(0, 3)
        assert await consumer.poll(1_000) == {}
        assert (consumer.assignment(), consumer.position(TP)) == ([other], None)
        consumer.assign({TP: 45, other: None})
        assert await read(consumer, 5) == numbers(45, 50)
        await ended(client, consumer)

    simulate(test)


def test_assigning_again_keeps_what_was_not_handed_over() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
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
        await ended(client, consumer)

    simulate(test)


@pytest.mark.parametrize("begin", [None, 99], ids=["first", "out of range"])
@pytest.mark.parametrize("turn", ["seek", "assign"])
def test_where_the_user_turns_while_an_offset_is_looked_up_counts(turn: str, begin: int | None) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
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
        await ended(client, consumer)

    simulate(test)


def test_a_reset_that_its_poll_did_not_finish_is_done_by_the_next_poll() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


def test_without_a_reset_policy_each_poll_says_that_the_offset_is_out_of_range() -> None:
    """Until the user seeks: a partition that stands still in silence would look like one that has no data."""

    async def test(world: World) -> None:
        client, consumer = await begun(world, auto_offset_reset="none")
        fill(world, 10)
        consumer.assign({TP: 99})
        await consumer._fetcher.arrived.wait()
        for _ in range(3):
            with pytest.raises(NoOffset, match="t-0 is out of range"):
                await consumer.poll(1_000)
        await ended(client, consumer)

    simulate(test)


def test_batches_go_on_where_a_poll_of_records_stopped() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 4, each=10)
        consumer.assign({TP: 0})
        assert await read(consumer, 15, most=15) == numbers(0, 15)
        assert consumer.position(TP) == 15
        [got] = await consumer.poll_batches(1_000)
        assert (got.from_offset, got.next_offset, consumer.position(TP)) == (15, 40, 40)
        assert read_header(got.records).base_offset == 10
        left = iter_records(got.records, from_offset=got.from_offset)
        assert [record.value for record in left] == numbers(15, 40)
        await ended(client, consumer)

    simulate(test)


def test_seek_forgets_what_was_fetched_already() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


def test_a_batch_larger_than_the_limit_is_fetched_with_a_larger_one() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partition_max_bytes=1_000)
        fill(world, 2, size=20_000)
        consumer.assign({TP: 0})
        found = await read(consumer, 2)
        assert [len(value) for value in found] == [20_001, 20_001]
        await ended(client, consumer)

    simulate(test)


def test_answers_torn_anywhere_lose_and_double_nothing() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partition_max_bytes=333)
        world.brokers[1].pieces_bytes = 50
        fill(world, 60, each=3)
        consumer.assign({TP: 0})
        assert await read(consumer, 180) == numbers(0, 180)
        await ended(client, consumer)

    simulate(test)


def test_the_new_leader_is_found_and_nothing_is_lost_or_doubled() -> None:
    async def test(world: World) -> None:
        second = await ScriptedBroker(world, 2).start()
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


def test_older_metadata_of_a_broker_that_is_behind_is_not_believed() -> None:
    async def test(world: World) -> None:
        await ScriptedBroker(world, 2).start()
        client, consumer = await begun(world)
        world.move("t", 0, 2)
        await client.refresh_metadata(["t"])
        assert (client.leader(TP), client.leader_epoch(TP)) == (2, 1)
        world.leaders["t", 0] = (1, 0)
        await client.refresh_metadata(["t"])
        assert (client.leader(TP), client.leader_epoch(TP)) == (2, 1)
        world.topics["t"] = b"made anew, 16 by"
        await client.refresh_metadata(["t"])
        assert (client.leader(TP), client.leader_epoch(TP)) == (1, 0)
        del world.topics["t"]
        await client.refresh_metadata(["t"])
        assert client.partitions("t") == []
        await ended(client, consumer)

    simulate(test)


def test_a_broker_that_comes_back_is_fetched_from_again() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


def test_errors_of_the_broker_that_do_not_pass_are_raised_with_the_partitions_name() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        refused = fetch.PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        topic = fetch.FetchableTopicResponse(topic="t", topic_id=world.topics["t"], partitions=[refused])
        world.brokers[1].script["fetch"].extend([lambda _: HANG_UP, lambda _: fetch.Response(responses=[topic])])
        consumer.assign({TP: 0})
        with pytest.raises(KafkaError, match="t-0") as told:
            while True:
                await consumer.poll(1_000)
        assert told.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        await ended(client, consumer)

    simulate(test)


def test_corrupt_batches_are_told_until_the_user_seeks_past_them() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 3)
        log = world.log("t")
        log.batches[1] = log.batches[1][:-2] + b"!!"
        consumer.assign({TP: 1})
        for _ in range(2):
            with pytest.raises(CorruptBatch, match="offset 1"):
                while True:
                    await consumer.poll(1_000)
        assert consumer.position(TP) == 1
        consumer.seek(TP, 2)
        assert await read(consumer, 1) == numbers(2, 3)
        await ended(client, consumer)

    simulate(test)


def test_a_poll_after_all_that_came_waits_for_more() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 4)
        consumer.assign({TP: 0})
        assert sum(map(len, (await consumer.poll(1_000, max_records=4)).values())) == 4
        asyncio.get_running_loop().call_later(0.5, fill, world, 1)
        assert sum(map(len, (await consumer.poll(5_000)).values())) == 1  # not empty at once
        await ended(client, consumer)

    simulate(test)


def test_records_before_a_corrupt_batch_are_handed_over_before_it_is_told() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
        other = TopicPartition("t", 1)
        fill(world, 2)
        fill(world, 3, index=1)
        log = world.log("t", 1)
        log.batches[2] = log.batches[2][:-2] + b"!!"
        consumer.assign({TP: 0, other: 0})
        while len(consumer._fetcher.ready) < 2:
            await consumer._fetcher.arrived.wait()
            await asyncio.sleep(0.001)
        assert await read(consumer, 4) == [*numbers(0, 2), *numbers(0, 2)]
        assert (consumer.position(TP), consumer.position(other)) == (2, 2)
        for _ in range(2):
            with pytest.raises(CorruptBatch, match="offset 2"):
                await consumer.poll(1_000)
        consumer.seek(other, 3)
        fill(world, 1, index=1)
        assert await read(consumer, 1) == numbers(3, 4)
        await ended(client, consumer)

    simulate(test)


def test_records_before_corrupt_batches_are_given_of_all_partitions() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
        fill(world, 3)
        fill(world, 3, index=1)
        for index in range(2):
            log = world.log("t", index)
            log.batches[2] = log.batches[2][:-2] + b"!!"
        consumer.assign({TP: 0, TopicPartition("t", 1): 0})
        assert await read(consumer, 2) == numbers(0, 2)
        told: set[str] = set()
        rest: list[bytes] = []
        while len(rest) < 2 or len(told) < 2:
            try:
                rest += await read(consumer, 1)
            except CorruptBatch as error:
                told.add(error.message.partition(" of ")[0])
        assert rest == numbers(0, 2)
        assert told == {"t-0: the batch at offset 2", "t-1: the batch at offset 2"}
        assert [consumer.position(TopicPartition("t", index)) for index in range(2)] == [2, 2]
        await ended(client, consumer)

    simulate(test)


def test_a_record_that_does_not_fit_is_named_with_its_option_until_the_user_seeks_past_it() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, decode_max_bytes=20_000)
        values = [b"0", b"1", bytes(30_000), b"3"]
        world.log("t").append(build_batch([(0, None, value, ()) for value in values], "zstd", partition_leader_epoch=0))
        consumer.assign({TP: 0})
        assert await read(consumer, 2) == numbers(0, 2)
        said = r"t-0: the record after offset 1, .* 20000 bytes .*: 30011; a larger decode_max_bytes takes it"
        for _ in range(2):
            with pytest.raises(TooLargeToDecode, match=said):
                await consumer.poll(1_000)
        assert consumer.position(TP) == 2
        fill(world, 1)
        consumer.seek(TP, 4)
        assert await read(consumer, 1) == numbers(4, 5)
        await ended(client, consumer)

    simulate(test)


@pytest.mark.skipif(not COMPILED, reason="250 MB of records take the plain loops too long")
def test_memory_does_not_depend_on_what_batches_expand_to() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        for each in (1300, *[10] * 130):
            rows = [(0, None, bytes(100_000), ())] * each
            world.log("t").append(build_batch(rows, "zstd", partition_leader_epoch=0))
        consumer.assign({TP: 0})
        count = 0
        tracemalloc.start()
        try:
            while count < 2600:
                count += sum(map(len, (await consumer.poll(1_000, 100)).values()))
            assert tracemalloc.get_traced_memory()[1] < 48 << 20  # 100 records are 10 MB
        finally:
            tracemalloc.stop()
        await ended(client, consumer)

    simulate(test)


def test_a_wait_for_data_ends_with_the_data_or_its_time() -> None:
    async def test(world: World) -> None:
        loop = asyncio.get_running_loop()
        client, consumer = await begun(world)
        consumer.assign({TP: 0})
        began = loop.time()
        assert await consumer.poll(2_000) == {}
        assert 1.9 < loop.time() - began < 2.2
        asyncio.get_running_loop().call_later(3, fill, world, 1)
        began = loop.time()
        assert await read(consumer, 1) == numbers(0, 1)
        assert loop.time() - began < 4.0
        await ended(client, consumer)

    simulate(test)


def test_while_the_user_is_busy_the_next_answer_is_fetched_and_not_more() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partition_max_bytes=1_000)
        fill(world, 100, size=400)
        consumer.assign({TP: 0})
        await consumer.poll(1_000, 1)
        await asyncio.sleep(5)
        fetches = len(world.brokers[1].requests("fetch"))
        await asyncio.sleep(5)
        assert len(world.brokers[1].requests("fetch")) == fetches <= 3
        assert len(await read(consumer, 99)) == 99
        await ended(client, consumer)

    simulate(test)


def test_two_nodes_are_fetched_from_side_by_side() -> None:
    async def test(world: World) -> None:
        await ScriptedBroker(world, 2).start()
        world.add_topic("t", 2)
        world.leaders["t", 1] = (2, 0)
        client, consumer = await begun(world)
        world.brokers[1].script["fetch"].append(lambda _: SILENCE)
        fill(world, 5, index=1)
        consumer.assign({TP: 0, TopicPartition("t", 1): 0})
        assert await asyncio.wait_for(read(consumer, 5), 2) == numbers(0, 5)
        await ended(client, consumer)

    simulate(test)


def test_wrong_options_name_the_choices() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        with pytest.raises(ClientError, match="earliest, latest, none"):
            Consumer(client, auto_offset_reset="smallest")
        with pytest.raises(ClientError, match="read_uncommitted"):
            Consumer(client, isolation="serializable")
        with pytest.raises(ClientError, match="range, roundrobin"):
            Consumer(client, "g", assignors=["sticky"])
        with pytest.raises(ClientError, match="needs a group_id"):
            await consumer.subscribe(["t"])
        with pytest.raises(ClientError, match="needs a group_id"):
            await consumer.commit()
        await ended(client, consumer)

    simulate(test)


def test_raw_fetch_tells_each_partitions_error() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
        fill(world, 3)
        wanted = {TP: (0, -1, -1), TopicPartition("t", 1): (5, -1, -1)}
        good, bad = await fetch_raw(client, wanted, node_id=1, max_wait_ms=0)
        assert (good.error_code, good.high_watermark, good.diverging_epoch) == (0, 3, None)
        assert bad.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert world.brokers[1].address == f"broker1:{PORT}"
        await ended(client, consumer)

    simulate(test)


def batch(values: Iterable[int], producer: int = -1, control: bool = False) -> bytes:
    builder = BatchBuilder(
        max_bytes=1 << 20,
        producer_id=producer,
        producer_epoch=0 if producer >= 0 else -1,
        transactional=producer >= 0,
        control=control,
        base_offset=min(values := list(values)),
    )
    for value in values:
        builder.append(0, b"\0\0\0\0" if control else None, b"%d" % value)
    return builder.build()


def test_aborted_transactions_are_left_out_and_all_else_is_kept() -> None:
    data = b"".join(
        [
            batch([0, 1], producer=7),  # aborted at 6
            batch([2, 3]),
            batch([4], producer=8),  # committed
            batch([5], producer=7),
            batch([6], producer=7, control=True),
            batch([7], producer=7),  # of its next transaction, committed
            batch([8], producer=8, control=True),
        ]
    )
    kept = without_aborted(memoryview(data), ((7, 0),))
    assert [record.offset for record in iter_records(kept)] == [2, 3, 4, 7]
    assert [r.offset for r in iter_records(without_aborted(memoryview(data), ()))] == [0, 1, 2, 3, 4, 5, 7]


def test_a_transaction_aborted_twice_is_left_out_twice() -> None:
    data = b"".join(
        [
            batch([0], producer=7),
            batch([1], producer=7, control=True),
            batch([2], producer=7),
            batch([3], producer=7, control=True),
            batch([4], producer=7),
        ]
    )
    kept = without_aborted(memoryview(data), ((7, 2), (7, 0)))
    assert [record.offset for record in iter_records(kept)] == [4]


def test_a_log_cut_below_the_position_is_read_again_from_the_cut_or_told() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        strict = Consumer(client, auto_offset_reset="none")
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
        await ended(client, consumer)

    simulate(test)


def test_headers_that_cannot_be_are_told_and_hold_up_no_other_partition() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2)
        fill(world, 3)
        fill(world, 3, index=1)
        log = world.log("t")
        log.batches[0] = log.batches[0][:16] + b"\1" + log.batches[0][17:]  # magic 1
        log.read = lambda _: b"".join(log.batches)  # type: ignore[method-assign]
        consumer.assign({TP: 0, TopicPartition("t", 1): 0})
        found: list[bytes] = []
        told = 0
        while told < 2 or len(found) < 3:
            try:
                for records in (await consumer.poll(1_000)).values():
                    found += [record.value or b"" for record in records]
            except KafkaError as error:
                assert error.code == ErrorCode.CORRUPT_MESSAGE and "t-0, fetch at offset 0" in str(error)
                told += 1
        assert found == numbers(0, 3)
        await ended(client, consumer)

    simulate(test)


def test_iteration_gives_records_with_their_places() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        fill(world, 3)
        consumer.assign({TP: 1})
        async for record in consumer:
            assert (record.topic, record.partition) == TP
            if record.offset == 2:
                assert (record.key, record.value, record.timestamp_ms) == (b"k", b"2", 2)
                break
        await ended(client, consumer)

    simulate(test)


def test_the_position_of_an_iteration_is_after_the_record_in_hand() -> None:
    """So that what is committed is what was handled, and a loop goes on where the last one ended."""

    async def test(world: World) -> None:
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)


FULL = 20  # partitions with more data than an answer brings


@pytest.mark.parametrize("topics", [1, 2])
def test_full_partitions_of_a_node_take_turns(topics: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each answer holds a few records only: who got data is asked for after all others, whatever its topic."""

    async def test(world: World) -> None:
        names = ["t", "u"][:topics]
        for name in names:
            world.add_topic(name, FULL // topics)
        client, consumer = await begun(world, partition_max_bytes=1_000)
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
        await ended(client, consumer)

    simulate(test)


def test_an_idle_partition_does_not_slow_down_a_busy_one_of_the_same_node() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, partitions=2, partition_max_bytes=2_000)
        fill(world, 200, size=1_500)
        consumer.assign({TP: 0, TopicPartition("t", 1): 0})
        began = asyncio.get_running_loop().time()
        assert len(await read(consumer, 200)) == 200
        assert asyncio.get_running_loop().time() - began < 200 * 0.05
        await ended(client, consumer)

    simulate(test)


NOT_THERE = [
    ("nowhere", 0, "there is no topic nowhere: create it, or check the name"),
    ("t", 7, "there is no partition t-7: the topic has 1, from 0"),
    ("leaderless", 0, "leaderless-0 has no leader: is its broker down?"),
]


@pytest.mark.parametrize("offset", [0, None])
@pytest.mark.parametrize(("topic", "index", "said"), NOT_THERE)
def test_a_partition_that_is_not_there_holds_up_no_other_and_is_asked_for_ever_more_rarely(
    topic: str, index: int, said: str, offset: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once, in the log."""

    async def test(world: World) -> None:
        world.add_topic("t")
        world.add_topic("leaderless", leader=-1)
        client, consumer = await begun(world)
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
        await ended(client, consumer)

    simulate(test)
    told = [each.message for each in caplog.records if "waits" in each.message]
    assert told == [f"consumer waits: {said}", "consumer no longer waits: all its partitions have leaders"]


def test_a_position_that_is_being_looked_up_holds_up_no_other_partition() -> None:
    async def test(world: World) -> None:
        world.add_topic("t")
        world.add_topic("u", leader=2)
        hung = await ScriptedBroker(world, 2).start()
        client, consumer = await begun(world)
        fill(world, 2)
        fill(world, 2, name="u")
        hung.hangs = True
        consumer.assign({TP: 0, TopicPartition("u", 0): None})
        began = asyncio.get_running_loop().time()
        assert [each.tp for each in await consumer.poll_batches(60_000)] == [TP]
        assert asyncio.get_running_loop().time() - began < 1
        await ended(client, consumer)

    simulate(test)


def test_a_leader_that_another_user_of_the_client_has_learned_of_is_fetched_from() -> None:
    async def test(world: World) -> None:
        second = await ScriptedBroker(world, 2).start()
        client, consumer = await begun(world)
        consumer.assign({TP: 0})
        assert await consumer.poll(200) == {}
        assert not second.requests("fetch")
        world.move("t", 0, 2)
        await client.refresh_metadata(["t"])  # as a producer does
        world.leaders["t", 0] = (1, 0)
        await asyncio.sleep(1)  # in which the broker that led answers once more, without an error
        world.move("t", 0, 2)
        fill(world, 2)
        assert len((await consumer.poll(60_000))[TP]) == 2
        assert second.requests("fetch")
        await ended(client, consumer)

    simulate(test)


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
def test_what_would_read_nothing_or_from_nowhere_is_refused(does: Callable[[Consumer], Any], says: str) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, group_id="g")
        with pytest.raises(ClientError, match=says):
            await does(consumer)
        await ended(client, consumer)

    simulate(test)


def test_a_join_that_cannot_be_is_not_tried_again_for_ever() -> None:
    async def test(world: World) -> None:
        del world.brokers[1].versions[find_coordinator.API.key]
        client, consumer = await begun(world, group_id="g")
        await consumer.subscribe(["t"])
        with pytest.raises(UnsupportedVersion, match="FindCoordinator"):
            await consumer.poll(5_000)
        await ended(client, consumer)

    simulate(test)


def test_a_leader_that_refuses_is_asked_ever_more_rarely() -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world)
        behind = fetch.PartitionData(partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        refusal = fetch.Response(
            responses=[fetch.FetchableTopicResponse(topic_id=world.topics["t"], partitions=[behind])]
        )
        world.brokers[1].script["fetch"].extend([lambda _: refusal] * 1_000)
        consumer.assign({TP: 0})
        await consumer.poll(60_000)
        for name in ("fetch", "metadata"):
            assert len(world.brokers[1].requests(name)) <= 10 + 60_000 / (BACKOFF_MAX_MS / 2)
        await ended(client, consumer)

    simulate(test)


def test_a_subscription_to_a_topic_that_is_not_there_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, group_id="g")
        await consumer.subscribe(["t", "nowhere"])
        await ended(client, consumer)

    simulate(test)
    assert "group g waits: there is no topic nowhere: create it, or check the name" in caplog.messages


@pytest.mark.parametrize("doing", ["joins", "looks_up_positions", "waits_for_a_leader", "waits_for_data"])
def test_a_consumer_that_is_closed_leaves_nothing_of_what_it_was_doing(doing: str) -> None:
    async def test(world: World) -> None:
        client, consumer = await begun(world, group_id="g")  # whose coordinator does not answer
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
        await client.close()

    simulate(test)
