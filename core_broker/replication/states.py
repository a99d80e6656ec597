"""The states of a partition on this broker, as one table: (event, state) -> next state.

Pure data. A `Partition` has a state from the moment its log is open; the replica manager keeps the state of the others.
`MEANING` has what a state means to clients. Only `next_state` decides which state follows.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class State(Enum):
    """What can be done with a partition."""

    OPENING = "its log is being opened"
    LEADING = "it is led here, and serves reads and appends"
    FOLLOWING = "this broker copies it from its leader, and serves reads of consumers up to what it knows is committed"
    READ_ONLY = "it is led here and serves reads; the disk refused an append, and none has succeeded since"
    STALLED = "this broker follows, and serves the same reads; the disk refused what it copied, and takes none since"
    AWAITING_SPACE = "offline: its log is opened again when there is disk space, or a free descriptor"
    OFFLINE = "offline until the broker starts again: the disk or its contents cannot be trusted"
    CLOSED = "deleted, of an earlier leadership, or the broker stops"


class Event(Enum):
    """What can happen to a partition."""

    OPENED_TO_LEAD = "its log is open, and synced if the option durability asks for that; this broker leads"
    OPENED_TO_FOLLOW = "the same, and another broker leads, or none"
    APPEND_REFUSED = "the disk refused an append, usually for lack of space; the log is as before"
    APPENDS_AGAIN = "an append, or a test write of the same size, succeeded"
    LOG_WITHOUT_SPACE = "its log could not be opened, or went offline, for lack of disk space or descriptors"
    LOG_FAILED = "its log could not be opened, or went offline, for another reason"
    CLOSE = "the topic is deleted, the leader changes, the replica moves away, or the broker stops"


class Meaning(NamedTuple):
    """What clients see of a state. `has_leader`: whether metadata names a leader."""

    serves_reads: bool
    takes_appends: bool
    has_leader: bool


MEANING: dict[State, Meaning] = {
    #                             reads  appends leader
    State.OPENING:        Meaning(False, False,  True),
    State.LEADING:        Meaning(True,  True,   True),
    State.FOLLOWING:      Meaning(True,  False,  True),
    State.READ_ONLY:      Meaning(True,  False,  True),
    State.STALLED:        Meaning(True,  False,  True),
    State.AWAITING_SPACE: Meaning(False, False,  False),
    State.OFFLINE:        Meaning(False, False,  False),
    State.CLOSED:         Meaning(False, False,  False),
}  # fmt: skip

REFUSING = (State.READ_ONLY, State.STALLED)  # the disk does not take appends just now

_open, _lead, _foll, _read, _stal, _wait, _off_, _done = State
_____ = None  # cannot happen

# fmt: off
_ROWS: dict[Event, tuple[State | None, ...]] = {
    #                        OPENING LEADING FOLLOW. READ_O. STALLED AWAITIN OFFLINE CLOSED
    Event.OPENED_TO_LEAD:    (_lead, _____,  _____,  _____,  _____,  _____,  _____,  _____),
    Event.OPENED_TO_FOLLOW:  (_foll, _____,  _____,  _____,  _____,  _____,  _____,  _____),
    Event.APPEND_REFUSED:    (_____, _read,  _stal,  _read,  _stal,  _____,  _____,  _done),
    Event.APPENDS_AGAIN:     (_____, _lead,  _foll,  _lead,  _foll,  _wait,  _off_,  _done),
    Event.LOG_WITHOUT_SPACE: (_wait, _wait,  _wait,  _wait,  _wait,  _wait,  _wait,  _done),
    Event.LOG_FAILED:        (_off_, _off_,  _off_,  _off_,  _off_,  _off_,  _off_,  _done),
    Event.CLOSE:             (_done, _done,  _done,  _done,  _done,  _done,  _done,  _done),
}
# fmt: on

TABLE: dict[tuple[Event, State], State] = {
    (event, state): after
    for event, row in _ROWS.items()
    for state, after in zip(State, row, strict=True)
    if after is not None
}


def next_state(state: State, event: Event) -> State:
    """The state that follows. Raises KeyError for what cannot happen."""
    return TABLE[event, state]
