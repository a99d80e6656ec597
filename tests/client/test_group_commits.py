"""What a group's member commits, and what it may not: put out, replaced, closed, or of another generation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, GroupMetadata, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.errors import ClientError, ConnectionLost
from isthmus.core_broker.coordinators.runtime import Producer
from isthmus.core_broker.storage.log.append import UNSEQUENCED
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import offset_commit
from isthmus.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from tests.client.staging import (
    PARTITIONS,
    TP,
    Calls,
    Stage,
    at_hand,
    committed,
    joined,
    membership_of,
    session_ended,
)
from tests.running import run_by


@pytest.mark.parametrize("on_lost", [True, False])
@pytest.mark.parametrize("told_by", ["heartbeat", "commit"])
@run_by(at_hand, sent=40)
async def test_a_member_that_was_put_out_commits_nothing_and_is_told_of_its_loss(
    client: Client, /, told_by: str, on_lost: bool
) -> None:
    """Its group is empty, which takes commits of consumers that are no members: offsets would go back."""
    calls = Calls()
    consumer = await joined(client, calls, on_lost)
    await session_ended(consumer)
    await Consumer(client, "g").commit({TP: 9})
    membership = membership_of(consumer)
    if told_by == "heartbeat":
        membership._heart.start()
        await membership.changed.wait()
        assert membership.generation < 0
    else:
        with pytest.raises(KafkaError, match="group g: this consumer is not a member now") as told:
            await consumer.commit({TP: 1})
        assert told.value.code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)
    for offsets in ({TP: 1}, None):
        with pytest.raises(KafkaError, match="group g: this consumer is not a member now") as told:
            await consumer.commit(offsets)
        assert told.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert await committed(client) == {TP: 9}
    assert calls.made == [("assigned", 4)]
    found: list[int] = []
    while not found:
        found = [record.offset for record in (await consumer.poll(5_000)).get(TP, ())]
    assert found == [9]
    assert calls.made == [("assigned", 4), ("lost" if on_lost else "revoked", 4), ("assigned", 4)]
    await consumer.commit()
    assert (await committed(client))[TP] == 10
    await consumer.close()
    assert calls.made[3:] == [("revoked", 4)]


@run_by(at_hand)
async def test_a_member_whose_place_another_took_is_told_of_its_loss_and_does_not_take_it_back(
    client: Client, /
) -> None:
    calls, others = Calls(), Calls()
    first = await joined(client, calls, group_instance_id="one")
    second = await joined(client, others, group_instance_id="one")
    await membership_of(first).changed.wait()
    for _ in range(3):
        with pytest.raises(KafkaError) as told:
            await first.poll(5_000)
        assert told.value.code == ErrorCode.FENCED_INSTANCE_ID
    assert calls.made == [("assigned", 4), ("lost", 4)]
    await second.poll(3_000)
    await second.commit({TP: 1})
    assert others.made == [("assigned", 4)]
    await first.close()
    await second.close()


@run_by(at_hand)
async def test_a_member_that_closes_after_it_was_put_out_is_told_of_its_loss(client: Client, /) -> None:
    calls = Calls()
    consumer = await joined(client, calls)
    await session_ended(consumer)
    with pytest.raises(KafkaError):
        await consumer.commit({TP: 1})
    await consumer.close()
    assert calls.made == [("assigned", 4), ("lost", 4)]


@run_by(at_hand)
async def test_a_closed_consumer_commits_nothing(client: Client, /) -> None:
    """It has left its group, which takes commits of consumers that are no members once it is empty."""
    consumer = await joined(client, Calls())
    await consumer.commit({TP: 5})
    await consumer.close()
    for offsets in ({TP: 1}, None):
        with pytest.raises(ClientError, match="closed"):
            await consumer.commit(offsets)
    with pytest.raises(ClientError, match="closed"):
        await consumer.poll(100)
    assert await committed(client) == {TP: 5}


@run_by(at_hand)
async def test_a_commit_that_is_tried_again_is_of_the_generation_it_began_in(
    client: Client, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition may be another member's since."""
    consumer = await joined(client, Calls())
    membership = membership_of(consumer)
    ask = membership.coordinator.ask

    async def lost(message: Any, *rest: Any, **named: Any) -> Any:
        if not isinstance(message, offset_commit.Request):
            return await ask(message, *rest, **named)
        monkeypatch.setattr(membership.coordinator, "ask", ask)
        membership._must_join()
        await consumer.poll(5_000)
        await consumer.commit({TP: 7})
        raise ConnectionLost("the connection broke with the commit under way")

    monkeypatch.setattr(membership.coordinator, "ask", lost)
    with pytest.raises(KafkaError) as told:
        await consumer.commit({TP: 3})
    assert told.value.code == ErrorCode.ILLEGAL_GENERATION
    assert await committed(client) == {TP: 7}
    await consumer.commit({TP: 8})  # the member itself is in its group as before
    await consumer.close()


@pytest.mark.parametrize("most", [1, 3])
@run_by(at_hand, sent=40)
async def test_a_commit_in_on_revoked_is_of_what_was_handed_over(client: Client, /, most: int) -> None:
    """What was fetched beyond it is neither handed over nor committed, and read again by who has the partition then."""
    found: dict[TopicPartition, list[int]] = {}
    revocations = 0

    async def revoked(tps: list[TopicPartition]) -> None:
        nonlocal revocations
        revocations += 1
        await consumer.commit()
        assert await committed(client) == {tp: len(found.get(tp, ())) for tp in tps}

    consumer = Consumer(client, "g", session_timeout_ms=6_000)
    await consumer.subscribe(["t"], on_revoked=revoked)
    while (count := sum(map(len, found.values()))) < 40:
        if count // 10 > revocations:
            membership_of(consumer)._must_join()
        for tp, records in (await consumer.poll(5_000, most)).items():
            found.setdefault(tp, []).extend(record.offset for record in records)
    assert found == {TopicPartition("t", index): list(range(10)) for index in range(PARTITIONS)}
    assert revocations == 3
    await consumer.close()


@run_by(at_hand, sent=40)
async def test_the_offset_of_a_topic_made_anew_is_not_committed(client: Client, /) -> None:
    consumer = Consumer(client, "g")
    await client.refresh_metadata(["t"])
    consumer.assign({TP: 0})
    assert len((await consumer.poll(5_000))[TP]) == 10
    await Admin(client).delete_topics(["t"])
    await Admin(client).create_topics([NewTopic("t", PARTITIONS)])
    await client.refresh_metadata(["t"])
    while not consumer._fetcher.unsettled:
        await asyncio.sleep(0.1)
    await consumer.commit()
    assert await committed(client) == {}
    assert await consumer.poll(1_000) == {}
    await consumer.commit()
    assert await committed(client) == {TP: 0}
    await consumer.close()


@run_by(at_hand, sent=40)
async def test_offsets_of_a_hand_assigned_consumer_are_kept_by_the_group(client: Client, /) -> None:
    tp = TopicPartition("t", 1)
    await client.refresh_metadata(["t"])
    consumer = Consumer(client, "hand", auto_offset_reset="none")
    assert await consumer.committed([tp]) == {}
    await consumer.commit({tp: 4})
    assert await consumer.committed([tp]) == {tp: 4}
    consumer.assign({tp: None})
    found = await consumer.poll(1_000)
    assert found[tp][0].offset == 4
    await consumer.close()


@run_by(at_hand)
async def test_the_metadata_of_a_group_are_those_of_the_present_membership(client: Client, /) -> None:
    """What a transaction commits offsets with (KIP-447)."""
    consumer = await joined(client, Calls(), group_instance_id="one")
    membership = membership_of(consumer)
    found = consumer.group_metadata()
    assert found == GroupMetadata("g", membership.generation, membership.member_id, "one")
    assert found.generation_id > 0 and found.member_id
    membership.told_of_loss(ErrorCode.UNKNOWN_MEMBER_ID, found.generation_id)
    with pytest.raises(KafkaError, match="not a member now"):
        consumer.group_metadata()
    await consumer.close()
    by_hand = Consumer(client, "h")
    assert by_hand.group_metadata() == GroupMetadata("h", -1, "", None)
    await by_hand.close()
    alone = Consumer(client)
    with pytest.raises(ClientError, match="needs a group_id"):
        alone.group_metadata()
    await alone.close()


@run_by(at_hand, sent=40)
async def test_a_consumer_begins_at_an_offset_that_no_open_transaction_may_change(
    client: Client, stage: Stage, /
) -> None:
    consumer = Consumer(client, "g")
    await client.refresh_metadata(["t"])
    await consumer.commit({TP: 3})
    key, value = OffsetCommitKey(group="g", topic="t", partition=0), OffsetCommitValue(offset=5, metadata="")
    assert stage.host.broker is not None
    host = stage.host.broker._groups.host

    async def begin() -> None:
        shard = host.shards.active(0)
        guard = shard.partition.begin_verification(7, 0, UNSEQUENCED, False, 0)
        host.shards.write(shard, [(key, value)], producer=Producer(7, 0), guard=guard)

    async def end() -> None:
        host.complete_transaction(0, 7, 0, 0, True, 1)

    process = stage.host.machine.process
    assert process is not None
    await process.outcome(begin())
    assert await committed(client) == {TP: 3}, "who only looks on does not wait"
    with pytest.raises(KafkaError) as caught:
        await consumer.committed([TP], 1_000)
    assert caught.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    consumer.assign({TP: None})
    assert await consumer.poll(1_000) == {}
    waits = asyncio.ensure_future(consumer.poll(10_000))
    await asyncio.sleep(1)
    assert not waits.done()
    await process.outcome(end())
    assert [record.offset for record in (await waits)[TP]] == [5, 6, 7, 8, 9]
    await consumer.close()
