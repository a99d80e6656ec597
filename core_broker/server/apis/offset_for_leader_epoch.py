"""OffsetForLeaderEpoch (key 23): where a leader epoch ends, by which clients and followers find what was truncated.

v2: the client's leader epoch is checked. v3: who asks. v4: flexible. The present epoch ends at the log's end, an older
one where the next begins, one that nobody knows yet nowhere: -1, -1 (KIP-101, KIP-320).
"""

from __future__ import annotations

from ....protocol.errors import KafkaError
from ....protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
    Request,
    Response,
)
from .._context import Context
from ..leaders import check_epoch, check_session


def handle(request: Request, context: Context) -> Response:
    return Response(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=[_answer(topic.topic, asked, context) for asked in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(topic: str, asked: OffsetForLeaderPartition, context: Context) -> EpochEndOffset:
    answer = EpochEndOffset(partition=asked.partition)
    try:
        partition = context.services.replicas.get(topic, asked.partition)
        partition.check_online()
        check_epoch(partition, asked.current_leader_epoch)
        if asked.leader_epoch > partition.leader_epoch:
            check_session(partition, context)
        answer.leader_epoch, answer.end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        answer.error_code = error.code
    return answer
