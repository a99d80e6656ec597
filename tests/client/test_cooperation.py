"""Classic members that rebalance cooperatively (KIP-429), patterns, and members that are not polled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from isthmus.client import Admin, Client, Consumer, TopicPartition
from isthmus.client.admin import NewTopic
from isthmus.client.errors import ClientError
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import offset_commit
from tests.client.staging import TP, Calls, Member, Stage, at_hand, committed, joined, membership_of, staged
from tests.running import run_by

STICKY = ["cooperative-sticky"]
POLLS_MAX = 1_000


def sums(member: Member) -> dict[int, int]:
    """How often each partition was assigned, less how often it was revoked."""
    found: dict[int, int] = {}
    for sign, partitions in member.calls:
        for each in partitions:
            found[each] = found.get(each, 0) + (1 if sign == "+" else -1)
    return found


@run_by(staged)
async def test_what_a_member_keeps_is_neither_revoked_nor_assigned_again(stage: Stage, /) -> None:
    first = Member(stage.sim, stage.host, "a", assignors=STICKY).start()
    await stage.shared([first])
    kept_calls = list(first.calls)
    second = Member(stage.sim, stage.host, "b", assignors=STICKY).start()
    await stage.shared([first, second])
    assert kept_calls == [("+", [0, 1, 2, 3])]
    assert [each for each in first.calls[1:] if each[1]] == [("-", second.owned)]
    assert [each for each in second.calls if each[1]] == [("+", second.owned)]
    await second.stop()
    await stage.shared([first])
    assert sums(first) == {0: 1, 1: 1, 2: 1, 3: 1}
    await first.stop()
    assert first.calls[-1] == ("-", [0, 1, 2, 3])


@run_by(staged)
async def test_members_read_and_commit_on_while_the_group_waits_for_one(stage: Stage, /) -> None:
    first = Member(stage.sim, stage.host, "a", assignors=STICKY).start()
    second = Member(stage.sim, stage.host, "b", assignors=STICKY).start()
    await stage.shared([first, second])
    kept = list(first.owned)
    second.stall_s = 30.0  # in which the group waits for its join
    await asyncio.sleep(1)
    third = Member(stage.sim, stage.host, "c", assignors=STICKY).start()
    await asyncio.sleep(5)
    assert first.owned == kept and not third.owned
    before = len(first.read)
    await stage.send(40)
    await stage.sim.until(lambda: len(first.read) - before >= 10 * len(kept), "its own partitions' records", 10)
    offsets: dict[TopicPartition, int] = {}

    async def look(client: Client) -> None:
        offsets.update(await Admin(client).group_offsets("g"))

    await asyncio.sleep(1)
    await stage.work(look)
    assert {tp.partition: offset for tp, offset in offsets.items() if tp.partition in kept} == dict.fromkeys(kept, 10)
    await stage.shared([first, second, third])
    for each in (first, second, third):
        await each.stop()


@run_by(staged)
async def test_a_member_whose_polls_are_rare_gives_up_what_it_must_whoever_wants_to_rebalance_again(
    stage: Stage, /
) -> None:
    """A coordinator of the consumer protocol has it join again with each heartbeat, until it has given that up."""
    slow = Member(stage.sim, stage.host, "a", assignors=STICKY).start()
    await stage.shared([slow])
    await stage.send(4_000)  # polls return at once

    async def slow_down() -> None:
        while True:
            slow.stall_s = 3.0  # some heartbeats
            await asyncio.sleep(0.5)

    slowness = asyncio.create_task(slow_down())
    other = Member(stage.sim, stage.host, "b", group_protocol="consumer").start()
    await stage.shared([slow, other])
    slowness.cancel()
    for each in (slow, other):
        await each.stop()


@pytest.mark.parametrize("seed", range(5))
@run_by(staged)
async def test_a_group_goes_over_from_eager_to_cooperative_with_two_restarts_of_each_member(
    stage: Stage, /, seed: int
) -> None:
    """As Kafka's documentation has it: first both are listed, then one."""
    members = [Member(stage.sim, stage.host, name, assignors=["range"]).start() for name in "ab"]
    await stage.shared(members)
    for bounce, assignors in enumerate((["cooperative-sticky", "range"], STICKY)):
        for index, name in enumerate("ab"):
            await members[index].stop()
            members[index] = Member(stage.sim, stage.host, f"{name}{bounce}", assignors=assignors).start()
            await stage.shared(members)
    await stage.send(40)
    await stage.all_read(members)
    for each in members:
        await each.stop()


@run_by(at_hand, sent=40)
async def test_what_was_fetched_of_partitions_that_stay_is_kept(client: Client, /) -> None:
    consumer = Consumer(client, "g", assignors=STICKY)
    await consumer.subscribe(["t"])
    found: list[int] = []
    while len(found) < 40:
        if found:
            membership_of(consumer)._must_join()
        for records in (await consumer.poll(1_000, 3)).values():
            found += [int(record.value or b"") for record in records]
    assert sorted(found) == list(range(40))
    await consumer.close()


@pytest.mark.parametrize("told_by", ["commit", "join"])
@run_by(at_hand, sent=40)
async def test_a_cooperative_member_that_was_put_out_loses_all(client: Client, /, told_by: str) -> None:
    calls = Calls()
    consumer = await joined(client, calls, assignors=STICKY)
    membership = membership_of(consumer)
    await membership._heart.stop()
    await asyncio.sleep(30)
    if told_by == "commit":
        with pytest.raises(KafkaError, match="not a member now"):
            await consumer.commit({TP: 1})
    else:
        membership._must_join()
    await polled(consumer, lambda: len(calls.made) >= 3)
    assert calls.made == [("assigned", 4), ("lost", 4), ("assigned", 4)]
    await consumer.commit({TP: 1})
    assert (await committed(client))[TP] == 1
    await consumer.close()


@pytest.mark.parametrize("options", [{"assignors": STICKY}, {"group_protocol": "consumer"}])
@run_by(at_hand, sent=40)
async def test_another_list_of_topics_takes_and_gives_only_what_differs(
    client: Client, /, options: dict[str, Any]
) -> None:
    """Of two members that change their topics one after the other, while they read."""
    await Admin(client).create_topics([NewTopic("u", 2), NewTopic("v", 2)])
    calls: list[tuple[str, str, list[str]]] = []
    readers = {"a": Consumer(client, "g", **options), "b": Consumer(client, "g", **options)}

    async def subscribe(name: str, *topics: str) -> None:
        def call(sign: str) -> Callable[[list[TopicPartition]], None]:
            return lambda tps: calls.append((name, sign, names(tps)))

        await readers[name].subscribe(topics, call("+"), call("-"), call("lost"))

    def names(tps: list[TopicPartition]) -> list[str]:
        return sorted(f"{tp.topic}{tp.partition}" for tp in tps)

    def has(name: str) -> list[str]:
        return names(readers[name].assignment())

    def changed() -> list[tuple[str, str, list[str]]]:
        """What the callbacks were called with since this was asked."""
        found = [each for each in calls if each[2]]
        calls.clear()
        return sorted(found)

    async def come_to(holds: Callable[[], bool]) -> None:
        for _ in range(POLLS_MAX):
            if holds() and not any(each.must_poll for each in readers.values()):
                return
            await asyncio.gather(*(each.poll(100, 1) for each in readers.values()))
        raise AssertionError(f"it does not come to that: {calls}")

    for name in readers:
        await subscribe(name, "t")
    await come_to(lambda: len(has("a")) == len(has("b")) == 2)
    own = {name: has(name) for name in readers}
    changed()
    await subscribe("a", "t", "u")
    await come_to(lambda: "u0" in has("a") and len(has("a")) + len(has("b")) == 6)
    given = [each for each in own["a"] if each not in has("a")]  # to be as many as each other
    told = [("a", "+", ["u0", "u1"])] + [each for each in (("a", "-", given), ("b", "+", given)) if given]
    assert changed() == sorted(told)
    own = {name: has(name) for name in readers}
    await subscribe("b", "t", "v")
    await come_to(lambda: "v0" in has("b") and len(has("a")) + len(has("b")) == 8)
    given = [each for each in own["b"] if each not in has("b")]
    told = [("b", "+", ["v0", "v1"])] + [each for each in (("b", "-", given), ("a", "+", given)) if given]
    assert changed() == sorted(told)
    own = {name: has(name) for name in readers}
    await subscribe("a", "u")
    await come_to(lambda: has("a") == ["u0", "u1"] and len(has("b")) == 6)
    gone = [each for each in own["a"] if each[0] == "t"]
    assert changed() == [("a", "-", gone), ("b", "+", gone)]
    for each in readers.values():
        await each.close()


@run_by(at_hand)
async def test_a_commit_across_a_rebalance_that_took_nothing_is_of_the_new_generation(
    client: Client, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = await joined(client, Calls(), assignors=STICKY)
    membership = membership_of(consumer)
    ask = membership.coordinator.ask

    async def late(message: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(message, offset_commit.Request):
            monkeypatch.setattr(membership.coordinator, "ask", ask)
            generation = membership.generation
            membership._must_join()
            await polled(consumer, lambda: membership.generation > generation and not membership.must_poll)
        return await ask(message, *rest, **named)

    monkeypatch.setattr(membership.coordinator, "ask", late)
    await consumer.commit({TP: 3})
    assert await committed(client) == {TP: 3}
    await consumer.close()


# --- Patterns ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignors", [None, STICKY])
@run_by(at_hand)
async def test_topics_that_match_a_pattern_are_read_from_when_they_come_until_they_go(
    client: Client, /, assignors: list[str] | None
) -> None:
    admin = Admin(client)
    consumer = Consumer(client, "g", assignors=assignors)
    await consumer.subscribe(pattern="t|new-[0-9]+")

    async def has(*topics: str) -> None:
        await polled(consumer, lambda: sorted({tp.topic for tp in consumer.assignment()}) == list(topics))

    await has("t")
    await admin.create_topics([NewTopic("new-1", 2), NewTopic("new-", 1), NewTopic("a-new-1", 1)])
    await has("new-1", "t")
    assert len(consumer.assignment()) == 6
    await admin.delete_topics(["new-1"])
    await has("t")
    await consumer.subscribe(pattern="_.*")  # whose internal topics no pattern matches
    await has()
    await consumer.close()


@run_by(at_hand)
async def test_a_subscription_is_by_names_or_by_a_pattern_that_is_one(client: Client, /) -> None:
    consumer = Consumer(client, "g")
    with pytest.raises(ClientError, match="not both"):
        await consumer.subscribe(["t"], pattern="t")
    with pytest.raises(ClientError, match=r"'\(' is no regular expression"):
        await consumer.subscribe(pattern="(")
    await consumer.close()


# --- Polls ------------------------------------------------------------------------------------------


@run_by(at_hand, sent=40)
async def test_a_member_that_is_not_polled_leaves_and_comes_back_with_a_poll(client: Client, /) -> None:
    calls = Calls()
    consumer = await joined(client, calls, max_poll_interval_ms=20_000)
    await consumer.poll(1)
    consumer.pause(consumer.assignment())
    assert await consumer.poll(120_000) == {}  # it waits, which is not a stall
    consumer.resume(consumer.assignment())
    await asyncio.sleep(18)
    assert await members_of(client) == 1
    await asyncio.sleep(4)
    assert await members_of(client) == 0, "at once, not at the end of a session"
    with pytest.raises(KafkaError) as told:
        await consumer.commit({TP: 1})
    assert told.value.code == ErrorCode.UNKNOWN_MEMBER_ID
    assert calls.made == [("assigned", 4)]
    await polled(consumer, lambda: len(calls.made) >= 3)
    assert calls.made[1:] == [("lost", 4), ("assigned", 4)]
    await consumer.close()


@run_by(at_hand)
async def test_a_callback_that_takes_too_long_is_a_stall_too(client: Client, /) -> None:
    async def revoked(_: list[TopicPartition]) -> None:
        await asyncio.sleep(60)

    consumer = Consumer(client, "g", max_poll_interval_ms=20_000)
    await consumer.subscribe(["t"], on_revoked=revoked)
    await polled(consumer, lambda: bool(consumer.assignment()))
    membership_of(consumer)._must_join()
    poll = asyncio.create_task(consumer.poll(100))
    await asyncio.sleep(30)
    assert await members_of(client) == 0
    assert not poll.done()
    await poll
    await consumer.subscribe(["t"])
    await polled(consumer, lambda: bool(consumer.assignment()))
    assert await members_of(client) == 1
    await consumer.close()


async def polled(consumer: Consumer, holds: Callable[[], bool]) -> None:
    """Poll until it holds."""
    for _ in range(POLLS_MAX):
        if holds():
            return
        await consumer.poll(1_000, 0)
        await asyncio.sleep(0.1)
    raise AssertionError("it does not come to that")


async def members_of(client: Client) -> int:
    [group] = await Admin(client).describe_groups(["g"])
    return len(group.members)
