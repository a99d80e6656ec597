"""Static members (KIP-345): a process that starts again within its session keeps its place."""

from __future__ import annotations

from isthmus.core_broker.coordinators.group_states import State
from isthmus.protocol.errors import ErrorCode as E

from .table import DELAY_MS, SESSION_MS, Table


def two_static(table: Table) -> tuple[str, str]:
    tokens = [table.join(instance="one"), table.join(instance="two")]
    table.pass_ms(2 * DELAY_MS)
    first, second = (table.answers[token].member_id for token in tokens)
    table.sync_all([first, second])
    return first, second


def test_a_static_member_is_named_after_its_instance_and_joins_at_once():
    table = Table()
    token = table.join(instance="one")
    table.pass_ms(DELAY_MS)
    assert table.answers[token].member_id.startswith("one-")
    assert table.answers[token].members[0].group_instance_id == "one"


def test_rejoining_a_stable_group_takes_the_place_without_a_rebalance():
    table = Table()
    first, second = two_static(table)
    token = table.join(instance="two")
    answer = table.answers[token]
    assert (answer.error_code, answer.generation_id, answer.leader) == (E.NONE, 1, first)
    assert answer.member_id not in (first, second) and table.group.state is State.STABLE
    assert table.answers[table.sync(answer.member_id)].assignment == second.encode()
    assert table.heartbeat(second, instance="two") == E.FENCED_INSTANCE_ID
    assert table.code(table.sync(second, group_instance_id="two")) == E.FENCED_INSTANCE_ID
    assert table.group.check_commit(second, "two", 1) == E.FENCED_INSTANCE_ID
    assert table.code(table.join(second, instance="two")) == E.FENCED_INSTANCE_ID
    assert table.heartbeat(answer.member_id, instance="two") == E.NONE
    table.restart()
    assert table.group.members.static_id("two") == answer.member_id, "it was stored"


def test_the_leader_that_rejoins_is_told_to_skip_the_assignment():
    table = Table()
    first, second = two_static(table)
    answer = table.answers[table.join(instance="one", version=9)]
    assert answer.skip_assignment and answer.leader == answer.member_id
    assert [m.member_id for m in answer.members] == [answer.member_id, second]


def test_an_older_leader_that_rejoins_is_not_told_that_it_leads():
    table = Table()
    first, _ = two_static(table)
    answer = table.answers[table.join(instance="one", version=5)]
    assert answer.leader == first and answer.members == [] and not answer.skip_assignment


def test_rejoining_with_another_protocol_rebalances():
    table = Table()
    both = (("range", b""), ("sticky", b""))
    tokens = [table.join(instance=name, protocols=both) for name in ("one", "two")]
    table.pass_ms(2 * DELAY_MS)
    table.sync_all([table.answers[token].member_id for token in tokens])
    token = table.join(instance="two", protocols=(("sticky", b""),))
    assert table.code(token) is None and table.group.state is State.PREPARING


def test_rejoining_while_assignments_are_awaited_rebalances():
    table = Table()
    tokens = [table.join(instance="one"), table.join(instance="two")]
    table.pass_ms(2 * DELAY_MS)
    second = table.answers[tokens[1]].member_id
    waiting = table.sync(second)
    again = table.join(instance="two")
    assert table.code(waiting) == E.FENCED_INSTANCE_ID
    assert table.group.state is State.PREPARING and table.code(again) is None


def test_rejoining_while_others_join_fences_the_first():
    table = Table()
    first = table.join(instance="one")
    second = table.join(instance="one")
    assert table.code(first) == E.FENCED_INSTANCE_ID and table.code(second) is None
    table.pass_ms(DELAY_MS)
    assert table.code(second) == E.NONE and len(table.group.members) == 1


def test_a_static_member_that_misses_the_rebalance_stays_until_its_session_ends():
    table = Table()
    first, second = two_static(table)
    token = table.join(first, instance="one", protocols=(("range", b"changed"),), session_ms=60_000)
    table.group.members.get(second).session_timeout_ms = 120_000
    table.heartbeat(second, instance="two")
    table.pass_ms(60_000)
    assert table.code(token) == E.NONE and second in table.group.members
    assert {m.member_id for m in table.answers[token].members} == {first, second}


def test_a_static_leader_that_misses_the_rebalance_leads_no_more():
    table = Table()
    first, second = two_static(table)
    token = table.join(second, instance="two", protocols=(("range", b"changed"),))
    table.group.members.get(first).session_timeout_ms = 120_000
    table.heartbeat(first, instance="one")
    table.pass_ms(60_000)
    answer = table.answers[token]
    assert answer.leader == second and len(answer.members) == 2 and first in table.group.members


def test_a_group_of_static_members_of_which_none_comes_waits_for_their_sessions():
    table = Table()
    first, second = two_static(table)
    _, join = table.member()
    table.leave(("", "nobody"))
    assert table.group.state is State.PREPARING
    table.pass_ms(SESSION_MS)
    assert first not in table.group.members and second not in table.group.members
    assert table.code(join) == E.NONE


def test_an_administrator_removes_a_static_member_by_its_instance():
    table = Table()
    first, second = two_static(table)
    assert table.leave(("", "two"), ("", "nobody"), ("", None)) == [E.NONE, E.UNKNOWN_MEMBER_ID, E.UNKNOWN_MEMBER_ID]
    assert second not in table.group.members and table.group.members.static_id("two") is None
    assert table.leave((second, "one")) == [E.FENCED_INSTANCE_ID]


def test_a_place_that_could_not_be_stored_is_given_back():
    table = Table()
    first, second = two_static(table)
    table.hold_stores = True
    token = table.join(instance="two", session_ms=2 * SESSION_MS)
    table.finish_store(E.NOT_COORDINATOR)
    assert table.code(token) == E.NOT_COORDINATOR
    assert table.group.members.static_id("two") == second
    assert table.group.members.get(second).session_timeout_ms == SESSION_MS
    assert table.heartbeat(second, instance="two") == E.NONE


def test_a_rebalance_that_begins_before_the_place_is_stored_answers_the_join():
    table = Table()
    first, second = two_static(table)
    table.hold_stores = True
    token = table.join(instance="two")
    newcomer, join = table.member()
    table.join(first, instance="one")
    table.finish_store()
    assert table.code(token) == table.code(join) == E.NONE
    assert table.answers[token].generation_id == table.answers[join].generation_id == 2
    assert newcomer in table.group.members
