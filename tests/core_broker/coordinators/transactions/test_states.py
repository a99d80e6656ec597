"""Every cell of the state table, seen from outside: a transaction in that state, the event, the answer, where it goes.

That the table itself is Kafka's is for the differential scenarios of `integration_tests` to say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from isthmus.core_broker.coordinators.transactions import transaction as t
from isthmus.core_broker.coordinators.transactions.states import BY_NAME, BY_NUMBER, LIVE, TABLE, Answer, Event, State
from isthmus.core_broker.coordinators.transactions.transaction import Decision, Given, Transaction
from isthmus.protocol.errors import ErrorCode as E

ID, EPOCH, NOW = 7, 3, 50_000
PRESENT, BEFORE = Given(ID, EPOCH), Given(ID, EPOCH - 1)
IN_IT, OTHER = ("t", 0), ("t", 1)


def in_state(state: State) -> Transaction:
    partitions = frozenset() if state is State.EMPTY or state.value.startswith("Complete") else frozenset([IN_IT])
    return Transaction("x", ID, EPOCH, 1000, state, partitions, start_ms=10, update_ms=20, last_epoch=EPOCH - 1)


def verified(known: Transaction) -> Decision:
    answers = t.verify(known, PRESENT, [IN_IT, OTHER])
    if answers[IN_IT] == answers[OTHER]:
        return Decision(answers[IN_IT]) if answers[IN_IT] != E.TRANSACTION_ABORTABLE else Decision(Answer.LOOK)  # type: ignore[arg-type]
    assert answers == {IN_IT: E.NONE, OTHER: E.TRANSACTION_ABORTABLE}
    return Decision(Answer.LOOK)  # type: ignore[arg-type]


def added(partition: tuple[str, int]) -> Callable[[Transaction], Decision]:
    return lambda known: t.add_partitions(known, PRESENT, [partition], busy=False, version=0, level=2, now_ms=NOW)


def ended(given: Given, commit: bool) -> Callable[[Transaction], Decision]:
    return lambda known: t.end_raising(known, given, commit=commit, busy=False, level=2, fresh_id=None, now_ms=NOW)


def expired(known: Transaction) -> Decision | None:
    if t.is_expired(known, NOW, NOW - 20):
        return Decision(E.NONE, replace(known, state=State.DEAD))
    assert not t.is_expired(known, NOW, 0)
    return None


HAPPENINGS: dict[Event, Callable[[Transaction], Decision | None]] = {
    Event.INIT: lambda known: t.init_producer_id(known, None, 1000, busy=False, level=2, fresh_id=None, now_ms=NOW),
    Event.ADD: added(OTHER),
    Event.ADD_KNOWN: added(IN_IT),
    Event.VERIFY: verified,
    Event.COMMIT: lambda known: t.end(known, PRESENT, commit=True, busy=False, now_ms=NOW),
    Event.ABORT: lambda known: t.end(known, PRESENT, commit=False, busy=False, now_ms=NOW),
    Event.COMMIT_RAISING: ended(PRESENT, True),
    Event.ABORT_RAISING: ended(PRESENT, False),
    Event.COMMIT_AGAIN: ended(BEFORE, True),
    Event.ABORT_AGAIN: ended(BEFORE, False),
    Event.TIMEOUT: lambda known: t.abort_timed_out(known, level=2, fresh_id=None, now_ms=NOW),
    Event.MARKED: lambda known: Decision(E.NONE, t.completed(known, NOW)),
    Event.EXPIRE: expired,
}


@pytest.mark.parametrize(("event", "state"), [(event, state) for event in Event for state in LIVE], ids=str)
def test_a_cell_is_what_is_seen(event: Event, state: State) -> None:
    known = in_state(state)
    outcome = TABLE.get((event, state))
    if outcome is None:
        assert event in (Event.TIMEOUT, Event.MARKED, Event.EXPIRE), "clients may ask anything in any state"
        assert event is not Event.EXPIRE or HAPPENINGS[event](known) is None
        return
    decision = HAPPENINGS[event](known)
    assert decision is not None
    assert (decision.answer, decision.new and decision.new.state) == (outcome.answer, outcome.to)


def test_a_transaction_times_out_when_it_is_ongoing_only() -> None:
    late = {state for state in LIVE if in_state(state).has_timed_out(1011, 0)}
    assert late == {State.ONGOING}
    assert not in_state(State.ONGOING).has_timed_out(1010, 0)


def test_names_and_numbers_are_those_of_kafka() -> None:
    told: list[tuple[int, Any]] = [(number, state.value) for number, state in BY_NUMBER.items()]
    assert told == [
        (0, "Empty"), (1, "Ongoing"), (2, "PrepareCommit"), (3, "PrepareAbort"), (4, "CompleteCommit"),
        (5, "CompleteAbort"), (6, "Dead"), (7, "PrepareEpochFence"),
    ]  # fmt: skip
    assert all(BY_NAME[state.value] is state and BY_NUMBER[state.number] is state for state in State)
