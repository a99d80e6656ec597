"""Tells the controller in which directory this broker's replicas are, where its metadata names another one (KIP-858).

A broker that comes back with an empty disk has a directory of a new id, in which all its replicas are made again. Until
the controller knows that, it takes them for lost, and none of them can lead. So it is told before this broker asks to
be unfenced.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from ...protocol.errors import ErrorCode, KafkaError
from ...protocol.messages import assign_replicas_to_dirs as assign
from ..cluster.features import DIRECTORIES_SINCE, METADATA_VERSION
from ..cluster.image import MetadataImage
from ..cluster.partition_image import MIGRATING, UNASSIGNED
from ..pauses import Pauses, RetryDelay

log = logging.getLogger(__name__)

ANSWER_TIMEOUT_MS = 30_000
MAX_PARTITIONS = 2_250  # in one request, as Kafka sends
RETRY_FIRST_S, RETRY_MOST_S = 0.1, 2.0
GIVEN_UP = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.UNSUPPORTED_VERSION)  # this broker has to register again anyway

Ask = Callable[[Any, float], Awaitable[Any]]  # (request, timeout in ms) -> the controller's answer; raises KafkaError


def misplaced(image: MetadataImage, node_id: int, directory_id: bytes) -> list[tuple[bytes, int]]:
    """(topic id, index) of the broker's replicas that the metadata has in a directory that is not this one."""
    if image.features.get(METADATA_VERSION, 0) < DIRECTORIES_SINCE:
        return []
    return [
        (topic.id, index)
        for topic in image.topics.values()
        for index, partition in topic.partitions.items()
        if node_id in partition.replicas
        and partition.directory_of(node_id) not in (directory_id, MIGRATING, UNASSIGNED)
    ]


async def tell_directory(
    image: MetadataImage, node_id: int, directory_id: bytes, broker_epoch: Callable[[], int], ask: Ask
) -> None:
    """Ask until the controller has it, once for each partition."""
    left = misplaced(image, node_id, directory_id)
    delay = RetryDelay(RETRY_FIRST_S, RETRY_MOST_S)
    while left:
        part = left[:MAX_PARTITIONS]
        topics: dict[bytes, assign.TopicData] = {}
        for topic_id, index in part:
            topic = topics.setdefault(topic_id, assign.TopicData(topic_id=topic_id))
            topic.partitions.append(assign.PartitionData(partition_index=index))
        directory = assign.DirectoryData(id=directory_id, topics=list(topics.values()))
        request = assign.Request(broker_id=node_id, broker_epoch=broker_epoch(), directories=[directory])
        try:
            code = (await ask(request, ANSWER_TIMEOUT_MS)).error_code
        except KafkaError as error:
            code = error.code
        if code in GIVEN_UP:
            log.error("the controller is not told of this broker's directory: %s", ErrorCode(code).name)
            return
        if code:
            log.info("the controller does not take this broker's directory yet: %s", ErrorCode(code).name)
            await Pauses().pause(delay.next_s())
            continue
        log.info("%d replicas are in another directory than before", len(part))
        delay.reset()
        del left[: len(part)]
