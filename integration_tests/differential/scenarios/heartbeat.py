"""Heartbeat (12), in each state of a group."""

from __future__ import annotations

from isthmus.protocol.messages.heartbeat import Request

from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, PREPARING, STABLE, STATIC, Crew
from ..peer import Case, Scenarios

SCENARIOS = Scenarios()


@SCENARIOS.success(12)
def is_alive_in_a_stable_group(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(LEADER, crew.heartbeat_request(LEADER))
        crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER))


@SCENARIOS.success(12, ends=True)
def is_alive_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER))


@SCENARIOS.success(12, since=3, ends=True)
def a_static_member_is_alive(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(STATIC, crew.heartbeat_request(STATIC))


@SCENARIOS.error(12, ends=True)
def is_told_to_join_again(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER))


@SCENARIOS.error(12)
def heartbeat_in_a_group_that_is_not_there(case: Case) -> None:
    case.coordinator()
    case.compare(Request(group_id=case.name, generation_id=1, member_id="nobody"))


@SCENARIOS.error(12)
def heartbeat_without_a_group(case: Case) -> None:
    case.coordinator()
    case.compare(Request(group_id="", generation_id=1, member_id="nobody"))


@SCENARIOS.error(12, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def heartbeat_of_a_stranger(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("stranger", crew.heartbeat_request("stranger", member_id="nobody"))
        crew.ask("stranger", crew.heartbeat_request("stranger", member_id=""))


@SCENARIOS.error(12, ends=True, each=(PREPARING, COMPLETING, STABLE))
def heartbeat_in_another_generation(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        for generation in (crew[FOLLOWER].generation - 1, crew[FOLLOWER].generation + 1, -1):
            crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER, generation_id=generation))


@SCENARIOS.error(12, since=3, ends=True, each=(PREPARING, COMPLETING, STABLE))
def heartbeat_of_a_fenced_member(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask(STATIC, crew.heartbeat_request(STATIC, member_id="nobody"))
        crew.ask(STATIC, crew.heartbeat_request(STATIC, group_instance_id="stranger"))
        crew.ask(FOLLOWER, crew.heartbeat_request(FOLLOWER, group_instance_id=STATIC))


@SCENARIOS.error(12, since=3, ends=True)
def the_one_whose_place_was_taken(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        before = crew.heartbeat_request(STATIC)
        crew[STATIC].member_id = ""
        crew.enter(STATIC)
        crew.take(STATIC)
        crew.ask("before", before)
        crew.ask(STATIC, crew.heartbeat_request(STATIC))
