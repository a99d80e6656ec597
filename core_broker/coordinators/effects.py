"""What a group's state machine is given, and the effects that it leaves to its caller: values only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from ...protocol.messages.group_records import GroupMetadataValue
from .members import Protocols

JOIN = ("join", "")  # the join phase ends
SYNC = ("sync", "")  # members that have not synced by then are removed
SESSION = "session"
Timer = tuple[str, str]
Token = Any  # stands for a request that waits for its answer


def session(member_id: str) -> Timer:
    return (SESSION, member_id)


@dataclass(slots=True, frozen=True)
class Limits:
    max_size: int
    initial_rebalance_delay_ms: int


class Caller(NamedTuple):
    """Who sent a request, and in which version."""

    version: int
    client_id: str
    client_host: str


class Reply(NamedTuple):
    token: Token
    response: Any


class Schedule(NamedTuple):
    timer: Timer
    delay_ms: int


class Ensure(NamedTuple):
    """Set a timer unless it is set."""

    timer: Timer
    delay_ms: int


class Cancel(NamedTuple):
    timer: Timer


class Store(NamedTuple):
    """Write the group's record; call `stored(tag, error_code)` when it is committed or has failed."""

    value: GroupMetadataValue
    tag: Any


class Assigned(NamedTuple):
    """Tag of a store: the leader's assignment for a generation."""

    generation: int
    assignments: dict[str, bytes]


class Replaced(NamedTuple):
    """Tag of a store: a static member has a new member id. `old_…` is what it had before."""

    group_instance_id: str
    old_id: str
    new_id: str
    old_leader: str | None
    old_protocols: Protocols
    old_timeouts_ms: tuple[int, int]  # rebalance and session timeout
    version: int


Effect = Reply | Schedule | Cancel | Store
