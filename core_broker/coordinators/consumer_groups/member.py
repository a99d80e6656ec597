"""One member of a consumer group (KIP-848), as its records have it: values that are replaced, never changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum

from ....protocol.messages.consumer_group_records import ClassicMemberMetadata

JOINING_EPOCH = 0  # of a member that joins, or comes back with nothing
LEAVING_EPOCH = -1
PAUSED_EPOCH = -2  # of a static member that left, and may come back under another member id

Assigned = Mapping[bytes, Mapping[int, int]]  # by topic id, each partition with the member's epoch when it was given
Target = Mapping[bytes, frozenset[int]]  # partitions by topic id


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment. The numbers are those in its record."""

    STABLE = 0  # it has what the target of its epoch says
    UNREVOKED_PARTITIONS = 1  # it must give partitions back first
    UNRELEASED_PARTITIONS = 2  # partitions of its target are still with other members
    UNKNOWN = 127  # of a newer coordinator

    @classmethod
    def _missing_(cls, value: object) -> MemberState:
        return cls.UNKNOWN


@dataclass(slots=True, frozen=True)
class Member:
    """See the module. epoch: of the target assignment that it has reached; -1 once it is removed.

    previous_epoch: under which it may still ask, if the answer that raised its epoch was lost. topic_regex: a regular
    expression it subscribes to, empty or None for none. assigned: what it may read. pending_revocation: what it is
    to give back, and may still read. classic: what it said in JoinGroup, of a member that speaks the classic protocol.
    """

    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: Assigned = field(default_factory=dict)
    pending_revocation: Assigned = field(default_factory=dict)
    classic: ClassicMemberMetadata | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def given_at(self, topic_id: bytes, partition: int) -> int | None:
        """The member's epoch when it was given a partition that it has, or is to give back; None of any other."""
        for partitions in (self.assigned.get(topic_id), self.pending_revocation.get(topic_id)):
            if partitions is not None and partition in partitions:
                return partitions[partition]
        return None

    def paused(self) -> Member:
        """The static member that left for a while: it keeps its partitions, whatever epoch it comes back with."""
        kept = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in self.assigned.items()}
        return replace(self, epoch=PAUSED_EPOCH, assigned=kept, pending_revocation={})

    def moved_to(self, epoch: int, state: MemberState, assigned: Assigned, pending_revocation: Assigned) -> Member:
        """The member in the next step of its reconciliation."""
        return replace(
            self,
            epoch=epoch,
            previous_epoch=self.epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation,
        )
