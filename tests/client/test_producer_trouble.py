"""The producer against a broker that refuses, forgets, hangs up and is silent: in order, once, and no false word."""

from __future__ import annotations

import asyncio

import pytest

from isthmus.client import Producer
from isthmus.client.accumulator import EPOCH_MAX, Accumulator
from isthmus.client.cluster import BACKOFF_MAX_MS
from isthmus.client.errors import DataLost, DeliveryTimeout
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import produce
from isthmus.protocol.records import walk
from tests.client.producing import begun, forget_tail, losing, refusing, send_batches, silently, values
from tests.client.scripted import (
    HANG_UP,
    SILENCE,
    ScriptedBroker,
    World,
    simulate,
)
from tests.running import run_by


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT]
)
@run_by(simulate)
async def test_a_refused_batch_is_sent_again_before_those_behind_it(world: World, /, code: int) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    broker.script["produce"].append(refusing(broker, code))
    futures = await send_batches(producer, 12, each=3)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.%d" % (i, n) for i in range(12) for n in range(3)]
    assert [f.result().offset for f in futures] == list(range(36))


@run_by(simulate)
async def test_what_was_appended_before_the_connection_broke_is_not_doubled(world: World, /) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    broker.script["produce"].extend([losing(broker), losing(broker), lambda _: HANG_UP])
    futures = await send_batches(producer, 10)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(10)]
    assert [f.result().offset for f in futures] == list(range(10))


@run_by(simulate)
async def test_a_duplicate_that_the_broker_no_longer_places_is_a_success_without_an_offset(world: World, /) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    broker.script["produce"].append(refusing(broker, ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    assert (await producer.send("t", b"x")).offset == -1


@run_by(simulate)
async def test_a_batch_that_can_never_be_taken_fails_alone(world: World, /) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    await producer.send("t", b"before", partition=0)
    broker.script["produce"].append(refusing(broker, ErrorCode.MESSAGE_TOO_LARGE, at=(1,)))
    futures = await send_batches(producer, 8)
    await producer.flush()
    with pytest.raises(
        KafkaError, match=r"t-0: a record whose batch has \d+ bytes is over max.message.bytes"
    ) as refused:
        futures[0].result()
    assert refused.value.topic == "t"
    assert [f.exception() for f in futures[1:]] == [None] * 7
    assert values(world.log("t")) == [b"before"] + [b"%d.0" % i for i in range(1, 8)]
    assert world.log("t").producers[101][0] == 1  # the rest went out under the next epoch


@run_by(simulate)
async def test_the_last_batch_refused_gives_its_sequence_to_the_next(world: World, /) -> None:
    producer = await begun(world)
    broker = world.brokers[1]
    broker.script["produce"].append(refusing(broker, ErrorCode.INVALID_RECORD))
    with pytest.raises(KafkaError, match="t-0"):
        await producer.send("t", b"bad")
    await producer.send("t", b"good")
    assert world.log("t").producers[101][:2] == (0, 1)


@run_by(simulate)
async def test_a_silent_broker_ends_in_delivery_timeout_and_later_records_still_go_once_and_in_order(
    world: World, /
) -> None:
    loop = asyncio.get_running_loop()
    producer = await begun(world, delivery_timeout_ms=3_000, request_timeout_ms=2_000)
    broker = world.brokers[1]
    await producer.send("t", b"before", partition=0)
    broker.script["produce"].extend([lambda _: SILENCE] * 8)
    began = loop.time()
    lost = await send_batches(producer, 5)
    await producer.flush()
    assert loop.time() - began == pytest.approx(3.0, abs=0.1)
    assert all(isinstance(f.exception(), DeliveryTimeout) for f in lost)
    assert "may or may not be in the log" in str(lost[0].exception())
    broker.script["produce"].clear()
    later = await send_batches(producer, 5, first=5)
    await producer.flush()
    assert [f.exception() for f in later] == [None] * 5
    assert values(world.log("t")) == [b"before"] + [b"%d.0" % i for i in range(5, 10)]


@run_by(simulate)
async def test_a_batch_given_up_that_was_in_the_log_after_all_doubles_nothing(world: World, /) -> None:
    producer = await begun(world, delivery_timeout_ms=1_000, request_timeout_ms=30_000)
    broker = world.brokers[1]
    await producer.send("t", b"0.0", partition=0)
    broker.script["produce"].append(silently(broker))
    broker.script["produce"].append(silently(broker))
    first = await send_batches(producer, 1, first=1)
    await asyncio.sleep(0.6)
    second = await send_batches(producer, 1, first=2)
    await producer.flush()
    assert isinstance(first[0].exception(), DeliveryTimeout)
    broker.links[-1].transport.abort()
    third = await send_batches(producer, 1, first=3)
    await producer.flush()
    assert third[0].exception() is None
    assert values(world.log("t")) == [b"0.0", b"1.0", b"2.0", b"3.0"]
    assert second[0].done()


@run_by(simulate)
async def test_records_never_sent_say_so_when_their_time_is_over(world: World, /) -> None:
    producer = await begun(world, delivery_timeout_ms=1_500)
    world.brokers[1].kill()
    future = producer.send("t", b"x")
    with pytest.raises(DeliveryTimeout, match=r"t-0: not delivered within 2 s.*not in the log"):
        await future
    await producer.close()
    await world.client.close()


@run_by(simulate)
async def test_records_that_a_broker_cannot_write_say_why_when_their_time_is_over(world: World, /) -> None:
    broker = world.brokers[1]
    broker.script["produce"].extend([refusing(broker, ErrorCode.KAFKA_STORAGE_ERROR)] * 1_000)
    producer = await begun(world, delivery_timeout_ms=1_500)
    with pytest.raises(
        DeliveryTimeout, match=r"within 2 s: its broker answers KAFKA_STORAGE_ERROR \(56\): .*\. It may"
    ):
        await producer.send("t", b"x")
    broker.script["produce"].clear()
    await producer.close()
    await world.client.close()


@run_by(simulate)
async def test_records_of_a_topic_that_was_deleted_say_so_and_metadata_is_asked_for_ever_more_rarely(
    world: World, /
) -> None:
    producer = await begun(world, delivery_timeout_ms=60_000)
    await producer.send("t", b"x")
    world.topics.clear()
    await world.client.refresh_metadata(["t"])
    before = len(world.brokers[1].requests("metadata"))
    with pytest.raises(DeliveryTimeout, match="t-0: not delivered within 60 s: there is no topic t: create it"):
        await producer.send("t", b"y")
    assert len(world.brokers[1].requests("metadata")) - before <= 5 + 60_000 / (BACKOFF_MAX_MS / 2)


@run_by(simulate)
async def test_a_lost_tail_is_told_by_name_and_nothing_is_written_after_the_gap(world: World, /) -> None:
    producer = await begun(world)
    for i in range(5):
        await producer.send("t", b"%d.0" % i, partition=0)
    forget_tail(world.log("t"), 2)
    later = await send_batches(producer, 8, first=5)
    await producer.flush()
    assert all(isinstance(f.exception(), DataLost) for f in later)
    assert "t-0" in str(later[0].exception()) and "offset 4" in str(later[0].exception())
    with pytest.raises(DataLost):
        await producer.send("t", b"more", partition=0)
    assert values(world.log("t")) == [b"0.0", b"1.0", b"2.0"]
    again = Producer(world.client, linger_ms=0)
    await again.start()
    assert (await again.send("t", b"after", partition=0)).offset == 3
    await again.close()


@run_by(simulate)
async def test_an_offset_given_twice_is_lost_data_too(world: World, /) -> None:
    producer = await begun(world)
    for i in range(5):
        await producer.send("t", b"%d.0" % i, partition=0)
    log = world.log("t")
    forget_tail(log, 3, everything=True)
    log.producers = {101: (0, 5, {})}  # a broker that takes any sequence of a producer it does not know
    later = await send_batches(producer, 3, first=5)
    await producer.flush()
    assert all(isinstance(f.exception(), DataLost) for f in later)


@run_by(simulate)
async def test_a_producer_forgotten_with_deleted_records_goes_on_under_the_next_epoch(world: World, /) -> None:
    producer = await begun(world)
    for i in range(3):
        await producer.send("t", b"%d.0" % i, partition=0)
    broker, log = world.brokers[1], world.log("t")
    log.start, log.producers = log.end, {}
    broker.script["produce"].append(refusing(broker, ErrorCode.UNKNOWN_PRODUCER_ID, at=(3,)))
    assert (await producer.send("t", b"x", partition=0)).offset == 3
    assert log.producers[101][:2] == (1, 1)


@run_by(simulate)
async def test_a_topic_made_anew_is_no_loss(world: World, /) -> None:
    producer = await begun(world)
    for i in range(3):
        await producer.send("t", b"%d.0" % i, partition=0)
    world.logs.clear()
    world.topics["t"] = b"another topic id"
    assert (await producer.send("t", b"x", partition=0)).offset == 0


@run_by(simulate)
async def test_the_new_leader_is_found(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    producer = await begun(world)
    await send_batches(producer, 2)
    world.move("t", 0, 2)
    futures = await send_batches(producer, 3, first=2)
    await producer.flush()
    assert [f.result().offset for f in futures] == [2, 3, 4]
    assert len(second.requests("produce")) >= 1
    assert values(world.log("t")) == [b"%d.0" % i for i in range(5)]


@run_by(simulate)
async def test_a_broker_that_is_down_holds_up_no_other(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    world.add_topic("t", 1, leader=1)
    world.add_topic("u", 1, leader=2)
    producer = await begun(world, delivery_timeout_ms=60_000)
    world.sim.machine("broker2").kill(power=True)  # it does not even refuse
    stuck = producer.send("u", b"x")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await producer.send("t", b"x")
    assert loop.time() - began < 1.0
    assert not stuck.done()
    await producer.close(timeout_ms=0)
    await world.client.close()


@run_by(simulate)
async def test_an_answer_that_leaves_a_partition_out_is_no_ack(world: World, /) -> None:
    producer = await begun(world)
    world.brokers[1].script["produce"].append(lambda _: produce.Response())
    assert (await producer.send("t", b"x")).offset == 0


@pytest.mark.parametrize("seed", range(12))
@run_by(simulate)
async def test_whatever_happens_to_requests_each_record_is_there_once_and_in_order(world: World, /, seed: int) -> None:
    chance = world.sim.random
    producer = await begun(world, compression=chance.choice(("none", "lz4")))
    broker = world.brokers[1]
    codes = (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
    for _ in range(60):
        trouble = chance.choice(("none", "none", "code", "lose", "hang up"))
        if trouble == "code":
            code = chance.choice(codes)
            broker.script["produce"].append(lambda m, code=code: broker.produced(m, lambda *_: code))
        elif trouble == "lose":
            broker.script["produce"].append(losing(broker))
        else:
            broker.script["produce"].append(lambda _, trouble=trouble: HANG_UP if trouble == "hang up" else None)
    futures = []
    for i in range(150):
        futures.append(producer.send("t", b"%d" % i, partition=0))
        if chance.random() < 0.6:
            await asyncio.sleep(chance.uniform(0, 0.02))
    await producer.flush()
    assert [f.result().offset for f in futures] == list(range(150))
    assert values(world.log("t")) == [b"%d" % i for i in range(150)]


@run_by(simulate)
async def test_a_batch_refused_although_it_is_in_the_log_raises_no_alarm(world: World, /) -> None:
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    broker = world.brokers[1]
    broker.script["produce"].append(losing(broker))
    broker.script["produce"].append(refusing(broker, ErrorCode.NOT_ENOUGH_REPLICAS, at=(1,)))
    futures = await send_batches(producer, 4, first=1)
    await producer.flush()
    assert [f.result().offset for f in futures] == [1, 2, 3, 4]


@run_by(simulate)
async def test_epochs_end_in_a_named_error(_: World, /) -> None:
    from isthmus.client import TopicPartition
    from isthmus.protocol.records import BatchBuilder

    each = Accumulator(TopicPartition("t", 0), 1, EPOCH_MAX)
    builder = BatchBuilder(max_bytes=1000)
    builder.append(1, None, b"x")
    batch = each.start(builder, 0.0, 9.0)
    batch.outcomes.append(asyncio.get_running_loop().create_future())
    each.seal()
    each.take()
    each.gap = True
    error = each.refused(batch, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, None, 0)
    assert error is not None and "make a new Producer" in str(error)
    assert list(walk(batch.data or b""))
