"""The controller of the model of replication: the product's own decisions and image, each decided once.

What is compared of the metadata's offsets are broker epochs alone, so an image's offset is the last of these: states
that differ in how many records they took are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from isthmus.core_broker.cluster.controller import View
from isthmus.core_broker.cluster.image import TOPIC_RESOURCE, Delta, MetadataImage
from isthmus.core_broker.cluster.partition_image import PartitionImage
from isthmus.core_broker.cluster.partition_index import PartitionIndex
from isthmus.core_broker.server.apis import alter_partition
from isthmus.protocol.errors import ErrorCode, KafkaError
from isthmus.protocol.messages import metadata_records as r
from isthmus.runtime import system

from .node import CONFIG, TOPIC, TOPIC_ID

FIRST_EPOCH = 10  # of all brokers


class Version(NamedTuple):
    """The metadata after a decision. delta: to it from the one before. key: the same for equal images alone."""

    image: MetadataImage
    delta: Delta
    key: int

    @property
    def partition(self) -> PartitionImage:
        return self.image.topics[TOPIC].partitions[0]


class Controller:
    def __init__(self) -> None:
        self._decided: dict[Any, tuple[Any, Version | None]] = {}
        self._images: dict[Any, int] = {}  # the key of each version

    def first(self, ids: Iterable[int], replicas: list[int], elr: int, configs: Mapping[str, Any]) -> Version:
        """Brokers that live, and a partition whose replicas are in sync."""
        records: list[Any] = [r.FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=elr)]
        records += [
            r.RegisterBrokerRecord(broker_id=each, incarnation_id=bytes(16), broker_epoch=FIRST_EPOCH, fenced=False)
            for each in ids
        ]
        records.append(r.TopicRecord(name=TOPIC, topic_id=TOPIC_ID))
        records += [
            r.ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=TOPIC, name=name, value=str(value))
            for name, value in configs.items()
        ]
        records.append(
            r.PartitionRecord(
                partition_id=0,
                topic_id=TOPIC_ID,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
            )
        )
        image = MetadataImage("cluster")
        return self._version(image, image.apply(records, FIRST_EPOCH, 0))

    def decide(self, known: Version, command: Any) -> tuple[Any, Version | None]:
        """The result of a decision, and what the metadata is after it; None if it is the same."""
        key = known.key, repr(command)
        if key not in self._decided:
            self._decided[key] = self._decide(known, command)
        return self._decided[key]

    def _decide(self, known: Version, command: Any) -> tuple[Any, Version | None]:
        next_offset = 1 + max(each.epoch for each in known.image.brokers.values())
        try:
            decision = command.decide(View(known.image, CONFIG, system(), next_offset))
        except KafkaError as error:
            return command.fail(error), None
        if not decision.records:
            return decision.result, None
        image = copy_of(known.image)
        delta = image.apply(decision.records, known.image.offset, 0)
        image.offset = max(each.epoch for each in image.brokers.values())  # as far as anybody compares it
        return decision.result, self._version(image, delta)

    def _version(self, image: MetadataImage, delta: Delta) -> Version:
        key = image_key(image)
        return Version(image, delta, self._images.setdefault(key, len(self._images)))


def command_of(request: Any) -> alter_partition.AlterPartition:
    """As the handler of AlterPartition has it."""
    topics = [
        (each.topic_id, [alter_partition._wanted(row, True) for row in each.partitions]) for each in request.topics
    ]
    return alter_partition.AlterPartition(request.broker_id, request.broker_epoch, topics)


def answer_of(result: Any) -> Any:
    return alter_partition._answer(result)


def image_key(image: MetadataImage) -> Any:
    brokers = tuple((each.id, each.epoch, each.fenced, each.in_controlled_shutdown) for each in image.brokers.values())
    return brokers, image.topics[TOPIC].partitions[0]


def copy_of(image: MetadataImage) -> MetadataImage:
    made = MetadataImage.__new__(MetadataImage)
    made.__dict__.update(image.__dict__)
    made.brokers, made.topics, index = dict(image.brokers), dict(image.topics), image.index
    made._fresh = {}
    made.index = PartitionIndex(
        {each: dict(keys) for each, keys in index.in_isr.items()},
        {each: dict(keys) for each, keys in index.in_elr.items()},
        dict(index.led), dict(index.leaderless), dict(index.imbalanced), dict(index.moving),
    )  # fmt: skip
    return made


def isr_of(request: Any) -> list[int]:
    return [each.broker_id for each in request.topics[0].partitions[0].new_isr_with_epochs]


def told_of(answer: Any) -> str:
    if answer.error_code:
        return ErrorCode(answer.error_code).name
    row = answer.topics[0].partitions[0]
    return ErrorCode(row.error_code).name if row.error_code else f"yes, partition epoch {row.partition_epoch}"
