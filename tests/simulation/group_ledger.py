"""What the members of a consumer group are told of it, in whichever protocol, and what must hold of that.

A partition is one member's at a time, by all that its members can know; a member that has lost a partition commits
nothing of it; a committed offset never goes back or away.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from isthmus.protocol.errors import ErrorCode
from isthmus.protocol.primitives import uuid_to_str

from .runner import Simulation

SESSION_S = 6.0  # of all members, by the options of the cluster
HEARTBEAT_S = 1.0
NO_OFFSET = -1
JOINING = 0  # the epoch of one that is no member yet
AGAIN = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
)
Place = tuple[bytes, int]  # topic id and partition


class ReplacedError(Exception):
    """Another life of a static member has taken its place."""


class Owner(Protocol):
    """One process of a member. is_classic: it speaks the classic protocol."""

    @property
    def name(self) -> str: ...
    @property
    def is_classic(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    def has(self, place: Place) -> bool: ...


@dataclass(slots=True)
class Ledger:
    """acked: the furthest committed offset that was acknowledged. classic_share: the chance that a process of a member
    speaks the classic protocol, which changes with time. migrates: whether it was ever more than 0."""

    sim: Simulation
    group: str
    owners: dict[Place, Owner] = field(default_factory=dict)  # who was given it last
    acked: dict[Place, int] = field(default_factory=dict)
    sent: dict[Place, int] = field(default_factory=dict)
    classic_share: float = 0.0
    migrates: bool = False

    def given(self, place: Place, life: Owner) -> None:
        before = self.owners.get(place)
        if before is not None and before is not life:
            assert not before.has(place), (
                f"{name(place)} of {self.group} is {before.name}'s in epoch {before.epoch}, and is given to "
                f"{life.name} in epoch {life.epoch}"
            )
            self.sim.counters["handed_over"] += 1
            self.sim.counters["handed_to_classic"] += life.is_classic and not before.is_classic
            self.sim.counters["handed_by_classic"] += before.is_classic and not life.is_classic
        self.owners[place] = life

    def told(self, place: Place, offset: int, acked_before: int) -> None:
        """A committed offset was read. acked_before: what had been acknowledged when it was asked for."""
        assert offset >= acked_before, f"{name(place)} of {self.group}: {offset} is told after {acked_before}"
        assert offset <= self.sent.get(place, NO_OFFSET), f"{name(place)} of {self.group}: {offset} was never committed"
        self.acked[place] = max(offset, self.acked.get(place, NO_OFFSET))

    def committed(self, place: Place, offset: int, life: Owner, owner_then: Owner | None) -> None:
        """owner_then: who had been given the partition last when the commit was sent."""
        assert owner_then is life, (
            f"{life.name} has committed {offset} of {name(place)} of {self.group} though it is "
            f"{owner_then and owner_then.name}'s"
        )
        self.acked[place] = max(offset, self.acked.get(place, NO_OFFSET))
        self.sim.counters["commits"] += 1


def name(place: Place) -> str:
    return f"{uuid_to_str(place[0])}-{place[1]}"
