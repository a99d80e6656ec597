"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup over a real log: what is refused before a group sees it."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators import member_requests
from isthmus.protocol.errors import ErrorCode as E
from isthmus.protocol.messages import delete_groups as dlg
from isthmus.protocol.messages import describe_groups as dsg
from isthmus.protocol.messages import heartbeat as hb
from isthmus.protocol.messages import join_group as jg
from isthmus.protocol.messages import leave_group as lg
from isthmus.protocol.messages import sync_group as sg
from tests.running import run_by

from .desk import Desk, commit_request, join_request, simulated


@run_by(simulated)
async def test_joins_that_cannot_be(desk: Desk, /) -> None:
    assert (await desk.ask(join_request(""), 5)).error_code == E.INVALID_GROUP_ID
    assert (await desk.ask(join_request("g", "who"), 5)).error_code == E.UNKNOWN_MEMBER_ID
    for session in (5_999, 1_800_001):
        refused = await desk.ask(join_request("g", session_timeout_ms=session), 5)
        assert refused.error_code == E.INVALID_SESSION_TIMEOUT
    assert (await desk.ask(sg.Request(group_id="no", member_id="m"), 3)).error_code == E.UNKNOWN_MEMBER_ID
    assert (await desk.ask(hb.Request(group_id="no", member_id="m"), 3)).error_code == E.UNKNOWN_MEMBER_ID


@run_by(simulated)
async def test_leaving_by_version(desk: Desk, /) -> None:
    member, _ = await desk.member()
    assert (await desk.ask(lg.Request(group_id="no", member_id="m"), 2)).error_code == E.UNKNOWN_MEMBER_ID
    many = [lg.MemberIdentity(member_id="m"), lg.MemberIdentity(member_id=member)]
    unknown = await desk.ask(lg.Request(group_id="no", members=many), 3)
    assert (unknown.error_code, [m.error_code for m in unknown.members]) == (0, [E.UNKNOWN_MEMBER_ID] * 2)
    assert (await desk.ask(lg.Request(group_id="g", member_id="m"), 2)).error_code == E.UNKNOWN_MEMBER_ID
    assert (await desk.ask(lg.Request(group_id="g", member_id=member), 2)).error_code == E.NONE


@pytest.mark.parametrize("version", [4, 6, 7, 9])
@run_by(simulated)
async def test_a_refused_join_names_no_protocol_in_a_way_its_version_can_say(desk: Desk, /, version) -> None:
    answer = await desk.ask(join_request("g"), version)
    assert answer.protocol_name == (None if version >= 7 else "")
    jg.API.encode_response(answer, version)


@run_by(simulated)
async def test_a_shard_with_too_many_groups_refuses_a_join_that_would_make_another(desk: Desk, /, monkeypatch) -> None:
    monkeypatch.setattr(member_requests, "MAX_GROUPS", 1)
    assert (await desk.ask(join_request("a"), 5)).error_code == E.MEMBER_ID_REQUIRED
    assert (await desk.ask(join_request("b"), 5)).error_code == E.COORDINATOR_NOT_AVAILABLE
    assert (await desk.ask(join_request("a"), 5)).error_code == E.MEMBER_ID_REQUIRED


@run_by(simulated)
async def test_a_sync_of_version_5_must_name_the_protocol(desk: Desk, /) -> None:
    member, generation = await desk.member()
    request = sg.Request(group_id="g", member_id=member, generation_id=generation, protocol_type="consumer")
    assert (await desk.ask(request, 5)).error_code == E.INCONSISTENT_GROUP_PROTOCOL
    request.protocol_name = "range"
    assert (await desk.ask(request, 5)).error_code == E.NONE


@run_by(simulated)
async def test_a_group_keeps_the_id_and_the_host_of_a_member(desk: Desk, /) -> None:
    await desk.member()
    (group,) = (await desk.ask(dsg.Request(groups=["g"]), 5)).groups
    assert [(member.client_id, member.client_host) for member in group.members] == [("c", "/1.2.3.4")]


@run_by(simulated)
async def test_nobody_is_told_to_be_unknown_where_another_node_may_be_the_coordinator(desk: Desk, /) -> None:
    """It may know them. A member without a place would drop its partitions, a static one would end for ever."""
    member, generation = await desk.member()
    desk.has_session = False

    async def asked(member: str, generation: int, group: str = "g", instance: str | None = None) -> list[int]:
        commit = commit_request(1, group=group, member=member, generation=generation)
        commit.group_instance_id = instance
        requests = [
            (hb.Request(group_id=group, member_id=member, generation_id=generation, group_instance_id=instance), 3),
            (sg.Request(group_id=group, member_id=member, generation_id=generation, group_instance_id=instance), 3),
            (commit, 9),
        ]
        answers = [await desk.ask(*each) for each in requests]
        return [*(each.error_code for each in answers[:2]), answers[2].topics[0].partitions[0].error_code]

    assert await asked(member, generation) == [E.NONE] * 3
    assert await asked(member, generation + 1) == [E.NOT_COORDINATOR] * 3
    assert await asked("x", generation) == [E.NOT_COORDINATOR] * 3
    assert await asked("x", generation, group="h") == [E.NOT_COORDINATOR] * 3
    assert await asked(member, generation, instance="i") == [E.NOT_COORDINATOR] * 3
    assert (await desk.ask(join_request("g", "x"), 5)).error_code == E.NOT_COORDINATOR
    assert (await desk.ask(join_request("h", "x"), 5)).error_code == E.NOT_COORDINATOR
    assert (await desk.ask(lg.Request(group_id="g", member_id="x"), 2)).error_code == E.NOT_COORDINATOR
    assert (await desk.ask(dsg.Request(groups=["g"]), 5)).groups[0].error_code == E.NOT_COORDINATOR
    assert (await desk.ask(dlg.Request(groups_names=["h"]), 2)).results[0].error_code == E.NOT_COORDINATOR
    desk.has_session = True
    assert await asked(member, generation + 1) == [E.ILLEGAL_GENERATION] * 3
