"""AlterPartitionReassignments: replicas of partitions move to other brokers (KIP-455), or a move is taken back.

First the new replicas are added to the old ones, and both are named as adding and removing. When all that stay are in
the ISR, which AlterPartition tells, the old ones go. What needs no copy, such as another order, is done at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from ..image import TopicImage
from ..partition_image import PartitionImage
from .common import MAX_RECORDS_PER_COMMAND, Decision, PartitionItem, Result, View
from .leadership import TopicRules, allows_unclean, may_lead
from .partition_change import ElectionPolicy, Rules, Target, changed
from .placement import check_assignment

Wanted = tuple[int, Sequence[int] | None]  # a partition's index and replicas; None takes its reassignment back


@dataclass(slots=True)
class ReassignedTopic:
    name: str
    partitions: list[PartitionItem] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AlterReassignments:
    """topics: names, each with what is wanted. Items: ReassignedTopic, in the request's order.

    may_change_factor: whether a partition may get another number of replicas (KIP-860).
    """

    topics: Sequence[tuple[str, Sequence[Wanted]]]
    may_change_factor: bool = True

    def decide(self, view: View) -> Decision:
        test = may_lead(view.image)
        begun, taken_back = TopicRules(view, test, ElectionPolicy.ONLINE), TopicRules(view, test)
        records: list[PartitionChangeRecord] = []
        items = []
        for name, wanted in self.topics:
            item = ReassignedTopic(name)
            items.append(item)
            for index, replicas in wanted:
                row = PartitionItem(index=index)
                item.partitions.append(row)
                try:
                    record = self._reassign(name, index, replicas, taken_back if replicas is None else begun, view)
                    if record is not None and len(records) == MAX_RECORDS_PER_COMMAND:
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Too many reassignments in one request.")
                except KafkaError as error:
                    row.error_code = error.code
                    if error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # which says it all
                        row.error_message = error.message
                else:
                    records += [] if record is None else [record]
        return Decision(Result(items), records)

    def _reassign(
        self, name: str, index: int, replicas: Sequence[int] | None, rules: TopicRules, view: View
    ) -> PartitionChangeRecord | None:
        """The record that begins or ends a reassignment; None if there is nothing to do. Raises KafkaError."""
        topic = view.image.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        partition = topic.partitions.get(index)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        if replicas is None:
            return _taken_back(topic, index, partition, rules.of(topic), view)
        check_assignment(view.image, replicas, None)
        if not self.may_change_factor:
            _check_factor(partition, replicas)
        target = Target(replicas=[*replicas, *sorted(each for each in partition.replicas if each not in replicas)])
        # It takes an earlier one's place (KIP-455). In Kafka those that were to go still go if now none is to: a
        # partition that is wanted on three brokers stays on two.
        target.removing = sorted(each for each in partition.replicas if each not in replicas)
        # Without any, those of an earlier reassignment stay.
        target.adding = sorted(each for each in replicas if each not in partition.replicas) or None
        return changed(topic.id, index, partition, target, rules.of(topic))

    def fail(self, error: KafkaError) -> Result:
        items = [
            ReassignedTopic(name, [PartitionItem(error.code, error.message, index) for index, _ in wanted])
            for name, wanted in self.topics
        ]
        return Result(items, error)


def _taken_back(
    topic: TopicImage, index: int, partition: PartitionImage, rules: Rules, view: View
) -> PartitionChangeRecord | None:
    if not partition.is_moving:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    replicas = [each for each in partition.replicas if each not in partition.adding_replicas]
    isr = [each for each in partition.isr if each not in partition.adding_replicas]
    if not replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Invalid replica assignment: addingReplicas contains all replicas."
        )
    if not isr:
        if not allows_unclean(view, topic):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        isr = replicas[:1]
    return changed(topic.id, index, partition, Target(isr=isr, replicas=replicas, adding=(), removing=()), rules)


def _check_factor(partition: PartitionImage, replicas: Sequence[int]) -> None:
    """Raises KafkaError(INVALID_REPLICATION_FACTOR)."""
    present = len([each for each in partition.replicas if each not in partition.removing_replicas])
    if len(replicas) != present:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {present} to {len(replicas)}",
        )
