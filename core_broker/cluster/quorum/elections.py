"""How long the elections of the metadata quorum take, as a node sees them that stands in them.

As Kafka's election-latency: from the moment that a node wants votes until it leads, or knows who does.
"""

from __future__ import annotations

from collections import deque

from ..raft.leader import Leader
from ..raft.roles import Candidate, Follower, Prospective, Role

WINDOW_MS = 60_000  # an election is told of for so long, as in Kafka by default
MAX_KEPT = 100


class Elections:
    """Is shown the role after each step."""

    def __init__(self) -> None:
        self._since_ms: int | None = None  # of the election that is under way
        self._ended: deque[tuple[int, int]] = deque(maxlen=MAX_KEPT)  # when, and how long it took

    def look(self, role: Role, now_ms: int) -> None:
        match role:
            case Prospective() | Candidate():
                if self._since_ms is None:
                    self._since_ms = now_ms
            case Leader() | Follower():
                if self._since_ms is not None:
                    self._ended.append((now_ms, now_ms - self._since_ms))
                    self._since_ms = None

    def latencies_ms(self, now_ms: int) -> list[int]:
        """Of the elections that ended within WINDOW_MS."""
        return [took for ended, took in self._ended if now_ms - ended <= WINDOW_MS]
