"""AlterPartitionReassignments (key 45): partitions stay where they are, which may be asked for; nothing moves yet.

v1: whether the number of replicas may change.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.alter_partition_reassignments import (
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
    Request,
    Response,
)
from ...cluster.controller.placement import check_assignment
from ...cluster.image import MetadataImage
from .._context import Context


def handle(request: Request, context: Context) -> Response:
    if request.timeout_ms <= 0 and request.topics:
        return _timed_out(request)
    may_change = request.allow_replication_factor_change
    image = context.services.image
    return Response(
        allow_replication_factor_change=may_change or not request.topics,
        error_message=None if request.topics else "",
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_partition(image, topic.name, asked, may_change) for asked in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _timed_out(request: Request) -> Response:
    """To one that leaves no time at all, of which Kafka looks at nothing."""
    code = ErrorCode.REQUEST_TIMED_OUT
    return Response(
        error_code=code,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _partition(
    image: MetadataImage, topic: str, asked: ReassignablePartition, may_change: bool
) -> ReassignablePartitionResponse:
    row = ReassignablePartitionResponse(partition_index=asked.partition_index)
    try:
        _check(image, topic, asked, may_change)
    except KafkaError as error:
        row.error_code = error.code
        if error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS:  # which says it all
            row.error_message = error.message
    return row


def _check(image: MetadataImage, topic: str, asked: ReassignablePartition, may_change: bool) -> None:
    index, replicas = asked.partition_index, asked.replicas
    if topic not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {topic}.")
    partition = image.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {topic}:{index}.")
    if replicas is None:
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_assignment(image, replicas, None)
    if not may_change and len(replicas) != len(partition.replicas):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(partition.replicas)} to {len(replicas)}",
        )
    if tuple(replicas) != partition.replicas:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{topic}-{index} cannot leave broker {partition.replicas[0]} yet"
        )
