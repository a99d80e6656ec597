"""ElectLeaders: makes the preferred replica leader or, if there is no leader, any live replica (KIP-460).

The first replica of a partition is the preferred one. It is elected only if it is in sync. An unclean election takes a
replica that is not in sync; the partition then has only the records of that replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.metadata_records import PartitionChangeRecord
from ..image import NO_LEADER, MetadataImage
from .common import MAX_RECORDS_PER_COMMAND, Decision, Item, Result, View, default_message
from .placement import in_sync

RECOVERING = 1  # leader_recovery_state of a leader that was not in sync


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(slots=True)
class PartitionElection(Item):
    index: int = -1


@dataclass(slots=True)
class TopicElections:
    topic: str
    partitions: list[PartitionElection] = field(default_factory=list)


@dataclass(slots=True, frozen=True)
class ElectLeaders:
    """topics: names with partition indexes; None for all partitions. Items: TopicElections, in the request's order.

    If all partitions are asked for, those that need no election are left out of the result, as in Kafka.
    """

    election: int
    topics: Sequence[tuple[str, Sequence[int]]] | None

    def decide(self, view: View) -> Decision:
        try:
            election = Election(self.election)
        except ValueError:
            if self.topics is not None and not self.topics:
                return Decision(Result())  # without partitions, the type is not checked
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {self.election}") from None
        asked = self.topics
        if asked is None:
            asked = [(name, list(topic.partitions)) for name, topic in view.image.topics.items()]
        records: list[PartitionChangeRecord] = []
        items = []
        for topic, indexes in asked:
            result = TopicElections(topic)
            items.append(result)
            for index in indexes:
                found = PartitionElection(index=index)
                try:
                    if len(records) == MAX_RECORDS_PER_COMMAND:
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Too many elections in one request.")
                    records.append(_elect(topic, index, election, view.image))
                except KafkaError as error:
                    if self.topics is None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                        continue
                    found.error_code, found.error_message = error.code, error.message
                result.partitions.append(found)
        return Decision(Result(items), records)

    def fail(self, error: KafkaError) -> Result:
        items = [
            TopicElections(topic, [PartitionElection(error.code, error.message, index) for index in indexes])
            for topic, indexes in self.topics or ()
        ]
        return Result(items, error)


def _elect(topic: str, index: int, election: Election, image: MetadataImage) -> PartitionChangeRecord:
    """The record by which a partition's leader changes. Raises KafkaError."""
    topic_image = image.topics.get(topic)
    if topic_image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    partition = topic_image.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    preferred = partition.replicas[0]
    needed = partition.leader != preferred if election is Election.PREFERRED else partition.leader == NO_LEADER
    if not needed:
        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)
    alive = in_sync(image, list(partition.isr))
    if election is Election.PREFERRED:
        if preferred not in alive:
            raise _refused(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        return PartitionChangeRecord(partition_id=index, topic_id=topic_image.id, leader=preferred)
    if alive:
        return PartitionChangeRecord(partition_id=index, topic_id=topic_image.id, leader=alive[0])
    others = in_sync(image, list(partition.replicas))
    if not others:
        raise _refused(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    return PartitionChangeRecord(
        partition_id=index,
        topic_id=topic_image.id,
        isr=[others[0]],
        leader=others[0],
        leader_recovery_state=RECOVERING,
    )


def _refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, default_message(code))
