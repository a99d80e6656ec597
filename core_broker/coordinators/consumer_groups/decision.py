"""What decisions about consumer groups follow, and what they come to: values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ..effects import JOIN, SYNC, Cancel, Ensure, Schedule, Timer, session
from ..members import Protocols
from ..runtime import Record
from .assignors.types import Assignor
from .topics import Topics


def rebalance_timer(member_id: str) -> Timer:
    """A member that has partitions to give back."""
    return ("rebalance", member_id)


def join_timer(member_id: str) -> Timer:
    """A member of the classic protocol that was told to join again."""
    return (JOIN[0], member_id)


def sync_timer(member_id: str) -> Timer:
    """A member of the classic protocol that has joined, and is to ask for its assignment."""
    return (SYNC[0], member_id)


def timers_of(member_id: str) -> tuple[Timer, ...]:
    """All that a member may have."""
    return session(member_id), rebalance_timer(member_id), join_timer(member_id), sync_timer(member_id)


class Policy(Enum):
    """`group.consumer.migration.policy`: which ways groups may go while they are in use."""

    DISABLED = "DISABLED"
    DOWNGRADE = "DOWNGRADE"
    UPGRADE = "UPGRADE"
    BIDIRECTIONAL = "BIDIRECTIONAL"

    @property
    def upgrades(self) -> bool:
        return self in (Policy.UPGRADE, Policy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        return self in (Policy.DOWNGRADE, Policy.BIDIRECTIONAL)


@dataclass(slots=True, frozen=True)
class GroupOptions:
    """What a group's own options, or else the broker's, say."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(slots=True, frozen=True)
class Rules:
    """assignors: by name, the first is the default. options: of a group by its id.

    max_size and classic_max_size: most members of a consumer group, and of a classic group.
    """

    topics: Topics
    assignors: Mapping[str, Assignor]
    options: Callable[[str], GroupOptions]
    max_size: int
    classic_max_size: int
    migration: Policy
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]

    @property
    def default_assignor(self) -> str:
        return next(iter(self.assignors))


@dataclass(slots=True)
class Decision:
    """Records to write, as one batch; once they are replayed, timers to set, and the answer once they are committed.

    refreshed_at: of `Topics.changes`, up to where the group is then known to follow the topics; None: as before.
    patterns: regular expressions to look for matches of. classic: where the records make a classic group, the protocols
    of its members by id, of which its record has only the one that was chosen.
    """

    records: list[Record] = field(default_factory=list)
    effects: list[Schedule | Ensure | Cancel] = field(default_factory=list)
    response: Any = None
    refreshed_at: int | None = None
    patterns: tuple[str, ...] = ()
    classic: Mapping[str, Protocols] | None = None
