"""DescribeLogDirs (key 35): how large the logs of partitions are, by data directory; null asks for all.

v2: flexible. v3: an error for the whole answer. v4: size of the volume. v5: whether the directory is cordoned, so
that it gets no new partitions. A partition that is not here is left out, as in Kafka.
"""

from __future__ import annotations

from ....protocol.errors import ErrorCode, KafkaError
from ....protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
    Request,
    Response,
)
from ...purgatory import Pending
from ...replication.partition import Partition
from .._context import Context


def handle(request: Request, context: Context) -> Pending:
    services = context.services

    def late() -> Response:
        return _failed(ErrorCode.REQUEST_TIMED_OUT, context)

    pending = Pending(late)
    services.spawn(_describe(request, pending, context), "describe log dirs")
    return services.purgatory.add(pending, services.config["request.timeout.ms"])


async def _describe(request: Request, pending: Pending, context: Context) -> None:
    try:
        volume = await context.services.replicas.volume()  # the disk may be a network's
    except KafkaError as error:
        pending.complete(_failed(error.code, context))
        return
    result = DescribeLogDirsResult(
        log_dir=volume.path,
        topics=_topics(request, context),
        total_bytes=volume.total_bytes,
        usable_bytes=volume.usable_bytes,
        is_cordoned=bool(context.services.config["cordoned.log.dirs"]),
    )
    pending.complete(Response(results=[result]))


def _topics(request: Request, context: Context) -> list[DescribeLogDirsTopic]:
    here = context.services.replicas.partitions
    if request.topics is None:
        asked = {name: dict.fromkeys(partitions) for name, partitions in here.items()}
    else:
        asked = {}
        for topic in request.topics:
            asked.setdefault(topic.topic, {}).update(dict.fromkeys(topic.partitions))
    found = []
    for name, indexes in asked.items():
        partitions = here.get(name, {})
        rows = [_partition(partitions[index]) for index in indexes if index in partitions]
        if rows:
            found.append(DescribeLogDirsTopic(name=name, partitions=rows))
    return found


def _partition(partition: Partition) -> DescribeLogDirsPartition:
    return DescribeLogDirsPartition(
        partition_index=partition.index,
        partition_size=partition.log.size_bytes,
        offset_lag=max(partition.high_watermark - partition.log.log_end_offset, 0),
    )


def _failed(code: int, context: Context) -> Response:
    return Response(results=[DescribeLogDirsResult(error_code=code, log_dir=context.services.replicas.data_dir)])
