"""Our consumer in a group by the protocol of KIP-848: what it sends when, and what its user is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from isthmus.client import Consumer, TopicPartition
from isthmus.client.consumer_membership import ConsumerMembership
from isthmus.client.errors import CannotCarry, ClientError, UnsupportedVersion
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import consumer_group_heartbeat as wire
from isthmus.protocol.messages import metadata
from tests.client.consuming import begun, fill
from tests.client.modelled import Served
from tests.client.scripted import HANG_UP, SILENCE, ScriptedBroker, World, simulate
from tests.leftovers import no_leftovers
from tests.running import run_by

INTERVAL_S = 5.0  # of heartbeats, as the model answers
BEAT = "consumer_group_heartbeat"
POLLS_MAX = 2_000


class Reader:
    """A consumer in the group, with what its callbacks were called with."""

    def __init__(self, consumer: Consumer, on_lost: bool = True) -> None:
        self.consumer = consumer
        self.calls: list[tuple[str, list[int]]] = []
        self.on_lost = on_lost

    async def subscribe(self, *topics: str, pattern: str | None = None) -> Reader:
        def call(sign: str) -> Any:
            return lambda tps: self.calls.append((sign, [tp.partition for tp in tps]))

        wanted = topics or (() if pattern else ("t",))
        lost = call("lost") if self.on_lost else None
        await self.consumer.subscribe(wanted, call("+"), call("-"), lost, pattern=pattern)
        return self

    @property
    def owned(self) -> list[int]:
        return sorted(tp.partition for tp in self.consumer.assignment())

    @property
    def member_id(self) -> str:
        assert isinstance(self.consumer._membership, ConsumerMembership)
        return self.consumer._membership.member_id


async def reader(world: World, on_lost: bool = True, **options: Any) -> Reader:
    consumer = await begun(world, group_id="g", group_protocol="consumer", **options)
    return await Reader(consumer, on_lost).subscribe()


async def second_reader(world: World, **options: Any) -> Reader:
    consumer = Consumer(world.client, "g", group_protocol="consumer", **options)
    world.to_close.append(consumer.close)
    return await Reader(consumer).subscribe()


async def polled(*readers: Reader, until: Callable[[], bool]) -> None:
    for _ in range(POLLS_MAX):
        if until():
            return
        await asyncio.gather(*(each.consumer.poll(100, 0) for each in readers))
    raise AssertionError("it does not come to that")


async def poll_until(*readers: Reader, owned: list[list[int]]) -> None:
    await polled(*readers, until=lambda: [each.owned for each in readers] == owned)


@run_by(simulate)
async def test_members_share_and_heartbeats_keep_to_the_coordinators_interval(world: World, /) -> None:
    group = Served(world)
    first = await reader(world)
    await poll_until(first, owned=[[0, 1, 2, 3]])
    assert first.calls == [("+", [0, 1, 2, 3])]
    began, before = asyncio.get_running_loop().time(), len(group.beats)
    await first.consumer.poll(60_000)
    times = [at - began for at, _ in group.beats[before:]]
    assert len(times) == 12
    pauses = [after - at for at, after in pairwise(times)]
    assert all(INTERVAL_S <= each < INTERVAL_S + 0.1 for each in pauses)
    second = await second_reader(world)
    await polled(first, second, until=lambda: bool(second.owned) and sorted(first.owned + second.owned) == [0, 1, 2, 3])
    gone = [0, 1, 2, 3]
    for each in first.owned:
        gone.remove(each)
    assert first.calls[1:] == [("-", gone)], "it goes on with the others"
    assert second.calls == [("+", []), ("+", gone)]
    await second.consumer.close()
    await poll_until(first, owned=[[0, 1, 2, 3]])
    assert first.calls[2:] == [("+", gone)]


@run_by(simulate)
async def test_what_is_given_up_is_acknowledged_when_on_revoked_has_run_and_at_once(world: World, /) -> None:
    group = Served(world)
    first = await reader(world)
    await poll_until(first, owned=[[0, 1, 2, 3]])
    before = len(group.claims_of(first.member_id))
    revoked_at: list[float] = []
    assert first.consumer._subscriber is not None
    first.consumer._subscriber._on_revoked = lambda _: revoked_at.append(asyncio.get_running_loop().time())
    second = await second_reader(world)
    await polled(second, until=lambda: bool(second.calls))
    await asyncio.sleep(12)
    await polled(first, until=lambda: len(first.owned) < 4)
    await first.consumer.poll(10_000)
    [(at, claimed), *_] = group.claims_of(first.member_id)[before:]
    assert claimed == first.owned
    assert 0 <= at - revoked_at[0] < 0.01


@pytest.mark.parametrize("on_lost", [True, False])
@run_by(simulate)
async def test_who_is_fenced_is_told_of_its_loss_and_joins_again_by_its_id(world: World, /, on_lost: bool) -> None:
    group = Served(world)
    one = await reader(world, on_lost)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    group.model.remove(one.member_id)
    await polled(one, until=lambda: len(one.calls) >= 3)
    assert one.calls[1:] == [("lost" if on_lost else "-", [0, 1, 2, 3]), ("+", [0, 1, 2, 3])]
    assert [each.member_epoch for each in group.beats_of(one.member_id)].count(0) == 2


@run_by(simulate)
async def test_a_coordinator_that_moves_is_found_and_told_all(world: World, /) -> None:
    group = Served(world)
    group.serve(await ScriptedBroker(world, 2).start())
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    group.node = 2
    before = len(group.beats)
    await polled(one, until=lambda: len(group.beats) >= before + 3)
    first, second = (request for _, request in group.beats[before : before + 2])
    assert (first.subscribed_topic_names, first.topic_partitions[0].partitions) == (["t"], [0, 1, 2, 3])
    assert (second.subscribed_topic_names, second.topic_partitions) == (None, None)
    assert one.calls == [("+", [0, 1, 2, 3])]


@pytest.mark.parametrize("trouble", [HANG_UP, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
@run_by(simulate)
async def test_a_heartbeat_that_fails_is_sent_again_soon(world: World, /, trouble: Any) -> None:
    group = Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    said = trouble if trouble is HANG_UP else wire.Response(error_code=trouble)
    world.brokers[1].script[BEAT].extend([lambda _: said] * 2)
    await polled(one, until=lambda: not world.brokers[1].script[BEAT])
    began, before = asyncio.get_running_loop().time(), len(group.beats)
    await polled(one, until=lambda: len(group.beats) > before)
    assert group.beats[-1][0] - began < 1.0
    assert group.beats[-1][1].topic_partitions[0].partitions == [0, 1, 2, 3]
    assert one.calls == [("+", [0, 1, 2, 3])]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.UNRELEASED_INSTANCE_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
@run_by(simulate)
async def test_what_another_attempt_cannot_help_is_raised_and_the_next_poll_tries_it(
    world: World, /, code: ErrorCode
) -> None:
    Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    script = world.brokers[1].script[BEAT]
    script.extend([lambda _: wire.Response(error_code=code, error_message="it says why")] * 2)
    for _ in range(2):
        with pytest.raises(KafkaError, match="group g: it says why") as told:
            await one.consumer.poll(10_000)
        assert told.value.code == code
    await poll_until(one, owned=[[0, 1, 2, 3]])
    assert one.calls[1:] == [("lost", [0, 1, 2, 3]), ("+", [0, 1, 2, 3])]


@run_by(simulate)
async def test_a_group_that_its_coordinator_has_lost_is_made_anew_and_one_of_another_kind_is_told_of(
    world: World, /
) -> None:
    """By the same code."""
    Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    script = world.brokers[1].script[BEAT]
    script.append(lambda _: wire.Response(error_code=ErrorCode.GROUP_ID_NOT_FOUND))
    await polled(one, until=lambda: len(one.calls) == 3)
    assert one.calls[1:] == [("lost", [0, 1, 2, 3]), ("+", [0, 1, 2, 3])]
    script.extend([lambda _: wire.Response(error_code=ErrorCode.GROUP_ID_NOT_FOUND, error_message="it is classic")] * 2)
    with pytest.raises(KafkaError, match="group g: it is classic"):
        await one.consumer.poll(10_000)


@pytest.mark.parametrize("is_own", [True, False])
@run_by(simulate)
async def test_a_static_member_whose_place_is_still_its_own_releases_that_and_joins(
    world: World, /, is_own: bool
) -> None:
    """As after an answer that was lost. Where another member has it, the user is told."""
    Served(world)
    one = await reader(world, group_instance_id="i")
    unreleased = wire.Response(error_code=ErrorCode.UNRELEASED_INSTANCE_ID, error_message="it is owned")
    left = wire.Response(error_code=ErrorCode.NONE if is_own else ErrorCode.FENCED_INSTANCE_ID)
    world.brokers[1].script[BEAT].extend([lambda _: unreleased, lambda _: left])
    if not is_own:
        with pytest.raises(KafkaError, match="it is owned"):
            await one.consumer.poll(10_000)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    beats = [each.member_epoch for each in world.brokers[1].requests(BEAT)]
    assert beats[:3] == [0, -2, 0]


@run_by(simulate)
async def test_a_pattern_that_the_brokers_version_cannot_carry_is_told_of(world: World, /) -> None:
    Served(world)
    world.brokers[1].versions[wire.API.key] = (0, 0)
    one = Reader(await begun(world, group_id="g", group_protocol="consumer"))
    await one.subscribe(pattern="t.*")
    for _ in range(2):
        with pytest.raises(CannotCarry, match="subscribed_topic_regex"):
            await one.consumer.poll(10_000)
    await one.subscribe("t")
    await poll_until(one, owned=[[0, 1, 2, 3]])


@pytest.mark.parametrize(("version", "said"), [(0, None), (1, "")])
@run_by(simulate)
async def test_a_static_member_gives_up_the_pattern_that_its_place_may_have(
    world: World, /, version: int, said: str | None
) -> None:
    """From a process before it. A broker whose version has no patterns has none to give up."""
    served = Served(world)
    world.brokers[1].versions[wire.API.key] = (0, version)
    one = await reader(world, group_instance_id="i")
    await poll_until(one, owned=[[0, 1, 2, 3]])
    assert served.beats_of(one.member_id)[0].subscribed_topic_regex == said


@run_by(simulate)
async def test_a_cluster_without_the_protocol_is_told_of(world: World, /) -> None:
    Served(world)
    del world.brokers[1].versions[wire.API.key]
    one = await reader(world)
    with pytest.raises(UnsupportedVersion, match="does not support ConsumerGroupHeartbeat"):
        await one.consumer.poll(10_000)


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
@run_by(simulate)
async def test_who_closes_leaves_for_good_or_for_a_while(world: World, /, instance_id: str | None, epoch: int) -> None:
    group = Served(world)
    one = await reader(world, group_instance_id=instance_id, server_assignor="range", client_rack="r")
    await poll_until(one, owned=[[0, 1, 2, 3]])
    first = group.beats[0][1]
    assert (first.instance_id, first.server_assignor, first.rack_id) == (instance_id, "range", "r")
    await one.consumer.close()
    last = group.beats[-1][1]
    assert (last.member_id, last.member_epoch, last.instance_id) == (one.member_id, epoch, instance_id)
    assert one.calls == [("+", [0, 1, 2, 3]), ("-", [0, 1, 2, 3])]


@run_by(simulate)
async def test_another_subscription_is_sent_at_once(world: World, /) -> None:
    group = Served(world)
    world.add_topic("u")
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    for names, pattern, said in ((["u"], None, (["u"], None)), ([], "t.*", ([], "t.*")), (["t"], None, (["t"], ""))):
        await one.consumer.poll(1_000)
        before, began = len(group.beats), asyncio.get_running_loop().time()
        await one.subscribe(*names, pattern=pattern)
        while len(group.beats) == before:
            await one.consumer.poll(10)
        at, request = group.beats[before]
        assert at - began < 0.1
        assert (request.subscribed_topic_names, request.subscribed_topic_regex) == said


@run_by(simulate)
async def test_topics_that_no_broker_knows_yet_are_taken_when_one_does(world: World, /) -> None:
    group = Served(world)
    await begun(world)
    consumer = Consumer(world.client, "g", group_protocol="consumer")
    world.to_close.append(consumer.close)
    one = Reader(consumer)
    await one.subscribe(pattern=".*")
    world.client.topics.clear()
    unknown = metadata.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None)
    world.brokers[1].script["metadata"].extend([lambda _: metadata.Response(topics=[unknown])] * 2)
    began = asyncio.get_running_loop().time()
    while not one.owned:
        assert [each for each in one.calls if each[1]] == []
        await consumer.poll(100)
    assert asyncio.get_running_loop().time() - began < 2.0  # pauses, no interval of heartbeats
    assert len(group.model.members) == 1


@run_by(simulate)
async def test_a_member_that_is_not_polled_leaves_and_comes_back_with_a_poll(world: World, /) -> None:
    group = Served(world)
    one = await reader(world, max_poll_interval_ms=20_000)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    await one.consumer.poll(120_000)  # it waits, which is not a stall
    await asyncio.sleep(18)
    assert one.member_id in group.model.members
    await asyncio.sleep(3)
    assert group.beats[-1][1].member_epoch == -1
    silent = len(group.beats)
    await asyncio.sleep(60)
    assert len(group.beats) == silent
    with pytest.raises(KafkaError, match="not a member now"):
        await one.consumer.commit({TopicPartition("t", 0): 1})
    assert one.owned == [0, 1, 2, 3]
    assert one.calls == [("+", [0, 1, 2, 3])]
    await polled(one, until=lambda: len(one.calls) >= 3)
    assert one.calls[1:] == [("lost", [0, 1, 2, 3]), ("+", [0, 1, 2, 3])]


@run_by(simulate)
async def test_a_commit_is_of_the_member_and_its_epoch(world: World, /) -> None:
    group = Served(world)
    fill(world, 5)
    one = await reader(world)
    while not await one.consumer.poll(100):
        pass
    await one.consumer.commit()
    assert group.offsets["t", 0] == 5
    metadata = one.consumer.group_metadata()
    assert metadata == ("g", group.model.members[one.member_id].epoch, one.member_id, None)
    [request] = world.brokers[1].requests("offset_commit")
    assert (request.member_id, request.generation_id_or_member_epoch) == metadata[2:0:-1]


@run_by(simulate)
async def test_a_commit_under_a_stale_epoch_goes_on_under_the_next_one(world: World, /) -> None:
    """Which a heartbeat brings at once."""
    group = Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    world.brokers[1].script["offset_commit"].append(group.refuse_as_stale)
    group.model.epoch += 1
    began = asyncio.get_running_loop().time()
    await one.consumer.commit({TopicPartition("t", 0): 7})
    assert group.offsets["t", 0] == 7
    assert asyncio.get_running_loop().time() - began < 1.0
    first, second = world.brokers[1].requests("offset_commit")[-2:]
    assert second.generation_id_or_member_epoch == first.generation_id_or_member_epoch + 1


@run_by(simulate)
async def test_a_commit_does_not_outlive_the_possession(world: World, /) -> None:
    """Under a stale epoch it is not tried again once partitions went to others."""
    group = Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    world.brokers[1].script["offset_commit"].append(group.refuse_as_stale)
    commit = asyncio.ensure_future(one.consumer.commit({TopicPartition("t", 0): 7}))
    while not world.brokers[1].requests("offset_commit"):
        await asyncio.sleep(0.001)
    membership = one.consumer._membership
    assert membership is not None
    membership.holdings.lose()
    await one.consumer.poll(1)
    with pytest.raises(KafkaError) as told:
        await commit
    assert told.value.code == ErrorCode.STALE_MEMBER_EPOCH
    assert group.offsets == {}


@run_by(simulate)
async def test_a_commit_does_not_outlive_the_membership(world: World, /) -> None:
    """An empty group would take it, as of a consumer that assigns its own partitions."""
    group = Served(world)
    one = await reader(world)
    await poll_until(one, owned=[[0, 1, 2, 3]])
    world.brokers[1].script["offset_commit"].append(group.refuse_as_stale)
    group.model.remove(one.member_id)
    with pytest.raises(KafkaError) as told:
        await one.consumer.commit({TopicPartition("t", 0): 7})
    assert told.value.code == ErrorCode.STALE_MEMBER_EPOCH
    assert len(world.brokers[1].requests("offset_commit")) == 1


@pytest.mark.parametrize("answers", [True, False])
@run_by(simulate)
async def test_a_consumer_that_is_closed_while_it_joins_leaves_nothing(world: World, /, answers: bool) -> None:
    Served(world)
    one = await reader(world)
    if not answers:
        world.brokers[1].script[BEAT].extend([lambda _: SILENCE] * 3)
    async with no_leftovers():
        poll = asyncio.create_task(one.consumer.poll(60_000))
        await asyncio.sleep(0.5)
        began = asyncio.get_running_loop().time()
        await one.consumer.close(2_000)
        assert asyncio.get_running_loop().time() - began < 2.1
        with pytest.raises(ClientError, match="closed"):
            await poll
        await world.client.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"group_protocol": "share"}, "classic or consumer"),
        ({"group_protocol": "consumer", "session_timeout_ms": 6_000}, "session_timeout_ms is for"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 6_000}, "heartbeat_interval_ms is for"),
        ({"group_protocol": "consumer", "assignors": ["range"]}, "assignors is for"),
        ({"server_assignor": "uniform"}, "server_assignor is for"),
    ],
)
@run_by(simulate)
async def test_options_of_the_other_protocol_are_refused(world: World, /, options: dict[str, Any], says: str) -> None:
    await begun(world)
    with pytest.raises(ClientError, match=says):
        Consumer(world.client, "g", **options)
