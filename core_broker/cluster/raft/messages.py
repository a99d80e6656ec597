"""What goes into and comes out of the step function in `raft.py`: requests, responses, events and effects.

Requests and responses have the facts of Kafka's messages Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot,
AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter for the one partition that there is. `quorum/wire.py` maps them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ....protocol.errors import ErrorCode
from .voters import Endpoints, ReplicaKey, Voter, VoterChange, VoterSet

NO_NODE = -1
UNKNOWN = -1  # a high watermark that the leader does not know yet


class OffsetAndEpoch(NamedTuple):
    """An end offset (the offset after the last record) and the epoch of the last record. Also the id of a snapshot."""

    offset: int
    epoch: int


# --- Requests and responses ---------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Vote:
    """epoch: the candidate's, in a pre-vote the one that it is in (KIP-996). last: the end of its log."""

    candidate: ReplicaKey
    voter: ReplicaKey
    epoch: int
    last: OffsetAndEpoch
    pre_vote: bool


@dataclass(slots=True, frozen=True)
class BeginQuorumEpoch:
    leader_id: int
    voter: ReplicaKey
    epoch: int
    endpoints: Endpoints = ()


@dataclass(slots=True, frozen=True)
class EndQuorumEpoch:
    """successors: the voters by how much they have of the leader's log, the best first."""

    leader_id: int
    epoch: int
    successors: Sequence[ReplicaKey]
    endpoints: Endpoints = ()


@dataclass(slots=True, frozen=True)
class Fetch:
    """high_watermark: the replica's; the answer need not wait if the leader's is higher (KIP-1166)."""

    replica: ReplicaKey
    epoch: int
    offset: int
    last_fetched_epoch: int
    max_wait_ms: int
    high_watermark: int = UNKNOWN


@dataclass(slots=True, frozen=True)
class FetchSnapshot:
    replica: ReplicaKey
    epoch: int
    snapshot: OffsetAndEpoch
    position: int


@dataclass(slots=True, frozen=True)
class AddVoter:
    """timeout_ms: for its record to be committed. ack_when_committed: else the answer comes when it is written."""

    voter: Voter
    timeout_ms: int
    ack_when_committed: bool = True


@dataclass(slots=True, frozen=True)
class RemoveVoter:
    voter: ReplicaKey


@dataclass(slots=True, frozen=True)
class UpdateVoter:
    voter: Voter
    epoch: int


@dataclass(slots=True, frozen=True)
class ProbeVoter:
    """Ask a node that is to be a voter which kraft.versions it supports (ApiVersions)."""

    voter: Voter


Request = (
    Vote | BeginQuorumEpoch | EndQuorumEpoch | Fetch | FetchSnapshot | AddVoter | RemoveVoter | UpdateVoter | ProbeVoter
)


@dataclass(slots=True, frozen=True)
class Response:
    """What all answers have. leader_id: NO_NODE if it is not known. endpoints: the leader's."""

    error: ErrorCode
    epoch: int
    leader_id: int = NO_NODE
    endpoints: Endpoints = ()


@dataclass(slots=True, frozen=True)
class VoteAnswer(Response):
    granted: bool = False


@dataclass(slots=True, frozen=True)
class BeginQuorumEpochAnswer(Response):
    pass


@dataclass(slots=True, frozen=True)
class EndQuorumEpochAnswer(Response):
    pass


@dataclass(slots=True, frozen=True)
class FetchAnswer(Response):
    """The host of the leader reads `records` from `read_from` on when it sends the answer; None: there are none."""

    high_watermark: int = UNKNOWN
    log_start: int = -1
    diverging: OffsetAndEpoch | None = None
    snapshot: OffsetAndEpoch | None = None
    read_from: int | None = None
    records: bytes = b""


@dataclass(slots=True, frozen=True)
class FetchSnapshotAnswer(Response):
    """The host of the leader reads size and bytes at `position`. error: SNAPSHOT_NOT_FOUND if there is none."""

    snapshot: OffsetAndEpoch | None = None
    size: int = 0
    position: int = 0
    data: bytes = b""


@dataclass(slots=True, frozen=True)
class VoterAnswer(Response):
    """Of the three requests that change the voters."""

    message: str | None = None


@dataclass(slots=True, frozen=True)
class ProbeAnswer(Response):
    """kraft_versions: None if the node supports none."""

    kraft_versions: tuple[int, int] | None = None


# --- Events ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Tick:
    """The time that `Raft.deadline_ms` named has come."""

    now_ms: int


@dataclass(slots=True, frozen=True)
class Received:
    """A request came. `token` comes back in the Answer; requests may be answered in any order."""

    now_ms: int
    token: int
    request: Request


@dataclass(slots=True, frozen=True)
class Answered:
    """The answer to the request that was sent with this id."""

    now_ms: int
    id: int
    response: Response


@dataclass(slots=True, frozen=True)
class Failed:
    """The request with this id will not be answered. is_lost: since the connection could not be made, or broke."""

    now_ms: int
    id: int
    is_lost: bool = False


@dataclass(slots=True, frozen=True)
class ConnectionLost:
    """A connection to this node broke."""

    now_ms: int
    node_id: int


@dataclass(slots=True, frozen=True)
class LogChanged:
    """The log has more records, or more of them on disk, or was cut off, or its start has moved. changes: in the
    records that were appended."""

    now_ms: int
    changes: Sequence[VoterChange] = ()


@dataclass(slots=True, frozen=True)
class SnapshotLoaded:
    """The log was replaced by the snapshot that was fetched. changes: of its header."""

    now_ms: int
    changes: Sequence[VoterChange] = ()


@dataclass(slots=True, frozen=True)
class Resign:
    """If the node leads, let another voter lead. stops: it takes no part in elections any more."""

    now_ms: int
    stops: bool = True


Event = Tick | Received | Answered | Failed | ConnectionLost | LogChanged | SnapshotLoaded | Resign


# --- Effects: to be carried out in their order ------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Persist:
    """Write the quorum state. It must be on disk before later effects are carried out."""

    epoch: int
    leader_id: int
    voted: ReplicaKey | None


@dataclass(slots=True, frozen=True)
class Send:
    """Send a request. node_id is below NO_NODE for a server that is known by its address alone."""

    id: int
    node_id: int
    endpoints: Endpoints
    request: Request


@dataclass(slots=True, frozen=True)
class Answer:
    token: int
    response: Response


@dataclass(slots=True, frozen=True)
class AppendLeaderChange:
    """Append the record that begins the leader's epoch, and flush. voters: to be written after it, if not None."""

    epoch: int
    voter_ids: Sequence[int]
    granting_ids: Sequence[int]
    voters: VoterSet | None = None
    kraft_version: int = 0


@dataclass(slots=True, frozen=True)
class AppendVoters:
    """Append a VotersRecord, and flush."""

    epoch: int
    voters: VoterSet


@dataclass(slots=True, frozen=True)
class AppendFetched:
    """Append the leader's bytes as they are, and flush."""

    records: bytes = field(repr=False)
    epoch: int


@dataclass(slots=True, frozen=True)
class Truncate:
    """Cut the log off at this offset."""

    offset: int


@dataclass(slots=True, frozen=True)
class WriteSnapshot:
    """Write a part of a snapshot; the first at position 0. After the last one it replaces the log."""

    snapshot: OffsetAndEpoch
    position: int
    data: bytes = field(repr=False)
    is_last: bool


@dataclass(slots=True, frozen=True)
class Committed:
    """The high watermark is here now: records before it will never change."""

    high_watermark: int


@dataclass(slots=True, frozen=True)
class BecameLeader:
    """start_offset: of the record that begins the epoch. Decide nothing before that one is committed and applied."""

    epoch: int
    start_offset: int


@dataclass(slots=True, frozen=True)
class LostLeadership:
    epoch: int


@dataclass(slots=True, frozen=True)
class LeaderKnown:
    """leader_id: NO_NODE if it is not known any more."""

    epoch: int
    leader_id: int


@dataclass(slots=True, frozen=True)
class Fatal:
    """What must never happen has happened: this node must not take part any more."""

    message: str


Effect = (
    Persist | Send | Answer | AppendLeaderChange | AppendVoters | AppendFetched | Truncate | WriteSnapshot | Committed
    | BecameLeader | LostLeadership | LeaderKnown | Fatal
)  # fmt: skip
