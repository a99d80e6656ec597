"""DescribeTopicPartitions (key 75): partitions of topics by name, a page at a time (KIP-966).

No topics means all. The cursor of an answer is where the next page begins; `max.request.partition.size.limit` bounds a
page whatever the client asks for. There are no eligible leader replicas: they come with replication.
"""

from __future__ import annotations

from collections.abc import Set

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    Request,
    Response,
)
from ....protocol.primitives import ZERO_UUID
from ...cluster.image import MetadataImage, TopicImage
from ...cluster.topic_names import is_internal
from .._context import Context
from ..encoded_topics import ALL_TOPIC_OPERATIONS, tell_lost
from ..topics import code_for_missing


def handle(request: Request, context: Context) -> Response:
    try:
        names = _names(request, context)
    except KafkaError as error:
        return Response(
            topics=[
                DescribeTopicPartitionsResponseTopic(name=topic.name, error_code=error.code) for topic in request.topics
            ]
        )
    limit = context.services.config["max.request.partition.size.limit"]
    left = max(min(limit, request.response_partition_limit), 1)
    response = Response()
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name)
            break
        topic = context.services.image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        cursor = request.cursor
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        services = context.services
        found = _topic(topic, services.image, first, left, services.replicas.leaderless.get(name, frozenset()))
        response.topics.append(found)
        left -= len(found.partitions)
        last = first + len(found.partitions)
        if last < len(topic.partitions):
            response.next_cursor = Cursor(topic_name=name, partition_index=last)
            break
    return response


def _names(request: Request, context: Context) -> list[str]:
    """What is asked for from the cursor on, sorted. Raises KafkaError for a cursor that points nowhere."""
    cursor = request.cursor
    first = "" if cursor is None else cursor.topic_name
    asked = [topic.name for topic in request.topics] or context.services.image.topics
    names = sorted({name for name in asked if name >= first})
    if cursor is not None:
        if request.topics and first not in names:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's topic {first} is not asked for")
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition is {cursor.partition_index}")
    return names


def _topic(
    topic: TopicImage, image: MetadataImage, first: int, count: int, lost: Set[int]
) -> DescribeTopicPartitionsResponseTopic:
    indexes = sorted(topic.partitions)[first : first + count]
    rows = []
    for index in indexes:
        partition = topic.partitions[index]
        row = DescribeTopicPartitionsResponsePartition(
            partition_index=index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=list(partition.replicas),
            isr_nodes=list(partition.isr),
            eligible_leader_replicas=list(partition.elr),
            last_known_elr=list(partition.last_known_elr),
            offline_replicas=[each for each in partition.replicas if not image.has_online(each, partition)],
        )
        if index in lost:
            tell_lost(row)
        rows.append(row)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=rows,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=code_for_missing(name),
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )
