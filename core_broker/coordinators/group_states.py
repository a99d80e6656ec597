"""The state machine of a classic group, as one table: (event, state) -> (answer, next state).

Kafka's group protocol: members join (PreparingRebalance), the leader's assignment is awaited (CompletingRebalance),
everyone works (Stable), everyone left (Empty), the group is gone (Dead). Pure data. Who asks has been checked before
an event happens: known, not fenced, of the present generation. `group.py` does what entering a state means.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import ErrorCode


class Named(Enum):
    """An enumeration whose members are hashed by identity; Python's own hash costs a call."""

    __hash__ = object.__hash__


class State(Named):
    """Names as in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Named):
    """What can happen to a group."""

    JOIN = "a new member joins"
    REJOIN = "a member joins again, with the same metadata"
    LEADER_REJOIN = "the leader joins again, with the same metadata"
    CHANGED_REJOIN = "a member joins again, with other metadata"
    STATIC_REJOIN = "a static member that was restarted joins without a member id"
    STATIC_CHANGED_REJOIN = "the same, and the group would now choose another protocol"
    SYNC = "a member asks for its assignment"
    LEADER_SYNC = "the leader sends all assignments"
    HEARTBEAT = "a member sends a heartbeat"
    COMMIT = "offsets are committed, by a member or, in an empty group, by any client"
    TRANSACTIONAL_COMMIT = "the same in a transaction, by a member, or by a client that names none"
    MEMBER_GONE = "a member left or its session ended"
    JOINED = "the join phase is over, with these members"
    NONE_LEFT = "the join phase is over, without members"
    ASSIGNED = "the assignments of this generation are committed"
    NOT_ASSIGNED = "the assignments could not be written"
    UNSYNCED = "members that did not ask for their assignment in time are removed"
    TOO_LARGE = "a loaded group has more members than allowed"
    STALE = "the assignments are stale, of a group that was a consumer group until now"
    DELETE = "the group is to be deleted"
    DELETE_OFFSETS = "offsets are to be deleted; the topics that members read are known"
    DELETE_OPAQUE_OFFSETS = "offsets are to be deleted; the topics that members read are unknown"
    CLOSED = "the group was deleted or has moved to another coordinator"


class Answer(Enum):
    """The answer to an event, if it is not an error code."""

    LATER = "the answer follows from the next state"
    GENERATION = "the present generation"
    ASSIGNMENT = "the member's present assignment"
    STORED = "the present generation, once the group's record is committed"


class Outcome(NamedTuple):
    """The result of an event. `to`: the next state; None if the state does not change."""

    answer: ErrorCode | Answer
    to: State | None = None


_ok = Outcome(ErrorCode.NONE)
_later = Outcome(Answer.LATER)  # if all have joined, JOINED follows
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

# PREPARING, commits: the last chance for members that must give partitions back. COMPLETING, static rejoin: the leader
# may be assigning to the old member id. STABLE, leader rejoin: this is how a leader asks for a new assignment.
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
    Event.TRANSACTIONAL_COMMIT:  (_ok,    _ok,    _ok,    _ok,    _gone),
    Event.MEMBER_GONE:           (_ok,    _ok,    _prep,  _prep,  _____),
    Event.JOINED:                (_____,  _comp,  _____,  _____,  _____),
    Event.NONE_LEFT:             (_____,  _empt,  _____,  _____,  _____),
    Event.ASSIGNED:              (_____,  _____,  _stab,  _____,  _____),
    Event.NOT_ASSIGNED:          (_____,  _____,  _prep,  _____,  _____),
    Event.UNSYNCED:              (_____,  _____,  _prep,  _prep,  _____),
    Event.TOO_LARGE:             (_____,  _____,  _____,  _prep,  _____),
    Event.STALE:                 (_____,  _____,  _____,  _prep,  _____),
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
