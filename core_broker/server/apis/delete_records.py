"""DeleteRecords (key 21): records before an offset are no longer served; -1 stands for the high watermark.

v2: flexible. The answer comes once the new starts are on disk, so that what was deleted stays deleted after a crash,
and once all replicas whose brokers live begin no earlier (KIP-107): a follower takes the start with its leader's next
answer. If they do not within the client's timeout, that is REQUEST_TIMED_OUT with the low watermark of the beginning.
The files follow with the next retention. Topics that are compacted only refuse it (POLICY_VIOLATION), and so do
Kafka's internal topics.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
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


@dataclass(slots=True)
class Moved:
    """A partition whose log start was moved. offset: before which all replicas are to have nothing. low_watermark:
    before they could follow."""

    partition: Partition
    offset: int
    low_watermark: int
    result: DeleteRecordsPartitionResult


def handle(request: Request, context: Context) -> Any:
    moved: list[Moved] = []
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
            before = partition.delete_records(offset)
        except KafkaError as error:
            result.error_code, result.low_watermark = error.code, NO_LOW_WATERMARK
        else:
            moved.append(Moved(partition, before, partition.low_watermark, result))
    response = Response(
        topics=[DeleteRecordsTopicResult(name=n, partitions=list(rows.values())) for n, rows in topics.items()]
    )
    if not moved:
        return response
    return _Deletion(moved, response, context).begin(request.timeout_ms)


def _partition(name: str, index: int, context: Context) -> Partition:
    """Raises KafkaError."""
    partition = context.services.replicas.get(name, index)
    if is_internal(name):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is internal")
    return partition


class _Deletion:
    """One request that waits for the disk and for followers."""

    def __init__(self, moved: list[Moved], response: Response, context: Context) -> None:
        self._moved = moved
        self._response = response
        self._context = context
        self._is_saved = False
        self._cancels: list[Callable[[], None]] = []
        self._pending = Pending(self._settled, self._stop_waiting)

    def begin(self, timeout_ms: int) -> Pending:
        """timeout_ms: the client's, which is for followers."""
        services = self._context.services
        behind = [each for each in self._moved if each.low_watermark < each.offset]
        self._left = 1 + len(behind)
        services.spawn(self._save(), "delete records")
        for each in behind:
            self._cancels.append(each.partition.wait_for_low_watermark(each.offset, self._reached))
        return services.purgatory.add(self._pending, timeout_ms if behind else services.config["request.timeout.ms"])

    async def _save(self) -> None:
        try:
            await self._context.services.replicas.save_log_starts()
        except KafkaError as error:
            log.error("records that were deleted may come back with the next start: %s", error.message)
            self._pending.complete(self._refused(ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            self._is_saved = True
            self._reached()

    def _reached(self) -> None:
        self._left -= 1
        if not self._left:
            self._pending.complete(self._settled())

    def _stop_waiting(self) -> None:
        for cancel in self._cancels:
            cancel()

    def _settled(self) -> Response:
        """All is done, or time is up."""
        if not self._is_saved:
            return self._refused(ErrorCode.REQUEST_TIMED_OUT)
        for each in self._moved:
            now = each.partition.low_watermark
            if each.partition.failure is not None:
                each.result.error_code, each.result.low_watermark = each.partition.failure.code, NO_LOW_WATERMARK
            elif now < each.offset:
                each.result.error_code, each.result.low_watermark = ErrorCode.REQUEST_TIMED_OUT, each.low_watermark
            else:
                each.result.error_code, each.result.low_watermark = ErrorCode.NONE, now
        return self._response

    def _refused(self, code: ErrorCode) -> Response:
        for each in self._moved:
            each.result.error_code, each.result.low_watermark = code, NO_LOW_WATERMARK
        return self._response
