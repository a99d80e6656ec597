"""What a node is in the metadata quorum, by its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ..raft.raft import RaftOptions
from ..raft.voters import Endpoint, Endpoints, ReplicaKey, Voter, VoterSet

FETCH_MAX_BYTES = 1 << 20  # of one answer, by default: controller.quorum.fetch.max.bytes, .fetch.snapshot.max.bytes


@dataclass(slots=True, frozen=True)
class Member:
    """This node in the quorum. configured: the voters of controller.quorum.voters; empty if the log has them.

    endpoints: where the others reach it. servers: where to find the voters (controller.quorum.bootstrap.servers).
    """

    key: ReplicaKey
    configured: VoterSet = field(default_factory=VoterSet)
    endpoints: Endpoints = ()
    servers: Sequence[Endpoint] = ()
    options: RaftOptions = field(default_factory=RaftOptions)
    cluster_id: str | None = None
    listener: str = "CONTROLLER"
    fetch_max_bytes: int = FETCH_MAX_BYTES
    snapshot_max_bytes: int = FETCH_MAX_BYTES
    grows: bool = False  # see `Raft`
    joins: bool = False


def alone(node_id: int) -> Member:
    """The only voter, by its id alone."""
    key = ReplicaKey(node_id)
    return Member(key, VoterSet.of([Voter(key)]))
