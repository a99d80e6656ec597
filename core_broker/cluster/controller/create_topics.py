"""CreateTopics: checks names, partitions, replicas and options of new topics, in Kafka's order.

A topic with the option `mirror.link` belongs to that link, which is registered with it if it is new.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages import metadata_records as r
from ....protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig
from ....protocol.primitives import ZERO_UUID
from ....protocol.topic_names import why_invalid
from ...config import validate_topic_options
from ..image import TOPIC_RESOURCE
from ..topic_names import CLUSTER_METADATA, may_collide
from .common import MAX_RECORDS_PER_COMMAND, TOO_MANY, Decision, Item, Result, View, duplicates
from .mirror_links import link_of_topic
from .placement import check_assignment, in_sync, new_partition, place
from .resources import elr_cleared


@dataclass(slots=True)
class CreatedTopic(Item):
    """`partitions` and the other fields are set for a topic that was created, or would be (validate_only)."""

    name: str = ""
    topic_id: bytes = ZERO_UUID
    num_partitions: int = -1
    replication_factor: int = -1


def new_topic(
    name: str, partitions: int = -1, replication_factor: int = -1, configs: Mapping[str, str] | None = None
) -> CreatableTopic:
    """A topic for `CreateTopics`; -1 means the broker's default."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )


@dataclass(slots=True, frozen=True)
class CreateTopics:
    """Topics as in the request; -1 partitions or replicas mean the broker's defaults. Items: CreatedTopic."""

    topics: Sequence[CreatableTopic]
    validate_only: bool = False

    def decide(self, view: View) -> Decision:
        twice = duplicates([topic.name for topic in self.topics])
        wanted = [topic for topic in self.topics if topic.name not in twice and topic.name != CLUSTER_METADATA]
        if _count_partitions(wanted, view) > MAX_RECORDS_PER_COMMAND:
            return Decision(self.fail(KafkaError(ErrorCode.POLICY_VIOLATION, TOO_MANY)))
        records: list[Any] = []
        links: dict[str, r.MirrorLinkRecord] = {}  # registered by earlier topics of this command
        items: list[CreatedTopic] = []
        for topic in wanted:
            try:
                item, own = _create(topic, view, links)
            except KafkaError as error:
                item, own = CreatedTopic(error.code, error.message, topic.name), []
            items.append(item)
            records += own
        items += [CreatedTopic(ErrorCode.INVALID_REQUEST, "Duplicate topic name.", name) for name in twice]
        if any(topic.name == CLUSTER_METADATA for topic in self.topics) and CLUSTER_METADATA not in twice:
            reason = f"Creation of internal topic {CLUSTER_METADATA} is prohibited."
            items.append(CreatedTopic(ErrorCode.INVALID_REQUEST, reason, CLUSTER_METADATA))
        return Decision(Result(items), [] if self.validate_only else records)

    def fail(self, error: KafkaError) -> Result:
        names = dict.fromkeys(topic.name for topic in self.topics)
        return Result([CreatedTopic(error.code, error.message, name) for name in names], error)


def _count_partitions(topics: list[CreatableTopic], view: View) -> int:
    default = view.config["num.partitions"]
    counts = (len(topic.assignments) or (default if topic.num_partitions == -1 else topic.num_partitions)
              for topic in topics)  # fmt: skip
    return sum(max(count, 0) for count in counts)


def _create(topic: CreatableTopic, view: View, links: dict[str, r.MirrorLinkRecord]) -> tuple[CreatedTopic, list[Any]]:
    """The item and the records of one topic. Raises KafkaError."""
    image = view.image
    _check_name(topic.name, view)
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}"
        )  # fmt: skip
    configs = {config.name: config.value or "" for config in topic.configs}
    validate_topic_options(configs, view.config)
    link = link_of_topic(configs, image, links)
    assignments = _assignments(topic, view) if topic.assignments else _place(topic, view)

    topic_id = view.runtime.uuid()
    records: list[Any] = []
    if link is not None:
        records.append(link)
        links[link.link_id] = link
    records.append(r.TopicRecord(name=topic.name, topic_id=topic_id))
    records += [
        r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += elr_cleared(TOPIC_RESOURCE, topic.name, configs, image)
    records += [new_partition(image, topic_id, index, replicas) for index, replicas in enumerate(assignments)]
    item = CreatedTopic(
        name=topic.name, topic_id=topic_id, num_partitions=len(assignments), replication_factor=len(assignments[0])
    )
    return item, records


def _check_name(name: str, view: View) -> None:
    if name in view.image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    reason = why_invalid(name)
    if reason is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    similar = view.image.similar_topics(name) if may_collide(name) else []
    if similar:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {similar[0]}"
        )  # fmt: skip


def _assignments(topic: CreatableTopic, view: View) -> list[list[int]]:
    """Replicas by partition, as given in the request."""
    if topic.replication_factor != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.num_partitions != -1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_index: dict[int, list[int]] = {}
    replication_factor = None
    for assignment in topic.assignments:
        index = assignment.partition_index
        if index in by_index:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(view.image, assignment.broker_ids, replication_factor)
        replication_factor = len(assignment.broker_ids)
        if not in_sync(view.image, assignment.broker_ids):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown.",
            )
        by_index[index] = list(assignment.broker_ids)
    if sorted(by_index) != list(range(len(by_index))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    return [by_index[index] for index in range(len(by_index))]


def _place(topic: CreatableTopic, view: View) -> list[list[int]]:
    """Replicas by partition, chosen by the controller."""
    partitions, replication_factor = topic.num_partitions, topic.replication_factor
    if replication_factor < -1 or replication_factor == 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if partitions < -1 or partitions == 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )  # fmt: skip
    if partitions == -1:
        partitions = view.config["num.partitions"]
    if replication_factor == -1:
        replication_factor = view.config["default.replication.factor"]
    try:
        return place(view.image, partitions, replication_factor, view.runtime.random)
    except KafkaError as error:
        reason = f"Unable to replicate the partition {replication_factor} time(s): {error.message}"
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, reason) from None
