"""JoinGroup (11): who is let in, in each state of a group; static members; protocols."""

from __future__ import annotations

from typing import Any

from isthmus.protocol.messages.join_group import JoinGroupRequestProtocol, Request

from ..crew import COMPLETING, EMPTY, FOLLOWER, LEADER, MEMBER_ID_REQUIRED, NEWCOMER, PREPARING, STABLE, STATIC, Crew
from ..peer import Case, Scenarios

SCENARIOS = Scenarios()
SESSION_MS = 30_000


def request(group: str, member_id: str = "", **fields: Any) -> Request:
    settings = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS, "protocol_type": "consumer"}
    protocols = [
        JoinGroupRequestProtocol(name="range", metadata=b"\0\1range"),
        JoinGroupRequestProtocol(name="sticky", metadata=b"\0\1sticky"),
    ]
    return Request(**{"group_id": group, "member_id": member_id, "protocols": protocols, **settings, **fields})


def come_in(crew: Crew, name: str) -> None:
    """Join as somebody new in the version under test; the last answer is not awaited."""
    crew.send(name, crew.join_request(name))
    if crew.case.version >= 4 and crew[name].instance is None:
        assert crew.take(name).error_code == MEMBER_ID_REQUIRED
        crew.send(name, crew.join_request(name))


# --- New members ----------------------------------------------------------------------------------------------------


@SCENARIOS.success(11)
def joins_alone(case: Case) -> None:
    with Crew(case) as crew:
        come_in(crew, LEADER)
        crew.take(LEADER)
        crew.see()


@SCENARIOS.success(11, ends=True)
def joins_an_empty_group(case: Case) -> None:
    with Crew(case).bring(EMPTY) as crew:
        come_in(crew, NEWCOMER)
        crew.take(NEWCOMER)
        crew.see()


@SCENARIOS.success(11, ends=True)
def joins_while_others_join(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        come_in(crew, "another")
        crew.await_group(PREPARING, 5)
        for name in (FOLLOWER, STATIC, LEADER):
            crew.enter(name)
        for name in ("another", NEWCOMER, FOLLOWER, STATIC, LEADER):
            crew.take(name)
        crew.see()


@SCENARIOS.success(11, ends=True)
def joins_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        come_in(crew, NEWCOMER)
        crew.await_group(PREPARING, 4)
        for name in (FOLLOWER, STATIC, LEADER):
            crew.enter(name)
        for name in (NEWCOMER, FOLLOWER, STATIC, LEADER):
            crew.take(name)
        crew.see()


@SCENARIOS.success(11, ends=True)
def joins_a_stable_group(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        come_in(crew, NEWCOMER)
        crew.await_group(PREPARING, 4)
        crew.see()
        for name in (LEADER, FOLLOWER, STATIC):
            crew.enter(name)
        for name in (NEWCOMER, LEADER, FOLLOWER, STATIC):
            crew.take(name)
        crew.see()


@SCENARIOS.success(11, since=4, ends=True)
def an_id_that_is_not_used_holds_the_others_up(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(NEWCOMER, crew.join_request(NEWCOMER))
        crew.send(LEADER, crew.join_request(LEADER))
        crew.await_group(PREPARING, 3)
        for name in (FOLLOWER, STATIC):
            crew.enter(name)
        crew.see()
        crew.case.prepare(crew.leave_request(NEWCOMER))
        for name in (LEADER, FOLLOWER, STATIC):
            crew.take(name)


# --- Members that join again ----------------------------------------------------------------------------------------


@SCENARIOS.success(11, ends=True)
def a_member_joins_again_while_others_join(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.send(FOLLOWER, crew.join_request(FOLLOWER))
        for name in (STATIC, LEADER):
            crew.enter(name)
        for name in (FOLLOWER, STATIC, LEADER, NEWCOMER):
            crew.take(name)
        crew.see()


@SCENARIOS.success(11)
def members_join_again_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.ask(FOLLOWER, crew.join_request(FOLLOWER))
        crew.ask(LEADER, crew.join_request(LEADER))
        crew.see()


@SCENARIOS.success(11, ends=True)
def another_subscription_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        other = crew.protocols(FOLLOWER, topics=("other",))
        crew.send(FOLLOWER, crew.join_request(FOLLOWER, protocols=other))
        crew.await_group(PREPARING, 3)
        for name in (LEADER, STATIC):
            crew.enter(name)
        for name in (FOLLOWER, LEADER, STATIC):
            crew.take(name)


@SCENARIOS.success(11, ends=True)
def a_follower_joins_a_stable_group_again(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(FOLLOWER, crew.join_request(FOLLOWER))
        crew.see()


@SCENARIOS.success(11, ends=True)
def the_leader_joins_a_stable_group_again(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.send(LEADER, crew.join_request(LEADER))
        crew.await_group(PREPARING, 3)
        for name in (FOLLOWER, STATIC):
            crew.enter(name)
        for name in (LEADER, FOLLOWER, STATIC):
            crew.take(name)


@SCENARIOS.success(11, ends=True)
def another_subscription_in_a_stable_group(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        other = crew.protocols(FOLLOWER, topics=("other",))
        crew.send(FOLLOWER, crew.join_request(FOLLOWER, protocols=other))
        crew.await_group(PREPARING, 3)
        for name in (LEADER, STATIC):
            crew.enter(name)
        for name in (FOLLOWER, LEADER, STATIC):
            crew.take(name)


@SCENARIOS.success(11, ends=True)
def another_order_of_protocols_is_another_subscription(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        other = crew.protocols(FOLLOWER, "sticky", "range")
        crew.send(FOLLOWER, crew.join_request(FOLLOWER, protocols=other))
        crew.await_group(PREPARING, 3)
        crew.see()


@SCENARIOS.success(11, ends=True)
def the_same_member_asks_twice(case: Case) -> None:
    """On another connection; what waits on the first is answered."""
    with Crew(case).bring(STABLE) as crew:
        crew.send(LEADER, crew.join_request(LEADER))
        crew.await_group(PREPARING, 3)
        crew["second connection"].member_id = crew[LEADER].member_id
        crew.send("second connection", crew.join_request("second connection", protocols=crew.protocols(LEADER)))
        for name in (FOLLOWER, STATIC):
            crew.enter(name)
        crew.take("second connection")
        crew.see()


# --- Static members -------------------------------------------------------------------------------------------------


@SCENARIOS.success(11, since=5)
def joins_as_a_static_member(case: Case) -> None:
    with Crew(case) as crew:
        crew.ask(STATIC, crew.join_request(STATIC))
        crew.see()


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_takes_its_place_again(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(STATIC, crew.join_request(STATIC, member_id=""))
        crew.see()
        crew.case.prepare(crew.sync_request(STATIC))


@SCENARIOS.success(11, since=5)
def a_static_leader_takes_its_place_again(case: Case) -> None:
    with Crew(case) as crew:
        crew.gather("static leader", FOLLOWER)
        shares = crew.sync_request(LEADER).assignments
        crew.case.prepare(crew.sync_request("static leader", assignments=shares))
        crew.await_group(STABLE)
        crew.ask("static leader", crew.join_request("static leader", member_id=""))
        crew.see()


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_comes_with_another_protocol(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        only = crew.protocols(STATIC, "sticky")
        crew.send(STATIC, crew.join_request(STATIC, member_id="", protocols=only))
        crew.await_group(PREPARING, 3)
        for name in (LEADER, FOLLOWER):
            crew.enter(name)
        for name in (STATIC, LEADER, FOLLOWER):
            crew.take(name)


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_comes_with_another_subscription(case: Case) -> None:
    """Without a rebalance, as long as the protocol stays."""
    with Crew(case).bring(STABLE) as crew:
        other = crew.protocols(STATIC, topics=("other",))
        crew.ask(STATIC, crew.join_request(STATIC, member_id="", protocols=other))
        crew.see()


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_comes_back_while_others_join(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.send(STATIC, crew.join_request(STATIC, member_id=""))
        for name in (LEADER, FOLLOWER):
            crew.enter(name)
        for name in (STATIC, LEADER, FOLLOWER, NEWCOMER):
            crew.take(name)


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_comes_back_while_assignments_are_awaited(case: Case) -> None:
    with Crew(case).bring(COMPLETING) as crew:
        crew.send(STATIC, crew.join_request(STATIC, member_id=""))
        crew.await_group(PREPARING, 3)
        for name in (LEADER, FOLLOWER):
            crew.enter(name)
        for name in (STATIC, LEADER, FOLLOWER):
            crew.take(name)


@SCENARIOS.success(11, since=5, ends=True)
def a_static_member_joins_again_with_its_id(case: Case) -> None:
    with Crew(case).bring(STABLE) as crew:
        crew.ask(STATIC, crew.join_request(STATIC))
        crew.see()


@SCENARIOS.error(11, since=5, ends=True)
def the_same_static_member_twice(case: Case) -> None:
    with Crew(case).bring(PREPARING) as crew:
        crew.send(STATIC, crew.join_request(STATIC))
        crew.await_group(PREPARING, 4)
        again = crew["second static"]
        again.instance = STATIC
        crew.send("second static", crew.join_request("second static"))
        crew.take(STATIC)  # is fenced
        for name in (LEADER, FOLLOWER):
            crew.enter(name)
        for name in ("second static", LEADER, FOLLOWER, NEWCOMER):
            crew.take(name)


@SCENARIOS.error(11, since=5, ends=True, each=(PREPARING, COMPLETING, STABLE))
def a_static_member_under_an_id_that_it_has_no_more(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask(STATIC, crew.join_request(STATIC, member_id="nobody"))
        crew.ask(STATIC, crew.join_request(STATIC, group_instance_id="stranger"))
        crew.ask(FOLLOWER, crew.join_request(FOLLOWER, group_instance_id=STATIC))


@SCENARIOS.error(11, since=5, ends=True)
def an_id_that_was_given_out_for_no_static_member(case: Case) -> None:
    with Crew(case) as crew:
        crew.ask(NEWCOMER, crew.join_request(NEWCOMER))
        crew.ask(NEWCOMER, crew.join_request(NEWCOMER, group_instance_id=STATIC))
        crew.see()


# --- Protocols ------------------------------------------------------------------------------------------------------


@SCENARIOS.success(11, ends=True)
def the_protocol_that_most_like_best(case: Case) -> None:
    with Crew(case) as crew:
        likes = {LEADER: ("range", "sticky"), FOLLOWER: ("sticky", "range"), NEWCOMER: ("new", "sticky", "range")}
        chosen(crew, likes)


@SCENARIOS.success(11, ends=True)
def equally_many_like_two_protocols(case: Case) -> None:
    for number, pair in enumerate([("range", "sticky"), ("roundrobin", "range"), ("cooperative-sticky", "range")]):
        with Crew(case, f"{case.name}-{number}") as crew:
            chosen(crew, {LEADER: pair, FOLLOWER: (pair[1], pair[0])})
        with Crew(case, f"{case.name}-{number}-turned") as crew:
            chosen(crew, {LEADER: (pair[1], pair[0]), FOLLOWER: pair})


def chosen(crew: Crew, likes: dict[str, tuple[str, ...]]) -> None:
    wishes = {name: crew.protocols(name, *each) for name, each in likes.items()}
    crew.protocols = lambda name, *_, **__: wishes[name]  # type: ignore[method-assign]
    crew.gather(*likes)
    crew.ask(LEADER, crew.join_request(LEADER))


@SCENARIOS.error(11, ends=True, each=(PREPARING, COMPLETING, STABLE))
def protocols_that_are_not_shared(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        for name in ("stranger", FOLLOWER):
            crew.ask(name, crew.join_request(name, protocol_type="connect"))
            crew.ask(name, crew.join_request(name, protocols=crew.protocols(name, "other")))
            crew.ask(name, crew.join_request(name, protocols=[]))
        crew.see()


@SCENARIOS.error(11, ends=True)
def no_protocols_for_a_new_group(case: Case) -> None:
    case.coordinator()
    case.compare(request(case.name, protocol_type=""))
    case.compare(request(case.name, protocols=[]))
    case.compare(request(case.name, "nobody", protocol_type=""))
    with Crew(case) as crew:
        crew.see()  # there is such a group all the same


@SCENARIOS.success(11, ends=True)
def an_empty_group_takes_another_kind_of_member(case: Case) -> None:
    with Crew(case).bring(EMPTY) as crew:
        crew.enter(NEWCOMER)
        crew.take(NEWCOMER)
        crew.case.prepare(crew.leave_request(NEWCOMER))
        crew.await_group(EMPTY)
        crew["connector"].member_id = ""
        answer = crew.ask("connector", crew.join_request("connector", protocol_type="connect"))
        if answer.error_code == MEMBER_ID_REQUIRED:
            crew.ask("connector", crew.join_request("connector", protocol_type="connect"))
        crew.see()


# --- Refusals -------------------------------------------------------------------------------------------------------


@SCENARIOS.error(11)
def joins_with_what_is_refused(case: Case) -> None:
    case.coordinator()
    case.compare(request(case.name, session_timeout_ms=1))
    case.compare(request(case.name, session_timeout_ms=5_999))
    case.compare(request(case.name, session_timeout_ms=1_800_001))
    case.compare(request(case.name, session_timeout_ms=-1))
    case.compare(request(case.name, "nobody"))
    case.compare(request(""))
    case.compare(request("", session_timeout_ms=1))


@SCENARIOS.error(11, ends=True, each=(EMPTY, PREPARING, COMPLETING, STABLE))
def an_unknown_member_joins(case: Case, state: str) -> None:
    with Crew(case).bring(state) as crew:
        crew.ask("stranger", crew.join_request("stranger", member_id="nobody"))
        crew.see()
