"""The producer on a good day: batches, linger, partitions, bounds, and what the records' senders are told."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from isthmus.client import Producer, RecordMetadata
from isthmus.client.errors import BufferFull, ClientError, ConnectionLost, DeliveryTimeout
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import init_producer_id
from isthmus.protocol.records import decode_batch, read_header
from tests.client.producing import begun, refusing, send_batches, values
from tests.client.scripted import (
    HANG_UP,
    SILENCE,
    World,
    simulate,
)
from tests.running import run_by


@run_by(simulate)
async def test_records_are_told_their_offsets(world: World, /) -> None:
    producer = await begun(world)
    first = producer.send("t", b"a", b"k", timestamp_ms=7, headers=[("h", b"x"), ("n", None)])
    second = producer.send("t", None, timestamp_ms=8)
    assert await first == RecordMetadata("t", 0, 0, 7)
    assert await second == RecordMetadata("t", 0, 1, 8)
    [batch] = world.log("t").batches
    assert decode_batch(batch)[0].headers == (("h", b"x"), ("n", None))


@run_by(simulate)
async def test_at_most_five_batches_of_a_partition_are_under_way(world: World, /) -> None:
    producer = await begun(world)
    await producer.send("t", b"connects")
    world.brokers[1].script["produce"].extend([lambda _: SILENCE] * 20)
    await send_batches(producer, 20)
    await asyncio.sleep(5)
    assert len(world.brokers[1].requests("produce")) == 1 + 5
    world.brokers[1].kill()
    await producer.close(timeout_ms=0)
    await world.client.close()


@run_by(simulate)
async def test_without_idempotence_one_at_a_time_keeps_the_order(world: World, /) -> None:
    producer = await begun(world, idempotent=False)
    broker = world.brokers[1]
    broker.script["produce"].append(refusing(broker, ErrorCode.NOT_ENOUGH_REPLICAS, at=(-1,)))
    await send_batches(producer, 10)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(10)]
    assert broker.requests("init_producer_id") == []


@run_by(simulate)
async def test_a_batch_over_the_limit_is_split_until_its_records_go_or_are_alone(world: World, /) -> None:
    producer = await begun(world, compression="lz4")
    broker = world.brokers[1]
    await producer.send("t", b"before", partition=0)

    def limited(message: Any) -> Any:
        too_large = [int(len(each.records) > 700) for topic in message.topic_data for each in topic.partition_data]
        code = ErrorCode.MESSAGE_TOO_LARGE if any(too_large) else 0
        return broker.produced(message, lambda *_: code)

    broker.script["produce"].extend([limited] * 200)
    chance = world.sim.random
    sent = [chance.randbytes(chance.choice((10, 60, 60, 200))) for _ in range(60)]
    sent[20] = chance.randbytes(1_000)
    futures = []
    for i, value in enumerate(sent):
        futures.append(producer.send("t", value, partition=0, headers=[("h", b"1")]))
        if i % 15 == 14:
            await asyncio.sleep(0)
    await producer.flush()
    assert all(future.done() for future in futures)
    assert [i for i, future in enumerate(futures) if future.exception()] == [20]
    del sent[20], futures[20]
    assert values(world.log("t")) == [b"before", *sent]
    assert [future.result().offset for future in futures] == list(range(1, 60))
    assert producer.buffered_bytes == 0


@run_by(simulate)
async def test_linger_waits_for_company_and_a_full_batch_does_not(world: World, /) -> None:
    loop = asyncio.get_running_loop()
    producer = await begun(world, linger_ms=2_000, batch_bytes=1_000)
    began = loop.time()
    lone = producer.send("t", b"x", partition=0)
    await lone
    assert 2.0 <= loop.time() - began < 2.3
    began = loop.time()
    first = producer.send("t", b"a" * 600, partition=0)
    second = producer.send("t", b"b" * 600, partition=0)
    await first
    assert loop.time() - began < 0.3
    await second
    assert loop.time() - began >= 2.0


@run_by(simulate)
async def test_records_of_one_turn_travel_in_one_batch(world: World, /) -> None:
    producer = await begun(world)
    for i in range(100):
        producer.send("t", b"%d" % i)
    await producer.flush()
    assert len(world.log("t").batches) == 1


@run_by(simulate)
async def test_a_full_buffer_says_so_and_a_sender_can_wait_for_space(world: World, /) -> None:
    producer = await begun(world, buffer_bytes=10_000, batch_bytes=2_000)
    broker = world.brokers[1]
    with pytest.raises(BufferFull, match="await wait_for_space"):
        for _ in range(1000):
            producer.send("t", b"x" * 500, partition=0)
    assert not producer.has_space
    assert producer.buffered_bytes < 11_000
    await producer.wait_for_space()
    assert producer.has_space
    for _ in range(200):
        await producer.wait_for_space()
        producer.send("t", b"x" * 500, partition=0)
    await producer.flush()
    assert producer.buffered_bytes == 0
    assert len(broker.requests("produce")) > 5


@run_by(simulate)
async def test_keys_choose_partitions_and_null_keys_stay_together_for_a_batch(world: World, /) -> None:
    world.add_topic("t", 6)
    producer = await begun(world, linger_ms=5, batch_bytes=4_000)
    keyed = [producer.send("t", b"v", b"abc") for _ in range(50)]
    unkeyed = [producer.send("t", b"v" * 100) for _ in range(600)]
    await producer.flush()
    assert {f.result().partition for f in keyed} == {(479470107 & 0x7FFFFFFF) % 6}
    assert len({f.result().partition for f in unkeyed}) > 2
    runs = sum(a.result().partition != b.result().partition for a, b in itertools.pairwise(unkeyed))
    assert runs < 40


@run_by(simulate)
async def test_a_topic_not_yet_known_is_learnt_and_order_is_kept(world: World, /) -> None:
    producer = await begun(world)
    world.add_topic("new", 1)
    futures = [producer.send("new", b"%d" % i) for i in range(5)]
    await asyncio.sleep(0)
    futures += [producer.send("new", b"%d" % i) for i in range(5, 10)]
    await producer.flush()
    assert [f.result().offset for f in futures] == list(range(10))
    assert values(world.log("new")) == [b"%d" % i for i in range(10)]
    world.add_topic("placed", 2)
    early = [producer.send("placed", b"x", partition=1), producer.send("placed", b"x", partition=5)]
    assert await early[0] == RecordMetadata("placed", 1, 0, early[0].result().timestamp_ms)
    with pytest.raises(KafkaError, match="topic placed has 2 partitions, and no partition 5"):
        await early[1]
    nowhere = producer.send("nowhere", b"x")
    with pytest.raises(KafkaError, match="no topic nowhere"):
        await nowhere
    with pytest.raises(KafkaError, match="Topic name is invalid: 'a b' contains"):
        await producer.send("a b", b"x")  # which no broker need be asked for
    assert all(topic.name != "a b" for each in world.brokers[1].requests("metadata") for topic in each.topics)
    with pytest.raises(KafkaError, match="topic t has 1 partitions, and no partition 9"):
        producer.send("t", b"x", partition=9)


@run_by(simulate)
async def test_acks_0_does_not_wait_and_acks_1_is_not_idempotent(world: World, /) -> None:
    producer = await begun(world, acks=0)
    assert (await producer.send("t", b"x")).offset == -1
    await producer.close()
    with pytest.raises(ClientError, match="cannot be idempotent"):
        Producer(world.client, acks=1, idempotent=True)
    leader = Producer(world.client, acks=1)
    await leader.start()
    assert (await leader.send("t", b"y")).offset == 1
    await leader.close()


@run_by(simulate)
async def test_flush_waits_for_what_was_sent_before_it_only(world: World, /) -> None:
    producer = await begun(world, linger_ms=1_000)
    producer.send("t", b"before")
    flushing = asyncio.ensure_future(producer.flush())
    await asyncio.sleep(0)
    world.brokers[1].script["produce"].extend([lambda _: None, lambda _: SILENCE])
    later = producer.send("t", b"later")
    await asyncio.wait_for(flushing, 0.5)
    assert not later.done()
    world.brokers[1].script["produce"].clear()
    await producer.close()
    assert later.done()


@run_by(simulate)
async def test_a_producer_id_is_asked_for_until_there_is_one(world: World, /) -> None:
    loading = init_producer_id.Response(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    world.brokers[1].script["init_producer_id"].extend([lambda _: loading, lambda _: HANG_UP])
    producer = await begun(world)
    await producer.send("t", b"x")
    [batch] = world.log("t").batches
    assert read_header(batch).producer_id == 101


@run_by(simulate)
async def test_closing_while_nobody_answers_tells_what_is_left(world: World, /) -> None:
    producer = await begun(world, delivery_timeout_ms=2_000)
    world.brokers[1].kill()
    futures = [producer.send("t", b"x") for _ in range(3)]
    await producer.close()
    assert all(isinstance(f.exception(), (DeliveryTimeout, ConnectionLost)) for f in futures)
    with pytest.raises(ClientError, match="closed"):
        producer.send("t", b"y")
    await world.client.close()
