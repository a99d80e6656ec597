"""RaiseLeaderEpoch: a mirrored partition's leader epoch follows its source's.

Batches keep the epochs of their source. A client that has seen such an epoch takes metadata with a lower one for stale.
So before a batch of epoch e is appended, the partition here must be at e or later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from .common import MAX_RECORDS_PER_COMMAND, Decision, Item, View


@dataclass(slots=True, frozen=True)
class RaiseLeaderEpoch:
    """partitions: (topic, index, epoch to reach). The leaders do not change. Result: an Item."""

    partitions: Sequence[tuple[str, int, int]]

    def decide(self, view: View) -> Decision:
        records: list[PartitionChangeRecord] = []
        for topic, index, epoch in self.partitions:
            image = view.image.topics.get(topic)
            partition = None if image is None else image.partitions.get(index)
            if image is None or partition is None:
                return Decision(self.fail(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index}")))
            missing = epoch - partition.leader_epoch
            if missing > MAX_RECORDS_PER_COMMAND - len(records):
                reason = f"{topic}-{index} is at leader epoch {partition.leader_epoch}, its source at {epoch}: too far"
                return Decision(self.fail(KafkaError(ErrorCode.POLICY_VIOLATION, reason)))
            # A record raises the epoch by one.
            change = PartitionChangeRecord(partition_id=index, topic_id=image.id, leader=partition.leader)
            records += [change] * max(missing, 0)
        return Decision(Item(), records)

    def fail(self, error: KafkaError) -> Item:
        return Item(error.code, error.message)
