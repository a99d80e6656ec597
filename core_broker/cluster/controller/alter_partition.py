"""AlterPartition: the leader of a partition says who is in sync with it (KIP-497, KIP-841, KIP-903).

The controller refuses what is based on an older state, and replicas that may not be in an ISR now. If the change
completes a reassignment, that is ended, and another replica may have to lead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from ..image import MetadataImage
from ..partition_image import LEADER_UNCHANGED, RECOVERED, RECOVERING, PartitionImage
from .common import Decision, PartitionItem, Result, View, registered
from .leadership import TopicRules, may_lead
from .partition_change import Rules, Target, changed

ANY_EPOCH = -1  # of a broker whose epoch the leader does not know


@dataclass(slots=True, frozen=True)
class WantedIsr:
    """isr: pairs of broker id and epoch. leader_epoch, partition_epoch: of the state that the leader knows."""

    index: int
    leader_epoch: int
    partition_epoch: int
    isr: Sequence[tuple[int, int]]
    leader_recovery_state: int = RECOVERED


@dataclass(slots=True)
class AlteredPartition(PartitionItem):
    """partition: its state after the change; None with an error."""

    partition: PartitionImage | None = None


@dataclass(slots=True)
class AlteredTopic:
    topic_id: bytes
    partitions: list[AlteredPartition] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AlterPartition:
    """topics: by id, each with what its leader wants. Items: AlteredTopic, in the request's order."""

    broker_id: int
    broker_epoch: int
    topics: Sequence[tuple[bytes, Sequence[WantedIsr]]]

    def decide(self, view: View) -> Decision:
        image = view.image
        registered(image, self.broker_id, self.broker_epoch)
        rules = TopicRules(view, may_lead(image))
        records: list[PartitionChangeRecord] = []
        items = []
        for topic_id, wanted in self.topics:
            item = AlteredTopic(topic_id)
            items.append(item)
            topic = image.topic_by_id(topic_id)
            if topic is None:
                item.partitions = [AlteredPartition(ErrorCode.UNKNOWN_TOPIC_ID, index=each.index) for each in wanted]
                continue
            for each in wanted:
                partition = topic.partitions.get(each.index)
                item.partitions.append(self._alter(each, topic.id, partition, rules.of(topic), view, records))
        return Decision(Result(items), records)

    def _alter(
        self,
        wanted: WantedIsr,
        topic_id: bytes,
        partition: PartitionImage | None,
        rules: Rules,
        view: View,
        records: list[PartitionChangeRecord],
    ) -> AlteredPartition:
        code = self._why_not(wanted, partition, view.image)
        if code or partition is None:
            return AlteredPartition(code, index=wanted.index)
        target = Target(
            isr=[broker_id for broker_id, _ in wanted.isr], leader_recovery_state=wanted.leader_recovery_state
        )
        record = changed(topic_id, wanted.index, partition, target, rules)
        if record is not None:
            records.append(record)
            partition = partition.merged(record)
            if record.leader not in (self.broker_id, LEADER_UNCHANGED):
                # A reassignment is complete, and this leader is not part of it.
                return AlteredPartition(ErrorCode.NEW_LEADER_ELECTED, index=wanted.index)
        return AlteredPartition(index=wanted.index, partition=partition)

    def _why_not(self, wanted: WantedIsr, partition: PartitionImage | None, image: MetadataImage) -> int:
        """The code of an error; NONE if the change can be made."""
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
            return ErrorCode.NOT_CONTROLLER  # another controller has decided more than this one knows
        if wanted.leader_epoch < partition.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if self.broker_id != partition.leader:
            return ErrorCode.INVALID_REQUEST
        if wanted.partition_epoch < partition.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        isr = [broker_id for broker_id, _ in wanted.isr]
        is_possible = (
            partition.leader in isr
            and len(dict.fromkeys(isr)) == len(isr)
            and all(each in partition.replicas for each in isr)
            and wanted.leader_recovery_state in (RECOVERED, RECOVERING)
        )
        if not is_possible:
            return ErrorCode.INVALID_REQUEST
        if wanted.leader_recovery_state == RECOVERING and (
            len(isr) > 1 or partition.leader_recovery_state == RECOVERED
        ):
            return ErrorCode.INVALID_REQUEST
        if not all(_may_be_in_sync(image, broker_id, epoch) for broker_id, epoch in wanted.isr):
            return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def fail(self, error: KafkaError) -> Result:
        return Result([], error)


def _may_be_in_sync(image: MetadataImage, broker_id: int, epoch: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active and epoch in (ANY_EPOCH, broker.epoch)
