"""What a leader of the metadata quorum knows of the replicas: progress, high watermark, who fetches (KIP-595).

The high watermark is the offset that a majority of the voters has on disk. It is unknown until a record of the leader's
own epoch is among them, since an older one might still be replaced by another leader's (Raft, 5.4.2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .messages import AddVoter, Fetch, RemoveVoter, UpdateVoter
from .voters import ReplicaKey, VoterSet

CHECK_QUORUM_FACTOR = 1.5  # of the fetch timeout, as in Kafka
OBSERVER_TIMEOUT_MS = 300_000  # after which an observer that does not fetch is forgotten
MAX_OBSERVERS = 1_000  # of which the progress is kept


@dataclass(slots=True)
class Progress:
    """How far a replica is. end_offset: all before it is on its disk; -1 if it has not fetched yet.

    caught_up_ms: when it last had all that the leader had.
    """

    key: ReplicaKey
    end_offset: int = -1
    fetched_ms: int = -1
    caught_up_ms: int = -1
    leader_end_offset: int = -1  # at its last fetch

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.caught_up_ms = max(self.caught_up_ms, now_ms)
        elif 0 < self.leader_end_offset <= offset:
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.leader_end_offset = leader_end_offset
        self.fetched_ms = max(self.fetched_ms, now_ms)
        self.end_offset = offset


@dataclass(slots=True)
class HeldFetch:
    """A fetch that waits for records, or for a higher high watermark."""

    request: Fetch
    deadline_ms: int


@dataclass(slots=True)
class PendingChange:
    """The one change of the voters that is under way. probe_id: of the request to the new voter, None once it is
    answered. offset: of the record; None until it is in the log."""

    token: int
    request: AddVoter | RemoveVoter | UpdateVoter
    deadline_ms: int
    probe_id: int | None = None
    is_written: bool = False
    offset: int | None = None


@dataclass(slots=True)
class Leader:
    """The role of a leader. start_offset: where its epoch begins."""

    me: ReplicaKey
    start_offset: int
    check_quorum_ms: int  # how often a majority must fetch
    check_deadline_ms: int
    begin_at_ms: int  # when to tell voters again who leads
    voters: dict[int, Progress] = field(default_factory=dict)
    observers: dict[ReplicaKey, Progress] = field(default_factory=dict)
    fetching: dict[int, None] = field(default_factory=dict)  # voters that have fetched since a majority last did
    held: dict[int, HeldFetch] = field(default_factory=dict)  # by token
    change: PendingChange | None = None

    def take_voters(self, voters: VoterSet) -> None:
        """These are the voters now. What is known of a replica stays known."""
        before = {progress.key: progress for progress in self.voters.values()} | self.observers
        self.voters = {}
        for voter in voters.voters:
            known = next((each for key, each in before.items() if voter.key.matches(key)), None)
            self.voters[voter.key.id] = known or Progress(voter.key)
        self.observers = {key: progress for key, progress in before.items() if progress not in self.voters.values()}
        self.fetching = {node_id: None for node_id in self.fetching if node_id in self.voters}

    def progress_of(self, key: ReplicaKey) -> Progress:
        """Of a voter, or of an observer, which a node is that has a voter's id but another directory."""
        if self.is_voter(key):
            return self.voters[key.id]
        if key not in self.observers:
            if len(self.observers) >= MAX_OBSERVERS:
                del self.observers[min(self.observers, key=lambda each: self.observers[each].fetched_ms)]
            self.observers[key] = Progress(key)
        return self.observers[key]

    def is_voter(self, key: ReplicaKey) -> bool:
        voter = self.voters.get(key.id)
        return voter is not None and voter.key.matches(key)

    def forget_observers(self, now_ms: int) -> None:
        self.observers = {
            key: each
            for key, each in self.observers.items()
            if now_ms - each.fetched_ms < OBSERVER_TIMEOUT_MS or key == self.me
        }

    def heard_from(self, key: ReplicaKey, now_ms: int) -> None:
        """A replica has fetched. Once a majority has, the next interval begins."""
        if self.is_voter(key):
            self.fetching[key.id] = None
        if len(self.fetching) >= self._others_needed:
            self.fetching.clear()
            self.check_deadline_ms = now_ms + self.check_quorum_ms

    @property
    def majority_heard_ms(self) -> int:
        """Since when each of a majority has fetched, that is, the majority that did so last; negative if none has."""
        others = [each for each in self.voters.values() if not each.key.matches(self.me)]
        fetched = sorted((each.fetched_ms for each in others), reverse=True)
        return fetched[self._others_needed - 1]

    @property
    def _others_needed(self) -> int:
        """How many other voters make a majority, with this node if it is one."""
        return len(self.voters) // 2 + 1 - self.is_voter(self.me)

    @property
    def must_check_quorum(self) -> bool:
        """A leader that is the only voter needs nobody."""
        return len(self.voters) > 1 or not self.is_voter(self.me)

    def high_watermark(self) -> int | None:
        """The offset that a majority of the voters has on disk; None while no record of this epoch is before it."""
        ends = sorted((progress.end_offset for progress in self.voters.values()), reverse=True)
        offset = ends[len(ends) // 2]
        return offset if offset > self.start_offset else None

    def by_progress(self) -> tuple[ReplicaKey, ...]:
        """The other voters, first those that have most of the log."""
        others = [each for each in self.voters.values() if not each.key.matches(self.me)]
        return tuple(each.key for each in sorted(others, key=lambda each: (-each.end_offset, each.key.id)))
