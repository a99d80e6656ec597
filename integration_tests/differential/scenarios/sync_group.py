"""SyncGroup (14): assignments brought and fetched, in each state of a group."""

from __future__ import annotations

from isthmus.protocol.messages.sync_group import Request

from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, NEWCOMER, PREPARING, STABLE, STATIC, Crew
from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


@SCENARIOS.success(14)
def gives_and_takes_the_assignments(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.ask(LEADER, crew.sync_request(LEADER))
        crew.take(FOLLOWER)
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.see()


@SCENARIOS.success(14, since=3, ends=True)
def a_static_member_takes_its_assignment(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(STATIC, crew.sync_request(STATIC))
        crew.ask(LEADER, crew.sync_request(LEADER))
        crew.take(STATIC)


@SCENARIOS.success(14, ends=True)
def the_leader_brings_assignments_to_a_stable_group(case: Case) -> None:
    """They change nothing."""
    with Crew(case).bring(STABLE) as crew:
        crew.ask(LEADER, crew.sync_request(LEADER, assignments=[]))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.see()


@SCENARIOS.success(14, ends=True)
def a_follower_brings_assignments(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER, assignments=crew.sync_request(LEADER).assignments[:1]))
        crew.ask(LEADER, crew.sync_request(LEADER))
        crew.take(FOLLOWER)


@SCENARIOS.success(14, ends=True)
def the_leader_forgets_a_member(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER))
        shares = [each for each in crew.sync_request(LEADER).assignments if each.member_id == crew[LEADER].member_id]
        crew.ask(LEADER, crew.sync_request(LEADER, assignments=shares))
        crew.take(FOLLOWER)
        crew.see()


@SCENARIOS.success(14, ends=True)
def the_leader_assigns_to_strangers(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        shares = crew.sync_request(LEADER).assignments
        shares[1].member_id = "stranger"
        shares.append(shares[0])  # and to itself twice
        crew.ask(LEADER, crew.sync_request(LEADER, assignments=shares))
        crew.see()


@SCENARIOS.error(14, ends=True)
def the_group_changes_while_a_member_waits(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.enter(NEWCOMER)
        crew.take(FOLLOWER)
        crew.await_group(PREPARING, 4)
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))


@SCENARIOS.error(14, ends=True)
def the_leader_leaves_while_a_member_waits(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(FOLLOWER, crew.sync_request(FOLLOWER))
        case.prepare(crew.leave_request(LEADER))
        crew.take(FOLLOWER)
        crew.see()


@SCENARIOS.error(14, since=3, ends=True)
def a_static_member_comes_back_while_it_waits(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(STATIC, crew.sync_request(STATIC))
        crew["second static"].instance = STATIC
        crew.enter("second static")
        crew.take(STATIC)  # is fenced
        crew.await_group(PREPARING, 3)


@SCENARIOS.error(14)
def sync_in_a_group_that_is_not_there(case: Case) -> None:
    case.coordinator()
    case.compare(Request(group_id=case.name, generation_id=1, member_id="nobody"))


@SCENARIOS.error(14, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def sync_by_a_stranger(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("stranger", crew.sync_request("stranger", member_id="nobody"))
        crew.ask("stranger", crew.sync_request("stranger", member_id=""))


@SCENARIOS.error(14, ends=True, each=(PREPARING, COMPLETING, STABLE))
def sync_for_another_generation(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        for name in (FOLLOWER, LEADER):
            for generation in (crew[name].generation - 1, crew[name].generation + 1, -1):
                crew.ask(name, crew.sync_request(name, generation_id=generation))
        crew.see()


@SCENARIOS.error(14, since=3, ends=True, each=(PREPARING, COMPLETING, STABLE))
def sync_by_a_fenced_member(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask(STATIC, crew.sync_request(STATIC, member_id="nobody"))
        crew.ask(STATIC, crew.sync_request(STATIC, group_instance_id="stranger"))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER, group_instance_id=STATIC))


@SCENARIOS.error(14, ends=True)
def sync_while_members_join(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.ask(LEADER, crew.sync_request(LEADER))


@SCENARIOS.error(14, since=5, ends=True, each=(PREPARING, COMPLETING, STABLE))
def sync_with_another_protocol(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER, protocol_type="connect"))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER, protocol_name="sticky"))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER, protocol_type=None))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER, protocol_name=None))


@SCENARIOS.error(14, ends=True)
def sync_without_a_group(case: Case) -> None:
    case.coordinator()
    case.compare(Request(group_id="", generation_id=1, member_id="nobody", protocol_type="c", protocol_name="p"))
    case.compare(Request(group_id="", generation_id=1, member_id="nobody"))


@SCENARIOS.error(14, ends=True)
def assignments_larger_than_a_batch_may_be(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        shares = crew.sync_request(LEADER).assignments
        shares[0].assignment = bytes(2 << 20)
        crew.ask(LEADER, crew.sync_request(LEADER, assignments=shares))
        crew.ask(FOLLOWER, crew.sync_request(FOLLOWER))
        crew.see()
