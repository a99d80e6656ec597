"""Groups that change their protocol while members wait, restart and commit, over a real log."""

from __future__ import annotations

from typing import Any

from isthmus.core_broker.purgatory import Pending
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import consumer_group_heartbeat as chb
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import sync_group as sg
from isthmus.protocol.messages.consumer_protocol import (
    Assignment,
    Subscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from tests.core_broker.coordinators.desk import Desk, simulated
from tests.running import run_by

AT_ONCE = {"group.consumer.assignment.interval.ms": "0", "group.initial.rebalance.delay.ms": "0"}
SHARES = [TopicPartition(topic="t", partitions=[0, 1])]


def classic_join(member_id: str, *, has: list[TopicPartition] | None = None) -> jg.Request:
    metadata = encode_subscription(Subscription(topics=["t"], owned_partitions=has or []))
    return jg.Request(
        group_id="g",
        member_id=member_id,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        protocol_type="consumer",
        protocols=[jg.JoinGroupRequestProtocol(name="range", metadata=metadata)],
    )


async def classic_member(desk: Desk) -> tuple[str, int]:
    """One stable member of a classic group, with all of the topic: its id and generation."""
    first = await desk.ask(classic_join(""), 5)
    joined = await desk.ask(classic_join(first.member_id), 5)
    given = encode_assignment(Assignment(assigned_partitions=SHARES))
    rows = [sg.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=given)]
    await desk.ask(sync_request(joined.member_id, joined.generation_id, assignments=rows), 3)
    return joined.member_id, joined.generation_id


def sync_request(member_id: str, generation: int, **fields: Any) -> sg.Request:
    return sg.Request(group_id="g", member_id=member_id, generation_id=generation, **fields)


async def classic_beat(desk: Desk, member_id: str, generation: int) -> E:
    request = hb.Request(group_id="g", member_id=member_id, generation_id=generation)
    return E((await desk.ask(request, 4)).error_code)


async def consumer_beat(desk: Desk, epoch: int, **fields: Any) -> chb.Response:
    response: chb.Response = await desk.ask(chb.Request(group_id="g", member_id="a", member_epoch=epoch, **fields), 1)
    return response


async def consumer_join(desk: Desk) -> chb.Response:
    return await consumer_beat(
        desk, 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )  # fmt: skip


async def kind(desk: Desk) -> tuple[str, str]:
    [group] = (await desk.ask(lsg.Request(), 5)).groups
    return group.group_type, group.group_state


@run_by(simulated, options=AT_ONCE)
async def test_a_consumer_joins_a_classic_group_whose_member_goes_on(desk: Desk, /) -> None:
    member, generation = await classic_member(desk)
    assert (await consumer_join(desk)).member_epoch == generation + 1
    assert await kind(desk) == ("consumer", "Reconciling")
    await desk.restart()
    assert await kind(desk) == ("consumer", "Reconciling")
    assert await classic_beat(desk, member, generation) == E.REBALANCE_IN_PROGRESS
    assert (await desk.ask(classic_join(member, has=SHARES), 5)).generation_id == generation
    keeps = decode_assignment((await desk.ask(sync_request(member, generation), 3)).assignment).assigned_partitions
    assert (await desk.ask(classic_join(member, has=keeps), 5)).generation_id == generation + 1
    assert len((await consumer_beat(desk, generation + 1)).assignment.topic_partitions) == 1
    assert await kind(desk) == ("consumer", "Stable")


@run_by(simulated, options=AT_ONCE)
async def test_requests_that_wait_in_a_classic_group_are_sent_back_when_it_is_upgraded(desk: Desk, /) -> None:
    member, generation = await classic_member(desk)
    second = await desk.ask(classic_join(""), 5)
    waits = await desk.start_asking(classic_join(second.member_id), 5)
    assert isinstance(waits, Pending) and not waits.done
    assert (await consumer_join(desk)).error_code == E.NONE
    assert (waits.answer.error_code, waits.answer.member_id) == (E.REBALANCE_IN_PROGRESS, second.member_id)
    assert (await desk.ask(classic_join(second.member_id), 5)).error_code == E.NONE


@run_by(simulated, options=AT_ONCE)
async def test_the_last_consumer_leaves_a_classic_group_behind(desk: Desk, /) -> None:
    member, generation = await classic_member(desk)
    await desk.commit(5, member=member, generation=generation)
    await consumer_join(desk)
    await consumer_beat(desk, -1)
    assert await kind(desk) == ("classic", "PreparingRebalance")
    assert await classic_beat(desk, member, generation + 1) == E.REBALANCE_IN_PROGRESS
    joined = await desk.ask(classic_join(member), 5)
    assert (joined.error_code, joined.generation_id, joined.leader) == (E.NONE, generation + 2, member)
    await desk.ask(sync_request(member, joined.generation_id), 3)
    for _ in range(2):
        assert await kind(desk) == ("classic", "Stable")
        assert await desk.fetched() == (5, -1, "")
        assert await classic_beat(desk, member, joined.generation_id) == E.NONE
        await desk.restart()


@run_by(simulated, options=AT_ONCE)
async def test_sessions_of_a_group_that_is_classic_again_end(desk: Desk, /) -> None:
    await classic_member(desk)
    await consumer_join(desk)
    await consumer_beat(desk, -1)
    await desk.sim.sleep(11)
    assert await kind(desk) == ("classic", "Empty")


@run_by(simulated, options=AT_ONCE)
async def test_classic_members_leave_a_consumer_group(desk: Desk, /) -> None:
    member, generation = await classic_member(desk)
    await consumer_join(desk)
    rows = [lg.MemberIdentity(member_id=member), lg.MemberIdentity(member_id="x")]
    answer = await desk.ask(lg.Request(group_id="g", members=rows), 5)
    assert [each.error_code for each in answer.members] == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert await classic_beat(desk, member, generation) == E.UNKNOWN_MEMBER_ID
    assert len((await consumer_beat(desk, generation + 1)).assignment.topic_partitions[0].partitions) == 2


@run_by(simulated, options=AT_ONCE)
async def test_a_classic_group_takes_the_place_of_an_empty_consumer_group(desk: Desk, /) -> None:
    await consumer_join(desk)
    await consumer_beat(desk, -1)
    await desk.commit(5)
    assert (await desk.ask(classic_join("x"), 5)).error_code == E.UNKNOWN_MEMBER_ID
    assert await kind(desk) == ("consumer", "Empty")
    await classic_member(desk)
    for _ in range(2):
        assert await kind(desk) == ("classic", "Stable")
        assert await desk.fetched() == (5, -1, "")
        await desk.restart()


@run_by(simulated, options={**AT_ONCE, "group.consumer.migration.policy": "disabled"})
async def test_groups_stay_what_they_are_where_that_is_wanted(desk: Desk, /) -> None:
    await classic_member(desk)
    assert (await consumer_join(desk)).error_code == E.GROUP_ID_NOT_FOUND
    assert await kind(desk) == ("classic", "Stable")


@run_by(simulated, options={**AT_ONCE, "group.consumer.migration.policy": "Disabled"})
async def test_no_classic_member_joins_a_consumer_group_then(desk: Desk, /) -> None:
    await consumer_join(desk)
    assert (await desk.ask(classic_join(""), 5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL


@run_by(simulated, options=AT_ONCE)
async def test_a_classic_member_is_told_nothing_where_another_node_may_be_the_coordinator(desk: Desk, /) -> None:
    member, generation = await classic_member(desk)
    await consumer_join(desk)
    desk.has_session = False
    assert await classic_beat(desk, member, generation) == E.NOT_COORDINATOR
    assert (await desk.ask(sync_request(member, generation), 3)).error_code == E.NOT_COORDINATOR
    assert (await desk.ask(classic_join(member), 5)).error_code == E.NOT_COORDINATOR
