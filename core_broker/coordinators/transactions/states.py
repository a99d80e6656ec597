"""The state machine of a transactional id, as one table: (event, state) -> (answer, next state).

A producer gets its id and epoch (Empty), adds partitions (Ongoing) and ends the transaction (PrepareCommit or
PrepareAbort: decided for good). When every partition has its marker, the transaction is over (CompleteCommit or
CompleteAbort), and the next one may begin. Pure data. Who asks has been checked before an event happens: of the present
producer id, not fenced. `transaction.py` has these checks, and what entering a state means.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

from ....protocol.errors import ErrorCode


class Named(Enum):
    """An enumeration whose members are hashed by identity; Python's own hash costs a call."""

    __hash__ = object.__hash__


class State(Named):
    """Names as in DescribeTransactions and ListTransactions; `number` as in the records.

    Nothing is in the last two: an id that expired is gone at once, and to fence the producer of an ongoing transaction
    and to abort it are one record here. Clients know Kafka's names all the same.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @property
    def number(self) -> int:
        return NUMBERS[self]


NUMBERS = {state: number for number, state in enumerate(State)}
BY_NUMBER = {number: state for state, number in NUMBERS.items()}
BY_NAME = {state.value: state for state in State}
LIVE = tuple(State)[:6]  # the columns of the table
DECIDED = (State.PREPARE_COMMIT, State.PREPARE_ABORT)  # the markers are being written
COMPLETE = (State.COMPLETE_COMMIT, State.COMPLETE_ABORT)


@unique
class Event(Named):
    """What can happen to a transactional id. Clients of KIP-890's second part raise the epoch with every end."""

    INIT = "a producer asks for an id and epoch"
    ADD = "partitions are added to the transaction"
    ADD_KNOWN = "the same, and all of them are in it"
    VERIFY = "a leader asks whether partitions are in the transaction"
    COMMIT = "an older client commits"
    ABORT = "an older client aborts"
    COMMIT_RAISING = "a client commits and wants the next epoch"
    ABORT_RAISING = "a client aborts and wants the next epoch"
    COMMIT_AGAIN = "a commit that wants the next epoch comes with the epoch before: its answer was lost"
    ABORT_AGAIN = "an abort that wants the next epoch comes with the epoch before: its answer was lost"
    TIMEOUT = "the transaction has lasted longer than its producer allowed"
    MARKED = "every partition has its marker"
    EXPIRE = "nothing has happened for very long"


class Answer(Enum):
    """The answer to an event, if it is not an error code."""

    LOOK = "for each partition, whether it is in the transaction"


class Outcome(NamedTuple):
    """The result of an event. `to`: the next state, whose record is committed before the answer is given; None if
    nothing is written."""

    answer: ErrorCode | Answer
    to: State | None = None


_ok = Outcome(ErrorCode.NONE)
_look = Outcome(Answer.LOOK)
_wait = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS)  # retriable
_bad = Outcome(ErrorCode.INVALID_TXN_STATE)
_old = Outcome(ErrorCode.PRODUCER_FENCED)
_init = Outcome(ErrorCode.NONE, State.EMPTY)
_open = Outcome(ErrorCode.NONE, State.ONGOING)
_pcom = Outcome(ErrorCode.NONE, State.PREPARE_COMMIT)
_pabo = Outcome(ErrorCode.NONE, State.PREPARE_ABORT)
_fenc = Outcome(ErrorCode.CONCURRENT_TRANSACTIONS, State.PREPARE_ABORT)  # who asked has to ask again
_ccom = Outcome(ErrorCode.NONE, State.COMPLETE_COMMIT)
_cabo = Outcome(ErrorCode.NONE, State.COMPLETE_ABORT)
_dead = Outcome(ErrorCode.NONE, State.DEAD)
_____ = None  # cannot happen

# COMPLETE, ABORT_RAISING: a client that aborts without having added anything wants the next epoch all the same.
# fmt: off
_ROWS: dict[Event, tuple[Outcome | None, ...]] = {
    #                      Empty  Ongoing Prep.C Prep.A Comp.C Comp.A
    Event.INIT:           (_init, _fenc, _wait, _wait, _init, _init),
    Event.ADD:            (_open, _open, _wait, _wait, _open, _open),
    Event.ADD_KNOWN:      (_open, _ok,   _wait, _wait, _open, _open),
    Event.VERIFY:         (_look, _look, _wait, _wait, _look, _look),
    Event.COMMIT:         (_bad,  _pcom, _wait, _wait, _ok,   _bad),
    Event.ABORT:          (_bad,  _pabo, _wait, _wait, _bad,  _ok),
    Event.COMMIT_RAISING: (_bad,  _pcom, _wait, _wait, _bad,  _bad),
    Event.ABORT_RAISING:  (_pabo, _pabo, _wait, _wait, _pabo, _pabo),
    Event.COMMIT_AGAIN:   (_old,  _old,  _wait, _wait, _ok,   _bad),
    Event.ABORT_AGAIN:    (_old,  _old,  _wait, _wait, _bad,  _ok),
    Event.TIMEOUT:        (_____, _pabo, _____, _____, _____, _____),
    Event.MARKED:         (_____, _____, _ccom, _cabo, _____, _____),
    Event.EXPIRE:         (_dead, _____, _____, _____, _dead, _dead),
}
# fmt: on

TABLE: dict[tuple[Event, State], Outcome] = {
    (event, state): outcome
    for event, row in _ROWS.items()
    for state, outcome in zip(LIVE, row, strict=True)
    if outcome is not None
}
