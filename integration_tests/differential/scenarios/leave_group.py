"""LeaveGroup (13), in each state of a group; several members at once; an administrator's way by instance ids."""

from __future__ import annotations

from isthmus.protocol.messages.leave_group import MemberIdentity, Request

from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, NEWCOMER, PREPARING, STABLE, STATIC, Crew
from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


def request(group: str, *members: tuple[str, str | None], version: int) -> Request:
    """members: (member id, instance id)."""
    if version < 3:
        return Request(group_id=group, member_id=members[0][0])
    return Request(
        group_id=group,
        members=[MemberIdentity(member_id=one, group_instance_id=instance) for one, instance in members],
    )


@SCENARIOS.success(13)
def leaves_a_stable_group(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(FOLLOWER, crew.leave_request(FOLLOWER, version=case.version))
        crew.see()
        crew.ask(FOLLOWER, crew.leave_request(FOLLOWER, version=case.version))  # and is gone
        for name in (LEADER, STATIC):
            crew.enter(name)
        crew.take(LEADER)
        crew.take(STATIC)


@SCENARIOS.success(13, ends=True)
def the_leader_leaves(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(LEADER, crew.leave_request(LEADER, version=case.version))
        crew.enter(FOLLOWER)
        crew.enter(STATIC)
        crew.take(FOLLOWER)
        crew.take(STATIC)
        crew.await_group(COMPLETING, 2)


@SCENARIOS.success(13, ends=True)
def leaves_while_others_join(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.ask(FOLLOWER, crew.leave_request(FOLLOWER, version=case.version))
        crew.enter(LEADER)
        crew.await_group(PREPARING, 3)
        crew.ask(STATIC, crew.leave_request(STATIC, version=case.version))  # the last that was awaited
        crew.take(LEADER)
        crew.take(NEWCOMER)
        crew.see()


@SCENARIOS.success(13, ends=True)
def leaves_while_it_joins(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.ask("administrator", crew.leave_request(NEWCOMER, version=case.version))
        crew.take(NEWCOMER)
        crew.see()


@SCENARIOS.success(13, ends=True)
def leaves_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.ask(FOLLOWER, crew.leave_request(FOLLOWER, version=case.version))
        crew.see()


@SCENARIOS.success(13, ends=True)
def leaves_before_it_used_its_id(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        waiting = case.prepare(crew.join_request(NEWCOMER))
        crew.names[waiting.member_id] = NEWCOMER
        crew.ask(NEWCOMER, request(crew.group, (waiting.member_id, None), version=case.version))
        crew.see()


@SCENARIOS.success(13, ends=True)
def the_last_one_leaves(case: Case) -> None:
    with Crew(case) as crew:
        crew.gather(LEADER)
        crew.assign()
        crew.ask(LEADER, crew.leave_request(LEADER, version=case.version))
        crew.await_group(EMPTY)
        crew.see()
        crew.ask(LEADER, crew.leave_request(LEADER, version=case.version))


@SCENARIOS.success(13, since=3, ends=True)
def several_leave_at_once(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        ids = [(crew[FOLLOWER].member_id, None), ("nobody", None), ("", STATIC), (crew[FOLLOWER].member_id, None)]
        crew.ask("administrator", request(crew.group, *ids, version=case.version))
        crew.see()


@SCENARIOS.success(13, since=3, ends=True, each=(PREPARING, COMPLETING, STABLE))
def all_leave_at_once(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        everyone = [name for name, member in crew.members.items() if member.member_id]
        crew.ask("administrator", crew.leave_request(*everyone))
        crew.await_group(EMPTY, 0)
        crew.see()


@SCENARIOS.success(13, since=3, ends=True, each=(PREPARING, COMPLETING, STABLE))
def an_administrator_removes_a_static_member(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("administrator", request(crew.group, ("", STATIC), version=case.version))
        crew.see()


@SCENARIOS.success(13, since=3, ends=True)
def nobody_leaves(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask("administrator", request(crew.group, version=case.version))
        crew.see()


@SCENARIOS.error(13)
def leaves_a_group_that_is_not_there(case: Case) -> None:
    case.coordinator()
    case.compare(request(case.name, ("nobody", None), version=case.version))


@SCENARIOS.error(13, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def a_stranger_leaves(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("administrator", request(crew.group, ("nobody", None), version=case.version))
        crew.ask("administrator", request(crew.group, ("", None), version=case.version))
        crew.see()


@SCENARIOS.error(13, since=3, ends=True, each=(PREPARING, COMPLETING, STABLE))
def a_fenced_member_leaves(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        wrong = [("nobody", STATIC), (crew[STATIC].member_id, "stranger"), ("", "stranger"), ("nobody", None)]
        crew.ask("administrator", request(crew.group, *wrong, version=case.version))
        crew.see()


@SCENARIOS.error(13, ends=True)
def leaves_without_a_group(case: Case) -> None:
    case.coordinator()
    case.compare(request("", ("nobody", None), version=case.version))
