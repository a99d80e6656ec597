"""What a consumer cannot or must not hand over: corrupt, torn and too large batches, aborted transactions."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest

from isthmus.client import TopicPartition
from isthmus.client.raw import fetch_raw
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import fetch
from isthmus.protocol.records import (
    COMPILED,
    CorruptBatch,
    TooLargeToDecode,
    build_batch,
)
from tests.client.consuming import TP, begun, fill, numbers, read
from tests.client.scripted import HANG_UP, PORT, World, simulate
from tests.running import run_by


@run_by(simulate)
async def test_a_batch_larger_than_the_limit_is_fetched_with_a_larger_one(world: World, /) -> None:
    consumer = await begun(world, partition_max_bytes=1_000)
    fill(world, 2, size=20_000)
    consumer.assign({TP: 0})
    found = await read(consumer, 2)
    assert [len(value) for value in found] == [20_001, 20_001]


@run_by(simulate)
async def test_answers_torn_anywhere_lose_and_double_nothing(world: World, /) -> None:
    consumer = await begun(world, partition_max_bytes=333)
    world.brokers[1].pieces_bytes = 50
    fill(world, 60, each=3)
    consumer.assign({TP: 0})
    assert await read(consumer, 180) == numbers(0, 180)


@run_by(simulate)
async def test_errors_of_the_broker_that_do_not_pass_are_raised_with_the_partitions_name(world: World, /) -> None:
    consumer = await begun(world)
    refused = fetch.PartitionData(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = fetch.FetchableTopicResponse(topic="t", topic_id=world.topics["t"], partitions=[refused])
    world.brokers[1].script["fetch"].extend([lambda _: HANG_UP, lambda _: fetch.Response(responses=[topic])])
    consumer.assign({TP: 0})
    with pytest.raises(KafkaError, match="t-0") as told:
        while True:
            await consumer.poll(1_000)
    assert told.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@run_by(simulate)
async def test_corrupt_batches_are_told_until_the_user_seeks_past_them(world: World, /) -> None:
    consumer = await begun(world)
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


@run_by(simulate)
async def test_records_before_a_corrupt_batch_are_handed_over_before_it_is_told(world: World, /) -> None:
    consumer = await begun(world, partitions=2)
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


@run_by(simulate)
async def test_records_before_corrupt_batches_are_given_of_all_partitions(world: World, /) -> None:
    consumer = await begun(world, partitions=2)
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


@run_by(simulate)
async def test_a_record_that_does_not_fit_is_named_with_its_option_until_the_user_seeks_past_it(
    world: World, /
) -> None:
    consumer = await begun(world, decode_max_bytes=20_000)
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


@pytest.mark.skipif(not COMPILED, reason="250 MB of records take the plain loops too long")
@run_by(simulate)
async def test_memory_does_not_depend_on_what_batches_expand_to(world: World, /) -> None:
    consumer = await begun(world)
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


@run_by(simulate)
async def test_raw_fetch_tells_each_partitions_error(world: World, /) -> None:
    await begun(world, partitions=2)
    fill(world, 3)
    wanted = {TP: (0, -1), TopicPartition("t", 1): (5, -1)}
    good, bad = await fetch_raw(world.client, wanted, node_id=1, max_wait_ms=0)
    assert (good.error_code, good.high_watermark, good.diverging_epoch) == (0, 3, None)
    assert bad.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.brokers[1].address == f"broker1:{PORT}"


@run_by(simulate)
async def test_headers_that_cannot_be_are_told_and_hold_up_no_other_partition(world: World, /) -> None:
    consumer = await begun(world, partitions=2)
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
