"""The group coordinator over a real log, on simulated time and disk: groups loaded, described, deleted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from isthmus.core_broker.cluster.controller import DeleteTopics
from isthmus.core_broker.coordinators import runtime
from isthmus.core_broker.coordinators.find import partition_for
from isthmus.core_broker.coordinators.runtime import Shard
from isthmus.core_broker.purgatory import Pending
from isthmus.core_broker.storage.log.log import Log
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import list_groups as lsg
from isthmus.protocol.messages import offset_fetch as of
from tests.running import run_by

from .desk import FSYNC, Desk, join_request, simulated


@run_by(simulated)
async def test_a_group_survives_restarts_in_each_state(desk: Desk, /) -> None:
    member, generation = await desk.member()
    assert await desk.commit(5, member=member, generation=generation) == E.NONE
    await desk.restart()
    beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
    assert (await desk.ask(beat, 3)).error_code == E.NONE
    (described,) = (await desk.ask(dsg.Request(groups=["g"]), 5)).groups
    assert (described.group_state, described.protocol_data, described.members[0].member_assignment) == (
        "Stable", "range", b"A"
    )  # fmt: skip
    assert described.members[0].client_host == "/1.2.3.4" and described.members[0].client_id == "c"

    await desk.start_asking(join_request("g", member), 5)  # the leader asks for a new generation
    await desk.restart()
    assert (await desk.ask(hb.Request(group_id="g", member_id=member, generation_id=2), 3)).error_code in (0, 22)

    left = await desk.ask(lg.Request(group_id="g", members=[lg.MemberIdentity(member_id=member)]), 3)
    assert left.members[0].error_code == E.NONE
    await desk.restart()
    (described,) = (await desk.ask(dsg.Request(groups=["g"]), 5)).groups
    assert (described.group_state, described.members) == ("Empty", [])
    assert await desk.fetched() == (5, -1, "")


@run_by(simulated)
async def test_a_silent_member_is_gone_after_its_session_even_over_a_restart(desk: Desk, /) -> None:
    member, generation = await desk.member()
    await desk.sim.sleep(9)
    await desk.restart()
    await desk.sim.sleep(9.5)
    beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
    assert (await desk.ask(beat, 3)).error_code == E.NONE
    await desk.sim.sleep(10.1)
    assert (await desk.ask(beat, 3)).error_code == E.UNKNOWN_MEMBER_ID


@run_by(simulated)
async def test_while_groups_are_read_clients_are_told_to_wait(desk: Desk, /) -> None:
    member, generation = await desk.member()
    desk.host.kill()
    await desk.host.start()
    shard = desk.groups.host.shards.shards[0]
    shard.failure = Shard(0, shard.partition, shard.state).failure  # as it is until all is read
    assert await desk.commit(1, member=member, generation=generation) == E.COORDINATOR_LOAD_IN_PROGRESS
    beat = hb.Request(group_id="g", member_id=member, generation_id=generation)
    assert (await desk.ask(beat, 3)).error_code == E.NONE, "a member is as well as it was"
    assert (await desk.ask(join_request("g", member), 5)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert (await desk.ask(lsg.Request(), 4)).error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    fetched = await desk.ask(of.Request(group_id="g", topics=None), 7)
    assert fetched.error_code == E.COORDINATOR_LOAD_IN_PROGRESS and fetched.topics == []
    old = of.Request(group_id="g", topics=[of.OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    partition = (await desk.ask(old, 1)).topics[0].partitions[0]
    assert (partition.error_code, partition.committed_offset) == (E.COORDINATOR_LOAD_IN_PROGRESS, -1)


@run_by(simulated)
async def test_listing_and_describing(desk: Desk, /) -> None:
    await desk.member("active")
    await desk.commit(1, group="simple")

    async def listed(states: list[str] | None = None, types: list[str] | None = None) -> list[str]:
        answer = await desk.ask(lsg.Request(states_filter=states or [], types_filter=types or []), 5)
        return [f"{g.group_id} {g.group_state} {g.protocol_type} {g.group_type}" for g in answer.groups]

    assert await listed() == ["active Stable consumer classic", "simple Empty  classic"]
    assert await listed(states=["STABLE"]) == ["active Stable consumer classic"]
    assert await listed(types=["Consumer"]) == []
    assert len(await listed(types=["Classic"], states=["empty", "stable"])) == 2
    answer = await desk.ask(dsg.Request(groups=["none", "simple"], include_authorized_operations=True), 6)
    none, simple = answer.groups
    assert (none.group_state, none.error_code, none.error_message) == (
        "Dead", E.GROUP_ID_NOT_FOUND, "Group none not found."
    )  # fmt: skip
    assert (simple.group_state, simple.protocol_type, simple.error_code) == ("Empty", "", 0)
    (old,) = (await desk.ask(dsg.Request(groups=["none"]), 5)).groups
    assert (old.group_state, old.error_code) == ("Dead", 0)


@run_by(simulated)
async def test_deleting_groups(desk: Desk, /) -> None:
    await desk.member("active")
    await desk.commit(1, group="simple")
    answer = await desk.ask(dlg.Request(groups_names=["active", "simple", "none"]), 2)
    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("active", E.NON_EMPTY_GROUP), ("simple", E.NONE), ("none", E.GROUP_ID_NOT_FOUND)
    ]  # fmt: skip
    for _ in range(2):
        assert await desk.fetched(group="simple") == (-1, -1, "")
        listed = await desk.ask(lsg.Request(), 4)
        assert [group.group_id for group in listed.groups] == ["active"]
        await desk.restart()


@run_by(simulated, options=FSYNC)
async def test_groups_that_the_disk_does_not_let_go_are_not_told_to_be_deleted(desk: Desk, /, monkeypatch) -> None:
    await desk.commit(1, group="simple")

    async def refuse(log: Log) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Log, "sync", refuse)
    answer = await desk.ask(dlg.Request(groups_names=["none", "simple"]), 2)
    assert [(r.group_id, r.error_code) for r in answer.results] == [
        ("none", E.GROUP_ID_NOT_FOUND), ("simple", E.NOT_COORDINATOR)
    ]  # fmt: skip


@run_by(simulated, options={**FSYNC, "offsets.topic.num.partitions": "2"})
async def test_groups_of_several_partitions_are_deleted_when_all_of_it_is_on_disk(desk: Desk, /, monkeypatch) -> None:
    names = [next(n for n in ("a", "b", "c", "d", "e", "f") if partition_for(n, 2) == index) for index in (0, 1)]
    for name in names:
        await desk.commit(1, group=name)
    last = desk.groups.host.shards.shards[1].partition.log
    sync, allowed = Log.sync, asyncio.Event()

    async def wait(log: Log) -> None:
        if log is last:
            await allowed.wait()
        await sync(log)

    monkeypatch.setattr(Log, "sync", wait)
    answer = await desk.start_asking(dlg.Request(groups_names=names), 2)
    first = desk.groups.host.shards.shards[0]
    await desk.sim.until(lambda: first.partition.high_watermark == first.written, "the first to be on disk")
    assert not answer.done
    allowed.set()
    await desk.sim.until(lambda: answer.done, "an answer")
    assert [r.error_code for r in answer.answer.results] == [E.NONE, E.NONE]


@run_by(simulated)
async def test_deleting_the_offsets_topic_lets_everyone_go(desk: Desk, /) -> None:
    member, _ = await desk.member()
    waits = await desk.start_asking(join_request("g"), 3)
    assert isinstance(waits, Pending) and not waits.done
    await desk.submit(DeleteTopics(names=["__consumer_offsets"]))
    assert waits.answer.error_code == E.NOT_COORDINATOR
    assert (await desk.ask(hb.Request(group_id="g", member_id=member), 3)).error_code == E.NOT_COORDINATOR
    await desk.ready()
    assert (await desk.ask(hb.Request(group_id="g", member_id=member), 3)).error_code == E.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("at_one_go", [1, 10_000])
@run_by(simulated)
async def test_others_have_their_turn_while_groups_are_read(desk: Desk, /, monkeypatch, at_one_go) -> None:
    turns: dict[int, None] = {}  # of the loop, in which records were read
    real = runtime.CoordinatorRuntime._replay_one
    monkeypatch.setattr(runtime, "LOAD_SLICE", at_one_go)

    def replay_one(*what: Any) -> None:
        turns[desk.sim.loop.kernel.turn] = None
        real(*what)

    monkeypatch.setattr(runtime.CoordinatorRuntime, "_replay_one", replay_one)
    for offset in range(100):
        await desk.commit(offset)
    turns.clear()
    await desk.restart()
    assert (await desk.fetched())[0] == 99
    assert (len(turns) >= 100) is (at_one_go == 1), len(turns)
