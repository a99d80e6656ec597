"""The producer against a broker that has what it wrote and forgot it, or knows nothing of it: told once, and truly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Producer
from isthmus.client.accumulator import KNOWN_FOR_S
from isthmus.client.cluster import BACKOFF_MIN_MS
from isthmus.client.errors import DataLost
from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.messages import describe_producers
from tests.client.producing import begun, forget_tail, refusing, send_batches, silently, values
from tests.client.scripted import HANG_UP, SILENCE, Log, ScriptedBroker, World, simulate
from tests.running import run_by


@run_by(simulate)
async def test_the_second_batch_is_not_taken_for_the_first_by_a_broker_that_has_just_refused_that(
    world: World, /
) -> None:
    world.add_topic("t", 2)
    producer = await begun(world)
    await producer.send("t", b"elsewhere", partition=1)  # the connection is there
    broker = world.brokers[1]
    broker.script["produce"].append(refusing(broker, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    futures = await send_batches(producer, 6)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(6)]
    assert [f.result().offset for f in futures] == list(range(6))


def crash(log: Log, lost: int = 0) -> None:
    """Kafka's kill -9: of a producer it knows the last batch only; `lost` batches had not reached the log's file."""
    if lost:
        forget_tail(log, lost)
    log.producers = {
        key: (epoch, expected, {most: offsets[most] for most in [max(offsets)]} if offsets else {})
        for key, (epoch, expected, offsets) in log.producers.items()
    }


async def unanswered_and_crashed(world: World, producer: Producer, count: int, lost: int = 0) -> list[Any]:
    """`count` batches that are in the log without an answer when the broker goes down, but for `lost` of them."""
    broker = world.brokers[1]
    before = len(values(world.log("t")))
    broker.script["produce"].extend([silently(broker)] * count)
    futures = await send_batches(producer, count, first=before)
    async with asyncio.timeout(10):
        while len(values(world.log("t"))) < before + count:
            await asyncio.sleep(0.01)
    broker.script["produce"].clear()
    crash(world.log("t"), lost)
    broker.links[-1].transport.abort()
    return futures


@pytest.mark.parametrize("acknowledged", [1, 3])
@run_by(simulate)
async def test_batches_that_a_broker_has_but_forgot_are_neither_lost_nor_doubled(
    world: World, /, acknowledged: int
) -> None:
    producer = await begun(world)
    for i in range(acknowledged):
        await producer.send("t", b"%d.0" % i, partition=0)
    futures = await unanswered_and_crashed(world, producer, 4)
    futures += await send_batches(producer, 2, first=acknowledged + 4)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(acknowledged + 6)]
    assert [f.result().offset for f in futures] == [-1, -1, -1, *range(acknowledged + 3, acknowledged + 6)]
    assert len(world.brokers[1].requests("describe_producers")) == 2  # the broker did refuse one, twice
    assert world.log("t").producers[101][0] == 0


@run_by(simulate)
async def test_of_forgotten_batches_those_not_in_the_log_are_written_once(world: World, /) -> None:
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    futures = await unanswered_and_crashed(world, producer, 4, lost=2)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(5)]
    assert [f.exception() for f in futures] == [None] * 4


@pytest.mark.parametrize("lost", [4, 5])
@run_by(simulate)
async def test_acknowledged_batches_that_a_crash_took_are_told_although_others_were_under_way(
    world: World, /, lost: int
) -> None:
    producer = await begun(world)
    for i in range(3):
        await producer.send("t", b"%d.0" % i, partition=0)
    futures = await unanswered_and_crashed(world, producer, 3, lost)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(6 - lost)]
    assert all(isinstance(f.exception(), DataLost) for f in futures)
    with pytest.raises(DataLost):
        await producer.send("t", b"more", partition=0)


@pytest.mark.parametrize("answer", ["none", "refused", "no such request"])
@run_by(simulate)
async def test_a_broker_that_does_not_say_what_it_has_of_a_producer(world: World, /, answer: str) -> None:
    broker = world.brokers[1]
    if answer == "no such request":
        del broker.versions[describe_producers.API.key]
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    futures = await unanswered_and_crashed(world, producer, 3)
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if answer == "refused" else ErrorCode.NOT_LEADER_OR_FOLLOWER
    one = describe_producers.PartitionResponse(partition_index=0, error_code=code)
    said = describe_producers.Response(topics=[describe_producers.TopicResponse(name="t", partitions=[one])])

    def refuse(_: Any) -> Any:
        return said

    broker.script["describe_producers"].extend([refuse] * (100 if answer == "refused" else 3))
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(4)]
    if answer == "none":  # asked again until it says
        assert [f.exception() for f in futures] == [None] * 3
        assert len(broker.requests("describe_producers")) == 5
    else:  # nobody knows: what may be in the log is not written twice
        assert "t-0: the broker no longer knows" in str(futures[0].exception())
        assert "may or may not be in the log" in str(futures[2].exception())
        assert not isinstance(futures[0].exception(), DataLost)


@run_by(simulate)
async def test_what_only_the_leader_has_is_not_told_as_delivered(world: World, /) -> None:
    await ScriptedBroker(world, 2).start()
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    broker = world.brokers[1]
    futures = await unanswered_and_crashed(world, producer, 4)

    def waits_for_replicas(message: Any) -> Any:
        answer = broker.produced(message)
        return answer if answer.responses[0].partition_responses[0].error_code else SILENCE

    broker.script["produce"].extend([waits_for_replicas] * 50)
    await asyncio.sleep(3)
    assert len(broker.requests("describe_producers")) >= 1
    assert not any(future.done() for future in futures)
    forget_tail(world.log("t"), 4)  # the next leader has none of it
    broker.script["produce"].clear()
    world.move("t", 0, 2)
    broker.kill()
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(5)]
    assert [f.result().offset for f in futures] == [1, 2, 3, 4]


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS])
@run_by(simulate)
async def test_a_batch_that_may_be_in_the_log_is_not_inferred_from_one_behind_it_that_a_forgetful_broker_took(
    world: World, /, code: int
) -> None:
    producer = await begun(world)
    for i in range(2):
        await producer.send("t", b"%d.0" % i, partition=0)
    broker = world.brokers[1]
    world.log("t").producers = {}  # it takes any sequence now
    broker.script["produce"].extend([lambda _: HANG_UP, refusing(broker, code, at=(2,))])
    futures = await send_batches(producer, 3, first=2)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(5)]
    assert [f.result().offset for f in futures] == [2, 3, 4]


@run_by(simulate)
async def test_after_a_long_rest_the_first_batch_goes_alone_again(world: World, /) -> None:
    world.add_topic("t", 2)
    producer = await begun(world)
    for i in range(2):
        await producer.send("t", b"%d.0" % i, partition=0)
    broker = world.brokers[1]
    await asyncio.sleep(KNOWN_FOR_S + 1)
    await producer.send("t", b"elsewhere", partition=1)  # the connection is there
    world.log("t").producers = {}
    broker.script["produce"].append(refusing(broker, ErrorCode.NOT_ENOUGH_REPLICAS, at=(2,)))
    futures = await send_batches(producer, 3, first=2)
    await producer.flush()
    assert values(world.log("t")) == [b"%d.0" % i for i in range(5)]
    assert [f.result().offset for f in futures] == [2, 3, 4]


@run_by(simulate)
async def test_what_was_appended_and_refused_when_its_leader_went_is_neither_lost_nor_doubled(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    broker, log = world.brokers[1], world.log("t")
    appended: list[int] = []

    def appends_and_goes(message: Any) -> Any:
        answer = broker.produced(message)
        one = answer.responses[0].partition_responses[0]
        one.error_code, one.base_offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        appended.append(1)
        if len(appended) == 3:
            crash(log)
            world.move("t", 0, 2)
        return answer

    broker.script["produce"].extend([appends_and_goes] * 3)
    futures = await send_batches(producer, 3, first=1)
    await producer.flush()
    assert len(appended) == 3 and second.requests("describe_producers")
    assert values(log) == [b"%d.0" % i for i in range(4)]
    assert [f.result().offset for f in futures] == [-1, -1, 3]


@run_by(simulate)
async def test_a_batch_refused_while_the_one_before_it_hangs_is_not_sent_without_pause(world: World, /) -> None:
    second = await ScriptedBroker(world, 2).start()
    producer = await begun(world)
    await producer.send("t", b"0.0", partition=0)
    broker = world.brokers[1]
    broker.script["produce"].append(lambda _: SILENCE)
    futures = await send_batches(producer, 1, first=1)
    world.move("t", 0, 2)
    await world.client.refresh_metadata(["t"])
    futures += await send_batches(producer, 1, first=2)
    await asyncio.sleep(5)
    assert 2 <= len(second.requests("produce")) <= 5_000 / BACKOFF_MIN_MS * 2
    await producer.flush()
    assert values(world.log("t")) == [b"0.0", b"1.0", b"2.0"]
    assert [f.result().offset for f in futures] == [1, 2]
