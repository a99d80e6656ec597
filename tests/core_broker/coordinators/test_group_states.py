"""Every cell of the state table, seen from outside: a group in that state, the event, what is answered, where it goes.

That the table itself is Kafka's is for the differential scenarios of `integration_tests` to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from isthmus.core_broker.coordinators.group_states import TABLE, Answer, Event, State
from isthmus.protocol.errors import ErrorCode as E

from .table import REBALANCE_MS, Table

BOTH = (("range", b""), ("sticky", b""))
STATIC = "s"
LONG_MS = 4 * REBALANCE_MS  # sessions that do not end by themselves


class Seen:
    """A group with a leader, a follower and a static member, brought into a state, and what one of them is told."""

    def __init__(self, state: State) -> None:
        self.table = Table()
        self.leader = self.follower = self.static = "nobody"
        if state is State.EMPTY:
            return
        self.leader, _ = self.member()
        self.follower, _ = self.member()
        joined = self.join(instance=STATIC)
        self.table.pass_ms(LONG_MS)
        self.static = self.table.answers[joined].member_id
        if state is not State.COMPLETING:
            self.table.sync_all([self.leader, self.static])
        if state is State.PREPARING:
            self.member()
        if state is State.DEAD:
            self.table.group.close(E.NOT_COORDINATOR)
            self.table.settle()
        assert self.table.group.state is state

    def delete_offsets(self, kind: str) -> E:
        self.table.group.generation.protocol_type = kind
        return self.table.group.check_delete_offsets()

    def join(self, member_id: str = "", **options: Any) -> int:
        settings = {"protocols": BOTH, "session_ms": LONG_MS, "rebalance_ms": LONG_MS, "version": 3}
        return self.table.join(member_id, **{**settings, **options})

    def member(self) -> tuple[str, int]:
        token = self.join()
        return next(reversed([each.member_id for each in self.table.group.members])), token

    def sync(self, member_id: str) -> int:
        return self.table.sync(member_id, assignments={member_id: b"A"})

    def after(self, token: int) -> E | Answer:
        """What an answer comes to, in the words of the table."""
        answer = self.table.answers.get(token)
        if answer is None:
            return Answer.STORED if self.table.held else Answer.LATER
        if answer.error_code:
            return E(answer.error_code)
        return Answer.ASSIGNMENT if hasattr(answer, "assignment") else Answer.GENERATION

    def leave(self, member_id: str) -> E:
        if member_id == "nobody":  # of an empty group only those can leave who were given an id
            member_id = self.table.answers[self.join(version=9)].member_id
        return E(self.table.leave((member_id, None))[0])

    def unsynced(self) -> E:
        self.sync(self.static)  # waits, or has its assignment; the follower never asks
        self.table.group.fired(("sync", ""))
        self.table.settle()
        return E.NONE

    def join_phase_over(self) -> E:
        self.table.pass_ms(LONG_MS)
        return E.NONE

    def commit(self) -> E:
        group = self.table.group
        return group.check_commit(self.follower, None, group.generation.number or -1)

    def transactional_commit(self) -> E:
        group = self.table.group
        return group.check_transactional_commit(self.follower, None, group.generation.number or -1)

    def all_leave(self) -> E:
        self.table.leave(*((member.member_id, None) for member in self.table.group.members))
        return E.NONE

    def assigned(self, error: E) -> E:
        self.sync(self.leader)
        self.table.finish_store(error)
        return E.NONE

    def too_large(self) -> E:
        self.table.limits = type(self.table.limits)(2, 0)
        self.table.restart()
        return E.NONE

    def converted(self) -> E:
        self.table.group.converted({each.member_id: each.protocols for each in self.table.group.members})
        return E.NONE

    def close(self) -> E:
        self.table.group.close(E.NOT_COORDINATOR)
        return E.NONE


HAPPENS: dict[Event, Callable[[Seen], E | Answer]] = {
    Event.JOIN: lambda seen: seen.after(seen.join()),
    Event.REJOIN: lambda seen: seen.after(seen.join(seen.follower)),
    Event.LEADER_REJOIN: lambda seen: seen.after(seen.join(seen.leader)),
    Event.CHANGED_REJOIN: lambda seen: seen.after(seen.join(seen.follower, protocols=(("range", b"x"),))),
    Event.STATIC_REJOIN: lambda seen: seen.after(seen.join(instance=STATIC)),
    Event.STATIC_CHANGED_REJOIN: lambda seen: seen.after(seen.join(instance=STATIC, protocols=(("sticky", b""),))),
    Event.SYNC: lambda seen: seen.after(seen.sync(seen.follower)),
    Event.LEADER_SYNC: lambda seen: seen.after(seen.sync(seen.leader)),
    Event.HEARTBEAT: lambda seen: seen.table.heartbeat(seen.follower),
    Event.COMMIT: Seen.commit,
    Event.TRANSACTIONAL_COMMIT: Seen.transactional_commit,
    Event.MEMBER_GONE: lambda seen: seen.leave(seen.follower),
    Event.JOINED: Seen.join_phase_over,
    Event.NONE_LEFT: Seen.all_leave,
    Event.ASSIGNED: lambda seen: seen.assigned(E.NONE),
    Event.NOT_ASSIGNED: lambda seen: seen.assigned(E.NOT_COORDINATOR),
    Event.UNSYNCED: Seen.unsynced,
    Event.TOO_LARGE: Seen.too_large,
    Event.STALE: Seen.converted,
    Event.DELETE: lambda seen: seen.table.group.check_delete(),
    Event.DELETE_OFFSETS: lambda seen: seen.delete_offsets("consumer"),
    Event.DELETE_OPAQUE_OFFSETS: lambda seen: seen.delete_offsets("connect"),
    Event.CLOSED: Seen.close,
}


@pytest.mark.parametrize(("event", "state"), TABLE, ids=lambda each: each.name)
def test_what_happens_is_what_the_table_says(event: Event, state: State) -> None:
    seen = Seen(state)
    seen.table.hold_stores = True
    answer = HAPPENS[event](seen)
    outcome = TABLE[event, state]
    assert (answer, seen.table.group.state) == (outcome.answer, outcome.to or state)


def test_what_is_stored_first_is_told_then() -> None:
    seen = Seen(State.STABLE)
    seen.table.hold_stores = True
    token = seen.join(instance=STATIC)
    assert seen.after(token) is Answer.STORED
    seen.table.finish_store()
    assert seen.after(token) is Answer.GENERATION and seen.table.group.state is State.STABLE


def test_every_event_has_a_row_and_every_state_can_be_left() -> None:
    assert {event for event, _ in TABLE} == set(Event) == set(HAPPENS)
    ways = {(state, outcome.to) for (_, state), outcome in TABLE.items() if outcome.to is not None}
    assert ways == {
        (State.EMPTY, State.PREPARING),
        (State.PREPARING, State.COMPLETING),
        (State.PREPARING, State.EMPTY),
        (State.COMPLETING, State.PREPARING),
        (State.COMPLETING, State.STABLE),
        (State.STABLE, State.PREPARING),
        *((state, State.DEAD) for state in State if state is not State.DEAD),
    }
