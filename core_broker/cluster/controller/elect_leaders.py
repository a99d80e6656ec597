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
from ..image import MetadataImage
from ..partition_image import NO_LEADER
from .common import MAX_RECORDS_PER_COMMAND, Decision, PartitionItem, Result, View, default_message
from .leadership import TopicRules, may_lead
from .partition_change import ElectionPolicy, Target, changed


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


@dataclass(slots=True)
class TopicElections:
    topic: str
    partitions: list[PartitionItem] = field(default_factory=list)


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
        policy = ElectionPolicy.PREFERRED if election is Election.PREFERRED else ElectionPolicy.UNCLEAN
        rules = TopicRules(view, may_lead(view.image), policy)
        records: list[PartitionChangeRecord] = []
        items = []
        for topic, indexes in asked:
            result = TopicElections(topic)
            items.append(result)
            for index in indexes:
                found = PartitionItem(index=index)
                try:
                    if len(records) == MAX_RECORDS_PER_COMMAND:
                        raise KafkaError(ErrorCode.POLICY_VIOLATION, "Too many elections in one request.")
                    records.append(_elect(topic, index, election, rules, view.image))
                except KafkaError as error:
                    if self.topics is None and error.code == ErrorCode.ELECTION_NOT_NEEDED:
                        continue
                    found.error_code, found.error_message = error.code, error.message
                result.partitions.append(found)
        return Decision(Result(items), records)

    def fail(self, error: KafkaError) -> Result:
        items = [
            TopicElections(topic, [PartitionItem(error.code, error.message, index) for index in indexes])
            for topic, indexes in self.topics or ()
        ]
        return Result(items, error)


def _elect(
    topic: str, index: int, election: Election, rules: TopicRules, image: MetadataImage
) -> PartitionChangeRecord:
    """The record by which a partition's leader changes. Raises KafkaError."""
    topic_image = image.topics.get(topic)
    if topic_image is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic}")
    partition = topic_image.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic}-{index}")
    is_preferred = election is Election.PREFERRED
    if partition.leader == partition.preferred if is_preferred else partition.leader != NO_LEADER:
        raise _refused(ErrorCode.ELECTION_NOT_NEEDED)
    record = changed(topic_image.id, index, partition, Target(), rules.of(topic_image))
    if record is None:
        raise _refused(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if is_preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        )
    return record


def _refused(code: ErrorCode) -> KafkaError:
    return KafkaError(code, default_message(code))
