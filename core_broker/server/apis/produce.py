"""Produce (key 0): appends batches to partitions.

v0-2: announced and refused, see dispatch. v3: exactly one batch a partition. v7: zstd is allowed. v13: topics by id.
acks=0 is never answered; where it fails the connection ends. acks=1 and -1 wait for the high watermark, which
`durability=page_cache` moves at once. A topic that a mirror owns is refused with POLICY_VIOLATION.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.produce import (
    PartitionProduceResponse,
    Request,
    Response,
    TopicProduceResponse,
)
from ...cluster.topic_names import INTERNAL_TOPICS
from ...purgatory import Pending
from ...replication.partition import Partition
from ...replication.waiting import when_reached
from ...storage.log import Origin
from ..context import CloseConnection, Context

ZSTD = 4
ZSTD_SINCE = 7  # version of this request
TOPIC_IDS_SINCE = 13
ATTRIBUTES_LOW = 22  # the byte of a batch that holds its codec
ACKS = (-1, 1, 0)
CLIENT = Origin.CLIENT
INTERNAL = frozenset(INTERNAL_TOPICS)
NO_PARTITIONS: Mapping[int, Partition] = MappingProxyType({})
LOG_NOT_REACHED = (  # errors that come without the log start offset
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_REQUIRED_ACKS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
)


def handle(request: Request, context: Context) -> Any:
    acks = request.acks
    version = context.version
    services = context.services
    all_partitions = services.replicas.partitions
    wall_ms = services.runtime.wall_ms()
    waits: list[tuple[Partition, int, PartitionProduceResponse]] = []
    topics: list[TopicProduceResponse] = []
    for topic in request.topic_data:
        name = topic.name
        if version >= TOPIC_IDS_SINCE:
            image = services.image.topic_by_id(topic.topic_id)
            name = "" if image is None else image.name
        partitions = all_partitions.get(name, NO_PARTITIONS)
        answers: list[PartitionProduceResponse] = []
        for data in topic.partition_data:
            index = data.index
            records = data.records
            partition = partitions.get(index)
            try:
                if acks not in ACKS:
                    raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
                if partition is None:
                    raise _missing(version, name, index, context)
                if name in INTERNAL:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
                if partition.mirror_link or records is None or version < ZSTD_SINCE or acks == -1:
                    _check(partition, records, version, acks)
                info = partition.append(records, CLIENT, wall_ms)
            except KafkaError as error:
                if acks == 0:
                    raise CloseConnection(f"produce with acks=0 to {name}-{index}: {error}") from None
                answers.append(_failed(index, error, partition))
                continue
            answer = PartitionProduceResponse(
                index=index,
                base_offset=info.first_offset,
                # Of a batch that is there already Kafka tells its largest timestamp, whichever clock gave it.
                log_append_time_ms=info.max_timestamp if info.duplicate else info.log_append_time_ms,
                log_start_offset=info.log_start_offset,
            )
            answers.append(answer)
            if partition.high_watermark < info.next_offset:
                waits.append((partition, info.next_offset, answer))
        topics.append(TopicProduceResponse(name=name, topic_id=topic.topic_id, partition_responses=answers))
    if acks == 0:
        return None
    if waits:
        return _wait(waits, Response(responses=topics), request.timeout_ms, context)
    return Response(responses=topics)


def _check(partition: Partition, records: Any, version: int, acks: int) -> None:
    """What can be wrong besides the batch itself. Raises KafkaError."""
    if partition.mirror_link:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{partition.topic} is written by mirror link {partition.mirror_link}; produce to its source",
        )
    if version < ZSTD_SINCE and records is not None and len(records) > ATTRIBUTES_LOW:
        if records[ATTRIBUTES_LOW] & 7 == ZSTD:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd needs Produce version {ZSTD_SINCE}, this is {version}"
            )
    if records is None:
        raise KafkaError(ErrorCode.INVALID_RECORD, f"{partition}: no records")
    if acks == -1 and len(partition.isr) < partition.min_insync_replicas:
        raise KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{partition}: {len(partition.isr)} in sync, min.insync.replicas is {partition.min_insync_replicas}",
        )


def _missing(version: int, name: str, index: int, context: Context) -> KafkaError:
    if version >= TOPIC_IDS_SINCE and not name:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "no topic has this id")
    return context.services.replicas.why_missing(name, index)


def _failed(index: int, error: KafkaError, partition: Partition | None) -> PartitionProduceResponse:
    answer = PartitionProduceResponse(index=index, error_code=error.code, base_offset=-1, error_message=error.message)
    if partition is not None and error.code not in LOG_NOT_REACHED:
        answer.log_start_offset = partition.log.log_start_offset
    return answer


def _wait(
    waits: list[tuple[Partition, int, PartitionProduceResponse]], response: Response, timeout_ms: int, context: Context
) -> Pending:
    """Answer when every partition's high watermark has reached what was appended."""

    def settle() -> Response:
        for partition, end, answer in waits:
            if partition.high_watermark < end:
                code = ErrorCode.REQUEST_TIMED_OUT if partition.failure is None else ErrorCode.KAFKA_STORAGE_ERROR
                answer.error_code, answer.base_offset = code, -1
                answer.error_message = None if partition.failure is None else partition.failure.message
        return response

    ends = ((partition, end) for partition, end, _ in waits)
    return when_reached(ends, settle, context.services.purgatory, timeout_ms)
