"""Encoded rows of topics for Metadata answers, kept so that an answer with thousands of partitions is only joined.

A topic's image is never changed, only replaced. So its encoded row is valid as long as the image is the same object and
the same brokers live, which tell what replicas are offline.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING

from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import TOPIC, MetadataResponsePartition, MetadataResponseTopic
from ..cluster.image import MetadataImage, TopicImage
from ..cluster.partition_image import NO_LEADER
from ..cluster.topic_names import is_internal

if TYPE_CHECKING:
    from ...protocol.messages.describe_topic_partitions import DescribeTopicPartitionsResponsePartition

ALL_TOPIC_OPERATIONS = 0b110111111000  # what a client may do to a topic where there is no authorizer
VERSIONS_KEPT = 4  # of the message, with and without operations; the least recently used goes
STALE_SHARE = 2  # rows of deleted topics go when more than so many times the present topics are kept

Kept = dict[str, tuple[TopicImage, bytes]]


class EncodedTopics:
    """See the module. A broker has one."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._versions: dict[tuple[int, bool], Kept] = {}  # the most recently used at the end
        self._alive: list[tuple[int, bool, tuple[bytes, ...]]] = []

    def look_at_brokers(self) -> None:
        """Before the rows of an answer: forget all if other brokers live now."""
        alive = [(each.id, each.fenced, each.log_dirs) for each in self._image.brokers.values()]
        if alive != self._alive:
            self._alive = alive
            self._versions = {}

    def get(self, topic: TopicImage, version: int, with_operations: bool) -> bytes:
        """A topic's row in an answer of that version. with_operations: with what a client may do to the topic."""
        kept = self.of_version(version, with_operations)
        found = kept.get(topic.name)
        if found is not None and found[0] is topic:
            return found[1]
        data = TOPIC.encode_bytes(row_of(topic, self._image, with_operations), version)
        if len(kept) > STALE_SHARE * len(self._image.topics):
            for name in [name for name in kept if name not in self._image.topics]:
                del kept[name]
        kept[topic.name] = topic, data
        return data

    def of_version(self, version: int, with_operations: bool) -> Kept:
        key = version, with_operations
        kept = self._versions.pop(key, None)
        if kept is None:
            kept = {}
            if len(self._versions) == VERSIONS_KEPT:
                del self._versions[next(iter(self._versions))]
        self._versions[key] = kept
        return kept


def tell_lost(row: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition) -> None:
    """Give a partition no leader, since its leader cannot use it. As with Kafka, clients would go on asking it."""
    row.leader_id = NO_LEADER
    row.isr_nodes = []
    row.offline_replicas = list(row.replica_nodes)


def row_of(
    topic: TopicImage, image: MetadataImage, with_operations: bool, lost: Set[int] = frozenset()
) -> MetadataResponseTopic:
    """A topic's row. lost: partitions that cannot be used, see `tell_lost`."""
    partitions = []
    for index in sorted(topic.partitions):
        partition = topic.partitions[index]
        told = MetadataResponsePartition(
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            offline_replicas=[each for each in partition.replicas if not image.has_online(each, partition)],
        )
        if index in lost:
            tell_lost(told)
        if told.leader_id < 0:
            told.error_code = ErrorCode.LEADER_NOT_AVAILABLE
        partitions.append(told)
    row = MetadataResponseTopic(
        name=topic.name, topic_id=topic.id, is_internal=is_internal(topic.name), partitions=partitions
    )
    if with_operations:
        row.topic_authorized_operations = ALL_TOPIC_OPERATIONS
    return row
