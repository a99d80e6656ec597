"""DeleteRecords (key 21): records before an offset are no longer served; -1 stands for the high watermark.

v2: flexible. The answer comes once the new starts are on disk, so that what was deleted stays deleted after a crash;
the files follow with the next retention. Topics that are compacted only refuse it (POLICY_VIOLATION), and so do
Kafka's internal topics.
"""

from __future__ import annotations

import logging
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsTopicResult,
    Request,
    Response,
)
from ...cluster.topic_names import is_internal
from ...purgatory import Pending
from ...replication.partition import Partition
from .._context import Context

log = logging.getLogger(__name__)

NO_LOW_WATERMARK = -1

Moved = list[tuple[Partition, DeleteRecordsPartitionResult]]


def handle(request: Request, context: Context) -> Any:
    moved: Moved = []
    topics: dict[str, dict[int, DeleteRecordsPartitionResult]] = {}
    # A partition that is named twice is dealt with once, by the last offset.
    asked = {
        (topic.name, partition.partition_index): partition.offset
        for topic in request.topics
        for partition in topic.partitions
    }
    for (name, index), offset in asked.items():
        result = DeleteRecordsPartitionResult(partition_index=index)
        topics.setdefault(name, {})[index] = result
        try:
            partition = _partition(name, index, context)
            partition.delete_records(offset)
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, NO_LOW_WATERMARK
        else:
            moved.append((partition, result))
    response = Response(
        topics=[DeleteRecordsTopicResult(name=n, partitions=list(rows.values())) for n, rows in topics.items()]
    )
    if not moved:
        return response
    pending = Pending(lambda: _settled(moved, response, ErrorCode.REQUEST_TIMED_OUT))
    context.services.spawn(_save(moved, response, pending, context), "delete records")
    # The client's timeout is for replicas, of which there are none to wait for; this one is for the disk.
    return context.services.purgatory.add(pending, context.services.config["request.timeout.ms"])


def _partition(name: str, index: int, context: Context) -> Partition:
    """Raises KafkaError."""
    partition = context.services.replicas.get(name, index)
    if is_internal(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal")
    return partition


async def _save(moved: Moved, response: Response, pending: Pending, context: Context) -> None:
    code = ErrorCode.NONE
    try:
        await context.services.replicas.save_log_starts()
    except KafkaError as error:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        log.error("records that were deleted may come back with the next start: %s", error.message)
    pending.complete(_settled(moved, response, code))


def _settled(moved: Moved, response: Response, code: ErrorCode) -> Response:
    for partition, result in moved:
        result.error_code = code
        result.low_watermark = NO_LOW_WATERMARK if code else partition.low_watermark
    return response
