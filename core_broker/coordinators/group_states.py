"""The states of a classic group, and what each does with what can happen: one table, read in one screen.

Kafka's group protocol: members join (PreparingRebalance), the leader's assignment is awaited (CompletingRebalance),
everyone works (Stable), everyone left (Empty), the group is gone (Dead). What a cell says holds for a member that is
known, at the right generation; those checks come before the table.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ...protocol.errors import ErrorCode


class State(Enum):
    """Named as DescribeGroups and ListGroups tell them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Do(Enum):
    """What is done, where the answer is no error."""

    ANSWER = "tell the present generation"
    WAIT = "answer when the generation is complete"
    REBALANCE = "begin another generation"
    COMPLETE = "see whether all are here now"
    REPLACE = "take the new id for the old, and rebalance only if the protocol changes"
    NOTHING = "nothing"


class Rules(NamedTuple):
    """One state. An ErrorCode is the answer."""

    before: tuple[State, ...]  # the states it is entered from
    heartbeat: ErrorCode
    sync: ErrorCode | Do
    rejoin: ErrorCode | Do  # with the metadata the member had
    leader_rejoins: ErrorCode | Do  # the same, by the leader
    rejoin_changed: ErrorCode | Do  # with other metadata
    static_rejoins: ErrorCode | Do  # a static member without a member id, its process having started again
    member_gone: Do
    commit: ErrorCode
    delete: ErrorCode


_OK = ErrorCode.NONE
_UNKNOWN = ErrorCode.UNKNOWN_MEMBER_ID
_REBALANCING = ErrorCode.REBALANCE_IN_PROGRESS
_GONE = ErrorCode.COORDINATOR_NOT_AVAILABLE
_NOT_EMPTY = ErrorCode.NON_EMPTY_GROUP

RULES: dict[State, Rules] = {
    State.EMPTY: Rules(
        before=(State.PREPARING,),
        heartbeat=_UNKNOWN,
        sync=_UNKNOWN,
        rejoin=_UNKNOWN,
        leader_rejoins=_UNKNOWN,
        rejoin_changed=_UNKNOWN,
        static_rejoins=_UNKNOWN,
        member_gone=Do.NOTHING,
        commit=_OK,
        delete=_OK,
    ),
    State.PREPARING: Rules(
        before=(State.EMPTY, State.STABLE, State.COMPLETING),
        heartbeat=_REBALANCING,
        sync=_REBALANCING,
        rejoin=Do.WAIT,
        leader_rejoins=Do.WAIT,
        rejoin_changed=Do.WAIT,
        static_rejoins=Do.COMPLETE,
        member_gone=Do.COMPLETE,
        commit=_OK,  # the last chance of those who must give partitions back
        delete=_NOT_EMPTY,
    ),
    State.COMPLETING: Rules(
        before=(State.PREPARING,),
        heartbeat=_OK,
        sync=Do.WAIT,
        rejoin=Do.ANSWER,  # the answer to its join was lost
        leader_rejoins=Do.ANSWER,
        rejoin_changed=Do.REBALANCE,
        static_rejoins=Do.REBALANCE,  # the leader may be assigning to the old id
        member_gone=Do.REBALANCE,
        commit=_REBALANCING,
        delete=_NOT_EMPTY,
    ),
    State.STABLE: Rules(
        before=(State.COMPLETING,),
        heartbeat=_OK,
        sync=Do.ANSWER,
        rejoin=Do.ANSWER,
        leader_rejoins=Do.REBALANCE,  # how a leader asks for a new assignment
        rejoin_changed=Do.REBALANCE,
        static_rejoins=Do.REPLACE,
        member_gone=Do.REBALANCE,
        commit=_OK,
        delete=_NOT_EMPTY,
    ),
    State.DEAD: Rules(
        before=tuple(State),
        heartbeat=_GONE,
        sync=_GONE,
        rejoin=_GONE,
        leader_rejoins=_GONE,
        rejoin_changed=_GONE,
        static_rejoins=_GONE,
        member_gone=Do.NOTHING,
        commit=_GONE,
        delete=ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}
