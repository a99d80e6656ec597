"""The state of the metadata quorum: its leader, how far its log is committed, and how far each voter has replicated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class Voter:
    """caught_up_ms: wall time at which it last had the leader's whole log; for the leader: now."""

    node_id: int
    log_end_offset: int
    caught_up_ms: int


@dataclass(slots=True, frozen=True)
class Quorum:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: Sequence[Voter]
