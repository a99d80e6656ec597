"""What decisions about consumer groups follow, and what they come to: values only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..effects import Cancel, Schedule, Timer
from ..runtime import Record
from .assignors.types import Assignor
from .topics import Topics


def rebalance(member_id: str) -> Timer:
    """A member that has partitions to give back."""
    return ("rebalance", member_id)


@dataclass(slots=True, frozen=True)
class GroupOptions:
    """What a group's own options, or else the broker's, say."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int


@dataclass(slots=True, frozen=True)
class Rules:
    """assignors: by name, the first is the default. options: of a group by its id."""

    topics: Topics
    assignors: Mapping[str, Assignor]
    options: Callable[[str], GroupOptions]
    max_size: int
    wall_ms: Callable[[], int]
    new_id: Callable[[], str]

    @property
    def default_assignor(self) -> str:
        return next(iter(self.assignors))


@dataclass(slots=True)
class Decision:
    """Records to write, as one batch; once they are replayed, timers to set, and the answer once they are committed.

    refreshed_at: of `Topics.changes`, up to where the group is then known to follow the topics; None: as before.
    patterns: regular expressions to look for matches of.
    """

    records: list[Record] = field(default_factory=list)
    effects: list[Schedule | Cancel] = field(default_factory=list)
    response: Any = None
    refreshed_at: int | None = None
    patterns: tuple[str, ...] = ()
