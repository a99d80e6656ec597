"""AssignDirectories: a broker says in which of its directories its replicas lie (KIP-858).

A partition without a leader gets one if its replica may lead from there. Kafka's controller leaves it without: its
brokers have a directory back after a restart alone, and are unfenced after that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ..partition_image import NO_LEADER
from ..partition_index import Key
from .common import Decision, PartitionItem, Result, View, registered
from .leadership import TopicRules, may_lead, updates
from .partition_change import ElectionPolicy, Target, changed


@dataclass(slots=True)
class AssignedTopic:
    directory: bytes
    topic_id: bytes
    partitions: list[PartitionItem] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class AssignDirectories:
    """assigned: a directory's id, a topic's id and indexes of partitions. Items: AssignedTopic, in that order."""

    broker_id: int
    broker_epoch: int
    assigned: Sequence[tuple[bytes, bytes, Sequence[int]]]

    def decide(self, view: View) -> Decision:
        image = view.image
        broker = registered(image, self.broker_id, self.broker_epoch)
        rules = TopicRules(view, may_lead(image), ElectionPolicy.ONLINE)
        records: list[Any] = []
        lost: dict[Key, None] = {}  # partitions in a directory that is offline
        items = []
        for directory, topic_id, indexes in self.assigned:
            item = AssignedTopic(directory, topic_id)
            items.append(item)
            topic = image.topic_by_id(topic_id)
            for index in indexes:
                row = PartitionItem(index=index)
                item.partitions.append(row)
                partition = None if topic is None else topic.partitions.get(index)
                if topic is None:
                    row.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                elif partition is None:
                    row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                elif self.broker_id not in partition.replicas:
                    row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                else:
                    target = Target(directories={self.broker_id: directory})
                    record = changed(topic.id, index, partition, target, rules.of(topic))
                    if not broker.has_online(directory):
                        lost[topic.id, index] = None
                    if record is None:
                        continue
                    records.append(record)
                    if partition.leader == NO_LEADER:
                        elected = changed(topic.id, index, partition.merged(record), Target(), rules.of(topic))
                        records += [] if elected is None else [elected]
        return Decision(Result(items), [*records, *updates(view, lost, removed=self.broker_id)])

    def fail(self, error: KafkaError) -> Result:
        return Result([], error)
