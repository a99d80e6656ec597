"""WriteTxnMarkers (key 27): a transaction's coordinator, or an administrator, ends transactions at their partitions.

v1: flexible. v2: the version of transactions; from 2 on a marker has the producer's next epoch (KIP-1228). Each marker
is answered when it is committed, as for acks=all. Those for groups' offsets go to the groups' coordinator, which ends
the offsets' part of the transaction with them. What is told of a partition twice is told once, the last of it, as in
Kafka: a marker that was written may be written again.
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.write_txn_markers import (
    Request,
    Response,
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
)
from ...cluster.topic_names import CONSUMER_OFFSETS
from ...replication.partition import Partition
from ...replication.waiting import ALL, when_acknowledged, why_unacknowledged
from .._context import Context

# Of the groups' coordinator; the transaction's looks for the partition's leader anew.
NOT_HERE = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR)

Place = tuple[int, str, int]  # producer id, topic, partition
Written = tuple[Place, Partition, int]  # its marker ends before an offset


def handle(request: Request, context: Context) -> Any:
    codes: dict[Place, int] = {}
    written: list[Written] = []
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                place = marker.producer_id, topic.name, index
                codes[place] = ErrorCode.NONE
                try:
                    written.append((place, *_write(marker, topic.name, index, context)))
                except KafkaError as error:
                    codes[place] = error.code

    def settle() -> Response:
        for place, partition, end in written:
            error = why_unacknowledged(partition, end, ALL)
            if error is not None:
                codes[place] = error.code
        return _response(codes)

    ends = [(partition, end) for _, partition, end in written if not partition.core.is_acknowledged(end, ALL)]
    if not ends:
        return settle()
    services = context.services
    return when_acknowledged(ends, ALL, settle, services.purgatory, services.config["request.timeout.ms"])


def _write(marker: WritableTxnMarker, topic: str, index: int, context: Context) -> tuple[Partition, int]:
    """The partition, and the offset before which it must be committed. Raises KafkaError."""
    services = context.services
    partition = services.replicas.partitions.get(topic, {}).get(index)
    if partition is None or partition.failure is not None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} is not on this broker")
    if marker.producer_id < 0 or marker.producer_epoch < 0 or marker.transaction_version < 0:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a marker of no producer, or of no version")  # as Kafka has it
    if topic == CONSUMER_OFFSETS:
        try:
            return services.groups.host.complete_transaction(
                index,
                marker.producer_id,
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_result,
                marker.transaction_version,
            )
        except KafkaError as error:
            if error.code in NOT_HERE:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message) from error
            raise
    if partition.mirror_link and not partition.log.producers.is_in_transaction(marker.producer_id):
        partition.check_leads()
        return partition, 0  # it was added to a transaction, but only its mirror may write to it
    info = partition.write_marker(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
        services.runtime.wall_ms(),
    )
    return partition, info.next_offset


def _response(codes: dict[Place, int]) -> Response:
    """Partitions by producer and topic."""
    markers: dict[int, dict[str, list[WritableTxnMarkerPartitionResult]]] = {}
    for (producer_id, topic, index), code in codes.items():
        row = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        markers.setdefault(producer_id, {}).setdefault(topic, []).append(row)
    return Response(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[WritableTxnMarkerTopicResult(name=name, partitions=rows) for name, rows in topics.items()],
            )
            for producer_id, topics in markers.items()
        ]
    )
