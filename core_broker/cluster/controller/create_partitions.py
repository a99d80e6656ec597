"""CreatePartitions: adds partitions to existing topics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.create_partitions import CreatePartitionsTopic
from .common import MAX_RECORDS_PER_COMMAND, TOO_MANY, Decision, Item, Result, View, duplicates
from .placement import check_assignment, in_sync, new_partition, place


@dataclass(slots=True)
class GrownTopic(Item):
    name: str = ""


@dataclass(slots=True, frozen=True)
class CreatePartitions:
    """Topics as in the request; `count` is the total after the command. Items: GrownTopic."""

    topics: Sequence[CreatePartitionsTopic]
    validate_only: bool = False

    def decide(self, view: View) -> Decision:
        twice = duplicates([topic.name for topic in self.topics])
        items = [GrownTopic(ErrorCode.INVALID_REQUEST, "Duplicate topic name.", name) for name in twice]
        records: list[Any] = []
        for topic in self.topics:
            if topic.name in twice:
                continue
            try:
                own = _grow(topic, view)
                if len(records) + len(own) > MAX_RECORDS_PER_COMMAND:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
            except KafkaError as error:
                if error.code == ErrorCode.POLICY_VIOLATION:
                    return Decision(self.fail(error))  # too many for one topic: the whole request fails
                message = None if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else error.message
                items.append(GrownTopic(error.code, message, topic.name))
            else:
                items.append(GrownTopic(name=topic.name))
                records += own
        return Decision(Result(items), [] if self.validate_only else records)

    def fail(self, error: KafkaError) -> Result:
        names = dict.fromkeys(topic.name for topic in self.topics)
        return Result([GrownTopic(error.code, error.message, name) for name in names], error)


def _grow(topic: CreatePartitionsTopic, view: View) -> list[Any]:
    """The records of one topic's new partitions. Raises KafkaError."""
    image = view.image.topics.get(topic.name)
    if image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(image.partitions)
    if topic.count == present:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be an increase.",
        )
    more = topic.count - present
    if more > MAX_RECORDS_PER_COMMAND:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY)
    replication_factor = len(image.partitions[0].replicas)
    if topic.assignments is None:
        placed = place(view.image, more, replication_factor, view.runtime.random)
    else:
        if len(topic.assignments) != more:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {more} additional partition(s), but only {len(topic.assignments)} assignment(s) "
                "were specified.",
            )
        placed = [list(assignment.broker_ids) for assignment in topic.assignments]
        for index, replicas in enumerate(placed, present):
            check_assignment(view.image, replicas, replication_factor)
            if not in_sync(view.image, replicas):
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                    "controlled shutdown.",
                )
    return [new_partition(view.image, image.id, index, replicas) for index, replicas in enumerate(placed, present)]
