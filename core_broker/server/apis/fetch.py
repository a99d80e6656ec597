"""Fetch (key 1): reads batches for consumers and mirrors, waiting up to max_wait_ms for min_bytes.

v4: isolation level. v7: sessions, always refused by session_id 0, which is legal (KIP-227). v9: leader epochs are
checked. v12: `last_fetched_epoch` is compared with our log and a divergence told (KIP-320). v13: topics by id.
The first batch of the first partition that has one is always given, even when it is larger than all limits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    PartitionData,
    Request,
    Response,
)
from ....protocol.primitives import ZERO_UUID
from ...purgatory import Pending
from ...replication.partition import Partition
from ..context import Context

TOPIC_IDS_SINCE = 13
NO_SESSION = 0
FINAL_EPOCH = -1


class _Wanted:
    """One partition of a request."""

    __slots__ = ("asked", "cancel", "error", "partition", "size")

    def __init__(self, asked: FetchPartition, partition: Partition | None, error: int) -> None:
        self.asked = asked
        self.partition = partition
        self.error = error  # where the topic itself is not known
        self.size = 0  # bytes that were there at the last look
        self.cancel: Callable[[], None] | None = None


def handle(request: Request, context: Context) -> Any:
    if request.session_id != NO_SESSION and request.session_epoch != FINAL_EPOCH:
        return Response(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    fetch = _Fetch(request, context)
    response, enough = fetch.read()
    if enough or request.max_wait_ms <= 0:
        return response
    return fetch.wait()


class _Fetch:
    """One request while it is answered or waits."""

    __slots__ = ("_context", "_loop", "_max_bytes", "_pending", "_request", "_topics", "_woken")

    def __init__(self, request: Request, context: Context) -> None:
        self._request = request
        self._context = context
        self._max_bytes = min(request.max_bytes, context.services.config["fetch.max.bytes"])
        self._topics: list[tuple[str, bytes, list[_Wanted]]] = []
        self._woken: list[_Wanted] = []
        replicas, image = context.services.replicas, context.services.image
        by_id = context.version >= TOPIC_IDS_SINCE
        for topic in request.topics:
            name, unknown = topic.topic, ErrorCode.NONE
            if by_id:
                found = image.topic_by_id(topic.topic_id)
                if found is None:
                    unknown = ErrorCode.UNKNOWN_TOPIC_ID
                name = "" if found is None else found.name
            partitions = replicas.partitions.get(name, {})
            wanted = [_Wanted(asked, partitions.get(asked.partition), unknown) for asked in topic.partitions]
            self._topics.append((name, topic.topic_id if by_id else ZERO_UUID, wanted))

    def read(self) -> tuple[Response, bool]:
        """An answer with what is there, and whether it should be given now."""
        response = Response()
        left = self._max_bytes
        size = 0
        at_once = not self._topics
        for name, topic_id, wanted in self._topics:
            answers = []
            for one in wanted:
                data = self._read_one(name, one, left, size == 0)
                answers.append(data)
                if data.error_code or data.diverging_epoch is not None:
                    at_once = True
                elif data.records is not None:
                    read = one.size = sum(map(len, data.records))
                    size += read
                    left -= read
            response.responses.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=answers))
        return response, at_once or size >= self._request.min_bytes

    def _read_one(self, name: str, wanted: _Wanted, left: int, min_one: bool) -> PartitionData:
        asked, partition = wanted.asked, wanted.partition
        if partition is None:
            missing = wanted.error or self._context.services.replicas.why_missing(name, asked.partition).code
            data = _failed(asked, missing)
            data.aborted_transactions = []  # as Kafka: null only where a partition was looked at
            return data
        try:
            if partition.failure is not None:
                raise partition.failure.with_traceback(None)
            partition.check_epoch(asked.current_leader_epoch)
            data = PartitionData(
                partition_index=asked.partition,
                high_watermark=partition.high_watermark,
                last_stable_offset=partition.last_stable_offset,
                log_start_offset=partition.log.log_start_offset,
                aborted_transactions=None,
                records=[],
            )
            if asked.last_fetched_epoch >= 0 and _diverged(partition, asked, data):
                return data
            committed = self._request.isolation_level == 1
            limit = max(min(asked.partition_max_bytes, left), 0)
            found = partition.read(asked.fetch_offset, limit, read_committed=committed, min_one=min_one)
        except KafkaError as error:
            return _failed(asked, error.code)
        data.records = found.ranges
        if committed:
            aborted = (
                partition.aborted_transactions(asked.fetch_offset, data.last_stable_offset) if found.ranges else []
            )
            data.aborted_transactions = [AbortedTransaction(producer_id=p, first_offset=o) for p, o in aborted]
        return data

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait(self) -> Pending:
        self._loop = asyncio.get_running_loop()
        self._pending = Pending(lambda: self.read()[0], self._stop_waiting)
        for _, _, wanted in self._topics:
            for one in wanted:
                self._register(one)
        return self._context.services.purgatory.add(self._pending, self._request.max_wait_ms)

    def _register(self, one: _Wanted) -> None:
        if one.partition is not None:
            one.cancel = one.partition.wait_for_data(lambda: self._wake(one))

    def _stop_waiting(self) -> None:
        for _, _, wanted in self._topics:
            for one in wanted:
                if one.cancel is not None:
                    one.cancel()

    def _wake(self, one: _Wanted) -> None:
        """Something was appended: look in the next turn, when more may have been."""
        if not self._woken:
            self._loop.call_soon(self._look_again)
        self._woken.append(one)

    def _look_again(self) -> None:
        """Measure the partitions that changed; answer when there is enough."""
        woken, self._woken = self._woken, []
        if self._pending.done:
            return
        for one in woken:
            data = self._read_one("", one, self._max_bytes, True)
            if data.error_code or data.diverging_epoch is not None:
                one.size = self._request.min_bytes
                continue
            one.size = sum(map(len, data.records))
            self._register(one)
        if sum(one.size for _, _, wanted in self._topics for one in wanted) >= self._request.min_bytes:
            self._pending.complete(self.read()[0])


def _diverged(partition: Partition, asked: FetchPartition, data: PartitionData) -> bool:
    """Whether the client's log left ours before its fetch offset; then `data` says where (KIP-320, KIP-595)."""
    epoch, end_offset = partition.log.end_offset_for_epoch(asked.last_fetched_epoch)
    if end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition}: no epoch up to {asked.last_fetched_epoch}")
    if epoch < asked.last_fetched_epoch or end_offset < asked.fetch_offset:
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True
    return False


def _failed(asked: FetchPartition, code: int) -> PartitionData:
    return PartitionData(
        partition_index=asked.partition, error_code=code, high_watermark=-1, aborted_transactions=None, records=[]
    )
