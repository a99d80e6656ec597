"""A classic group, as Kafka has it, without a loop: joins, generations, sessions, leaving, limits."""

from __future__ import annotations

import pytest

from isthmus.core_broker.coordinators.group import NEW_MEMBER_JOIN_TIMEOUT_MS
from isthmus.core_broker.coordinators.group_states import State
from isthmus.protocol.errors import ErrorCode as E

from .table import DELAY_MS, REBALANCE_MS, SESSION_MS, Table


def test_a_new_member_is_told_its_id_first():
    table = Table()
    answer = table.answers[table.join(version=4)]
    assert (answer.error_code, answer.member_id) == (E.MEMBER_ID_REQUIRED, "c-id1")
    assert table.group.state is State.EMPTY and not len(table.group.members)
    token = table.join(answer.member_id)
    assert table.code(token) is None and answer.member_id in table.group.members


def test_before_version_4_it_joins_at_once():
    table = Table()
    token = table.join(version=3)
    table.pass_ms(DELAY_MS)
    assert table.answers[token].member_id == "c-id1" and table.code(token) == E.NONE


def test_an_id_that_is_not_used_within_the_session_is_forgotten():
    table = Table()
    first = table.answers[table.join()].member_id
    table.pass_ms(SESSION_MS)
    assert not table.group.pending_join
    assert table.code(table.join(first)) == E.UNKNOWN_MEMBER_ID


def test_an_id_given_out_holds_the_join_up_until_it_is_used_or_forgotten():
    table = Table()
    (leader,) = table.stable(1)
    other = table.answers[table.join()].member_id
    token = table.join(leader)
    assert table.code(token) is None
    table.pass_ms(SESSION_MS)
    assert other not in table.group.pending_join and table.code(token) == E.NONE


def test_a_new_group_waits_for_more_members_but_not_longer_than_the_rebalance_timeout():
    table = Table()
    first = table.join(version=3, rebalance_ms=8000)
    for _ in range(2):
        table.pass_ms(DELAY_MS - 1)
        table.join(version=3, rebalance_ms=8000)
    table.pass_ms(8000 - 1 - table.now_ms)
    assert table.code(first) is None
    table.pass_ms(1)
    assert table.code(first) == E.NONE and len(table.answers[first].members) == 3
    assert table.group.generation.number == 1


def test_the_initial_delay_does_not_lengthen_a_later_join_phase():
    table = Table()
    first, _ = table.member(session_ms=2 * REBALANCE_MS)
    table.pass_ms(DELAY_MS + 1)
    table.sync_all([first])
    joined = table.join(version=3)
    table.pass_ms(REBALANCE_MS - 1)
    assert table.code(joined) is None
    table.pass_ms(1)
    assert table.code(joined) == E.NONE and first not in table.group.members


def test_the_leader_learns_all_members_and_the_others_none():
    table = Table()
    first, a = table.member(protocols=(("range", b"1"),))
    second, b = table.member(protocols=(("range", b"2"),))
    table.pass_ms(2 * DELAY_MS)
    leader, follower = table.answers[a], table.answers[b]
    assert leader.leader == follower.leader == first
    assert [(m.member_id, m.metadata) for m in leader.members] == [(first, b"1"), (second, b"2")]
    assert follower.members == [] and follower.member_id == second
    assert (leader.generation_id, leader.protocol_name, leader.protocol_type) == (1, "range", "consumer")


def test_assignments_reach_everyone_when_the_leader_syncs():
    table = Table()
    first, _ = table.member()
    second, _ = table.member()
    table.pass_ms(2 * DELAY_MS)
    waiting = table.sync(second)
    assert table.code(waiting) is None and table.group.state is State.COMPLETING
    leads = table.sync(first, assignments={first: b"A", second: b"B", "stranger": b"C"})
    assert table.answers[leads].assignment == b"A" and table.answers[waiting].assignment == b"B"
    assert table.answers[waiting].protocol_name == "range"
    assert table.group.state is State.STABLE
    assert table.answers[table.sync(second)].assignment == b"B", "asked again, told again"
    assert [m.assignment for m in table.stored.members] == [b"A", b"B"]


def test_a_member_the_leader_forgot_is_assigned_nothing():
    table = Table()
    first, _ = table.member()
    second, _ = table.member()
    table.pass_ms(2 * DELAY_MS)
    waiting = table.sync(second)
    table.sync(first, assignments={first: b"A"})
    assert table.code(waiting) == E.NONE and table.answers[waiting].assignment == b""


def test_the_protocol_most_like_best_among_those_all_know():
    table = Table()
    both = (("range", b""), ("sticky", b""))
    table.join(version=3, protocols=both)
    table.join(version=3, protocols=(("sticky", b""), ("range", b"")))
    last = table.join(version=3, protocols=(("new", b""), ("sticky", b""), ("range", b"")))
    table.pass_ms(3 * DELAY_MS)
    assert table.answers[last].protocol_name == "sticky"


def test_a_member_without_a_shared_protocol_is_refused():
    table = Table()
    table.stable(1, protocols=(("range", b""),))
    assert table.code(table.join(protocols=(("sticky", b""),))) == E.INCONSISTENT_GROUP_PROTOCOL
    assert table.code(table.join(kind="connect")) == E.INCONSISTENT_GROUP_PROTOCOL
    empty = Table()
    assert empty.code(empty.join(protocols=())) == E.INCONSISTENT_GROUP_PROTOCOL
    assert empty.code(empty.join(kind="")) == E.INCONSISTENT_GROUP_PROTOCOL


def test_syncs_that_do_not_fit():
    table = Table()
    first, _ = table.member()
    table.pass_ms(DELAY_MS)
    assert table.code(table.sync("stranger")) == E.UNKNOWN_MEMBER_ID
    assert table.code(table.sync(first, generation=9)) == E.ILLEGAL_GENERATION
    assert table.code(table.sync(first, protocol_type="connect")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert table.code(table.sync(first, protocol_name="sticky")) == E.INCONSISTENT_GROUP_PROTOCOL
    assert table.code(table.sync(first, protocol_name="range", protocol_type="consumer")) == E.NONE


def test_sync_to_an_empty_group_is_unknown():
    table = Table()
    assert table.code(table.sync("x", generation=0)) == E.UNKNOWN_MEMBER_ID


def test_heartbeats_in_each_state():
    table = Table()
    first, token = table.member()
    assert table.heartbeat(first) == E.REBALANCE_IN_PROGRESS
    table.pass_ms(DELAY_MS)
    assert table.code(token) == E.NONE
    assert table.heartbeat(first) == E.NONE, "while it waits for its assignment"
    table.sync_all([first])
    assert table.heartbeat(first) == E.NONE
    assert table.heartbeat(first, generation=0) == E.ILLEGAL_GENERATION
    assert table.heartbeat("stranger") == E.UNKNOWN_MEMBER_ID
    table.leave((first, None))
    assert table.heartbeat(first) == E.UNKNOWN_MEMBER_ID


def test_a_newcomer_starts_a_generation_and_members_hear_of_it_by_heartbeat():
    table = Table()
    (first,) = table.stable(1)
    second, join = table.member()
    assert table.group.state is State.PREPARING and table.code(join) is None
    assert table.heartbeat(first) == E.REBALANCE_IN_PROGRESS
    again = table.join(first)
    assert table.code(again) == table.code(join) == E.NONE, "all are here: no need to wait"
    assert table.answers[again].generation_id == table.answers[join].generation_id == 2
    assert table.answers[again].leader == first


def test_who_does_not_come_within_the_rebalance_timeout_is_left_behind():
    table = Table()
    first, second = table.stable(2)
    third, join = table.member()
    for _ in range(6):
        table.pass_ms(SESSION_MS - 1)
        table.heartbeat(first)
        table.heartbeat(second)
    assert table.code(join) is None
    table.join(second)
    table.pass_ms(SESSION_MS)
    answer = table.answers[join]
    assert answer.error_code == E.NONE and answer.leader == second, "the old leader did not come"
    assert table.heartbeat(first) == E.UNKNOWN_MEMBER_ID


def test_the_rebalance_timeout_is_the_longest_of_all_members():
    table = Table()
    first, second = table.stable(2, rebalance_ms=5_000, session_ms=1_000_000)
    _, join = table.member(rebalance_ms=50_000)
    table.pass_ms(49_999)
    assert table.code(join) is None
    table.pass_ms(1)
    assert table.code(join) == E.NONE and first not in table.group.members and second not in table.group.members


def test_a_silent_member_is_removed_and_the_rest_rebalance():
    table = Table()
    first, second = table.stable(2)
    table.pass_ms(SESSION_MS - 1)
    table.heartbeat(first)
    table.pass_ms(1)
    assert second not in table.group.members and table.group.state is State.PREPARING
    token = table.join(first)
    assert table.code(token) == E.NONE and table.answers[token].generation_id == 2


def test_a_member_that_waits_for_a_join_or_sync_needs_no_heartbeat():
    table = Table()
    first, second = table.stable(2, rebalance_ms=10 * SESSION_MS)
    waiting = table.join(first)
    for _ in range(5):
        table.pass_ms(SESSION_MS - 1)
        table.heartbeat(second)
    assert table.code(waiting) is None and first in table.group.members
    table.join(second)
    sync = table.sync(second)
    for _ in range(3):
        table.pass_ms(SESSION_MS - 1)
        table.heartbeat(first)
    assert table.code(sync) is None and second in table.group.members


def test_a_new_member_nobody_answers_is_given_up_after_five_minutes():
    table = Table()
    table.stable(2, session_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2, rebalance_ms=NEW_MEMBER_JOIN_TIMEOUT_MS * 2)
    _, join = table.member()
    table.pass_ms(NEW_MEMBER_JOIN_TIMEOUT_MS)
    assert table.code(join) == E.UNKNOWN_MEMBER_ID and table.answers[join].member_id == ""


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout():
    table = Table()
    first, _ = table.member(session_ms=REBALANCE_MS * 3)
    second, _ = table.member(session_ms=REBALANCE_MS * 3)
    table.pass_ms(2 * DELAY_MS)
    waiting = table.sync(first, assignments={})
    assert table.group.state is State.STABLE and table.code(waiting) == E.NONE
    table.pass_ms(REBALANCE_MS)
    assert second not in table.group.members and table.group.state is State.PREPARING


def test_a_leader_that_never_syncs_frees_those_who_wait():
    table = Table()
    first, _ = table.member(session_ms=REBALANCE_MS * 3)
    second, _ = table.member(session_ms=REBALANCE_MS * 3)
    table.pass_ms(2 * DELAY_MS)
    waiting = table.sync(second)
    table.pass_ms(REBALANCE_MS)
    assert table.code(waiting) == E.REBALANCE_IN_PROGRESS and first not in table.group.members


def test_rejoining_in_a_stable_group():
    table = Table()
    leader, follower = table.stable(2)
    token = table.join(follower)
    assert table.code(token) == E.NONE and table.answers[token].generation_id == 1
    assert table.answers[token].members == [] and table.group.state is State.STABLE
    table.join(follower, protocols=(("range", b"other topics"),))
    assert table.group.state is State.PREPARING
    table.join(leader)
    assert table.group.generation.number == 2


def test_the_leader_rejoins_to_have_everything_assigned_anew():
    table = Table()
    leader, follower = table.stable(2)
    token = table.join(leader)
    assert table.code(token) is None and table.group.state is State.PREPARING
    table.join(follower)
    assert len(table.answers[token].members) == 2


def test_a_lost_join_answer_is_given_again():
    table = Table()
    first, _ = table.member()
    second, _ = table.member()
    table.pass_ms(2 * DELAY_MS)
    again = table.answers[table.join(first)]
    assert (again.error_code, again.generation_id, len(again.members)) == (E.NONE, 1, 2)
    assert table.answers[table.join(second)].members == []
    changed = table.join(second, protocols=(("range", b"x"),))
    assert table.code(changed) is None and table.group.state is State.PREPARING


def test_a_join_asked_again_on_another_connection():
    table = Table()
    first, second = table.stable(2)
    a = table.join(first)
    b = table.join(first)
    assert table.code(a) == E.REBALANCE_IN_PROGRESS and table.code(b) is None
    assert table.group.members.awaiting_join == 1
    table.join(second)
    assert table.code(b) == E.NONE


def test_leaving():
    table = Table()
    first, second = table.stable(2)
    assert table.leave((second, None), ("stranger", None)) == [E.NONE, E.UNKNOWN_MEMBER_ID]
    assert table.group.state is State.PREPARING
    table.join(first)
    assert table.group.generation.number == 2
    assert table.leave((first, None)) == [E.NONE]
    assert (table.group.state, table.group.generation.number) == (State.EMPTY, 3)
    assert table.stored.members == [] and table.stored.protocol is None and table.stored.generation == 3
    assert not table.timers or all(kind != "join" for kind, _ in table.timers)


def test_leaving_before_the_join_is_answered():
    table = Table()
    waits, token = table.member()
    pending = table.answers[table.join()].member_id
    assert table.leave((waits, None), (pending, None)) == [E.NONE, E.NONE]
    assert table.code(token) == E.UNKNOWN_MEMBER_ID
    assert not table.group.pending_join
    table.pass_ms(DELAY_MS)
    assert table.group.state is State.EMPTY


def test_leaving_while_waiting_for_an_assignment():
    table = Table()
    first, _ = table.member()
    second, _ = table.member()
    table.pass_ms(2 * DELAY_MS)
    waiting = table.sync(second)
    table.leave((second, None))
    assert table.code(waiting) == E.UNKNOWN_MEMBER_ID and table.group.state is State.PREPARING
    table.join(first)
    assert table.group.generation.number == 2


def test_the_group_has_a_largest_size():
    table = Table(max_size=2)
    first, second = table.stable(2)
    token = table.join()
    assert table.code(token) == E.GROUP_MAX_SIZE_REACHED and table.answers[token].member_id == ""
    table.leave((second, None))
    assert table.code(table.join()) == E.MEMBER_ID_REQUIRED
    assert first in table.group.members


def test_a_group_that_is_larger_than_it_may_be_is_made_smaller():
    table = Table()
    ids = table.stable(3)
    table.limits = type(table.limits)(2, DELAY_MS)
    table.restart()
    assert table.group.state is State.PREPARING
    tokens = [table.join(member_id) for member_id in ids]
    assert [table.code(token) for token in tokens][2] == E.GROUP_MAX_SIZE_REACHED
    table.pass_ms(REBALANCE_MS)
    assert [table.code(token) for token in tokens] == [E.NONE, E.NONE, E.GROUP_MAX_SIZE_REACHED]
    assert len(table.group.members) == 2


@pytest.mark.parametrize(
    ("member", "instance", "generation", "code"),
    [
        ("m", None, 1, E.NONE),
        ("m", None, 0, E.ILLEGAL_GENERATION),
        ("x", None, 1, E.UNKNOWN_MEMBER_ID),
        ("", None, -1, E.UNKNOWN_MEMBER_ID),
        ("m", None, -1, E.ILLEGAL_GENERATION),
        ("m", "nobody", 1, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_who_may_commit_to_a_stable_group(member, instance, generation, code):
    table = Table()
    (known,) = table.stable(1)
    assert table.group.check_commit(known if member == "m" else member, instance, generation) == code


def test_commits_by_state():
    table = Table()
    assert table.group.check_commit("", None, -1) == E.NONE, "nobody manages an empty group"
    assert table.group.check_commit("x", None, 3) == E.UNKNOWN_MEMBER_ID
    (first,) = table.stable(1)
    table.join(first, protocols=(("range", b"changed"),))
    assert table.group.state is State.COMPLETING
    assert table.group.check_commit(first, None, 2) == E.REBALANCE_IN_PROGRESS
    table.sync_all([first])
    table.member()
    assert table.group.state is State.PREPARING
    assert table.group.check_commit(first, None, 2) == E.NONE, "the last chance before partitions are given away"


def test_a_dead_group_sends_everyone_away():
    table = Table()
    first, second = table.stable(2)
    waits = table.join(first)
    table.group.close(E.NOT_COORDINATOR)
    table.settle()
    assert table.code(waits) == E.NOT_COORDINATOR
    assert table.heartbeat(second) == E.COORDINATOR_NOT_AVAILABLE
    assert table.code(table.sync(second)) == E.COORDINATOR_NOT_AVAILABLE
    assert table.code(table.join(second)) == E.COORDINATOR_NOT_AVAILABLE
    assert table.group.check_commit(second, None, 1) == E.COORDINATOR_NOT_AVAILABLE
    table.pass_ms(REBALANCE_MS)
