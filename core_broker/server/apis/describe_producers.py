"""DescribeProducers (key 61): the idempotent and transactional producers that a partition remembers (KIP-664)."""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_producers import (
    PartitionResponse,
    ProducerState,
    Request,
    Response,
    TopicRequest,
    TopicResponse,
)
from ...cluster.controller.common import default_message
from ...replication.partition import Partition
from .._context import Context
from ..topics import check_name


def handle(request: Request, context: Context) -> Response:
    return Response(topics=[_topic(topic, context) for topic in request.topics])


def _topic(topic: TopicRequest, context: Context) -> TopicResponse:
    wrong = _wrong_topic(topic.name, context)
    if wrong is not None:
        rows = [
            PartitionResponse(partition_index=index, error_code=wrong.code, error_message=wrong.message)
            for index in topic.partition_indexes
        ]
    else:
        rows = [_partition(topic.name, index, context) for index in topic.partition_indexes]
    return TopicResponse(name=topic.name, partitions=rows)


def _wrong_topic(name: str, context: Context) -> KafkaError | None:
    try:
        check_name(name)
    except KafkaError as error:
        return error
    if name not in context.services.image.topics:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return KafkaError(code, default_message(code))
    return None


def _partition(topic: str, index: int, context: Context) -> PartitionResponse:
    try:
        partition = context.services.replicas.held(topic, index)  # a follower knows them, too
        partition.check_online()
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code)
    return PartitionResponse(partition_index=index, active_producers=_producers(partition))


def _producers(partition: Partition) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.transaction_start,
        )
        for producer_id, entry in partition.log.producers.items()
    ]
