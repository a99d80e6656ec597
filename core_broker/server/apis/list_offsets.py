"""ListOffsets (key 2): the offset of a timestamp, or of a special one.

-1 latest (high watermark, or last stable offset when read_committed), -2 earliest, -3 the record of the largest
timestamp (v7), -4 earliest local (v8), -5 latest tiered (v9), -6 earliest to be tiered (v11): without tiering -4 is the
earliest and -5 and -6 are -1. A timestamp that no record reaches gives -1 and no error. A timestamp may need a look
into the log on disk: that runs as a task of its own.
"""

from __future__ import annotations

from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
    Request,
    Response,
)
from ...cluster.controller.common import duplicates
from ...purgatory import Pending
from ...replication.partition import Partition
from .._context import Context
from ..leaders import check_epoch, check_session

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
EPOCHS_SINCE = 4
NOT_AVAILABLE_SINCE = 5  # OFFSET_NOT_AVAILABLE; older clients do not know that error
ISOLATION_LEVELS = (0, 1)  # read_uncommitted, read_committed
# Replica ids: of a consumer; and of a debugging one, which sees up to the log's end, of any replica.
CONSUMER, DEBUGGING = -1, -2

Lookup = tuple[ListOffsetsPartitionResponse, Partition, int, int]  # answer to fill, timestamp, upper offset


def handle(request: Request, context: Context) -> Any:
    if request.isolation_level not in ISOLATION_LEVELS:
        return _refused(request)
    lookups: list[Lookup] = []
    response = Response()
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for topic in request.topics:
        by_topic.setdefault(topic.name, []).extend(topic.partitions)
    for name, partitions in by_topic.items():
        if not partitions:
            continue  # as Kafka, which answers by partition
        twice = duplicates([partition.partition_index for partition in partitions])
        answers = []
        for partition in {each.partition_index: each for each in partitions}.values():
            answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
            answers.append(answer)
            try:
                if partition.partition_index in twice:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition is asked for twice")
                _answer(name, partition, answer, request, context, lookups)
            except KafkaError as error:
                answer.error_code = error.code
        response.topics.append(ListOffsetsTopicResponse(name=name, partitions=answers))
    if not lookups:
        return _fitted(response, context)
    pending = Pending(lambda: _fitted(_timed_out(lookups, response), context))
    context.services.spawn(_look_up(lookups, response, pending, context), "list offsets")
    return context.services.purgatory.add(pending, context.services.config["request.timeout.ms"])


def _refused(request: Request) -> Response:
    """To an isolation level that there is not, which ends in a fault of Kafka's: it looks at nothing."""
    return Response(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_SERVER_ERROR
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _answer(
    topic: str,
    asked: ListOffsetsPartition,
    answer: ListOffsetsPartitionResponse,
    request: Request,
    context: Context,
    lookups: list[Lookup],
) -> None:
    timestamp = asked.timestamp
    if timestamp < 0 and (timestamp not in SINCE or context.version < SINCE[timestamp]):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    partition = context.services.replicas.held(topic, asked.partition_index)
    partition.check_online()
    check_epoch(partition, asked.current_leader_epoch)
    if request.replica_id != DEBUGGING:
        partition.check_leads()
    if request.replica_id != CONSUMER:
        upper = partition.log.log_end_offset
    else:
        upper = partition.last_stable_offset if request.isolation_level == 1 else partition.high_watermark
    if request.replica_id == CONSUMER and timestamp != EARLIEST and partition.is_behind_epoch:
        code = (
            ErrorCode.OFFSET_NOT_AVAILABLE if context.version >= NOT_AVAILABLE_SINCE else ErrorCode.LEADER_NOT_AVAILABLE
        )
        raise KafkaError(code, f"{partition}: its new leader does not know what is committed")
    if request.replica_id == CONSUMER and timestamp not in (EARLIEST, EARLIEST_LOCAL):
        check_session(partition, context)
    if timestamp == LATEST:
        answer.offset, answer.leader_epoch = upper, partition.leader_epoch
    elif timestamp in (EARLIEST, EARLIEST_LOCAL):
        answer.offset = partition.log.log_start_offset
        answer.leader_epoch = partition.epoch_at(answer.offset)
    elif timestamp in (LATEST_TIERED, EARLIEST_PENDING):
        answer.offset = -1
    else:
        lookups.append((answer, partition, timestamp, upper))


async def _look_up(lookups: list[Lookup], response: Response, pending: Pending, context: Context) -> None:
    for answer, partition, timestamp, upper in lookups:
        if pending.done:
            return  # its time is over, or its client has gone
        try:
            if timestamp == MAX_TIMESTAMP:
                found = await partition.log.max_timestamp_offset()
            else:
                found = await partition.log.offset_for_timestamp(timestamp)
        except KafkaError as error:
            answer.error_code = (partition.failure or error).code  # the topic may have been deleted meanwhile
            continue
        if found is not None and found.offset < upper:
            answer.timestamp, answer.offset, answer.leader_epoch = found.timestamp, found.offset, found.leader_epoch
    pending.complete(_fitted(response, context))


def _fitted(response: Response, context: Context) -> Response:
    """Without leader epochs for versions that cannot carry them."""
    if context.version < EPOCHS_SINCE:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
    return response


def _timed_out(lookups: list[Lookup], response: Response) -> Response:
    for answer, _, _, _ in lookups:
        if answer.offset < 0:
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
    return response
