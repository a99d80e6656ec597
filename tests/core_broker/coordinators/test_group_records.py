"""A classic group and its record: stores that take their time or fail, and what a restart makes of it."""

from __future__ import annotations

from isthmus.core_broker.coordinators.group_states import State
from isthmus.protocol.errors import ErrorCode as E

from .table import DELAY_MS, SESSION_MS, Table

# --- Stores that take their time, or fail ---------------------------------------------------------------------------


def test_assignments_are_told_only_once_they_are_stored():
    table = Table(hold_stores=True)
    first, _ = table.member()
    table.pass_ms(DELAY_MS)
    token = table.sync(first, assignments={first: b"A"})
    assert table.code(token) is None and table.group.state is State.COMPLETING
    table.finish_store()
    assert table.answers[token].assignment == b"A" and table.group.state is State.STABLE


def test_an_assignment_that_cannot_be_stored_makes_everyone_join_again():
    table = Table(hold_stores=True)
    first, _ = table.member()
    table.pass_ms(DELAY_MS)
    token = table.sync(first, assignments={first: b"A"})
    table.finish_store(E.NOT_COORDINATOR)
    assert table.code(token) == E.NOT_COORDINATOR and table.group.state is State.PREPARING
    assert table.group.members.get(first).assignment == b""


def test_a_store_that_ends_after_the_next_generation_began_is_ignored():
    table = Table(hold_stores=True)
    first, _ = table.member()
    table.pass_ms(DELAY_MS)
    token = table.sync(first, assignments={first: b"A"})
    second, join = table.member()
    assert table.code(token) == E.REBALANCE_IN_PROGRESS
    again = table.join(first)
    table.finish_store()
    assert table.group.state is State.COMPLETING and table.group.generation.number == 2
    assert table.code(again) == table.code(join) == E.NONE and second in table.group.members


# --- Restarts -------------------------------------------------------------------------------------------------------


def test_a_stable_group_survives_a_restart_of_its_coordinator():
    table = Table()
    first, second = table.stable(2)
    table.restart()
    assert (table.group.state, table.group.generation.number, table.group.members.leader) == (State.STABLE, 1, first)
    assert table.heartbeat(first) == table.heartbeat(second) == E.NONE
    assert table.answers[table.sync(second)].assignment == second.encode()
    table.pass_ms(SESSION_MS)
    assert not len(table.group.members), "and they must be heard of"


def test_a_restart_amid_a_rebalance_goes_back_to_the_last_stored_generation():
    table = Table()
    first, second = table.stable(2)
    table.member()
    assert table.group.state is State.PREPARING
    table.restart()
    assert (table.group.state, table.group.generation.number) == (State.STABLE, 1)
    assert table.heartbeat(first) == table.heartbeat(second) == E.NONE


def test_an_empty_group_keeps_its_generation_over_a_restart():
    table = Table()
    (first,) = table.stable(1)
    table.leave((first, None))
    table.restart()
    assert (table.group.state, table.group.generation.number) == (State.EMPTY, 2)
    _, join = table.member()
    table.pass_ms(DELAY_MS)
    assert table.answers[join].generation_id == 3
