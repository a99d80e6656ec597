"""The state of the metadata quorum: its leader, how far its log is committed, how far each replica has copied it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..raft.voters import Endpoints


@dataclass(slots=True, frozen=True)
class Replica:
    """fetched_ms, caught_up_ms: wall times of its last fetch, and of when it last had the leader's whole log; for the
    leader: now. -1 if there was none. directory_id: 16 bytes, zero if not known."""

    node_id: int
    directory_id: bytes
    log_end_offset: int
    fetched_ms: int
    caught_up_ms: int


@dataclass(slots=True, frozen=True)
class Quorum:
    """voters, observers: as the leader sees them; nothing on another node. endpoints: of each voter, by its id."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[Replica]
    observers: Sequence[Replica]
    endpoints: Sequence[tuple[int, Endpoints]]
