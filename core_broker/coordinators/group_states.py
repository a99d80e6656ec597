"""The state machine of a classic group: one table, (event, state) -> (answer, next state), read in one screen.

Kafka's group protocol: members join (PreparingRebalance), the leader's assignment is awaited (CompletingRebalance),
everyone works (Stable), everyone left (Empty), the group is gone (Dead). Pure data. Who asks has been checked before
an event happens: known, not fenced, of the present generation. `group.py` does what entering a state means.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import ErrorCode


class Named(Enum):
    """An enumeration whose members are looked up by identity: Python's own hash of one is a call of its own."""

    __hash__ = object.__hash__


class State(Named):
    """Named as DescribeGroups and ListGroups tell them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Named):
    """What can happen to a group."""

    JOIN = "someone joins who was no member"
    REJOIN = "a member joins again, with the metadata it had"
    LEADER_REJOIN = "the leader does"
    CHANGED_REJOIN = "a member joins again, with other metadata"
    STATIC_REJOIN = "a static member, started again, joins without a member id"
    STATIC_CHANGED_REJOIN = "the same, and the group's protocol would be another now"
    SYNC = "a member asks for its assignment"
    LEADER_SYNC = "the leader brings all assignments"
    HEARTBEAT = "a member is alive"
    COMMIT = "a member, or nobody's member in an empty group, commits offsets"
    MEMBER_GONE = "a member left or was not heard of"
    JOINED = "the join phase is over: these are the members"
    NONE_LEFT = "the join phase is over: nobody is left"
    ASSIGNED = "the assignments of this generation are on the log"
    NOT_ASSIGNED = "they could not be written"
    UNSYNCED = "members that did not ask for their assignment in time are let go"
    TOO_LARGE = "the group that was loaded is larger than it may be"
    DELETE = "the group is to be deleted"
    DELETE_OFFSETS = "offsets are to be deleted; which topics members read is known"
    DELETE_OPAQUE_OFFSETS = "the same of a group whose members' topics nobody can know"
    CLOSED = "the group was deleted, or is coordinated elsewhere now"


class Answer(Enum):
    """What is told to whoever asks, where it is no error code."""

    LATER = "what comes of the state that follows"
    GENERATION = "the present generation"
    ASSIGNMENT = "its present assignment"
    STORED = "the present generation, once the group's record is on the log"


class Outcome(NamedTuple):
    """`to` is the state that the event leads to; None where the group stays in its own."""

    answer: ErrorCode | Answer
    to: State | None = None


_ok = Outcome(ErrorCode.NONE)
_later = Outcome(Answer.LATER)  # where all have joined, JOINED follows
_tell = Outcome(Answer.GENERATION)  # the answer to its join was lost
_give = Outcome(Answer.ASSIGNMENT)
_store = Outcome(Answer.STORED)
_again = Outcome(Answer.LATER, State.PREPARING)
_busy = Outcome(ErrorCode.REBALANCE_IN_PROGRESS)
_who = Outcome(ErrorCode.UNKNOWN_MEMBER_ID)
_used = Outcome(ErrorCode.NON_EMPTY_GROUP)
_gone = Outcome(ErrorCode.COORDINATOR_NOT_AVAILABLE)
_none = Outcome(ErrorCode.GROUP_ID_NOT_FOUND)
_prep = Outcome(ErrorCode.NONE, State.PREPARING)
_comp = Outcome(ErrorCode.NONE, State.COMPLETING)
_stab = Outcome(ErrorCode.NONE, State.STABLE)
_empt = Outcome(ErrorCode.NONE, State.EMPTY)
_dead = Outcome(ErrorCode.NONE, State.DEAD)
_____ = None  # cannot happen

# PREPARING commits: the last chance of those who must give partitions back. COMPLETING, static rejoin: the leader may
# be assigning to the id that is no more. STABLE, leader rejoin: how a leader asks for a new assignment.
# fmt: off
_ROWS: dict[Event, tuple[Outcome | None, ...]] = {
    #                             Empty   Prepar. Compl.  Stable  Dead
    Event.JOIN:                  (_again, _later, _again, _again, _gone),
    Event.REJOIN:                (_who,   _later, _tell,  _tell,  _gone),
    Event.LEADER_REJOIN:         (_who,   _later, _tell,  _again, _gone),
    Event.CHANGED_REJOIN:        (_who,   _later, _again, _again, _gone),
    Event.STATIC_REJOIN:         (_____,  _later, _again, _store, _____),
    Event.STATIC_CHANGED_REJOIN: (_____,  _later, _again, _again, _____),
    Event.SYNC:                  (_who,   _busy,  _later, _give,  _gone),
    Event.LEADER_SYNC:           (_who,   _busy,  _store, _give,  _gone),
    Event.HEARTBEAT:             (_who,   _busy,  _ok,    _ok,    _gone),
    Event.COMMIT:                (_ok,    _ok,    _busy,  _ok,    _gone),
    Event.MEMBER_GONE:           (_ok,    _ok,    _prep,  _prep,  _____),
    Event.JOINED:                (_____,  _comp,  _____,  _____,  _____),
    Event.NONE_LEFT:             (_____,  _empt,  _____,  _____,  _____),
    Event.ASSIGNED:              (_____,  _____,  _stab,  _____,  _____),
    Event.NOT_ASSIGNED:          (_____,  _____,  _prep,  _____,  _____),
    Event.UNSYNCED:              (_____,  _____,  _prep,  _prep,  _____),
    Event.TOO_LARGE:             (_____,  _____,  _____,  _prep,  _____),
    Event.DELETE:                (_ok,    _used,  _used,  _used,  _none),
    Event.DELETE_OFFSETS:        (_ok,    _ok,    _ok,    _ok,    _none),
    Event.DELETE_OPAQUE_OFFSETS: (_ok,    _used,  _used,  _used,  _none),
    Event.CLOSED:                (_dead,  _dead,  _dead,  _dead,  _ok),
}
# fmt: on

TABLE: dict[tuple[Event, State], Outcome] = {
    (event, state): outcome
    for event, row in _ROWS.items()
    for state, outcome in zip(State, row, strict=True)
    if outcome is not None
}
