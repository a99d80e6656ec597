"""MirrorAppend (key 30000, ours): a mirror worker appends whole batches of its source at the source's own offsets.

v0. Bytes, offsets, epochs and producer ids are kept. The target log is the checkpoint: `range_from` must be the log's
end (OFFSET_OUT_OF_RANGE), and whatever the answer, `next_offset` says where the log ends now. A topic is written by the
link that its options name, with the newest link epoch seen; a source leader epoch below one that the log holds already
is refused (FENCED_LEADER_EPOCH), since it means that the source's history was replaced. The leader epoch here is raised
to the source's before its batches come in. A log that never held a record begins at `source_log_start_offset`, or at
the first batch where that begins earlier, with or without records in the request.
"""

from __future__ import annotations

import asyncio
from typing import Any

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.mirror_append import (
    MirrorAppendPartition,
    MirrorAppendPartitionResponse,
    MirrorAppendTopic,
    MirrorAppendTopicResponse,
    Request,
    Response,
)
from ....protocol.messages.raise_leader_epoch import PartitionData, TopicData
from ....protocol.messages.raise_leader_epoch import Request as RaiseRequest
from ....protocol.primitives import uuid_to_str
from ...cluster.controller.common import Item
from ...cluster.controller.raise_leader_epoch import RaiseLeaderEpoch
from ...purgatory import Pending
from ...replication.partition import Partition
from ...replication.waiting import ALL, when_acknowledged
from ...storage.log.append import Origin
from ...storage.log.errors import OffsetMismatch
from .._context import Context

MODE_MIRROR = 0
NOT_TOLD = -2  # previous_leader_epoch
PROBE = -1  # range_from

Wait = tuple[Partition, int, MirrorAppendPartitionResponse]
Behind = tuple[str, int, int]  # topic, partition, leader epoch to be reached
Fresh = tuple[Partition, MirrorAppendPartition, int]  # with the offset at which its log begins


def handle(request: Request, context: Context) -> Any:
    try:
        link_epoch = _link_epoch(request, context)
    except KafkaError as error:
        return Response(error_code=error.code)
    behind, fresh = _behind(request, context), _fresh(request, context)
    if not behind and not fresh:
        return _append_all(request, link_epoch, context)
    # Rare: the source has elected a leader, or a partition is new. What outlives this call is copied.
    for topic in request.topics:
        for asked in topic.partitions:
            asked.records = None if asked.records is None else bytes(asked.records)
    pending = Pending(lambda: Response(error_code=ErrorCode.REQUEST_TIMED_OUT))
    context.services.spawn(_prepare(request, link_epoch, behind, fresh, pending, context), "mirror append")
    return context.services.purgatory.add(pending, request.timeout_ms)


async def _prepare(
    request: Request, link_epoch: int, behind: list[Behind], fresh: list[Fresh], pending: Pending, context: Context
) -> None:
    """Raise leader epochs and begin new logs; then append."""
    for partition, asked, offset in fresh:
        asked.range_from = offset
        try:
            await partition.begin_at(offset)
        except KafkaError:
            pass  # another worker was first, or the disk failed: the append says which
    if behind:
        code = await _raise(behind, request.timeout_ms, context)
        if code:
            pending.complete(Response(error_code=code))
            return
    answer = _append_all(request, link_epoch, context)
    if isinstance(answer, Pending):
        answer.when_done(lambda given: _pass_on(pending, given))
    else:
        pending.complete(answer)


async def _raise(behind: list[Behind], timeout_ms: int, context: Context) -> int:
    """Have the active controller raise leader epochs, and wait until this broker leads in them. Returns a code."""
    services = context.services
    if services.channel is None:
        result: Item = await services.controller.submit_wait(RaiseLeaderEpoch(behind))
        return result.error_code
    topics: dict[str, TopicData] = {}
    for name, index, epoch in behind:
        rows = topics.setdefault(name, TopicData(name=name)).partitions
        rows.append(PartitionData(index=index, leader_epoch=epoch))
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            answer = await services.channel.request(RaiseRequest(topics=list(topics.values())), timeout_ms)
            while not answer.error_code and not services.channel.is_closed and _are_behind(behind, context):
                await services.quorum.changed()
    except TimeoutError:
        return ErrorCode.REQUEST_TIMED_OUT
    except KafkaError as error:
        return error.code
    code: int = answer.error_code
    return code


def _are_behind(asked: list[Behind], context: Context) -> bool:
    """Whether a partition that this broker leads has not reached its epoch yet."""
    for name, index, epoch in asked:
        partition = context.services.replicas.partitions.get(name, {}).get(index)
        if partition is not None and partition.leader_epoch < epoch:
            return True
    return False


def _pass_on(pending: Pending, answer: Response) -> None:
    pending.complete(answer)


def _behind(request: Request, context: Context) -> list[Behind]:
    """Partitions of the link whose leader epoch is below that of what is to be appended."""
    behind = []
    for topic in request.topics:
        partitions = context.services.replicas.partitions.get(topic.name, {})
        for asked in topic.partitions:
            partition = partitions.get(asked.index)
            if partition is not None and partition.mirror_link == request.link_id and asked.records:
                if asked.source_leader_epoch > partition.leader_epoch:
                    behind.append((topic.name, asked.index, asked.source_leader_epoch))
    return behind


def _fresh(request: Request, context: Context) -> list[Fresh]:
    """Partitions of the link that never held a record and do not begin at offset 0, as their source does not."""
    fresh = []
    for topic in request.topics:
        partitions = context.services.replicas.partitions.get(topic.name, {})
        for asked in topic.partitions:
            partition = partitions.get(asked.index)
            if partition is None or asked.range_from != 0 or asked.source_log_start_offset <= 0:
                continue
            if partition.log.log_end_offset != 0 or not _may_append(request, topic, asked, partition):
                continue
            offset = asked.source_log_start_offset
            if asked.records:  # the first batch may hold the log start in its middle
                offset = min(offset, int.from_bytes(asked.records[:8], "big", signed=True))
            if offset > 0:
                fresh.append((partition, asked, offset))
    return fresh


def _append_all(request: Request, link_epoch: int, context: Context) -> Any:
    services = context.services
    wall_ms = services.runtime.wall_ms()
    response = Response()
    waits: list[Wait] = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            answer = MirrorAppendPartitionResponse(index=asked.index, link_epoch=link_epoch)
            answers.append(answer)
            partition = services.replicas.partitions.get(topic.name, {}).get(asked.index)
            try:
                if partition is None:
                    raise services.replicas.why_missing(topic.name, asked.index)
                _check(request, topic, asked, partition)
                _append(asked, partition, wall_ms, context)
            except KafkaError as error:
                answer.error_code, answer.error_message = error.code, error.message
            if partition is not None:
                _tell(partition, answer)
                if partition.high_watermark < answer.next_offset:
                    waits.append((partition, answer.next_offset, answer))
        response.topics.append(MirrorAppendTopicResponse(name=topic.name, partitions=answers))
    return _wait(waits, response, request.timeout_ms, context) if waits else response


def _link_epoch(request: Request, context: Context) -> int:
    """The link's epoch as the cluster knows it. Raises when the request's is older."""
    if not request.link_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a link has a name")  # "" would be the owner of unmirrored topics
    link = context.services.image.links.get(request.link_id)
    known = -1 if link is None else link.link_epoch
    if request.link_epoch < known:
        raise KafkaError(
            ErrorCode.FENCED_LEADER_EPOCH, f"link {request.link_id}: epoch {request.link_epoch} is older than {known}"
        )
    return max(known, request.link_epoch)


def _may_append(request: Request, topic: MirrorAppendTopic, asked: MirrorAppendPartition, partition: Partition) -> bool:
    try:
        _check(request, topic, asked, partition)
    except KafkaError:
        return False
    return True


def _check(request: Request, topic: MirrorAppendTopic, asked: MirrorAppendPartition, partition: Partition) -> None:
    """Raises KafkaError where the request's link and source do not own the topic, or the mode is not known."""
    if asked.mode != MODE_MIRROR:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"mode {asked.mode} is not known; this broker knows 0, mirror")
    if partition.mirror_link != request.link_id:
        owner = f"link {partition.mirror_link}" if partition.mirror_link else "no link: it takes produce requests"
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic.name} is owned by {owner}, not by {request.link_id}")
    cluster = partition.configs["mirror.source.cluster.id"]
    if cluster and cluster != request.source_cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"{topic.name} mirrors cluster {cluster}, not {request.source_cluster_id}",
        )
    source = partition.configs["mirror.source.topic.id"]
    if source and source != uuid_to_str(topic.source_topic_id):
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{topic.name} mirrors the topic with id {source}, not {uuid_to_str(topic.source_topic_id)}: "
            "the source was deleted and created again",
        )


def _append(asked: MirrorAppendPartition, partition: Partition, wall_ms: int, context: Context) -> None:
    known, end = partition.log.latest_epoch, partition.log.log_end_offset
    if not asked.records:
        partition.check_online()
        if asked.range_from not in (PROBE, end):
            raise OffsetMismatch(f"{partition} ends at offset {end}, not {asked.range_from}", end)
        return
    if asked.range_from == end:  # else it is late or early, which says nothing of its epoch
        if 0 <= asked.source_leader_epoch < known:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{partition}: source leader epoch {asked.source_leader_epoch}, but the log holds epoch {known}",
            )
        if asked.previous_leader_epoch not in (NOT_TOLD, known):
            # Another worker has appended up to the same offset, from a log that the source has lost since.
            raise OffsetMismatch(
                f"{partition}: what ends at offset {end} is of leader epoch {known}, not {asked.previous_leader_epoch}",
                end,
            )
    was_empty = partition.log.log_start_offset == end
    partition.append(asked.records, Origin.MIRROR, wall_ms, asked.range_from)
    if was_empty and end < asked.source_log_start_offset < partition.log.log_end_offset:
        _start_at(asked.source_log_start_offset, partition, context)


def _start_at(offset: int, partition: Partition, context: Context) -> None:
    """The source's log begins inside its first batch: what is before it there is not served here either."""

    def appended() -> None:
        if partition.failure is None:
            partition.log.advance_start(offset)
            context.services.spawn(context.services.replicas.save_log_starts(), f"save where {partition} begins")

    partition.wait_for_high_watermark(offset, appended)


def _tell(partition: Partition, answer: MirrorAppendPartitionResponse) -> None:
    answer.next_offset = partition.log.log_end_offset
    answer.next_epoch = partition.log.latest_epoch


def _wait(waits: list[Wait], response: Response, timeout_ms: int, context: Context) -> Pending:
    def settle() -> Response:
        for partition, end, answer in waits:
            if partition.high_watermark < end and not answer.error_code:
                failure = partition.failure
                answer.error_code = ErrorCode.REQUEST_TIMED_OUT if failure is None else failure.code
                answer.error_message = None if failure is None else failure.message
        return response

    ends = ((partition, end) for partition, end, _ in waits)
    return when_acknowledged(ends, ALL, settle, context.services.purgatory, timeout_ms)
