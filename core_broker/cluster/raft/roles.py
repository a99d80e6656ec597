"""The roles of a node in the metadata quorum, with what it must know in each. `raft.py` has the transitions.

A `Leader` is in `leader.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .leader import Leader
from .messages import UNKNOWN, OffsetAndEpoch
from .voters import ReplicaKey


@dataclass(slots=True)
class Unattached:
    """deadline_ms: then it may be elected; None for an observer."""

    deadline_ms: int | None


@dataclass(slots=True)
class Votes:
    """granted: by voter; None until it has answered. unreachable: of those, which have no connection to be had."""

    granted: dict[int, bool | None]
    unreachable: dict[int, None] = field(default_factory=dict)

    @property
    def _majority(self) -> int:
        return len(self.granted) // 2 + 1

    @property
    def is_won(self) -> bool:
        return sum(vote is True for vote in self.granted.values()) >= self._majority

    @property
    def is_lost(self) -> bool:
        """Whether there cannot be a majority any more, unless somebody who is dead comes back."""
        possible = [vote is not False and node not in self.unreachable for node, vote in self.granted.items()]
        return sum(possible) < self._majority

    def answered(self, node_id: int, granted: bool) -> None:
        self.granted[node_id] = granted
        self.unreachable.pop(node_id, None)

    def not_reached(self, node_id: int) -> None:
        if self.granted.get(node_id, False) is None:
            self.unreachable[node_id] = None


@dataclass(slots=True)
class Prospective:
    deadline_ms: int
    votes: Votes
    retries: int


@dataclass(slots=True)
class Candidate:
    """backoff_ms: when it tries again, once this election was lost."""

    deadline_ms: int
    votes: Votes
    retries: int
    backoff_ms: int | None = None


@dataclass(slots=True)
class Follower:
    """has_fetched: from this leader, which therefore lives; then it grants no pre-vote (KIP-996).

    told_high_watermark: the leader's last one. snapshot: the one that is being fetched, up to position.
    """

    deadline_ms: int
    update_at_ms: int
    has_fetched: bool = False
    told_high_watermark: int = UNKNOWN
    snapshot: OffsetAndEpoch | None = None
    position: int = 0


@dataclass(slots=True)
class Resigned:
    """unacknowledged: voters that have not answered that they know."""

    deadline_ms: int | None
    unacknowledged: dict[int, None]
    successors: tuple[ReplicaKey, ...]


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned
