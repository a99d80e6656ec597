"""What a member hands over around a rebalance and another subscription."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, Producer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.errors import ClientError
from tests.client.staging import (
    PARTITIONS,
    TP,
    Calls,
    Stage,
    at_hand,
    joined,
    membership_of,
    staged,
)
from tests.running import run_by


@run_by(staged)
async def test_a_poll_that_is_cancelled_in_a_rebalance_is_gone_on_with(stage: Stage, /) -> None:
    async def impatient(client: Client) -> None:
        calls: list[int] = []

        async def assigned(tps: list[TopicPartition]) -> None:
            calls.append(len(tps))
            if len(calls) < 3:
                await asyncio.sleep(10)

        consumer = Consumer(client, "g", session_timeout_ms=6_000)
        await consumer.subscribe(["t"], assigned)
        for seconds in (0.0001, 0.001, 0.01, 0.1, 0.5, 1.0):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(10_000), seconds)
        while len(calls) < 3:
            assert await consumer.poll(500) == {}
        assert calls == [4, 4, 4] and len(consumer.assignment()) == 4
        await consumer.close()

    await stage.work(impatient)


@pytest.mark.parametrize("waits_for", ["a_leader", "its_callback"])
@run_by(at_hand)
async def test_a_consumer_that_is_closed_while_it_joins_is_assigned_nothing(
    client: Client, /, waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_waiting, goes_on = asyncio.Event(), asyncio.Event()
    calls: list[int] = []

    async def wait(*_: Any) -> None:
        is_waiting.set()
        await goes_on.wait()

    async def assigned(tps: list[TopicPartition]) -> None:
        calls.append(len(tps))
        await wait()

    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"], assigned)
    if waits_for == "a_leader":
        monkeypatch.setattr(client, "leader", lambda tp: None)
        monkeypatch.setattr(client, "wait_for_topics", wait)
    poll = asyncio.create_task(consumer.poll(10_000))
    await is_waiting.wait()
    await consumer.close()
    assert consumer.assignment() == []
    goes_on.set()
    on_at = asyncio.get_running_loop().time()
    with pytest.raises(ClientError, match="closed"):
        await poll
    assert asyncio.get_running_loop().time() - on_at < 0.001  # turns of the loop, no wait for data
    assert consumer.assignment() == []
    assert calls == ([] if waits_for == "a_leader" else [4])


@run_by(at_hand, sent=40)
async def test_a_rebalance_gives_out_nothing_of_what_was_fetched_before_it(client: Client, /) -> None:
    """Another member may have read on and committed since."""
    consumer = await joined(client, Calls())
    while not await consumer.poll(5_000, 1):
        pass
    while len(consumer._fetcher.ready) + len(consumer._chunks) < PARTITIONS:
        await consumer._fetcher.arrived.wait()
        await asyncio.sleep(0.001)
    await consumer.commit({TopicPartition("t", index): 7 for index in range(PARTITIONS)})
    membership_of(consumer)._must_join()
    found: list[int] = []
    while len(found) < 3 * PARTITIONS:
        found += [record.offset for each in (await consumer.poll(5_000)).values() for record in each]
    assert sorted(found) == sorted([7, 8, 9] * PARTITIONS)
    await consumer.close()


@pytest.mark.parametrize("during", ["a_join", "the_reading", "a_poll"])
@pytest.mark.parametrize("topics", [["u"], []])
@run_by(at_hand, sent=40)
async def test_another_subscription_counts_whenever_it_comes(client: Client, /, topics: list[str], during: str) -> None:
    """Also while the first one's join, or a poll, is under way; of no topics, it ends the reading."""
    await Admin(client).create_topics([NewTopic("u", 1)])
    producer = Producer(client)
    await producer.start()
    producer.send("u", b"of u")
    await producer.close()
    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"])
    found: list[bytes] = []
    if during == "a_join":
        await consumer.poll(0)
        assert consumer.must_poll and not consumer.assignment()
    else:
        assert len(await consumer.poll(5_000, 1)) == 1
    if during == "a_poll":
        for tp in consumer.assignment():
            consumer.seek(tp, 10)  # the end
        poll = asyncio.create_task(consumer.poll(10_000))
        await asyncio.sleep(0.5)
        await consumer.subscribe(topics)
        assert list(await poll) == [TopicPartition(name, 0) for name in topics]
        for tp in consumer.assignment():
            consumer.seek(tp, 0)
    else:
        await consumer.subscribe(topics)
    for _ in range(10):
        for records in (await consumer.poll(500)).values():
            found += [record.value or b"" for record in records]
    assert found == [b"of u"] * len(topics)
    assert consumer.assignment() == [TopicPartition(name, 0) for name in topics]
    await consumer.close()


@run_by(at_hand, sent=40)
async def test_an_error_of_on_revoked_is_raised_once_and_the_partitions_are_given_up(client: Client, /) -> None:
    calls: list[int] = []

    def revoked(tps: list[TopicPartition]) -> None:
        calls.append(len(tps))
        raise ZeroDivisionError

    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"], on_revoked=revoked)
    found = 0
    while found < 3:
        found += sum(map(len, (await consumer.poll(100, 3)).values()))
    membership_of(consumer)._must_join()
    with pytest.raises(ZeroDivisionError):
        await consumer.poll(5_000)
    assert consumer.assignment() == [] and calls == [4]
    found = 0
    while found < 40:
        found += sum(map(len, (await consumer.poll(1_000)).values()))
    assert calls == [4]
    with pytest.raises(ZeroDivisionError):
        await consumer.close()


@run_by(at_hand, sent=40)
async def test_what_a_poll_fetches_right_after_its_rebalance_is_given_out(client: Client, /) -> None:
    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"])
    found: list[bytes] = []
    for count in (40, 80, 120):
        while len(found) < count:
            for records in (await consumer.poll(20_000, 7)).values():
                found += [record.value or b"" for record in records]
        await consumer.commit()
        membership_of(consumer)._must_join()
        producer = Producer(client)
        await producer.start()
        for n in range(count, count + 40):
            producer.send("t", b"%d" % n, partition=n % PARTITIONS)
        await producer.close()
    assert sorted(map(int, found)) == list(range(120))
    await consumer.close()


@run_by(at_hand)
async def test_partitions_are_assigned_by_hand_or_come_from_the_group_never_both(client: Client, /) -> None:
    """Else the consumer would read on what the group gives to others."""
    consumer = Consumer(client, "g")
    consumer.assign({TP: 0})
    with pytest.raises(ClientError, match="by hand"):
        await consumer.subscribe(["t"])
    consumer.assign({})
    await consumer.subscribe(["t"])
    with pytest.raises(ClientError, match="come from its group"):
        consumer.assign({TP: 0})
    await consumer.close()
