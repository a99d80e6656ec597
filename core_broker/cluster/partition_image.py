"""The state of one partition, and what a change record makes of it, as Kafka's PartitionRegistration has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...protocol.messages.metadata_records import PartitionChangeRecord

NO_LEADER = -1
LEADER_UNCHANGED = -2  # in a PartitionChangeRecord
STATE_UNCHANGED = -1  # the same for leader_recovery_state
RECOVERED, RECOVERING = 0, 1  # leader_recovery_state: RECOVERING after an unclean election, until the leader says so

# Directory ids that name no directory (KIP-858).
MIGRATING = bytes(16)  # nothing is known
UNASSIGNED = bytes(15) + b"\1"  # the broker has yet to choose one
LOST = bytes(15) + b"\2"  # one that is offline


@dataclass(slots=True, frozen=True)
class PartitionImage:
    """`partition_epoch` counts all changes of the partition, `leader_epoch` changes of the leader.

    elr: replicas that are not in the ISR but have all committed records (KIP-966). last_known_elr: the last leader,
    where there is none. directories: by replica; empty where all are MIGRATING.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    leader_recovery_state: int = RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()

    @property
    def preferred(self) -> int:
        """The replica that leads if it can."""
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_moving(self) -> bool:
        """Whether it is under reassignment."""
        return bool(self.adding_replicas or self.removing_replicas)

    def directory_of(self, broker_id: int) -> bytes:
        """Raises ValueError for a broker that has no replica."""
        return self.directories[self.replicas.index(broker_id)] if self.directories else MIGRATING

    def merged(self, record: PartitionChangeRecord) -> PartitionImage:
        """The partition after a change. A record that names a leader, the present one too, raises the leader epoch."""
        new_leader = record.leader != LEADER_UNCHANGED
        state = record.leader_recovery_state
        return PartitionImage(
            record.leader if new_leader else self.leader,
            self.leader_epoch + 1 if new_leader else self.leader_epoch,
            self.isr if record.isr is None else tuple(record.isr),
            self.replicas if record.replicas is None else tuple(record.replicas),
            self.partition_epoch + 1,
            self.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
            self.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
            self.leader_recovery_state if state == STATE_UNCHANGED else state,
            self.elr if record.eligible_leader_replicas is None else tuple(record.eligible_leader_replicas),
            self.last_known_elr if record.last_known_elr is None else tuple(record.last_known_elr),
            self.directories if record.directories is None else known_directories(record.directories),
        )


def known_directories(found: Sequence[bytes]) -> tuple[bytes, ...]:
    """`directories` of a partition, as a record has them."""
    return () if all(each == MIGRATING for each in found) else tuple(found)
